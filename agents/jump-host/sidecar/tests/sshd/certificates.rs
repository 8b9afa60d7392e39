//! Certificates of an authority that the spec names.

use crate::{
    keys::Key,
    rig::{Desired, Pod, possible},
};

#[tokio::test]
async fn certificates_log_in_with_principal_time_and_source() {
    if !possible() {
        return;
    }
    let (authority, stranger, listed) = (Key::new("authority"), Key::new("stranger"), Key::new("listed"));
    let desired = Desired {
        authorities: vec![authority.public()],
        ..Desired::with_key(&listed)
    };
    let pod = Pod::start(&desired).await;
    for (what, certificate, expected) in [
        ("the account", authority.issues("ana", "ubuntu", &[]), true),
        ("the cluster", authority.issues("ana", "orders", &[]), true),
        (
            "one of two",
            authority.issues("ana", "root,orders", &["-V", "+1h"]),
            true,
        ),
        (
            "another principal",
            authority.issues("ana", "root,payments", &[]),
            false,
        ),
        (
            "an expired one",
            authority.issues("ana", "ubuntu", &["-V", "20200101:20200102"]),
            false,
        ),
        (
            "one that is not valid yet",
            authority.issues("ana", "ubuntu", &["-V", "20980101:20990102"]),
            false,
        ),
        (
            "another source",
            authority.issues("ana", "ubuntu", &["-O", "source-address=192.0.2.0/24"]),
            false,
        ),
        (
            "its source",
            authority.issues("ana", "ubuntu", &["-O", "source-address=127.0.0.0/8"]),
            true,
        ),
        (
            "a strange authority",
            stranger.issues("ana", "ubuntu", &[]),
            false,
        ),
        (
            "a host's certificate",
            authority.issues("ana", "ubuntu", &["-h"]),
            false,
        ),
    ] {
        let let_in = pod.lets_in(&certificate);
        assert_eq!(let_in.is_ok(), expected, "{what}: {let_in:?}\n{}", pod.log());
    }
    pod.lets_in(&listed).unwrap();
}

#[tokio::test]
async fn without_an_authority_no_certificate_logs_in() {
    if !possible() {
        return;
    }
    let (authority, listed) = (Key::new("authority"), Key::new("listed"));
    // The authority's key may log in, which gives it no right to issue.
    let mut desired = Desired::with_key(&listed);
    desired.keys.push(authority.public());
    let pod = Pod::start(&desired).await;
    pod.lets_in(&authority).unwrap();
    assert!(pod.lets_in(&authority.issues("ana", "ubuntu", &[])).is_err());
}
