//! Finds who uses a host in the end: a Machine of Cluster API, through its `Metal3Machine` and through a `HostClaim`; and what a host that
//! is gone leaves behind. Objects are read by name only.

use api::{ConsumerReference, HOST_CLAIM, METAL3};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::placement::ObjectKey;
use kube::{Client, ResourceExt as _, api::DynamicObject, core::GroupVersion};

use super::machine::{CLUSTER_API, Machine, metadata, objects};

/// Group of the kinds of Cluster API's providers.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// Kind of Cluster API's clusters.
const CLUSTER: &str = "Cluster";
/// Kind of what CAPM3 makes of a Machine.
const METAL3_MACHINE: &str = "Metal3Machine";

/// What uses a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// This Machine, directly or through a `HostClaim`.
    Machine(Machine),
    /// A `HostClaim` that no Machine uses, which this names by kind, namespace and name.
    Claim(String),
    /// Nothing at present: CAPM3 1.14 keeps the host for the next Machine of its owner (`nodeReuse`). This names the Cluster that it puts in the place
    /// of the Machine, by kind, namespace and name.
    Kept(String),
}

/// What a host that is gone leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// This Machine, which nobody deletes.
    Machine(Machine),
    /// Nothing: its owner, which this names by kind, namespace and name, had gone before, and the garbage collector deletes such hosts.
    Collected(String),
}

/// Finds what uses a host: the Machine that owns its consumer, or that owns what a `HostClaim` is for. Where Cluster API is not
/// installed, or something else uses the host, there is none.
///
/// # Errors
/// What the API server answers.
pub(super) async fn find(client: &Client, consumer: &ConsumerReference) -> kube::Result<Option<User>> {
    if is_cluster(consumer) {
        let cluster = format!(
            "{CLUSTER} {}/{}",
            part(consumer.namespace.as_ref()),
            part(consumer.name.as_ref())
        );
        return Ok(Some(User::Kept(cluster)));
    }
    if !consumer.is_host_claim() {
        return Ok(of_metal3_machine(client, consumer).await?.map(User::Machine));
    }
    let (namespace, name) = (part(consumer.namespace.as_ref()), part(consumer.name.as_ref()));
    let version = GroupVersion::gv(
        METAL3,
        part(consumer.api_version.as_ref())
            .rsplit('/')
            .next()
            .unwrap_or_default(),
    );
    let Some(claim) = objects(client, &version, HOST_CLAIM, namespace)
        .get_opt(name)
        .await?
    else {
        return Ok(None);
    };
    let machine = match claimed_for(&claim, namespace) {
        Some(consumer) => of_metal3_machine(client, &consumer).await?,
        None => None,
    };
    Ok(Some(machine.map_or_else(
        || User::Claim(format!("{HOST_CLAIM} {namespace}/{name}")),
        User::Machine,
    )))
}

/// What a `HostClaim` is for, by its `spec.consumerRef`; without a namespace of its own it is in that of the claim.
fn claimed_for(claim: &DynamicObject, namespace: &str) -> Option<ConsumerReference> {
    let consumer = claim.data.pointer("/spec/consumerRef")?;
    let mut consumer = serde_json::from_value::<ConsumerReference>(consumer.clone()).ok()?;
    let named = consumer.namespace.take().filter(|named| !named.is_empty());
    consumer.namespace = Some(named.unwrap_or_else(|| namespace.to_owned()));
    Some(consumer)
}

/// Finds what a host that is gone leaves behind. `consumer` and `owners`: those that it had last.
///
/// # Errors
/// What the API server answers.
pub(super) async fn find_left(
    client: &Client,
    namespace: &str,
    consumer: Option<&ConsumerReference>,
    owners: &[OwnerReference],
) -> kube::Result<Option<Left>> {
    if let Some(owner) = collected(client, namespace, owners).await? {
        return Ok(Some(Left::Collected(owner)));
    }
    let user = match consumer {
        Some(consumer) => find(client, consumer).await?,
        None => None,
    };
    Ok(match user {
        Some(User::Machine(machine)) if !machine.leaves() => Some(Left::Machine(machine)),
        Some(User::Machine(_) | User::Claim(_) | User::Kept(_)) | None => None,
    })
}

/// The first of the owners of a host, if all of them are gone. Owners of kinds that this agent may not read count as there.
async fn collected(
    client: &Client,
    namespace: &str,
    owners: &[OwnerReference],
) -> kube::Result<Option<String>> {
    for owner in owners {
        let version = owner.api_version.parse::<GroupVersion>().ok();
        let readable = (owner.kind == METAL3_MACHINE).then_some(version).flatten();
        let Some(version) = readable.filter(|version| version.group == INFRASTRUCTURE) else {
            return Ok(None);
        };
        let found = metadata(&objects(client, &version, &owner.kind, namespace), &owner.name).await?;
        if found.is_some_and(|found| found.uid().as_ref() == Some(&owner.uid)) {
            return Ok(None);
        }
    }
    let first = owners.first();
    Ok(first.map(|owner| format!("{} {namespace}/{}", owner.kind, owner.name)))
}

fn is_cluster(consumer: &ConsumerReference) -> bool {
    let version = part(consumer.api_version.as_ref()).parse::<GroupVersion>().ok();
    consumer.kind.as_deref() == Some(CLUSTER) && version.is_some_and(|version| version.group == CLUSTER_API)
}

fn part(text: Option<&String>) -> &str {
    text.map(String::as_str).unwrap_or_default()
}

/// Finds the Machine that owns an object of one of Cluster API's providers.
async fn of_metal3_machine(client: &Client, consumer: &ConsumerReference) -> kube::Result<Option<Machine>> {
    let ConsumerReference {
        api_version,
        kind,
        namespace,
        name,
    } = consumer;
    let [api_version, kind, namespace, name] =
        [api_version, kind, namespace, name].map(|text| part(text.as_ref()));
    let version = api_version.parse::<GroupVersion>().ok();
    let Some(version) = version.filter(|version| version.group == INFRASTRUCTURE) else {
        return Ok(None);
    };
    let Some(found) = metadata(&objects(client, &version, kind, namespace), name).await? else {
        return Ok(None);
    };
    let owner = found.owner_references().iter().find_map(|owner| {
        let version = owner.api_version.parse::<GroupVersion>().ok()?;
        (owner.kind == "Machine" && version.group == CLUSTER_API).then_some((&owner.name, version.version))
    });
    let Some((name, version)) = owner else {
        return Ok(None);
    };
    let served = GroupVersion::gv(CLUSTER_API, &version);
    let found = metadata(&objects(client, &served, "Machine", namespace), name).await?;
    let key = ObjectKey {
        namespace: namespace.to_owned(),
        name: name.clone(),
    };
    Ok(Some(Machine::of_object(key, version, found.as_ref())))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const M3M: &str = "/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/metal/metal3machines/m3m-0";
    const MACHINE: &str = "/apis/cluster.x-k8s.io/v1beta1/namespaces/metal/machines/m-0";
    const CLAIM: &str = "/apis/metal3.io/v1alpha1/namespaces/shop/hostclaims/c-0";

    /// An API server that has these objects.
    fn server(objects: Vec<(&'static str, Value)>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let found = objects.iter().find(|(path, _)| *path == request.uri().path());
            let (code, body) = match found {
                Some((_, object)) => (200, object.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""}),
                ),
            };
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(serde_json::to_vec(&body).unwrap()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        Client::new(service, "default")
    }

    fn object(metadata: &Value, spec: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata, "spec": spec})
    }

    fn metal3_machine() -> (&'static str, Value) {
        let owners =
            json!([{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": "m-0", "uid": "u"}]);
        let metadata = json!({"name": "m3m-0", "uid": "uid-m3m", "ownerReferences": owners});
        (M3M, object(&metadata, &json!({})))
    }

    fn machine(deleted: bool) -> (&'static str, Value) {
        let labels = json!({"cluster.x-k8s.io/deployment-name": "shop-md"});
        let mut metadata = json!({"name": "m-0", "uid": "u", "labels": labels});
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        (MACHINE, object(&metadata, &json!({})))
    }

    fn claim(consumer: &Value) -> (&'static str, Value) {
        (
            CLAIM,
            object(&json!({"name": "c-0"}), &json!({"consumerRef": consumer})),
        )
    }

    fn reference(version: &str, kind: &str, namespace: &str, name: &str) -> ConsumerReference {
        serde_json::from_value(
            json!({"apiVersion": version, "kind": kind, "namespace": namespace, "name": name}),
        )
        .unwrap()
    }

    fn of_metal3() -> ConsumerReference {
        reference(
            &format!("{INFRASTRUCTURE}/v1beta1"),
            METAL3_MACHINE,
            "metal",
            "m3m-0",
        )
    }

    fn of_claim() -> ConsumerReference {
        reference("metal3.io/v1alpha1", HOST_CLAIM, "shop", "c-0")
    }

    /// The Machine and its owner, or the `HostClaim`.
    fn described(user: Option<User>) -> String {
        match user {
            Some(User::Machine(machine)) => format!("{machine} of {}", machine.owner().unwrap_or("nobody")),
            Some(User::Claim(name) | User::Kept(name)) => name,
            None => "nobody".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_host_claim_leads_to_its_machine() {
        let metal3 = || json!({"apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": METAL3_MACHINE, "namespace": "metal", "name": "m3m-0"});
        let of_no_namespace = json!({"apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": METAL3_MACHINE, "name": "m3m-0"});
        let machine_is = "metal/m-0 of MachineDeployment shop-md";
        for (consumer, objects, expected) in [
            (of_metal3(), vec![metal3_machine(), machine(false)], machine_is),
            (
                of_claim(),
                vec![claim(&metal3()), metal3_machine(), machine(false)],
                machine_is,
            ),
            // Without a namespace it is in that of the claim.
            (
                of_claim(),
                vec![claim(&of_no_namespace), metal3_machine(), machine(false)],
                "HostClaim shop/c-0",
            ),
            (
                of_claim(),
                vec![claim(&Value::Null), metal3_machine()],
                "HostClaim shop/c-0",
            ),
            (
                of_claim(),
                vec![claim(&json!({"kind": "Pod", "name": "p"}))],
                "HostClaim shop/c-0",
            ),
            (of_claim(), vec![metal3_machine(), machine(false)], "nobody"),
            (
                reference("cluster.x-k8s.io/v1beta2", CLUSTER, "metal", "shop"),
                vec![],
                "Cluster metal/shop",
            ),
            (
                reference("x/v1", HOST_CLAIM, "shop", "c-0"),
                vec![claim(&metal3()), metal3_machine()],
                "nobody",
            ),
        ] {
            let found = find(&server(objects), &consumer).await.unwrap();
            assert_eq!(described(found), expected, "{consumer:?}");
        }
    }

    #[tokio::test]
    async fn a_collected_host_is_told_from_a_deleted_one() {
        let owner = |uid: &str| OwnerReference {
            api_version: format!("{INFRASTRUCTURE}/v1beta1"),
            kind: METAL3_MACHINE.to_owned(),
            name: "m3m-0".to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let unreadable = OwnerReference {
            api_version: "x/v1".to_owned(),
            ..owner("uid-m3m")
        };
        let (own, other) = (owner("uid-m3m"), owner("uid-before"));
        let collected = || Some("Metal3Machine metal/m3m-0");
        for (owners, objects, lost, machine) in [
            (
                vec![own.clone()],
                vec![metal3_machine(), machine(false)],
                None,
                Some("metal/m-0"),
            ),
            (
                vec![own.clone()],
                vec![metal3_machine(), machine(true)],
                None,
                None,
            ),
            (vec![own.clone()], vec![metal3_machine()], None, None),
            (vec![own.clone()], vec![], collected(), None),
            // Another one of its name.
            (
                vec![other.clone()],
                vec![metal3_machine(), machine(false)],
                collected(),
                None,
            ),
            (
                vec![other.clone(), own],
                vec![metal3_machine(), machine(false)],
                None,
                Some("metal/m-0"),
            ),
            (
                vec![other, unreadable],
                vec![metal3_machine(), machine(false)],
                None,
                Some("metal/m-0"),
            ),
            (
                vec![],
                vec![metal3_machine(), machine(false)],
                None,
                Some("metal/m-0"),
            ),
        ] {
            let names: Vec<_> = owners.iter().map(|owner| owner.uid.clone()).collect();
            let left = find_left(&server(objects), "metal", Some(&of_metal3()), &owners)
                .await
                .unwrap();
            let found = match &left {
                Some(Left::Collected(owner)) => (Some(&**owner), None),
                Some(Left::Machine(machine)) => (None, Some(machine.to_string())),
                None => (None, None),
            };
            assert_eq!(found, (lost, machine.map(str::to_owned)), "{names:?}");
        }
    }
}
