//! What this agent says of a `SIPCluster`, by what has come of its load balancers.

use api::{
    Applied as AppliedEntry, Endpoint, MemberState, Placement, SIPCluster,
    conditions::{
        LOAD_BALANCER_READY,
        load_balancer::{AVAILABLE, NO_ADDRESS, NO_REACHABLE_BACKEND},
        ready::PROGRESSING,
    },
};
use k8s_openapi::api::core::v1::Service;
use kit::conditions::Finding;

use super::{
    apply::{Applied, Lack},
    balancers,
};

/// What this agent says of a `SIPCluster`.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) finding: Finding,
    pub(super) applied: Vec<AppliedEntry>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// What has come of every load balancer.
pub(super) fn of(object: &SIPCluster, held: &Placement, applied: &[Applied]) -> Said {
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
                ask_again,
            } => {
                if *unserved {
                    unreachable.push(name.as_str());
                }
                entries.push(AppliedEntry {
                    service: name.clone(),
                    epoch: held.epoch,
                    revision: balancers::revision(held),
                    generation: held.generation,
                    left: left(object, held, name, ask_again.is_none()),
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

/// The revision whose hosts that go no pod leads to any more. It is only told anew while hosts go: nobody else asks.
fn left(object: &SIPCluster, held: &Placement, name: &str, followed: bool) -> Option<u64> {
    let going = |member: &api::Member| member.state == MemberState::Releasing;
    if followed && held.members.iter().any(going) {
        return Some(balancers::revision(held));
    }
    let said = object.status.iter().flat_map(|status| &status.applied);
    said.filter(|said| said.service == name && said.epoch == held.epoch)
        .find_map(|said| said.left)
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
            ask_again: None,
        }
    }

    fn cluster(status: &Value) -> SIPCluster {
        serde_json::from_value(json!({"metadata": {}, "spec": {}, "status": status})).unwrap()
    }

    fn found(applied: &[Applied]) -> (Option<bool>, &'static str, String) {
        let Finding {
            kind: _,
            status,
            reason,
            message,
        } = of(&cluster(&Value::Null), &Placement::default(), applied).finding;
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
            &cluster(&Value::Null),
            &Placement::default(),
            &[done("loadbalancer-a", None, false, json!({})), refused],
        );
        let names: Vec<_> = said.applied.iter().map(|applied| &applied.service).collect();
        assert_eq!(names, ["loadbalancer-a"]);
    }

    #[test]
    fn that_no_pod_leads_to_a_host_any_more_is_told_when_one_goes_and_stays_told() {
        let held = |epoch: u64, state: &str| -> Placement {
            let member = json!({
                "namespace": "hosts", "name": "h1", "uid": "u", "role": "Worker", "state": state, "revision": 7,
            });
            let held = json!({"epoch": epoch, "revision": 8, "generation": 1, "members": [member]});
            serde_json::from_value(held).unwrap()
        };
        let said = json!({"applied": [
            {"service": "loadbalancer-a", "epoch": 1, "revision": 6, "generation": 1, "left": 5},
        ]});
        for (followed, held, expected) in [
            (true, held(1, "Releasing"), Some(7)),
            (false, held(1, "Releasing"), Some(5)),
            (true, held(1, "Bound"), Some(5)),
            (false, held(2, "Releasing"), None),
        ] {
            let mut applied = done("loadbalancer-a", None, false, json!({}));
            if let Applied::Done { ask_again, .. } = &mut applied {
                *ask_again = (!followed).then_some(std::time::Duration::ZERO);
            }
            let said = of(&cluster(&said), &held, &[applied]);
            assert_eq!(said.applied[0].left, expected, "{held:?}");
        }
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
