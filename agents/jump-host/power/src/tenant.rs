//! Which cluster a caller is the jump host of: by objects of the API server, each read for this call.
//!
//! Names alone prove nothing. The pod must exist and be the one that the token is bound to; its `ServiceAccount` must be the one that the
//! token is of, and belong to a `SIPCluster` by uid; and that `SIPCluster` must have a jump host of this name.

use api::{Cluster, SIPCluster, TolerantCluster, labels};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use kit::{
    pages,
    placement::{ClusterId, ObjectKey},
    service::{made_ports, trimmed_service},
};
use kube::{Api, Client, Resource as _, ResourceExt as _, api::ListParams};

use crate::{error::Error, token::Holder};

/// What the names of jump hosts begin with.
const ACCOUNT_NAME_PREFIX: &str = "jumphost-";

/// An admitted caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The cluster that it is the jump host of.
    pub cluster: ClusterId,
    /// Name of the jump host, which is that of its `ServiceAccount`.
    pub jump_host: String,
    /// Name of its pod.
    pub pod: String,
    /// Whether its hosts' BMCs are reached by the site's proxy.
    pub bmc_proxy: bool,
}

/// The cluster that a token's holder is the jump host of.
///
/// # Errors
/// [`Error::TokenRefused`], [`Error::NotAJumpHost`], [`Error::ApiServer`].
pub async fn tenant(client: &Client, holder: &Holder) -> Result<Tenant, Error> {
    let Holder {
        account,
        account_uid,
        pod,
        pod_uid,
    } = holder;
    let ObjectKey { namespace, name } = account;
    let refused = |why: String| Error::NotAJumpHost {
        account: account.to_string(),
        why,
    };
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let (found_pod, found_account) =
        tokio::try_join!(pods.get_opt(pod), accounts.get_opt(name)).map_err(|error| match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                refused("its namespace does not allow jump hosts".to_owned())
            }
            error => Error::api_server("read pods and ServiceAccounts")(error),
        })?;
    if !found_pod.is_some_and(|found| is_running_as(&found, pod_uid, name)) {
        return Err(Error::TokenRefused(format!(
            "pod {namespace}/{pod} does not run, or no longer exists"
        )));
    }
    let owner = found_account
        .filter(|found| found.uid().as_deref() == Some(account_uid))
        .as_ref()
        .and_then(owner);
    let (cluster, uid) = owner.ok_or_else(|| refused("no SIPCluster owns it".to_owned()))?;
    let clusters = Api::<TolerantCluster>::namespaced(client.clone(), namespace);
    let found = clusters.get_opt(&cluster).await;
    let found = found.map_err(Error::api_server("read SIPClusters"))?;
    let object = found
        .map(TolerantCluster::into_inner)
        .filter(|found| found.uid().as_ref() == Some(&uid))
        .ok_or_else(|| {
            refused(format!(
                "SIPCluster {namespace}/{cluster} with uid {uid} does not exist"
            ))
        })?;
    let parsed = Cluster::parse(&object)
        .map_err(|invalid| refused(format!("the spec of its SIPCluster is refused: {invalid}")))?;
    // Entries without a name have that of what exists with their node port, as in the agent that makes jump hosts.
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let own = pages::objects(services, ListParams::default().labels(&selector())).map_ok(trimmed_service);
    let services: Vec<_> = own
        .try_collect()
        .await
        .map_err(Error::api_server("read Services"))?;
    let parsed = parsed.keep_names(&made_ports(
        &object,
        |name| name.starts_with(ACCOUNT_NAME_PREFIX),
        &services,
    ));
    let mut jump_hosts = parsed.jump_hosts().iter();
    let own = jump_hosts.find(|jump_host| jump_host.service().object_name().as_str() == name);
    let own = own.ok_or_else(|| {
        refused(format!(
            "SIPCluster {namespace}/{cluster} has no jump host of this name"
        ))
    })?;
    Ok(Tenant {
        cluster: ClusterId::for_object(&object),
        jump_host: name.clone(),
        pod: pod.clone(),
        bmc_proxy: own.bmc_proxy(),
    })
}

/// Selects the objects of jump hosts.
fn selector() -> String {
    let component = format!("{}={}", labels::COMPONENT, labels::JUMP_HOST);
    format!("{}={},{component}", labels::PART_OF, labels::PART_OF_SIP)
}

/// Whether the pod is the one to which the token is bound, runs, and is not being deleted.
fn is_running_as(pod: &Pod, uid: &str, account: &str) -> bool {
    let runs_as = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    // The token of a pod that has ended may have been copied from it.
    let runs = phase == Some("Running");
    runs && pod.uid().as_deref() == Some(uid)
        && pod.meta().deletion_timestamp.is_none()
        && runs_as == Some(account)
}

/// Name and uid of the one `SIPCluster` that owns the `ServiceAccount`.
fn owner(account: &ServiceAccount) -> Option<(String, String)> {
    let owners = account.owner_references();
    let mut owners = owners.iter().filter(|owner| {
        owner.kind == SIPCluster::kind(&()) && owner.api_version == SIPCluster::api_version(&())
    });
    match (owners.next(), owners.next()) {
        (Some(owner), None) => Some((owner.name.clone(), owner.uid.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn owned(owners: &[(&str, &str, &str)]) -> ServiceAccount {
        let mut account = ServiceAccount::default();
        account.metadata.owner_references = Some(
            owners
                .iter()
                .map(|(api_version, kind, name)| OwnerReference {
                    api_version: (*api_version).to_owned(),
                    kind: (*kind).to_owned(),
                    name: (*name).to_owned(),
                    uid: format!("uid-of-{name}"),
                    ..OwnerReference::default()
                })
                .collect(),
        );
        account
    }

    #[test]
    fn a_pod_that_does_not_run_proves_nothing() {
        let pod = |phase: Option<&str>| {
            serde_json::from_value::<Pod>(serde_json::json!({
                "metadata": {"name": "p", "uid": "u"},
                "spec": {"serviceAccountName": "jumphost", "containers": []},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        assert!(is_running_as(&pod(Some("Running")), "u", "jumphost"));
        assert!(!is_running_as(&pod(Some("Running")), "v", "jumphost"));
        assert!(!is_running_as(&pod(Some("Running")), "u", "other"));
        for phase in [
            None,
            Some("Pending"),
            Some("Succeeded"),
            Some("Failed"),
            Some("Unknown"),
        ] {
            assert!(!is_running_as(&pod(phase), "u", "jumphost"), "{phase:?}");
        }
    }

    #[test]
    fn one_sip_cluster_owns_a_jump_hosts_service_account() {
        let sip = ("airship.airshipit.org/v1", "SIPCluster", "orders");
        let expected = Some(("orders".to_owned(), "uid-of-orders".to_owned()));
        assert_eq!(owner(&owned(&[sip])), expected);
        assert_eq!(owner(&owned(&[sip, ("v1", "ConfigMap", "x")])), expected);
        assert_eq!(owner(&owned(&[])), None);
        assert_eq!(
            owner(&owned(&[
                sip,
                ("airship.airshipit.org/v1", "SIPCluster", "billing")
            ])),
            None
        );
        assert_eq!(
            owner(&owned(&[("evil.example/v1", "SIPCluster", "orders")])),
            None
        );
    }
}
