//! The writes that the policy is tried with.

use serde_json::{Value, json};

use super::{CLUSTER, MEANT, claim, consumer, metal3_machine, placed};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// A write, what is on the host before it, and what comes of it.
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) labels: Value,
    pub(super) annotations: Value,
    pub(super) before: Value,
    pub(super) patch: Value,
    /// Words of the refusal; empty: the write passes.
    pub(super) refused: &'static str,
}

const UNPLACED: &str = "it belongs to no SIPCluster";
const OTHER: &str = "which serves the Cluster API cluster shop";
const PASSES: &str = "";

fn row(what: &'static str, labels: Value, patch: Value, refused: &'static str) -> Row {
    Row {
        what,
        labels,
        annotations: json!({}),
        before: Value::Null,
        patch,
        refused,
    }
}

impl Row {
    /// On a host that the `Metal3Machine` `m-0` uses already.
    fn used(self) -> Self {
        let before = metal3_machine("m-0");
        Self { before, ..self }
    }

    /// On a host whose SIPCluster names its Cluster API cluster.
    fn meant(self, cluster: &str) -> Self {
        let annotations = json!({ MEANT: cluster });
        Self { annotations, ..self }
    }
}

fn uses(consumer: &Value) -> Value {
    json!({"spec": {"consumerRef": consumer}})
}

fn host_claim(namespace: &str) -> Value {
    consumer("metal3.io/v1alpha1", "HostClaim", namespace, "claim-0")
}

fn none() -> Value {
    json!({})
}

/// The labels of a placed host, with one more or another value of one.
fn with(key: &str, value: &str) -> Value {
    let mut labels = placed();
    labels[key] = json!(value);
    labels
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = claims();
    rows.extend(changes());
    rows.extend(host_claims());
    rows
}

/// Consumers that appear.
fn claims() -> Vec<Row> {
    let m0 = metal3_machine("m-0");
    let thing = consumer("x/v1", "Thing", "y", "z");
    let node_type = "sip.airshipit.org/node-type";
    let mut at_once = claim("shop", &m0);
    at_once["metadata"]["labels"] = with(CLUSTER, "shop");
    vec![
        row("own Machine", placed(), claim("shop", &m0), PASSES),
        row("no labels", none(), claim("shop", &m0), UNPLACED),
        row(
            "an empty label",
            with(node_type, ""),
            claim("shop", &m0),
            "missing label: sip.airshipit.org/node-type",
        ),
        row("other Cluster", placed(), claim("stall", &m0), OTHER),
        row("no cluster label", placed(), uses(&m0), OTHER),
        row("older cluster label", with(CLUSTER, "stall"), uses(&m0), OTHER),
        row("another kind", placed(), uses(&thing), PASSES),
        row("another kind, no labels", none(), uses(&thing), UNPLACED),
        row("an empty consumer", none(), uses(&none()), UNPLACED),
        row("labels in the same write", none(), at_once, PASSES),
        row("the named Cluster", placed(), claim("stall", &m0), PASSES).meant("stall"),
        row(
            "not the named Cluster",
            placed(),
            claim("shop", &m0),
            "which serves the Cluster API cluster stall",
        )
        .meant("stall"),
        row("named with namespace", placed(), claim("stall", &m0), PASSES).meant("metal/stall"),
        row(
            "in another namespace",
            placed(),
            claim("stall", &m0),
            "whose consumers are in namespace other",
        )
        .meant("other/stall"),
    ]
}

/// Hosts that have a consumer.
fn changes() -> Vec<Row> {
    let m1 = metal3_machine("m-1");
    let version = "infrastructure.cluster.x-k8s.io/v1beta2";
    let renamed =
        |version: &str, kind: &str, namespace: &str| uses(&consumer(version, kind, namespace, "m-0"));
    let unlabel = json!({"metadata": {"labels": {"sip.airshipit.org/cluster-name": null}}});
    vec![
        row(
            "of another Cluster instead",
            with(CLUSTER, "shop"),
            claim("stall", &m1),
            OTHER,
        )
        .used(),
        row(
            "of the same Cluster instead",
            with(CLUSTER, "shop"),
            claim("shop", &m1),
            PASSES,
        )
        .used(),
        row("removal", none(), uses(&Value::Null), PASSES).used(),
        row(
            "another field",
            none(),
            json!({"spec": {"online": false}}),
            PASSES,
        )
        .used(),
        row("labels below a consumer", placed(), unlabel, PASSES).used(),
        row(
            "only the version",
            none(),
            renamed(version, "Metal3Machine", "metal"),
            PASSES,
        )
        .used(),
        row(
            "the group",
            none(),
            renamed("x/v1beta1", "Metal3Machine", "metal"),
            UNPLACED,
        )
        .used(),
        row(
            "the kind",
            none(),
            renamed(INFRASTRUCTURE, "HostClaim", "metal"),
            UNPLACED,
        )
        .used(),
        row(
            "the namespace",
            none(),
            renamed(INFRASTRUCTURE, "Metal3Machine", "other"),
            UNPLACED,
        )
        .used(),
    ]
}

fn host_claims() -> Vec<Row> {
    let elsewhere = "whose consumers are in namespace tenant";
    vec![
        row(
            "a HostClaim, no labels",
            none(),
            uses(&host_claim("tenant")),
            UNPLACED,
        ),
        row(
            "a HostClaim of the tenant",
            placed(),
            uses(&host_claim("tenant")),
            PASSES,
        ),
        row(
            "a HostClaim of another tenant",
            placed(),
            uses(&host_claim("tenant-b")),
            elsewhere,
        ),
        row(
            "a HostClaim, other Cluster",
            with(CLUSTER, "stall"),
            uses(&host_claim("tenant")),
            OTHER,
        ),
        row(
            "a HostClaim in the named namespace",
            placed(),
            uses(&host_claim("claims")),
            PASSES,
        )
        .meant("claims/shop"),
    ]
}
