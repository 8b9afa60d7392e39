//! The part of a `SIPCluster`'s status that this agent owns, and when it is written: only when it differs.

use api::{
    Applied as AppliedEntry, Endpoint, Placement, SIPCluster, SIPClusterStatus,
    conditions::{LOAD_BALANCER_READY, SCHEDULED, ready::PROGRESSING},
};
use k8s_openapi::{api::core::v1::Service, jiff::Timestamp};
use kit::{
    apply,
    conditions::{Finding, REMOVED, find},
};
use kube::{Client, ResourceExt as _};

use super::{Error, MANAGER, apply::Applied, balancers};

/// What this agent says of a `SIPCluster`.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) finding: Finding,
    applied: Vec<AppliedEntry>,
    endpoints: Vec<Endpoint>,
}

/// What has come of every load balancer.
pub(super) fn of(held: &Placement, applied: &[Applied]) -> Said {
    let (mut entries, mut endpoints) = (Vec::new(), Vec::new());
    let (mut lacking, mut unaddressed, mut refused) = (Vec::new(), Vec::new(), None);
    for applied in applied {
        match applied {
            Applied::Done {
                name,
                service,
                address,
                lacks,
                without_address,
            } => {
                entries.push(AppliedEntry {
                    service: name.clone(),
                    epoch: held.epoch,
                    revision: balancers::revision(held),
                    generation: held.generation,
                });
                endpoints.extend(self::endpoints(name, service, address.as_deref()));
                lacking.extend(lacks.as_ref().map(|lacks| format!("{name}: {lacks}")));
                unaddressed.extend(
                    without_address
                        .iter()
                        .map(|host| format!("{name}: {host} has no address in its network")),
                );
            }
            Applied::Refused { reason, message } => refused = refused.or(Some((*reason, message.clone()))),
        }
    }
    let finding = if let Some((reason, message)) = refused {
        Finding::no(LOAD_BALANCER_READY, reason, message)
    } else if !unaddressed.is_empty() {
        Finding::no(LOAD_BALANCER_READY, "NoAddress", unaddressed.join("; "))
    } else if !lacking.is_empty() {
        Finding::no(LOAD_BALANCER_READY, PROGRESSING, lacking.join("; "))
    } else {
        Finding::yes(LOAD_BALANCER_READY, "Available", "")
    };
    Said {
        finding,
        applied: entries,
        endpoints,
    }
}

/// Where a load balancer is reached: a node port on any node of the site, or on the address that the spec names.
fn endpoints(name: &str, service: &Service, address: Option<&str>) -> Vec<Endpoint> {
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten())
        .collect::<Vec<_>>();
    let single = ports.len() == 1;
    ports
        .iter()
        .filter_map(|port| Some((port.port, port.node_port?)))
        .map(|(port, node_port)| Endpoint {
            name: if single {
                name.to_owned()
            } else {
                format!("{name}:{port}")
            },
            address: address.map(str::to_owned),
            port: Some(node_port),
            protocol: Some(
                if port == i32::from(render::load_balancer::API_SERVER_PORT) {
                    "https"
                } else {
                    "tcp"
                }
                .to_owned(),
            ),
            ..Endpoint::default()
        })
        .collect()
}

/// Whether an entry of the status, by its name, is this agent's: several agents share the lists.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("loadbalancer-")
}

/// What this agent says of the cluster at present.
fn own(object: &SIPCluster) -> (Vec<AppliedEntry>, Vec<Endpoint>) {
    let mut status = object.status.clone().unwrap_or_default();
    status.applied.retain(|applied| is_own(&applied.service));
    status.endpoints.retain(|endpoint| is_own(&endpoint.name));
    (status.applied, status.endpoints)
}

/// Whether the cluster agent has said what has become of the cluster's hosts.
pub(super) fn is_decided(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| find(&status.conditions, SCHEDULED).is_some())
}

/// Says that there is no placement to serve yet.
pub(super) async fn waiting(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    let finding = Finding::no(
        LOAD_BALANCER_READY,
        PROGRESSING,
        "the cluster has no placement yet",
    );
    let (applied, endpoints) = own(object);
    write(
        object,
        client,
        Said {
            finding,
            applied,
            endpoints,
        },
    )
    .await
    .map(drop)
}

/// Says that every object that was made for the cluster is removed.
pub(super) async fn removed(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    let finding = Finding::no(LOAD_BALANCER_READY, REMOVED, "the cluster is being deleted");
    write(
        object,
        client,
        Said {
            finding,
            applied: Vec::new(),
            endpoints: Vec::new(),
        },
    )
    .await
    .map(drop)
}

/// Whether this agent has said anything of the cluster.
pub(super) fn answered(object: &SIPCluster) -> bool {
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    find(said, LOAD_BALANCER_READY).is_some()
}

/// Takes back what this agent said: the spec asks for no load balancer any more.
pub(super) async fn withdraw(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    if !answered(object) {
        return Ok(());
    }
    apply_status(object, client, &SIPClusterStatus::default()).await
}

/// Writes the status if it differs from the one there. Returns whether it did.
pub(super) async fn write(object: &SIPCluster, client: &Client, said: Said) -> Result<bool, Error> {
    let Said {
        finding,
        applied,
        endpoints,
    } = said;
    let before = object.status.clone().unwrap_or_default();
    let own = own(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let condition = finding.condition(&before.conditions, generation, Timestamp::now());
    let same = find(&before.conditions, LOAD_BALANCER_READY) == Some(&condition)
        && own == (applied.clone(), endpoints.clone());
    if same {
        return Ok(false);
    }
    let next = SIPClusterStatus {
        conditions: vec![condition],
        applied,
        endpoints,
        ..SIPClusterStatus::default()
    };
    apply_status(object, client, &next).await?;
    Ok(true)
}

async fn apply_status(object: &SIPCluster, client: &Client, status: &SIPClusterStatus) -> Result<(), Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    apply::apply_status::<SIPCluster>(client, MANAGER, &namespace, &name, status)
        .await
        .map(drop)
        .map_err(Error::kubernetes("write the status"))
}
