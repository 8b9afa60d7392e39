use futures::{FutureExt as _, StreamExt as _};
use proto::power::v1::Done;

use super::*;

const KEY: &str = "0123456789abcdef";

fn begin(all: &Arc<Operations>, key: &str, host: &str) -> Result<ActionRequest, Error> {
    all.begin("c", Key::parse(key)?, (host, host, host), Action::Reboot, || {
        Ok(())
    })
}

fn new(begun: Result<ActionRequest, Error>) -> (Operation, Follower) {
    match begun.unwrap() {
        ActionRequest::New(operation, follower) => (operation, follower),
        ActionRequest::Repeated(_) => panic!("known"),
    }
}

async fn all_steps(follower: Follower) -> Vec<Result<Option<Step>, tonic::Code>> {
    let steps = follower.steps();
    let steps = steps.map(|step| step.map(|step| step.step).map_err(|status| status.code()));
    steps.collect().await
}

#[tokio::test]
async fn a_repetition_gets_the_same_steps_and_carries_nothing_out() {
    let all = Arc::new(Operations::default());
    let (operation, first) = new(begin(&all, KEY, "h"));
    operation.step(Step::Sent(Sent {}));
    let ActionRequest::Repeated(second) = begin(&all, KEY, "h").unwrap() else {
        panic!("it is carried out again");
    };
    operation.step(Step::Done(Done::default()));
    operation.end(Ok(()));
    let ActionRequest::Repeated(third) = begin(&all, KEY, "h").unwrap() else {
        panic!("it is carried out again");
    };
    let expected = [
        Ok(Some(Step::Sent(Sent {}))),
        Ok(Some(Step::Done(Done::default()))),
    ];
    for follower in [first, second, third] {
        assert_eq!(all_steps(follower).await, expected);
    }
}

#[test]
fn a_key_of_another_cluster_is_another_key() {
    let all = Arc::new(Operations::default());
    let (operation, _) = new(begin(&all, KEY, "h"));
    let key = || Key::parse(KEY).unwrap();
    assert!(all.repeated("c", &key(), "h", Action::Reboot).is_some());
    assert!(all.repeated("d", &key(), "h", Action::Reboot).is_none());
    // A host that has moved from one cluster to the other: neither the first one's steps, nor a second action beside its own.
    let names = ("h", "h", "h");
    let moved = all.begin("d", key(), names, Action::Reboot, || Ok(()));
    assert!(matches!(moved, Err(Error::UnderWay { .. })), "{moved:?}");
    operation.end(Ok(()));
    let _new = new(all.begin("d", key(), names, Action::Reboot, || Ok(())));
}

#[tokio::test]
async fn a_repetition_of_what_failed_fails_in_the_same_way() {
    let all = Arc::new(Operations::default());
    let (operation, _) = new(begin(&all, KEY, "h"));
    operation.end(Err(Status::aborted("x")));
    let ActionRequest::Repeated(again) = begin(&all, KEY, "h").unwrap() else {
        panic!("it is carried out again");
    };
    assert_eq!(all_steps(again).await, [Err(tonic::Code::Aborted)]);
}

#[tokio::test]
async fn an_action_whose_task_is_gone_has_ended() {
    let all = Arc::new(Operations::default());
    let (operation, follower) = new(begin(&all, KEY, "h"));
    drop(operation);
    assert_eq!(all_steps(follower).await, [Err(tonic::Code::Unavailable)]);
    let (operation, follower) = new(begin(&all, "fedcba9876543210", "h"));
    operation.sending();
    drop(operation);
    assert_eq!(all_steps(follower).await, [Err(tonic::Code::Aborted)]);
    new(begin(&all, "another-key-0000", "h"));
}

#[test]
fn a_host_has_one_unfinished_action() {
    let all = Arc::new(Operations::default());
    let (operation, _) = new(begin(&all, KEY, "h"));
    let other = "fedcba9876543210";
    assert!(matches!(begin(&all, other, "h"), Err(Error::UnderWay { .. })));
    let (_other_host, _) = new(begin(&all, other, "i"));
    operation.end(Ok(()));
    new(begin(&all, "another-key-0000", "h"));
}

#[tokio::test]
async fn a_forced_action_supersedes_one_that_is_only_observed() {
    let all = Arc::new(Operations::default());
    let keys = ["another-key-0000", "another-key-0001", "another-key-0002"];
    let begin_by = |cluster: &str, key: &str, action| {
        let key = Key::parse(key).unwrap();
        all.begin(cluster, key, ("h", "h", "h"), action, || Ok(()))
    };
    let under_way = |begun: Result<ActionRequest, Error>| matches!(begun, Err(Error::UnderWay { .. }));
    let (graceful, _) = new(begin(&all, KEY, "h"));
    for stage in ["prepared", "sent"] {
        assert!(under_way(begin_by("c", keys[0], Action::ForceReboot)), "{stage}");
        graceful.sending();
    }
    graceful.sent();
    assert!(under_way(begin_by("c", keys[0], Action::Reboot)), "graceful");
    assert!(
        under_way(begin_by("d", keys[0], Action::ForceOff)),
        "another cluster"
    );
    let refused = || {
        Err(Error::TooManyActions {
            what: String::new(),
            retry_after: RETENTION,
        })
    };
    let key = Key::parse(keys[0]).unwrap();
    let limited = all.begin("c", key, ("h", "h", "h"), Action::ForceOff, refused);
    assert!(matches!(limited, Err(Error::TooManyActions { .. })));
    assert!(
        graceful.superseded().now_or_never().is_none(),
        "what is refused ends nothing"
    );

    let (forced, _) = new(begin_by("c", keys[1], Action::ForceReboot));
    assert!(graceful.superseded().now_or_never().is_some());
    assert!(
        under_way(begin_by("c", keys[2], Action::ForceOff)),
        "the new one is being sent"
    );
    graceful.end(Err(Status::aborted("superseded")));
    forced.sending();
    forced.sent();
    new(begin_by("c", keys[2], Action::ForceOff));
    assert!(forced.superseded().now_or_never().is_some());
}

#[test]
fn a_key_stands_for_one_action() {
    let all = Arc::new(Operations::default());
    let (_operation, _) = new(begin(&all, KEY, "h"));
    for other in [
        all.begin(
            "c",
            Key::parse(KEY).unwrap(),
            ("i", "i", "i"),
            Action::Reboot,
            || Ok(()),
        ),
        all.begin(
            "c",
            Key::parse(KEY).unwrap(),
            ("h", "h", "h"),
            Action::Off,
            || Ok(()),
        ),
    ] {
        assert!(matches!(other, Err(Error::Invalid { .. })));
    }
    // Of another cluster it is another key.
    let begun = all.begin(
        "d",
        Key::parse(KEY).unwrap(),
        ("i", "i", "i"),
        Action::Off,
        || Ok(()),
    );
    new(begun);
    for bad in [
        "",
        "short",
        "with blank 0123456",
        "ümlaut0123456789a",
        &"a".repeat(65),
    ] {
        assert!(Key::parse(bad).is_err(), "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_is_forgotten_a_time_after_its_end() {
    let all = Arc::new(Operations::default());
    let (operation, _) = new(begin(&all, KEY, "h"));
    tokio::time::advance(2 * RETENTION).await;
    assert!(
        matches!(begin(&all, KEY, "h").unwrap(), ActionRequest::Repeated(_)),
        "unfinished"
    );
    operation.end(Ok(()));
    tokio::time::advance(RETENTION.saturating_sub(Duration::from_secs(1))).await;
    assert!(
        matches!(begin(&all, KEY, "h").unwrap(), ActionRequest::Repeated(_)),
        "ended"
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    new(begin(&all, KEY, "h"));
}

#[tokio::test]
async fn a_follower_waits_for_the_next_step() {
    let all = Arc::new(Operations::default());
    let (operation, follower) = new(begin(&all, KEY, "h"));
    let mut steps = Box::pin(follower.steps());
    assert!(steps.next().now_or_never().is_none());
    operation.step(Step::Sent(Sent {}));
    assert!(steps.next().await.unwrap().is_ok());
}
