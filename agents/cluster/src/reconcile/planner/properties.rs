//! Plans of clusters whose members, hosts and status are drawn at random: what no plan may do, and that executing plans comes to
//! an end.

use std::collections::BTreeSet;

use api::{Cluster, MemberState, SIPCluster};
use k8s_openapi::jiff::Timestamp;
use kit::config::Section;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{answer, cluster, host, labelled, parse, used, with},
    inventory::Inventory,
    reconcile::{fixtures::holding, host_actions::Verb, observation::Evidence, outcomes::Outcomes, status},
};

const NOW: i64 = 1_800_000_000;
const MARK: &str = "/metadata/annotations/sip.airshipit.org~1placement-revision";

/// One member and its host.
#[derive(Clone, Debug)]
struct Drawn {
    state: MemberState,
    labels: Labels,
    mark: Option<u64>,
    consumer: Option<&'static str>,
    host: Existence,
}

#[derive(Clone, Copy, Debug)]
enum Labels {
    None,
    Partial,
    Own,
    Foreign,
}

#[derive(Clone, Copy, Debug)]
enum Existence {
    Same,
    MadeAgain,
    Gone,
}

/// A cluster at generation 3, position (1, 5).
#[derive(Clone, Debug)]
struct Case {
    members: Vec<Drawn>,
    /// Whether the status holds the placement.
    is_held: bool,
    deleting: bool,
    /// Up to which revision each load balancer has applied members, and has drained.
    applied: Option<u64>,
    drained: Option<u64>,
    /// Of a cluster that is being deleted.
    evidence: Evidence,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        prop::sample::select(vec![
            MemberState::Claimed,
            MemberState::Bound,
            MemberState::Releasing,
        ]),
        prop::sample::select(vec![Labels::None, Labels::Partial, Labels::Own, Labels::Foreign]),
        prop::option::of(4..7u64),
        prop::sample::select(vec![None, Some("one"), Some("two"), Some("")]),
        prop::sample::select(vec![
            Existence::Same,
            Existence::Same,
            Existence::Same,
            Existence::MadeAgain,
            Existence::Gone,
        ]),
    )
        .prop_map(|(state, labels, mark, consumer, host)| Drawn {
            state,
            labels,
            mark,
            consumer,
            host,
        })
}

fn case() -> impl Strategy<Value = Case> {
    (
        prop::collection::vec(drawn(), 0..5),
        any::<bool>(),
        any::<bool>(),
        prop::option::of(4..7u64),
        prop::option::of(4..7u64),
        prop::sample::select(vec![
            Evidence::Reported,
            Evidence::Listed(None),
            Evidence::Listed(Some("pod tenant/lb-1".to_owned())),
        ]),
    )
        .prop_map(|(mut members, is_held, deleting, applied, drained, evidence)| {
            if deleting {
                for member in &mut members {
                    member.state = MemberState::Releasing;
                }
            }
            Case {
                members,
                is_held,
                deleting,
                applied,
                drained,
                evidence,
            }
        })
}

fn name(index: usize) -> String {
    format!("h{index}")
}

impl Drawn {
    fn object(&self, index: usize) -> Option<Value> {
        let mut object = host(&name(index));
        object = match self.labels {
            Labels::None => object,
            Labels::Partial => with(
                object,
                "/metadata/labels/sip.airshipit.org~1cluster-name",
                json!("one"),
            ),
            Labels::Own => labelled(object, "one", "Worker"),
            Labels::Foreign => labelled(object, "two", "Worker"),
        };
        if let Some(mark) = self.mark {
            object = with(object, MARK, json!(mark.to_string()));
        }
        if let Some(cluster) = self.consumer {
            object = with(
                used(object),
                "/metadata/labels/cluster.x-k8s.io~1cluster-name",
                json!(cluster),
            );
        }
        match self.host {
            Existence::Same => Some(object),
            Existence::MadeAgain => Some(with(object, "/metadata/uid", json!("another"))),
            Existence::Gone => None,
        }
    }
}

/// A site in which plans are executed.
struct Site {
    object: SIPCluster,
    hosts: Vec<Option<Value>>,
    case: Case,
}

impl Site {
    fn new(case: Case) -> Self {
        let mut status = json!({});
        if let Some(applied) = case.applied {
            status["applied"] = json!([{
                "service": "loadbalancer-worker-one", "epoch": 1, "revision": applied, "generation": 3,
            }]);
        }
        if let Some(drained) = case.drained {
            status["drained"] = json!({ "epoch": 1, "revision": drained });
        }
        if case.is_held {
            status["placement"] = json!({ "epoch": 1, "revision": 5, "generation": 3 });
        }
        let mut object = cluster(&status);
        object.metadata.finalizers = Some(vec![api::FINALIZER.to_owned()]);
        if case.deleting {
            let now = Timestamp::from_second(NOW).unwrap();
            object.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        }
        let hosts = case.members.iter().enumerate();
        Self {
            hosts: hosts.map(|(index, member)| member.object(index)).collect(),
            object,
            case,
        }
    }

    fn holding(&self) -> Holding {
        let members = self.case.members.iter().enumerate();
        let members = members.map(|(index, member)| answer(&name(index), member.state));
        holding(
            members.collect(),
            false,
            self.hosts.iter().flatten().cloned().collect(),
        )
    }

    fn plan(&self) -> Plan {
        let state = if self.case.deleting {
            State::Releasing(self.holding(), self.case.evidence.clone())
        } else {
            let cluster = Cluster::parse(&self.object).unwrap();
            State::Declared(Box::new(cluster), self.holding())
        };
        plan(&Observation {
            object: &self.object,
            not_installed: &BTreeSet::from([Section::JumpHost]),
            now: Timestamp::from_second(NOW).unwrap(),
            state,
        })
    }

    /// Executes the plan, as the API server would. Returns whether anything was written.
    fn carry_out(&mut self, plan: Plan) -> bool {
        let mut wrote = false;
        for action in plan.hosts.iter().flatten() {
            let Some(patch) = action.patch() else { continue };
            let hosts = self.hosts.iter_mut().flatten();
            let object = hosts
                .into_iter()
                .find(|object| object["metadata"]["name"] == patch.host.key().name.as_str())
                .unwrap();
            assert_eq!(object["metadata"]["uid"], patch.host.uid());
            assert_eq!(object["metadata"]["resourceVersion"], patch.resource_version);
            for kind in ["labels", "annotations"] {
                let change = patch.change[kind].as_object().cloned().unwrap_or_default();
                for (key, value) in change {
                    let values = object["metadata"][kind].as_object_mut().unwrap();
                    if value.is_null() {
                        values.remove(&key);
                    } else {
                        values.insert(key, value);
                    }
                }
            }
            let version: u64 = patch.resource_version.parse().unwrap();
            object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            wrote = true;
        }
        if let Some(draft) = plan.status.filter(|_| !plan.status_follows) {
            let own = draft.finish(&Outcomes::default());
            let now = Timestamp::from_second(NOW).unwrap();
            if let Some(change) = status::change(&self.object, own, now) {
                let status = self.object.status.get_or_insert_default();
                status.observed_generation = change.observed_generation;
                status.observed_since = change.observed_since;
                status.placement = change.placement;
                status.counts = change.counts;
                status.roles = change.roles;
                status.state = change.state;
                status.conditions = change.conditions;
                wrote = true;
            }
        }
        wrote
    }

    /// Whether no pod routes to hosts that leave.
    fn is_drained(&self) -> bool {
        let reported = self.case.drained.is_some_and(|revision| revision >= 5);
        match &self.case.evidence {
            Evidence::Listed(routed_by) if self.case.deleting => routed_by.is_none(),
            Evidence::Listed(_) | Evidence::Reported => reported,
        }
    }

    fn is_in_use(&self, host: &str) -> bool {
        let object = self.hosts.iter().flatten();
        let mut object = object.filter(|object| object["metadata"]["name"] == host);
        object.any(|object| object["spec"]["consumerRef"].is_object())
    }

    fn is_labelled(&self, host: &str) -> bool {
        let inventory = Inventory::default();
        for object in self.hosts.iter().flatten() {
            inventory.put_host(&parse(object.clone()));
        }
        let observed = inventory.host(&crate::fixtures::key(host));
        observed.is_some_and(|host| *host.sip_labels() != crate::inventory::SipLabels::default())
    }
}

fn verbs(plan: &Plan) -> Vec<(String, Verb)> {
    let actions = plan.hosts.iter().flatten();
    actions
        .map(|action| (action.host().key().name.clone(), action.verb()))
        .collect()
}

proptest! {
    #[test]
    fn an_observation_has_one_plan(case in case()) {
        let site = Site::new(case);
        prop_assert_eq!(site.plan(), site.plan());
    }

    #[test]
    fn no_host_is_written_before_the_status_holds_the_placement(case in case()) {
        let site = Site::new(case);
        let plan = site.plan();
        prop_assert_eq!(plan.hosts.is_some(), site.case.is_held);
    }

    #[test]
    fn no_claim_is_labelled_that_no_load_balancer_applied(case in case()) {
        let site = Site::new(case);
        let labels = verbs(&site.plan()).iter().any(|(_, verb)| *verb == Verb::Label);
        prop_assert!(!labels || site.case.applied.is_some_and(|revision| revision >= 5));
    }

    #[test]
    fn no_host_is_unlabelled_in_use_or_undrained(case in case()) {
        let site = Site::new(case);
        for (host, verb) in verbs(&site.plan()) {
            if verb == Verb::Unlabel {
                prop_assert!(!site.is_in_use(&host) || !site.is_labelled(&host), "{}", host);
                prop_assert!(site.is_drained());
            }
        }
    }

    #[test]
    fn a_host_has_one_action_at_most(case in case()) {
        let verbs = verbs(&Site::new(case).plan());
        let hosts: BTreeSet<&String> = verbs.iter().map(|(host, _)| host).collect();
        prop_assert_eq!(hosts.len(), verbs.len());
    }

    #[test]
    fn a_plan_carried_out_leaves_nothing_to_do(case in case()) {
        let mut site = Site::new(case);
        // The status, a release, the labels of a claim that came too late, and the status that has them.
        for _ in 0..4 {
            let plan = site.plan();
            site.carry_out(plan);
        }
        let plan = site.plan();
        let writes = verbs(&plan).iter().any(|(_, verb)| verb.writes());
        prop_assert!(!writes, "{:?}", verbs(&plan));
        prop_assert!(!site.carry_out(plan), "the status changes for ever");
    }
}
