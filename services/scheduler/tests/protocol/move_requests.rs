//! A member that somebody asked to move off, and that fails after that.

use std::time::{Duration, SystemTime};

use placement::MemberState::{Bound, Releasing};
use proto::inventory::v1 as wire;

use crate::{
    fixtures::{SITE, Stage, labelled},
    replacement::{GRACE, SHORT, in_error, in_state, now, placed},
};

/// `h2` is claimed in the place of `h1`, or there is no host for it.
#[tokio::test]
async fn a_request_to_move_hides_no_later_error() {
    for hosts in [["h1", "h2"].as_slice(), &["h1"]] {
        let (stage, session) = placed(hosts, 1, Some(GRACE)).await;
        let asked = wire::Host {
            replace_requested: true,
            ..labelled("h1", "one")
        };
        stage.report(&session, std::slice::from_ref(&asked)).await;
        stage.retry().await;
        let requested = stage.now();
        stage.pass(SHORT);
        stage.report(&session, &[in_error(asked, None)]).await;
        stage.retry().await;
        let known = since(&stage).await;
        assert_eq!(known, (Some(requested), true), "an error is no failure yet");

        stage.pass(GRACE.mul_f64(0.9999));
        let retries = tokio::spawn(stage.region.clone().run_retries());
        // What has changed is looked at, and it is too early.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(since(&stage).await, known, "{hosts:?}");
        stage.pass(GRACE);
        let mut durable = stage.region.committer().watch();
        let failed = async {
            while since(&stage).await != (Some(stage.now()), false) {
                durable.changed().await.unwrap();
            }
        };
        let noticed = tokio::time::timeout(Duration::from_secs(10), failed).await;
        retries.abort();
        assert!(noticed.is_ok(), "{hosts:?}: {:?}", since(&stage).await);
        let state = if hosts.len() > 1 { Releasing } else { Bound };
        assert!(now(&stage).await.contains(&in_state("h1", state)), "{hosts:?}");
        let site = stage.region.site(SITE).unwrap();
        assert_eq!(site.read().next_failure(), None, "nothing more is due");
    }
}

/// Since when `h1` is to be replaced, and whether only a person wants it.
async fn since(stage: &Stage) -> (Option<SystemTime>, bool) {
    let record = stage.record("one").await.unwrap();
    let (_, member) = record.members.first_key_value().unwrap();
    (member.failed_since, member.move_requested)
}

/// `failed_since` is the time of what counts: of the request, of the failure, and of the request again.
#[tokio::test]
async fn a_member_that_fails_has_failed_since_then() {
    let (stage, session) = placed(&["h1"], 1, None).await;
    let shown = |asked, marked| wire::Host {
        replace_requested: asked,
        marked_failed: marked,
        ..labelled("h1", "one")
    };
    let report = async |asked, marked| {
        stage.pass(SHORT);
        stage.report(&session, &[shown(asked, marked)]).await;
        since(&stage).await
    };
    let requested = report(true, false).await;
    assert_eq!(requested, (Some(stage.now()), true));
    let failed = report(true, true).await;
    assert_eq!(failed, (Some(stage.now()), false));
    assert_eq!(report(false, true).await, failed);
    let asked_still = (failed.0, true);
    assert_eq!(
        report(true, false).await,
        asked_still,
        "it is to be replaced since then"
    );
    assert_eq!(report(true, true).await, (Some(stage.now()), false));
    assert_eq!(report(false, false).await, (None, false));
}

/// Agents tell a failure by its time, and statuses have whole seconds.
#[tokio::test]
async fn a_failure_just_after_a_request_has_another_second() {
    let (stage, session) = placed(&["h1"], 1, None).await;
    let asked = wire::Host {
        replace_requested: true,
        ..labelled("h1", "one")
    };
    stage.report(&session, std::slice::from_ref(&asked)).await;
    let (requested, _) = since(&stage).await;
    let marked = wire::Host {
        marked_failed: true,
        ..asked
    };
    stage.report(&session, &[marked]).await;
    let (failed, _) = since(&stage).await;
    let between = failed.unwrap().duration_since(requested.unwrap());
    assert_eq!(between.unwrap(), Duration::from_secs(1));
}
