//! Objects of a small site, as they are written, and what is decided on them.

use placement::{Namespace, Policy};
use serde_json::{Value, json};
use sipctl::input::{Error, Input, documents};
use sipctl::report::{Cluster, Report};
use sipctl::{Plan, plan};

/// The namespace of everything here.
pub(crate) const NAMESPACE: &str = "lab";
/// A label of a rack.
pub(crate) const RACK: &str = "example.org/rack";
/// A label of what a host is good for.
pub(crate) const FLAVOR: &str = "example.org/flavor";

/// An available host in a rack that both roles' selectors match.
pub(crate) fn host(name: &str, rack: &str) -> Value {
    json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}"), "labels": {RACK: rack}},
        "spec": {"networkData": {"name": format!("{name}-net")}},
        "status": {
            "operationalStatus": "OK",
            "provisioning": {"state": "available"},
            "poweredOn": true,
            "hardware": {"cpu": {}},
        },
    })
}

/// A cluster without services that wants `(role, hosts)`, each in a rack of its own, of any hosts.
pub(crate) fn cluster(name: &str, roles: &[(&str, u32)]) -> Value {
    let nodes: serde_json::Map<String, Value> = roles
        .iter()
        .map(|(role, want)| {
            let set = json!({"labelSelector": {}, "topologyKey": RACK, "count": {"active": want}});
            ((*role).to_owned(), set)
        })
        .collect();
    json!({
        "apiVersion": "airship.airshipit.org/v1",
        "kind": "SIPCluster",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"nodes": nodes},
    })
}

/// A Secret with one address of a host, in the network `oam`.
pub(crate) fn secret(host: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": NAMESPACE, "name": format!("{host}-net")},
        "stringData": {"networkData": format!("networks: [{{id: oam, ip_address: {address}}}]")},
    })
}

/// Changes to an object, as verbs.
pub(crate) trait Edit: Sized {
    /// Sets what a JSON pointer names, and the mappings on the way to it.
    fn set(self, pointer: &str, value: impl Into<Value>) -> Self;
    /// Removes the last part of a JSON pointer.
    fn without(self, pointer: &str) -> Self;
    /// A label.
    fn label(self, key: &str, value: &str) -> Self;
    /// An annotation without a value.
    fn annotated(self, key: &str) -> Self;
    /// All three labels of a cluster.
    fn member_of(self, cluster: &str, role: &str) -> Self {
        self.label("sip.airshipit.org/cluster-namespace", NAMESPACE)
            .label("sip.airshipit.org/cluster-name", cluster)
            .label("sip.airshipit.org/node-type", role)
    }
    /// An entry of `status.placement.members`.
    fn claims(self, host: &str, role: &str, state: &str) -> Self;
}

impl Edit for Value {
    fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut target = &mut self;
        for part in pointer.trim_start_matches('/').split('/') {
            if !target.is_object() {
                *target = json!({});
            }
            target = target
                .as_object_mut()
                .unwrap()
                .entry(part.replace("~1", "/"))
                .or_insert(Value::Null);
        }
        *target = value.into();
        self
    }

    fn without(mut self, pointer: &str) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(&field.replace("~1", "/"))
            .unwrap();
        self
    }

    fn label(self, key: &str, value: &str) -> Self {
        self.set(&format!("/metadata/labels/{}", key.replace('/', "~1")), value)
    }

    fn annotated(self, key: &str) -> Self {
        self.set(&format!("/metadata/annotations/{}", key.replace('/', "~1")), "")
    }

    fn claims(mut self, host: &str, role: &str, state: &str) -> Self {
        let member = json!({"namespace": NAMESPACE, "name": host, "role": role, "state": state});
        if let Some(members) = self.pointer_mut("/status/placement/members") {
            members.as_array_mut().unwrap().push(member);
            return self;
        }
        self.set("/status/placement/members", json!([member]))
    }
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new(NAMESPACE).unwrap()
}

/// Reads objects.
pub(crate) fn read(objects: &[Value]) -> Result<Input, Error> {
    read_with(objects, Policy::default())
}

pub(crate) fn read_with(objects: &[Value], policy: Policy) -> Result<Input, Error> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Input::new(documents("objects", &list.to_string())?, &namespace(), policy)
}

/// Decides on objects.
pub(crate) fn planned(objects: &[Value]) -> Plan {
    plan(&read(objects).unwrap())
}

/// What is decided on objects.
pub(crate) fn report(objects: &[Value]) -> Report {
    planned(objects).report()
}

/// What is decided for the only cluster among objects.
pub(crate) fn decided(objects: &[Value]) -> Cluster {
    let Ok([cluster]) = <[Cluster; 1]>::try_from(report(objects).clusters) else {
        panic!("there must be one cluster");
    };
    cluster
}

/// What changes, shortly: `+Worker a@r1` is taken, `=` stays, `-Worker a surplus` is released.
pub(crate) fn changes(cluster: &Cluster) -> Vec<String> {
    let name = |host: &str| host.strip_prefix("lab/").unwrap_or(host).to_owned();
    let mut lines = Vec::new();
    for (role, hosts) in &cluster.roles {
        for host in &hosts.hosts {
            let sign = match host.change {
                sipctl::report::Change::Keep => '=',
                sipctl::report::Change::Take => '+',
            };
            let domain = host
                .domain
                .as_ref()
                .map(|domain| format!("@{domain}"))
                .unwrap_or_default();
            lines.push(format!("{sign}{role} {}{domain}", name(&host.host)));
        }
    }
    for given in &cluster.release {
        lines.push(format!(
            "-{} {} {}",
            given.role,
            name(&given.host),
            given.reason.as_str()
        ));
    }
    lines
}

/// The kinds of a cluster's reports with their hosts, shortly: `paused a`.
pub(crate) fn kinds(cluster: &Cluster) -> Vec<String> {
    let line = |report: &sipctl::report::Remark| match report.host.as_deref() {
        Some(host) => format!("{} {}", report.kind, host.strip_prefix("lab/").unwrap_or(host)),
        None => report.kind.clone(),
    };
    cluster
        .reports
        .iter()
        .map(line)
        .filter(|line| line != "addresses-unchecked")
        .collect()
}
