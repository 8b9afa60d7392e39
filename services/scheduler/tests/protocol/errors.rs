//! Errors that end, and how long one has lasted.

use std::time::Duration;

use placement::MemberState::{Bound, Claimed, Releasing};

use crate::{
    fixtures::{host, labelled, members, used},
    replacement::{GRACE, declare, in_error, in_state, now, paused, placed, report},
};

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_requested_member_whose_error_has_ended_is_well() {
    let (stage, session) = placed(&["h1", "h2"], 2, Some(GRACE)).await;
    let well = ["h1", "h2"].map(|name| used(labelled(name, "one")));
    stage.report(&session, &well).await;
    let [bad, _] = well.clone();
    stage.report(&session, &[in_error(bad, None)]).await;
    report(&stage).await;
    stage.pass(GRACE);
    report(&stage).await;
    let shrunk = declare(&stage, 1, Some(GRACE)).await;
    let asked_for = [in_state("h1", Releasing), in_state("h2", Bound)];
    assert_eq!(members(&shrunk), asked_for);

    // metal3 says that it is well again, and a host is free.
    let [well, _] = well;
    stage.report(&session, &[well, host("h3")]).await;
    let after = declare(&stage, 2, Some(GRACE)).await;

    assert_eq!(members(&after), [in_state("h1", Bound), in_state("h2", Bound)]);
}

#[tokio::test]
async fn an_error_begins_while_a_release_is_asked_for() {
    let (stage, session) = placed(&["h1", "h2"], 2, Some(GRACE)).await;
    let well = ["h1", "h2"].map(|name| used(labelled(name, "one")));
    stage.report(&session, &well).await;
    let shrunk = declare(&stage, 1, Some(GRACE)).await;
    assert_eq!(
        members(&shrunk),
        [in_state("h1", Bound), in_state("h2", Releasing)]
    );

    let [_, bad] = well;
    stage.report(&session, &[in_error(bad, None), host("h3")]).await;
    report(&stage).await;
    stage.pass(GRACE);
    report(&stage).await;
    let after = declare(&stage, 2, Some(GRACE)).await;

    let states = [("h1", Bound), ("h2", Releasing), ("h3", Claimed)];
    assert_eq!(members(&after), states.map(|(name, state)| in_state(name, state)));
}

#[tokio::test]
async fn an_error_of_a_host_that_came_back_counts_from_its_return() {
    let (stage, session) = placed(&["h1", "h2"], 1, Some(GRACE)).await;
    stage.report(&session, &[paused(labelled("h1", "one"))]).await;
    stage.report_gone(&session, &["h1"]).await;
    report(&stage).await;
    stage.pass(GRACE.checked_sub(MINUTE).unwrap());
    let bad = in_error(labelled("h1", "one"), None);
    stage.report(&session, &[bad]).await;
    for time in [MINUTE, GRACE.checked_sub(MINUTE).unwrap()] {
        report(&stage).await;
        assert_eq!(now(&stage).await, [in_state("h1", Bound)]);
        stage.pass(time);
    }
    report(&stage).await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Releasing), in_state("h2", Claimed)]
    );
}
