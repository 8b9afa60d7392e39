//! The part of a `SIPCluster`'s status that this agent owns, and when it is written: only when it differs.

use api::{
    Applied as AppliedEntry, Endpoint, Placement, SIPCluster, SIPClusterStatus,
    conditions::{
        LOAD_BALANCER_READY, SCHEDULED,
        load_balancer::{AVAILABLE, NO_ADDRESS, NO_REACHABLE_BACKEND},
        ready::PROGRESSING,
    },
};
use k8s_openapi::{api::core::v1::Service, jiff::Timestamp};
use kit::{
    apply,
    conditions::{Finding, REMOVED, find},
};
use kube::{Client, ResourceExt as _};

use super::{
    Error, MANAGER,
    apply::{Applied, Joined, Lack},
    balancers,
};

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
    let (mut refused, mut lacks, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut unreachable = Vec::new();
    for applied in applied {
        match applied {
            Applied::Done {
                name,
                service,
                address,
                lacks: lack,
                without_address,
                unserved,
                template,
            } => {
                if *unserved {
                    unreachable.push(name.as_str());
                }
                entries.push(AppliedEntry {
                    service: name.clone(),
                    epoch: held.epoch,
                    revision: balancers::revision(held),
                    generation: held.generation,
                });
                let (reached, pending) = self::endpoints(name, service, address.as_deref());
                endpoints.extend(reached);
                lacks.extend(without_address.iter().map(|host| {
                    let message = format!("{name}: {host} has no address in its network");
                    Lack::new(NO_ADDRESS, message)
                }));
                for Lack { reason, message } in lack.iter().chain(&pending).chain(template) {
                    let lack = Lack::new(reason, format!("{name}: {message}"));
                    if *reason == PROGRESSING {
                        waits.push(lack);
                    } else {
                        lacks.push(lack);
                    }
                }
            }
            Applied::Refused(lack) => refused.push(lack.clone()),
        }
    }
    let finding = [refused, lacks, waits]
        .into_iter()
        .find_map(|lacks| together(&lacks))
        .unwrap_or_else(|| {
            if unreachable.is_empty() {
                return Finding::yes(LOAD_BALANCER_READY, AVAILABLE, "");
            }
            let message = format!("no member answers behind {}", unreachable.join(", "));
            Finding::yes(LOAD_BALANCER_READY, NO_REACHABLE_BACKEND, message)
        });
    Said {
        finding,
        applied: entries,
        endpoints,
    }
}

/// What is lacking for the first reason; the others are told when that is mended.
fn together(lacks: &[Lack]) -> Option<Finding> {
    let reason = lacks.first()?.reason;
    let messages: Vec<&str> = lacks
        .iter()
        .filter(|lack| lack.reason == reason)
        .map(|lack| lack.message.as_str())
        .collect();
    Some(Finding::no(LOAD_BALANCER_READY, reason, messages.join("; ")))
}

/// Where a load balancer is reached: on the address that the spec names or that the site's load balancer gave, or on a
/// node port on any node of the site; and what is not known of that yet.
fn endpoints(name: &str, service: &Service, address: Option<&str>) -> (Vec<Endpoint>, Option<Lack>) {
    let by_load_balancer = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let given = given(service);
    let pending = (by_load_balancer && given.is_none()).then(|| {
        Lack::new(
            PROGRESSING,
            "the site's load balancer has given the Service no address yet",
        )
    });
    let address = address.map(str::to_owned).or(given);
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten())
        .collect::<Vec<_>>();
    let single = ports.len() == 1;
    let reached = ports.iter().filter_map(|port| {
        let at = if by_load_balancer {
            port.port
        } else {
            port.node_port?
        };
        Some((port.port, at))
    });
    let endpoints = reached.map(|(port, at)| Endpoint {
        name: if single {
            name.to_owned()
        } else {
            format!("{name}:{port}")
        },
        address: address.clone(),
        port: Some(at),
        protocol: Some(
            if port == i32::from(render::load_balancer::API_SERVER_PORT) {
                "https"
            } else {
                "tcp"
            }
            .to_owned(),
        ),
        ..Endpoint::default()
    });
    let known = pending.is_none() || address.is_some();
    (if known { endpoints.collect() } else { Vec::new() }, pending)
}

/// The address that the site's load balancer gave.
fn given(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let ingress = status.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
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

/// Says which load balancers have taken this placement in, if that is not said yet; what was said of this generation's
/// pods stays. Returns the cluster as it is then.
pub(super) async fn joined(
    object: &SIPCluster,
    held: &Placement,
    joined: &[Result<Joined<'_>, Lack>],
    client: &Client,
) -> Result<Option<SIPCluster>, Error> {
    let so_far: Vec<Applied> = joined
        .iter()
        .map(|joined| match joined {
            Ok(joined) => joined.so_far(),
            Err(lack) => Applied::Refused(lack.clone()),
        })
        .collect();
    let Said {
        finding,
        applied,
        endpoints,
    } = of(held, &so_far);
    let (said, reached) = own(object);
    if said == applied {
        return Ok(None);
    }
    let before = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let known = find(before, LOAD_BALANCER_READY)
        .filter(|condition| condition.observed_generation == Some(generation));
    let (condition, endpoints) = match known {
        Some(known) => (known.clone(), reached),
        None => (finding.condition(before, generation, Timestamp::now()), endpoints),
    };
    let next = SIPClusterStatus {
        conditions: vec![condition],
        applied,
        endpoints,
        ..SIPClusterStatus::default()
    };
    apply_status(object, client, &next).await.map(Some)
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
    apply_status(object, client, &SIPClusterStatus::default())
        .await
        .map(drop)
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

async fn apply_status(
    object: &SIPCluster,
    client: &Client,
    status: &SIPClusterStatus,
) -> Result<SIPCluster, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    apply::apply_status::<SIPCluster>(client, MANAGER, &namespace, &name, status)
        .await
        .map_err(Error::kubernetes("write the status"))
}

#[cfg(test)]
mod tests {
    use api::conditions::load_balancer::{IMAGE_PULL, PORT_CONFLICT};
    use serde_json::{Value, json};

    use super::*;

    fn done(name: &str, lacks: Option<Lack>, unserved: bool, service: Value) -> Applied {
        Applied::Done {
            name: name.to_owned(),
            service: Box::new(serde_json::from_value(service).unwrap()),
            address: None,
            lacks,
            without_address: Vec::new(),
            unserved,
            template: None,
        }
    }

    fn found(applied: &[Applied]) -> (Option<bool>, &'static str, String) {
        let Finding {
            kind: _,
            status,
            reason,
            message,
        } = of(&Placement::default(), applied).finding;
        (status, reason, message)
    }

    #[test]
    fn what_is_refused_is_told_before_what_fails_and_that_before_what_only_takes_time() {
        let waits = || done("a", Some(Lack::new(PROGRESSING, "0 of 2 pods")), true, json!({}));
        let pull = |name| {
            done(
                name,
                Some(Lack::new(IMAGE_PULL, "no such image")),
                false,
                json!({}),
            )
        };
        let refused = || Applied::Refused(Lack::new(PORT_CONFLICT, "d: taken"));
        for (applied, expected) in [
            (vec![], (Some(true), "Available", "")),
            (
                vec![
                    done("a", None, true, json!({})),
                    done("b", None, false, json!({})),
                ],
                (Some(true), "NoReachableBackend", "no member answers behind a"),
            ),
            (vec![waits()], (Some(false), "Progressing", "a: 0 of 2 pods")),
            (
                vec![waits(), pull("b"), pull("c")],
                (Some(false), "ImagePull", "b: no such image; c: no such image"),
            ),
            (
                vec![waits(), pull("b"), refused()],
                (Some(false), "PortConflict", "d: taken"),
            ),
        ] {
            let (status, reason, message) = expected;
            assert_eq!(found(&applied), (status, reason, message.to_owned()));
        }
    }

    #[test]
    fn only_what_is_applied_counts_as_applied() {
        let refused = Applied::Refused(Lack::new(PORT_CONFLICT, "b: taken"));
        let said = of(
            &Placement::default(),
            &[done("loadbalancer-a", None, false, json!({})), refused],
        );
        let names: Vec<_> = said.applied.iter().map(|applied| &applied.service).collect();
        assert_eq!(names, ["loadbalancer-a"]);
    }

    #[test]
    fn endpoints_are_where_users_reach_the_service() {
        let port = json!([{"port": 6443, "nodePort": 30_001}]);
        let ingress = |ingress: Value| json!({"loadBalancer": {"ingress": [ingress]}});
        let by_nodes = json!({"spec": {"type": "NodePort", "ports": port}});
        let balanced =
            |status: Value| json!({"spec": {"type": "LoadBalancer", "ports": port}, "status": status});
        for (service, named, expected) in [
            (by_nodes.clone(), None, Some((None, 30_001))),
            (by_nodes, Some("192.0.2.1"), Some((Some("192.0.2.1"), 30_001))),
            (balanced(json!({})), None, None),
            (
                balanced(json!({})),
                Some("192.0.2.1"),
                Some((Some("192.0.2.1"), 6443)),
            ),
            (
                balanced(ingress(json!({"ip": "2001:db8::1"}))),
                None,
                Some((Some("2001:db8::1"), 6443)),
            ),
            (
                balanced(ingress(json!({"hostname": "lb.example"}))),
                None,
                Some((Some("lb.example"), 6443)),
            ),
        ] {
            let service: Service = serde_json::from_value(service).unwrap();
            let (endpoints, _) = endpoints("a", &service, named);
            let found = endpoints
                .first()
                .map(|endpoint| (endpoint.address.as_deref(), endpoint.port.unwrap()));
            assert_eq!(found, expected);
        }
    }
}
