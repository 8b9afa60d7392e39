use std::time::{Duration, Instant};

use ::placement::{HostName, LabelKey, LabelValue, Policy};

use super::*;
use crate::{
    ledger::{History, SitePosition},
    observed::{Details, Host, Replaced},
    record::ClusterId,
};

/// A site whose ledger was lost: it is in epoch 2, and statuses are of epoch 1.
struct Stage {
    inventory: Inventory,
    existence: Existence,
    claims: Claims,
    positions: Positions,
    promises: Promises,
    lines: Lines,
}

fn id() -> HostId {
    HostId {
        name: HostName::new("metal", "h1").unwrap(),
        uid: Uid::new("u").unwrap(),
    }
}

fn name(name: &str) -> ClusterName {
    ClusterName::new("tenant", name).unwrap()
}

fn cluster(cluster: &str, state: MemberState, created: u64) -> Cluster {
    Cluster {
        id: ClusterId {
            name: name(cluster),
            uid: cluster.to_owned(),
        },
        generation: 1,
        created: Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(created)),
        deleting: false,
        position: Some(SitePosition::new(1, 5)),
        members: vec![Member {
            host: id(),
            role: RoleName::new("Worker").ok(),
            domain: None,
            state: Some(state),
            revision: 3,
            replaces: None,
            ordinal: None,
            release_reason: None,
        }],
    }
}

impl Stage {
    fn new(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        let mut inventory = Inventory::new(Policy::default());
        inventory.insert(Host::new(::placement::Host::available(id()), Details::default()));
        let mut existence = Existence::default();
        for cluster in clusters {
            existence.observe(cluster);
        }
        let mut positions = Positions::new(History::of_region(2), 0);
        positions.complete();
        Self {
            inventory,
            existence,
            claims: Claims::new(0),
            positions,
            promises: Promises::default(),
            lines: Lines::default(),
        }
    }

    fn renew(&mut self) -> Vec<HostId> {
        let known = PromiseContext {
            site: "a",
            existence: &self.existence,
            claims: &self.claims,
            positions: &self.positions,
            lines: &self.lines,
        };
        self.promises.renew_all(known, &mut self.inventory)
    }
}

#[test]
fn the_older_cluster_has_the_host() {
    let claimed = MemberState::Claimed;
    let mut stage = Stage::new([cluster("one", claimed, 2), cluster("two", claimed, 1)]);
    stage.renew();
    assert_eq!(stage.inventory.holding_cluster(&id()), Some(&name("two")));
    assert!(stage.promises.wants(&id(), &name("two")));
    assert!(!stage.promises.wants(&id(), &name("one")));
}

#[test]
fn a_claim_wins_over_an_older_release() {
    let mut stage = Stage::new([
        cluster("one", MemberState::Releasing, 1),
        cluster("two", MemberState::Claimed, 2),
    ]);
    stage.renew();
    assert_eq!(stage.inventory.holding_cluster(&id()), Some(&name("two")));
}

#[test]
fn a_promise_has_the_domain_of_its_status() {
    let rack = Domain {
        key: LabelKey::new("rack").unwrap(),
        value: LabelValue::new("r1").unwrap(),
    };
    for domain in [Some(rack), None] {
        let mut observed = cluster("one", MemberState::Bound, 1);
        observed.members[0].domain.clone_from(&domain);
        let mut stage = Stage::new([observed]);
        stage.renew();
        let held = stage.promises.held(&name("one")).unwrap();
        assert_eq!(held[&id()].domain, domain);
    }
}

#[test]
fn a_withdrawn_promise_frees_its_host() {
    let mut stage = Stage::new([cluster("one", MemberState::Bound, 1)]);
    assert_eq!(stage.renew(), []);
    assert!(stage.promises.held(&name("one")).is_some());
    let Stage {
        inventory,
        claims,
        promises,
        ..
    } = &mut stage;
    assert_eq!(promises.withdraw(&name("one"), claims, inventory), [id()]);
    assert_eq!(inventory.holder(&id()), None);
}

#[test]
fn a_status_of_this_epoch_promises_nothing() {
    let mut stage = Stage::new([Cluster {
        position: Some(SitePosition::new(2, 5)),
        ..cluster("one", MemberState::Bound, 1)
    }]);
    stage.renew();
    assert_eq!(stage.inventory.holder(&id()), None);
}

/// How long it takes to hold what one status of so many members promises, each of which replaces a member that is gone.
fn renewed(members: usize) -> Duration {
    let named = |name: String| HostName::new("metal", &name).unwrap();
    let mut forged = cluster("one", MemberState::Claimed, 1);
    let first = forged.members[0].clone();
    forged.members = (0..members)
        .map(|number| Member {
            host: HostId {
                name: named(format!("h-{number}")),
                uid: Uid::new("u").unwrap(),
            },
            replaces: Some(Replaced {
                name: named(format!("gone-{number}")),
                uid: None,
            }),
            ..first.clone()
        })
        .collect();
    let mut stage = Stage::new([forged]);
    let begun = Instant::now();
    stage.renew();
    let took = begun.elapsed();
    assert_eq!(
        stage.promises.held(&name("one")).map(BTreeMap::len),
        Some(members)
    );
    took
}

#[test]
fn a_status_of_many_members_takes_no_time_squared() {
    // Compared with each other they would take most of a minute.
    let took = renewed(40_000);
    println!("{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn the_first_member_that_is_not_later_is_beside() {
    let member = |revision: u64, state: MemberState, uid: &str| Member {
        host: HostId {
            name: id().name,
            uid: Uid::new(uid).unwrap(),
        },
        state: Some(state),
        revision,
        ..cluster("one", state, 1).members[0].clone()
    };
    let mut observed = cluster("one", MemberState::Bound, 1);
    let (bound, releasing) = (MemberState::Bound, MemberState::Releasing);
    observed.members = vec![
        member(1, releasing, "a"),
        member(9, bound, "b"),
        member(9, bound, "c"),
        member(4, bound, "d"),
        member(6, bound, "e"),
        member(2, bound, "f"),
    ];
    let status = Status::new(&observed);
    for revision in 0..12 {
        let mut members = observed.members.iter();
        let plain =
            members.find(|other| other.state != Some(MemberState::Releasing) && other.revision <= revision);
        let new = member(revision, MemberState::Claimed, "new");
        assert_eq!(status.beside(&id().name, &new), plain, "{revision}");
    }
    assert!(status.names(&observed.members[5].host));
    assert!(!status.names(&id()));
}

#[test]
fn of_one_revision_only_one_number_tells_a_pair() {
    let member = |revision: u64, ordinal: Option<u32>| Member {
        revision,
        ordinal,
        ..cluster("one", MemberState::Claimed, 1).members[0].clone()
    };
    for (old, new, is_pair) in [
        ((5, Some(0)), (5, Some(0)), true),
        ((5, Some(1)), (5, Some(0)), false),
        ((5, None), (5, Some(0)), true),
        ((5, Some(1)), (5, None), true),
        ((4, Some(1)), (5, Some(0)), true),
        ((6, Some(0)), (5, Some(0)), false),
    ] {
        let mut observed = cluster("one", MemberState::Claimed, 1);
        observed.members = vec![member(old.0, old.1)];
        let status = Status::new(&observed);
        let beside = status.beside(&id().name, &member(new.0, new.1));
        assert_eq!(beside.is_some(), is_pair, "{old:?} {new:?}");
    }
}
