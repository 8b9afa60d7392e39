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
use kit::service::{Findings, Kind, Objects, Prepared, Problem, Rendered, Scope};
use render::load_balancer::{self, Access, Member, Plan, Sidecar};

use crate::{
    balancers::Balancer,
    configurations,
    handover::Handover,
    known_templates::AcceptedTemplate,
    preference::Preference,
    templates::ChosenTemplate,
    texts::{self, CurrentText},
};

/// Pause after which the agent reads the state of a template check again.
const CHECK_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after which the agent observes again whether pods of the Airship SIP operator exist: the watch of pods triggers no pass for those.
const HANDOVER_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// What rendering a load balancer needs of the API server.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The template to use; `None` where the operators have written none.
    pub(crate) chosen: Option<ChosenTemplate>,
    /// The configuration on the API server; `None` where a sidecar reports which one runs.
    pub(crate) current_text: Option<CurrentText>,
    /// Which pods serve.
    pub(crate) handover: Handover,
}

/// The objects of a load balancer.
pub(crate) fn render(
    scope: Scope<'_>,
    balancer: &Balancer,
    sidecar: Option<&Sidecar>,
    inputs: Inputs,
) -> Rendered {
    let Inputs {
        chosen,
        current_text,
        handover,
    } = inputs;
    let plan = balancer.plan(scope.cluster, sidecar);
    let preference = Preference::new(scope.observed.object(), sidecar);
    let (members, without_address) = balancer.members(scope.members, &preference);
    let (mut objects, problem) = match chosen {
        None => (plan.objects(&members), None),
        Some(chosen) => render_from_template(&plan, &members, chosen),
    };
    handover.adjust(&mut objects);
    let network = balancer.entry().network_id();
    let missing = without_address.into_iter();
    let missing =
        missing.map(|host| Problem::new(NO_ADDRESS, format!("{host} has no address in network {network}")));
    let checking = problem
        .as_ref()
        .is_some_and(|problem| problem.reason != BAD_TEMPLATE);
    Rendered {
        objects: prepare(objects, scope.observed.placement(), current_text.as_ref()),
        findings: Findings {
            problems: missing.collect(),
            substitutes: problem.into_iter().chain(handover.problem()).collect(),
            requeue: checking
                .then_some(CHECK_POLL_INTERVAL)
                .or((handover != Handover::Complete).then_some(HANDOVER_POLL_INTERVAL)),
            ..Findings::default()
        },
    }
}

/// The objects, and what is wrong with the template that they should be rendered by.
fn render_from_template(
    plan: &Plan<'_>,
    members: &[Member],
    chosen: ChosenTemplate,
) -> (load_balancer::Objects, Option<Problem>) {
    let ChosenTemplate {
        accepted,
        mut problem,
        source,
    } = chosen;
    let rendered = accepted.and_then(|AcceptedTemplate { template, image }| {
        match plan.objects_from_template(members, &template, &image) {
            Ok(objects) => Some(objects),
            // The image has accepted the template with other members.
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

/// Prepares the objects. `held`: the placement in the status. The configuration names its revision even if the text is otherwise the same: a
/// member may come and leave again before any replica has written a text with it, and a former Lease holder may still write that text.
fn prepare(
    rendered: load_balancer::Objects,
    held: Option<&Placement>,
    current_text: Option<&CurrentText>,
) -> Objects<Prepared> {
    let position = held.map(configurations::placement_annotation);
    // A sidecar reports by the digest which configuration it has read.
    let rendered = match &position {
        Some(position) if rendered.access.is_some() => rendered.for_placement(position),
        Some(_) | None => rendered,
    };
    let digest = rendered.config_digest();
    let mark = current_text.and_then(|current_text| current_text.mark(&digest));
    let configuration = texts::with_mark(&digest, mark.as_deref());
    let load_balancer::Objects {
        mut config_map,
        mut deployment,
        service,
        budget,
        policy,
        access,
        config: _,
    } = rendered;
    let position = position.map(|position| (annotations::PLACEMENT, position));
    let mark = mark.map(|mark| (annotations::CONFIG_MARK, mark));
    for (annotation, value) in position.into_iter().chain(mark) {
        let all = config_map.metadata.annotations.get_or_insert_default();
        all.insert(annotation.to_owned(), value);
    }
    let on_pods = deployment.spec.template.metadata.as_mut();
    let on_pods = on_pods.and_then(|metadata| metadata.annotations.as_mut());
    if let Some(hash) = on_pods.and_then(|all| all.get_mut(annotations::CONFIG_HASH)) {
        hash.clone_from(&configuration);
    }
    let objects = Objects::new(service, deployment, configuration)
        .configuration(config_map)
        .guard(policy)
        .guard_or_none(Kind::PodDisruptionBudget, budget);
    match access {
        Some(Access {
            account,
            role,
            binding,
        }) => objects.access(account).access(role).access(binding),
        None => objects.without_access(),
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

    fn chosen(text: Option<&str>, problem: Option<Problem>) -> ChosenTemplate {
        ChosenTemplate {
            accepted: text.map(|text| AcceptedTemplate {
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
                chosen(
                    None,
                    Some(Problem::new(PROGRESSING, "the template is being checked")),
                ),
                Some("the template is being checked; meanwhile: the built-in configuration"),
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
            let (objects, problem) = render_from_template(&plan, &members, chosen);
            let message = problem.map(|problem| problem.message).unwrap_or_default();
            match expected {
                Some(end) => assert!(message.ends_with(end), "{message}"),
                None => assert!(message.is_empty(), "{message}"),
            }
            let objects: Objects<Prepared> = prepare(objects, None, None);
            assert_eq!(objects.name(), "loadbalancer-controlplane-shop");
        }
    }

    #[test]
    fn pods_are_made_for_the_text_and_its_mark() {
        let cluster = cluster();
        let plan = Balancer::all(&cluster).remove(0);
        let hash = |current_text: Option<CurrentText>| {
            let plan = plan.plan(&cluster, None);
            let objects = prepare(plan.objects(&[]), None, current_text.as_ref());
            let template = objects.deployment().spec.template.metadata.clone().unwrap();
            let hash = template.annotations.unwrap()[annotations::CONFIG_HASH].clone();
            assert_eq!(hash, objects.config_digest());
            hash
        };
        let digest = hash(None);
        let present = |of: &str, mark: Option<&str>| {
            Some(CurrentText::Present {
                digest: of.to_owned(),
                mark: mark.map(str::to_owned),
                version: "9".to_owned(),
            })
        };
        assert_eq!(hash(present(&digest, None)), digest, "the text stays");
        assert_eq!(hash(present(&digest, Some("7"))), format!("{digest}.7"));
        assert_eq!(hash(present("another", Some("7"))), format!("{digest}.9"));
    }

    #[test]
    fn a_text_that_comes_back_for_a_sidecar_is_another_one() {
        let cluster = cluster();
        let balancer = Balancer::all(&cluster).remove(0);
        let sidecar = Sidecar {
            image: "sidecar:1".parse().unwrap(),
        };
        let digest = |sidecar: Option<&Sidecar>, revision: u64| {
            let held = json!({"epoch": 1, "revision": revision, "generation": 1, "members": [{
                "namespace": "metal", "name": "h1", "uid": "u", "role": "Worker", "state": "Releasing", "revision": revision,
            }]});
            let held: Placement = serde_json::from_value(held).unwrap();
            let objects = prepare(balancer.plan(&cluster, sidecar).objects(&[]), Some(&held), None);
            objects.config_digest().to_owned()
        };
        assert_eq!(digest(Some(&sidecar), 5), digest(Some(&sidecar), 5));
        assert_ne!(digest(Some(&sidecar), 5), digest(Some(&sidecar), 7));
        // Without one a change of the text rolls the pods, so a mark tells texts apart.
        assert_eq!(digest(None, 5), digest(None, 7));
    }

    #[test]
    fn without_a_sidecar_pods_have_no_rights() {
        let cluster = cluster();
        let balancer = Balancer::all(&cluster).remove(0);
        let sidecar = Sidecar {
            image: "sidecar:1".parse().unwrap(),
        };
        for (sidecar, expected) in [(Some(&sidecar), false), (None, true)] {
            let objects = prepare(balancer.plan(&cluster, sidecar).objects(&[]), None, None);
            for kind in [Kind::RoleBinding, Kind::Role, Kind::ServiceAccount] {
                assert_eq!(objects.without().contains(&kind), expected, "{kind:?}");
            }
        }
    }
}
