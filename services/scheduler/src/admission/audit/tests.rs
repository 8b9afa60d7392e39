use std::time::Duration;

use runtime::{identity::Caller, tls::PeerIdentity};

use super::*;
use crate::admission::{identity_limits::Limits, site_share::Group};

/// Ten peers without an account: one has called once, and the others have called often.
fn flood(name: impl Fn(usize) -> Caller) -> Vec<Peer> {
    let peers: Vec<_> = (0..10)
        .map(|number| PeerIdentity::Verified(Arc::new(name(number))))
        .map(|identity| Peer::new(([127, 0, 0, 1], 1).into(), identity))
        .collect();
    let crowd = Arc::new(Shared::new(&Group::new(peers[0].identity()), &Limits::default()));
    let error = Error::Limited {
        identity: String::new(),
        limit: Limit::Identities,
        why: String::new(),
        again: Duration::ZERO,
    };
    let metrics = CallMetrics::default();
    slow(&error, (Some(&peers[0]), None, Some(&crowd)), &metrics);
    for peer in peers.iter().skip(1).cycle().take(10_000) {
        slow(&error, (Some(peer), None, Some(&crowd)), &metrics);
    }
    peers
}

#[test]
fn a_flood_of_names_without_an_account_is_disconnected() {
    let peers = flood(|number| Caller::Agent {
        site: "a".parse().unwrap(),
        name: format!("n{number}").parse().unwrap(),
    });
    assert!(peers.iter().skip(1).all(|peer| !peer.disconnect()), "they flood");
    assert!(peers[0].disconnect(), "one call is no flood");
}

#[test]
fn people_without_an_account_are_not_disconnected() {
    let peers = flood(|number| Caller::Operator {
        name: format!("n{number}").parse().unwrap(),
    });
    assert!(peers.iter().all(Peer::disconnect), "all are connected");
}
