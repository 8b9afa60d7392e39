//! What this agent says of a `SIPCluster`, by what has come of its load balancers.

use api::{
    Applied as AppliedEntry, Drained, Endpoint, Placement,
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
    drain::Drain,
};

/// What this agent says of a `SIPCluster`.
#[derive(Debug)]
pub(super) struct Said {
    /// `None`: the spec asks for no load balancer, and there is nothing to tell.
    pub(super) finding: Option<Finding>,
    pub(super) applied: Vec<AppliedEntry>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) drained: Option<Drained>,
}

/// What has come of every load balancer that the spec of this generation asks for.
pub(super) fn of(generation: i64, held: &Placement, applied: &[Applied], drain: &Drain) -> Said {
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
                ask_again: _,
            } => {
                if *unserved {
                    unreachable.push(name.as_str());
                }
                entries.push(AppliedEntry {
                    service: name.clone(),
                    epoch: held.epoch,
                    revision: balancers::revision(held),
                    generation,
                });
                let (reached, pending) = self::endpoints(name, service, address.as_deref());
                endpoints.extend(reached);
                lacks.extend(without_address.iter().map(|host| {
                    let message = format!("{name}: {host} has no address in its network");
                    Lack::new(NO_ADDRESS, message)
                }));
                for Lack { reason, message } in lack.iter().chain(&pending).chain(template) {
                    let lack = Lack::new(*reason, format!("{name}: {message}"));
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
    waits.extend(drain.lack());
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
        finding: Some(finding),
        applied: entries,
        endpoints,
        drained: drain.known(),
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

#[cfg(test)]
mod tests {
    use api::conditions::load_balancer::{IMAGE_PULL, PORT_CONFLICT, REFUSED};
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

    fn found(applied: &[Applied]) -> (Option<bool>, &'static str, String) {
        let Finding {
            kind: _,
            status,
            reason,
            message,
        } = of(1, &Placement::default(), applied, &Drain::Done(None))
            .finding
            .unwrap();
        (status, reason.as_str(), message)
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
            1,
            &Placement::default(),
            &[done("loadbalancer-a", None, false, json!({})), refused],
            &Drain::Done(None),
        );
        let names: Vec<_> = said.applied.iter().map(|applied| &applied.service).collect();
        assert_eq!(names, ["loadbalancer-a"]);
    }

    #[test]
    fn a_refused_deployment_keeps_what_is_applied() {
        let refused = done(
            "loadbalancer-a",
            Some(Lack::new(REFUSED, "quota")),
            false,
            json!({}),
        );
        let drained = Some(Drained {
            epoch: 1,
            revision: 5,
        });
        let said = of(1, &Placement::default(), &[refused], &Drain::Done(drained));
        assert_eq!(said.applied.len(), 1);
        assert_eq!(said.drained, drained);
        let finding = said.finding.unwrap();
        assert_eq!(
            (finding.reason, &*finding.message),
            (REFUSED, "loadbalancer-a: quota")
        );
    }

    #[test]
    fn hosts_that_wait_long_are_told_where_all_else_is_well() {
        for (waited, expected) in [
            (1, None),
            (60, Some("hosts are not given back: pod x still runs")),
        ] {
            let drain = Drain::Waits {
                known: None,
                why: "pod x still runs".to_owned(),
                waited: std::time::Duration::from_secs(waited),
            };
            let said = of(
                1,
                &Placement::default(),
                &[done("a", None, false, json!({}))],
                &drain,
            );
            let finding = said.finding.unwrap();
            let progressing = (finding.status == Some(false)).then_some(&*finding.message);
            assert_eq!(progressing, expected);
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
