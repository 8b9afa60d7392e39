//! A region's scheduler talks to those whose certificates its authority has signed, and comes back after a crash.
//!
//! Needs the project's programs: `cargo build --workspace --bins`, which `make test` does first.

use std::time::Duration;

use sandbox::{
    authority::{Authority, Caller, Validity},
    region::Region,
};

#[tokio::test]
async fn the_scheduler_lists_its_services_to_its_own_people_only() {
    let region = Region::start("north").await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Authority::new(elsewhere.path(), "north").unwrap();
    let ana = Caller::Operator("ana");
    let mut forged = stranger.issue(&ana).unwrap();
    // It trusts the real scheduler; it is the scheduler that must not trust it.
    forged.authority = region.authority().certificate().to_owned();
    let other_region = "spiffe://sip.example/region/south/operator/ana";
    let late = Validity::EndedAgo(Duration::from_secs(1));
    let cases = [
        ("an operator", region.operator().clone(), true),
        (
            "a reader",
            region.authority().issue(&Caller::Reader("ben")).unwrap(),
            true,
        ),
        ("another authority", forged, false),
        (
            "another region",
            region
                .authority()
                .issue_uri("south", other_region, Validity::DAY)
                .unwrap(),
            false,
        ),
        (
            "a late one",
            region
                .authority()
                .issue_valid(&Caller::Operator("late"), late)
                .unwrap(),
            false,
        ),
    ];

    for (who, identity, welcome) in cases {
        let answer = region.grpcurl(&identity, &["list"]).await.unwrap();

        assert_eq!(answer.success, welcome, "{who}: {answer:?}");
        assert_eq!(
            answer.stdout.contains("sip.placement.v1.PlacementService"),
            welcome,
            "{who}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_killed_scheduler_restarts_on_the_same_port() {
    let mut region = Region::start("north").await.unwrap();
    let before = region.grpcurl(region.operator(), &["list"]).await.unwrap();

    region.scheduler().restart().await.unwrap();
    region.scheduler_is_ready().await.unwrap();

    assert!(before.success, "{before:?}");
    assert_eq!(
        region.grpcurl(region.operator(), &["list"]).await.unwrap(),
        before
    );
}

#[tokio::test]
async fn a_scheduler_ends_by_itself_on_sigterm() {
    let mut region = Region::start("north").await.unwrap();

    let ended = region.scheduler().stop(Duration::from_secs(25)).await.unwrap();

    assert!(
        ended.is_some_and(|status| status.success()),
        "{ended:?}\n{}",
        region.log_tails(20)
    );
}
