//! An entry's objects: by the template of the site's operators if the image accepts it, or else by the last one that it accepted, or
//! else by the built-in configuration. Members never wait for a template. Pure.

use std::time::Duration;

use api::{
    Placement, annotations,
    conditions::{
        load_balancer::{BAD_TEMPLATE, NO_ADDRESS},
        ready::PROGRESSING,
    },
};
use kit::service::{Findings, Kind, Objects, Prepared, Problem, Rendered, Scope, revision};
use render::load_balancer::{self, Access, Member, Plan, Sidecar};

use crate::{
    balancers::Balancer,
    templates::{Accepted, Chosen},
};

/// Pause after which a template check is observed again.
const CHECK_AGAIN: Duration = Duration::from_secs(10);

/// The objects of a load balancer. `chosen`: by which template; `None` where the operators have written none.
pub(crate) fn render(
    scope: Scope<'_>,
    balancer: &Balancer,
    sidecar: Option<&Sidecar>,
    chosen: Option<Chosen>,
) -> Rendered {
    let plan = balancer.plan(scope.cluster, sidecar);
    let (members, without_address) = balancer.members(scope.members);
    let (objects, problem) = match chosen {
        None => (plan.objects(&members), None),
        Some(chosen) => by_template(&plan, &members, chosen),
    };
    let missing = without_address.into_iter();
    let missing =
        missing.map(|host| Problem::new(NO_ADDRESS, format!("{host} has no address in its network")));
    let checking = problem
        .as_ref()
        .is_some_and(|problem| problem.reason != BAD_TEMPLATE);
    Rendered {
        objects: prepared(objects, scope.observed.placement()),
        findings: Findings {
            problems: missing.collect(),
            substitutes: problem.into_iter().collect(),
            requeue: checking.then_some(CHECK_AGAIN),
            ..Findings::default()
        },
    }
}

/// The objects, and what is wrong with the template that they should be rendered by.
fn by_template(
    plan: &Plan<'_>,
    members: &[Member],
    chosen: Chosen,
) -> (load_balancer::Objects, Option<Problem>) {
    let Chosen {
        by,
        mut problem,
        source,
    } = chosen;
    let rendered = by.and_then(|Accepted { template, image }| {
        match plan.objects_by(members, &template, &image) {
            Ok(objects) => Some(objects),
            // It was accepted with other members.
            Err(error) => {
                problem.get_or_insert_with(|| Problem::new(BAD_TEMPLATE, error.to_string()));
                None
            }
        }
    });
    let instead = if rendered.is_some() {
        "the last good template"
    } else {
        "the built-in configuration"
    };
    let problem = problem.map(|Problem { reason, message }| {
        let relation = if reason == PROGRESSING {
            "meanwhile"
        } else {
            "in its place"
        };
        Problem::new(reason, format!("{source}: {message}; {relation}: {instead}"))
    });
    (rendered.unwrap_or_else(|| plan.objects(members)), problem)
}

/// `held`: what the status holds. The configuration names its revision even where its text stays: a member may come and leave again before
/// anybody has written a text with it, and a replica that was leader before may still do so.
fn prepared(rendered: load_balancer::Objects, held: Option<&Placement>) -> Objects<Prepared> {
    let digest = rendered.config_digest();
    let load_balancer::Objects {
        mut config_map,
        deployment,
        service,
        budget,
        policy,
        access,
        config: _,
    } = rendered;
    if let Some(held) = held {
        let position = format!("{}.{}", held.epoch, revision(held));
        let all = config_map.metadata.annotations.get_or_insert_default();
        all.insert(annotations::PLACEMENT.to_owned(), position);
    }
    let objects = Objects::new(service, deployment, digest)
        .configuration(config_map)
        .guard(policy)
        .guard_or_none(Kind::PodDisruptionBudget, budget);
    match access {
        Some(Access {
            account,
            role,
            binding,
        }) => objects.access(account).access(role).access(binding),
        None => objects,
    }
}

#[cfg(test)]
mod tests {
    use api::SIPCluster;
    use kit::service::Objects;
    use render::load_balancer::{Member, template::Template};
    use serde_json::json;

    use super::*;

    fn cluster() -> api::Cluster {
        let object = json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "u"},
            "spec": {"nodes": {}, "services": {"loadBalancerControlPlane": [
                {"image": "haproxy:2.8", "nodeInterfaceId": "oam"},
            ]}},
        });
        let object: SIPCluster = serde_json::from_value(object).unwrap();
        api::Cluster::parse(&object).unwrap()
    }

    fn chosen(by: Option<&str>, problem: Option<Problem>) -> Chosen {
        Chosen {
            by: by.map(|text| Accepted {
                template: Template::parse(text).unwrap(),
                image: "haproxy:2.8".to_owned(),
            }),
            problem,
            source: "ConfigMap sip-system/t, key k".to_owned(),
        }
    }

    #[test]
    fn the_problem_names_what_is_used_in_place_of_a_template() {
        let cluster = cluster();
        let balancer = Balancer::all(&cluster).remove(0);
        let plan = balancer.plan(&cluster, None);
        let members: [Member; 0] = [];
        for (chosen, expected) in [
            (chosen(Some("global\n"), None), None),
            (
                chosen(None, Some(Problem::new(PROGRESSING, "it is being checked"))),
                Some("it is being checked; meanwhile: the built-in configuration"),
            ),
            (
                chosen(Some("global\n"), Some(Problem::new(BAD_TEMPLATE, "so not"))),
                Some("so not; in its place: the last good template"),
            ),
            (
                chosen(Some("{{ servers[0].name }}"), None),
                Some("in its place: the built-in configuration"),
            ),
        ] {
            let (objects, problem) = by_template(&plan, &members, chosen);
            let message = problem.map(|problem| problem.message).unwrap_or_default();
            match expected {
                Some(end) => assert!(message.ends_with(end), "{message}"),
                None => assert!(message.is_empty(), "{message}"),
            }
            let objects: Objects<Prepared> = prepared(objects, None);
            assert_eq!(objects.name(), "loadbalancer-controlplane-shop");
        }
    }
}
