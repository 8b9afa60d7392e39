//! Whose the consumer of a member's host is, and what the host needs then.
//!
//! Where the policy on consumers is in force, a consumer of another Cluster can only be an older one or that of an exempt user.

use api::{Belongs, ClusterApiCluster, ConsumerReference, describe_consumer, labels};
use kit::placement::{ClusterId, Member};
use proto::inventory::v1 as wire;

use serde_json::{Value, json};

use super::need::Need;

/// Which Cluster API cluster the hosts of a SIPCluster are for, as the host must say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serves {
    tenant: String,
    meant: ClusterApiCluster,
    /// Value of the host's annotation; none where the name of the SIPCluster says it.
    annotation: Option<String>,
}

impl Serves {
    /// `named`: what the SIPCluster names by its annotation.
    pub(super) fn new(cluster: &ClusterId, named: Option<&ClusterApiCluster>) -> Self {
        let annotation = named.map(ToString::to_string);
        Self {
            tenant: cluster.namespace().to_owned(),
            meant: ClusterApiCluster::meant(annotation.as_deref(), cluster.name()),
            annotation,
        }
    }

    /// What a merge patch sets the annotation to, if the host has another one: a text, or null to remove it.
    pub(super) fn change(&self, shown: Option<&str>) -> Option<Value> {
        (self.annotation.as_deref() != shown).then(|| json!(self.annotation))
    }
}

/// What the host of a member needs, its consumer considered. `need`: by its labels; `shown`: its annotation.
pub(super) fn considered(
    need: Need,
    serves: &Serves,
    member: &Member,
    host: &wire::Host,
    shown: Option<&str>,
) -> Need {
    let Some(consumer) = &host.consumer else {
        return match need {
            Need::Nothing if serves.change(shown).is_some() => Need::Label,
            need => need,
        };
    };
    let wire::Consumer {
        api_version,
        kind,
        namespace,
        name,
    } = consumer.clone();
    let consumer = ConsumerReference {
        api_version: Some(api_version),
        kind: Some(kind),
        namespace: Some(namespace),
        name: Some(name),
    };
    let label = host.labels.get(labels::CLUSTER_API).map(String::as_str);
    let releasing = member.is_releasing();
    match (serves.meant.owns(&consumer, &serves.tenant, label), need) {
        // The policy must know first; the next reconcile sees whose the consumer is.
        (_, Need::Nothing) if serves.change(shown).is_some() => Need::Label,
        // A claim was in flight when the host was unlabelled: it is the cluster's again, until its Machine lets it go.
        (Belongs::Yes, Need::Confirm) => Need::Label,
        (Belongs::No, Need::Nothing | Need::Label) if !releasing => stranger(&consumer, label, serves),
        // Its Machine is not asked to go: it is none of ours.
        (Belongs::No, Need::Waits(_)) if releasing => stranger(&consumer, label, serves),
        (_, need) => need,
    }
}

fn stranger(consumer: &ConsumerReference, label: Option<&str>, serves: &Serves) -> Need {
    Need::Blocked(format!(
        "it is used by {}, and this SIPCluster serves {}: delete the Machine that uses it, or name its Cluster in annotation {} of the SIPCluster",
        describe_consumer(consumer, label),
        serves.meant,
        api::annotations::CLUSTER_API_CLUSTER,
    ))
}

#[cfg(test)]
mod tests {
    use api::MemberState::{self, Bound, Releasing};

    use super::*;
    use crate::fixtures::{host, inventory, key, labelled, member, reference, used, with};

    fn need(object: Value, state: MemberState, need: Need) -> Need {
        let host = inventory([object]).host(&key("h1")).unwrap();
        let serves = Serves::new(&reference(), None);
        considered(
            need,
            &serves,
            &member("h1", state),
            &host.host,
            host.cluster_api.as_deref(),
        )
    }

    fn of_cluster(object: Value, cluster: &str) -> Value {
        with(
            used(object),
            "/metadata/labels/cluster.x-k8s.io~1cluster-name",
            json!(cluster),
        )
    }

    #[test]
    fn a_stranger_blocks_a_member_and_its_release() {
        let shown = || of_cluster(labelled(host("h1"), "one", "Worker"), "two");
        for (state, before) in [
            (Bound, Need::Nothing),
            (Bound, Need::Label),
            (Releasing, Need::Waits("it is still used".to_owned())),
        ] {
            let Need::Blocked(why) = need(shown(), state, before) else {
                panic!("not blocked")
            };
            assert!(
                why.contains("Metal3Machine tenant/m-0 of the Cluster API cluster two"),
                "{why}"
            );
        }
        let own = of_cluster(labelled(host("h1"), "one", "Worker"), "one");
        assert_eq!(need(own, Bound, Need::Nothing), Need::Nothing);
    }

    #[test]
    fn a_claim_in_flight_gets_its_labels_back() {
        assert_eq!(
            need(of_cluster(host("h1"), "one"), Releasing, Need::Confirm),
            Need::Label
        );
        assert_eq!(
            need(of_cluster(host("h1"), "two"), Releasing, Need::Confirm),
            Need::Confirm
        );
        assert_eq!(
            need(used(host("h1")), Releasing, Need::Confirm),
            Need::Confirm,
            "nobody knows whose it is"
        );
        assert_eq!(need(host("h1"), Releasing, Need::Confirm), Need::Confirm);
    }

    #[test]
    fn the_annotation_follows_the_sip_cluster() {
        let old = with(
            labelled(host("h1"), "one", "Worker"),
            "/metadata/annotations/sip.airshipit.org~1cluster-api-cluster",
            json!("old"),
        );
        assert_eq!(need(old, Bound, Need::Nothing), Need::Label);
    }
}
