//! The policy on consumers of hosts, on the API server: which writes pass, which do not, and what the refusal says.

mod agents;
mod labels;
mod own_objects;
mod provider_keys;
mod rows;
mod specs;

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use sandbox::{
    crds,
    inventory::{self, Host},
    site::{ADMINISTRATOR, HOST_CONSUMERS, Site},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{PATIENCE, host};
use rows::{Row, rows};

const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
const MEANT: &str = "sip.airshipit.org/cluster-api-cluster";

/// The three labels of the `SIPCluster` `tenant/shop`.
fn placed() -> Value {
    json!({
        "sip.airshipit.org/cluster-namespace": "tenant",
        "sip.airshipit.org/cluster-name": "shop",
        "sip.airshipit.org/node-type": "Worker",
    })
}

fn consumer(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name})
}

fn metal3_machine(name: &str) -> Value {
    consumer(
        "infrastructure.cluster.x-k8s.io/v1beta1",
        "Metal3Machine",
        "metal",
        name,
    )
}

/// The merge patch by which CAPM3 claims a host for a Machine of a Cluster: without resourceVersion and uid.
fn claim(cluster: &str, consumer: &Value) -> Value {
    json!({"metadata": {"labels": {CLUSTER: cluster}}, "spec": {"consumerRef": consumer}})
}

async fn site() -> Site {
    let site = Site::builder("policy")
        .crds(crds::all())
        .namespace("metal")
        .namespace("other")
        .namespace("sip-system");
    let site = site.start().await.unwrap();
    site.apply_policies().await.unwrap();
    site
}

/// Creates a host, with a consumer that was there before the policy where `before` says so.
async fn create(hosts: &Api<DynamicObject>, name: &str, row: &Row) {
    let mut object = DynamicObject::new(name, &inventory::resource());
    object.metadata.labels = serde_json::from_value(row.labels.clone()).unwrap();
    object.metadata.annotations = serde_json::from_value(row.annotations.clone()).unwrap();
    object.data = json!({"spec": {"online": true}});
    if !row.before.is_null() {
        object.data["spec"]["consumerRef"] = row.before.clone();
    }
    hosts.create(&PostParams::default(), &object).await.unwrap();
}

async fn patched(hosts: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<(), String> {
    let params = PatchParams::default();
    refusal(hosts.patch(name, &params, &Patch::Merge(patch)).await)
}

/// The message with which a policy refuses a write.
fn refusal<T>(written: kube::Result<T>) -> Result<(), String> {
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until a write passes, or is refused: the API server loads policies a moment after they are written.
async fn until(is_so: impl AsyncFn() -> bool) {
    let probe = async {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        while !is_so().await {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, probe).await.unwrap();
}

/// Waits until policies refuse a patch, which is not made.
async fn until_refused(api: &Api<DynamicObject>, name: &str, patch: &Value) {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    until(async || api.patch(name, &params, &Patch::Merge(patch)).await.is_err()).await;
}

/// Waits until the API server enforces the policy on consumers, or does not any more.
async fn until_enforced(hosts: &Api<DynamicObject>, name: &str, enforced: bool) {
    let claims = claim("nobody", &metal3_machine("probe"));
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    until(async || {
        let refused = hosts.patch(name, &params, &Patch::Merge(&claims)).await.is_err();
        refused == enforced
    })
    .await;
}

#[tokio::test]
async fn host_policy_allows_and_refuses() {
    let site = site().await;
    let hosts = inventory::api(site.client(), "metal");
    let rows = rows();
    // Whoever is exempt may do anything: that is how consumers come to be where the policy would refuse them.
    site.guard_hosts(&["metal"], &[ADMINISTRATOR]).await.unwrap();
    inventory::load(&site.client(), "metal", &[host("policy", "cp", "r1", "probe")])
        .await
        .unwrap();
    until_enforced(&hosts, "policy-probe", false).await;
    for (index, row) in rows.iter().enumerate() {
        create(&hosts, &format!("h{index}"), row).await;
    }
    site.guard_hosts(&["metal"], &[]).await.unwrap();
    until_enforced(&hosts, "policy-probe", true).await;

    let mut wrong = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let name = format!("h{index}");
        let came = patched(&hosts, &name, &row.patch).await;
        let expected = match &came {
            Ok(()) => row.refused.is_empty(),
            Err(words) => {
                println!("{}: {words}", row.what);
                !row.refused.is_empty()
                    && words.contains(row.refused)
                    && words.contains(&format!("BareMetalHost metal/{name}"))
            }
        };
        if !expected {
            wrong.push(format!("{}: {came:?}", row.what));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// After which the cluster agent relies on a policy: `POLICY_LOAD_TIME`.
const LOAD_TIME: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_api_server_applies_a_policy_within_ten_seconds() {
    let site = site().await;
    inventory::load(&site.client(), "metal", &[host("policy", "cp", "r1", "probe")])
        .await
        .unwrap();
    let hosts = inventory::api(site.client(), "metal");
    until_enforced(&hosts, "policy-probe", true).await;
    let exempt: [&[&str]; 2] = [&[ADMINISTRATOR], &[]];
    for users in exempt {
        site.guard_hosts(&["metal"], users).await.unwrap();
        let written = Instant::now();
        until_enforced(&hosts, "policy-probe", users.is_empty()).await;
        let took = written.elapsed();
        assert!(took < LOAD_TIME, "{users:?}: {took:?}");
    }
}

#[tokio::test]
async fn host_policy_has_no_type_warnings() {
    let site = site().await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(site.client());
    let shipped = policies.get(HOST_CONSUMERS).await.unwrap();
    // The same rules with one misspelt field show when the type checker knows a BareMetalHost: it checks each policy once, and learns of
    // the definition a moment after it is served.
    let knows = async {
        for attempt in 0.. {
            let name = format!("misspelt-{attempt}");
            let misspelt = copy(&shipped, &name, "object.spec.consumerReff.name == 'm-0'");
            policies.create(&PostParams::default(), &misspelt).await.unwrap();
            let found = warnings(&policies, &name).await;
            if found.iter().any(|warning| warning.contains("consumerReff")) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, knows).await.unwrap();

    let validations = shipped.spec.as_ref().unwrap().validations.as_ref();
    let first = validations.unwrap()[0].expression.clone();
    let again = copy(&shipped, "again", &first);
    policies.create(&PostParams::default(), &again).await.unwrap();
    assert_eq!(warnings(&policies, "again").await, [""; 0]);
}

/// A policy with the same rules but for the first one.
fn copy(policy: &ValidatingAdmissionPolicy, name: &str, first: &str) -> ValidatingAdmissionPolicy {
    let mut copied = ValidatingAdmissionPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: policy.spec.clone(),
        status: None,
    };
    let spec = copied.spec.as_mut().unwrap();
    first.clone_into(&mut spec.validations.as_mut().unwrap()[0].expression);
    copied
}

/// What the API server's type checker finds of a policy.
async fn warnings(policies: &Api<ValidatingAdmissionPolicy>, name: &str) -> Vec<String> {
    let what = format!("the types of {name} to be checked");
    let policy = wait::until(policies.clone(), name, &what, PATIENCE, |policy| {
        let status = policy.status.as_ref();
        status.is_some_and(|status| status.observed_generation == policy.metadata.generation)
    });
    let checking = policy.await.unwrap().status.unwrap().type_checking;
    let warnings = checking.and_then(|checking| checking.expression_warnings);
    let warnings = warnings.unwrap_or_default().into_iter();
    warnings
        .map(|warning| format!("{}: {}", warning.field_ref, warning.warning))
        .collect()
}

#[tokio::test]
async fn host_policy_leaves_other_namespaces_alone() {
    let site = site().await;
    let load = async |namespace: &str, hosts: &[Host]| {
        inventory::load(&site.client(), namespace, hosts).await.unwrap();
        inventory::api(site.client(), namespace)
    };
    let ours = load("metal", &[host("policy", "cp", "r1", "ours")]).await;
    let others = load("other", &[host("policy", "cp", "r1", "others")]).await;
    until_enforced(&ours, "policy-ours", true).await;
    let claims = claim("stall", &metal3_machine("m-0"));
    assert!(patched(&ours, "policy-ours", &claims).await.is_err());
    assert_eq!(patched(&others, "policy-others", &claims).await, Ok(()));
    // A host that is created with its consumer, as a restore or a move does, must carry its labels.
    let mut moved = DynamicObject::new("moved", &inventory::resource());
    moved.data = json!({"spec": {"online": true, "consumerRef": metal3_machine("m-0")}});
    let refused = ours.create(&PostParams::default(), &moved).await.unwrap_err();
    assert!(
        refused.to_string().contains("it belongs to no SIPCluster"),
        "{refused}"
    );
    let mut labels = placed();
    labels[CLUSTER] = json!("shop");
    moved.metadata.labels = serde_json::from_value(labels).unwrap();
    ours.create(&PostParams::default(), &moved).await.unwrap();
}
