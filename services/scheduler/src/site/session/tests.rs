//! The rules of reporters and sessions by themselves. `tests/protocol/sessions.rs` tests them with a ledger and restarts.

use super::*;

const SITE: &str = "a";
/// Just too short a silence.
const BRIEF: Duration = KEEPALIVE.saturating_sub(Duration::from_secs(1));

fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(1)
}

fn fence(lease: &str, transitions: i64) -> Fence {
    Fence {
        lease: lease.to_owned(),
        transitions,
    }
}

/// Of a site whose latest reporter was `second#5`, which has replaced the Lease `first`. `heard` is its last sign of life.
fn after_second(heard: Option<SystemTime>) -> Sessions {
    let fence = SiteFence {
        highest: fence("second", 5),
        retired: ["first".to_owned()].into(),
    };
    Sessions {
        heard,
        ..Sessions::new(Some(fence))
    }
}

/// The message for a reporter whom a site refuses after `second#5`.
fn message(reporter: &Fence, refusal: Refusal) -> String {
    let by = refusal.superseded_by(SITE, &fence("second", 5));
    format!("reporter {reporter} of site {SITE} has been superseded by {by}")
}

#[test]
fn lease_counter_and_silence_decide_who_may_report() {
    for (reporter, silence, expected) in [
        (fence("second", 5), Duration::ZERO, Ok(None)),
        (
            fence("second", 6),
            Duration::ZERO,
            Ok(Some("reporter second#6 takes over from second#5")),
        ),
        (fence("second", 4), KEEPALIVE, Err(Refusal::EarlierHolder)),
        (fence("first", 9), KEEPALIVE, Err(Refusal::RetiredLease)),
        (fence("third", 1), BRIEF, Err(Refusal::LiveReporter)),
        (
            fence("third", 1),
            KEEPALIVE,
            Ok(Some("reporter third#1 has another Lease and replaces second#5")),
        ),
    ] {
        let mut sessions = after_second(Some(start()));

        let opened = sessions.open(SITE, &reporter, start() + silence);

        let latest = if opened.is_ok() {
            reporter.clone()
        } else {
            fence("second", 5)
        };
        assert_eq!(sessions.fence().unwrap().highest, latest);
        let raised = opened.map(|opened| opened.raised.map(|(_, why)| why));
        assert_eq!(
            raised.map_err(|error| error.to_string()),
            expected
                .map(|why| why.map(str::to_owned))
                .map_err(|refusal| message(&reporter, refusal))
        );
    }
}

#[test]
fn a_lease_is_retired_when_another_replaces_it() {
    let mut sessions = after_second(Some(start()));

    sessions
        .open(SITE, &fence("third", 1), start() + KEEPALIVE)
        .unwrap();

    let retired = sessions.fence().unwrap().retired;
    assert_eq!(retired, BTreeSet::from(["first".to_owned(), "second".to_owned()]));
}

#[test]
fn an_open_session_keeps_another_lease_out() {
    let mut sessions = after_second(Some(start()));
    let session = sessions.open(SITE, &fence("second", 5), start()).unwrap().session;
    let (third, end) = (fence("third", 1), start() + KEEPALIVE * 2);

    let refused = sessions.open(SITE, &third, end).unwrap_err();

    assert_eq!(refused.to_string(), message(&third, Refusal::LiveReporter));
    sessions.close(&session.id, end);
    let early = sessions.open(SITE, &third, end + BRIEF);
    assert!(early.is_err(), "the wait begins at the end of the session");
    sessions.open(SITE, &third, end + KEEPALIVE).unwrap();
}

#[test]
fn a_wait_of_unknown_start_begins_with_the_first_try() {
    for (what, heard) in [
        ("before this process began", None),
        ("before the clock was set back", Some(start() + KEEPALIVE * 100)),
    ] {
        let (mut sessions, third) = (after_second(heard), fence("third", 1));
        for silence in [Duration::ZERO, BRIEF] {
            assert!(sessions.open(SITE, &third, start() + silence).is_err(), "{what}");
        }
        assert!(sessions.open(SITE, &third, start() + KEEPALIVE).is_ok(), "{what}");
    }
}

#[test]
fn the_number_of_retired_leases_is_limited() {
    for (number, refusal) in [
        (MAX_RETIRED_LEASES - 1, None),
        (MAX_RETIRED_LEASES, Some(Refusal::TooManyLeases)),
    ] {
        let mut sessions = Sessions::new(Some(SiteFence {
            highest: fence("second", 5),
            retired: (0..number).map(|number| format!("old-{number}")).collect(),
        }));
        sessions.heard = Some(start());
        let third = fence("third", 1);

        let opened = sessions.open(SITE, &third, start() + KEEPALIVE);

        let error = opened.err().map(|error| error.to_string());
        assert_eq!(error, refusal.map(|refusal| message(&third, refusal)));
    }
}

#[test]
fn refusals_name_the_latest_reporter_and_what_helps() {
    for (refusal, helps) in [
        (Refusal::EarlierHolder, ""),
        (Refusal::RetiredLease, "`sipctl site reset-fence a`"),
        (Refusal::LiveReporter, "when second#5 has sent nothing for 30 s"),
        (Refusal::TooManyLeases, "`sipctl site reset-fence a`"),
    ] {
        let by = refusal.superseded_by(SITE, &fence("second", 5));
        assert!(by.starts_with("second#5") && by.contains(helps), "{by}");
    }
}

#[test]
fn only_the_current_session_may_report() {
    let mut sessions = Sessions::new(None);
    let old = sessions.open(SITE, &fence("first", 1), start()).unwrap().session;
    let Opened {
        session: new,
        raised: _,
        replaced,
    } = sessions.open(SITE, &fence("first", 2), start()).unwrap();

    replaced.unwrap().cancel();

    assert!(old.superseded.is_cancelled() && !new.superseded.is_cancelled());
    let refusals = [
        sessions.require_current(SITE, &old.id).err(),
        sessions.seen(SITE, &old.id, start()).err(),
        sessions.complete(SITE, &old.id, start()).err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(Error::Superseded { what: _, by: _ })));
    }
    assert!(sessions.snapshot(&old.id).is_none() && sessions.snapshot_mut(&old.id).is_none());
    sessions.close(&old.id, start());
    sessions.require_current(SITE, &new.id).unwrap();
    assert!(sessions.snapshot(&new.id).is_some() && sessions.snapshot_mut(&new.id).is_some());
}

#[test]
fn a_site_is_synced_from_its_snapshot_to_the_end() {
    let state = |sessions: &Sessions| {
        let missing = sessions.require_synced(SITE).err();
        (sessions.synced(), missing.map(|error| error.to_string()))
    };
    let not_synced = |why| {
        let site = SITE.to_owned();
        (false, Some(Error::NotSynced { site, why }.to_string()))
    };
    let nobody = not_synced("no cluster agent reports it at present");
    let reporting = not_synced("its snapshot is not complete");
    let mut sessions = Sessions::new(None);
    assert_eq!(state(&sessions), nobody);

    for transitions in 1..=2 {
        let opened = sessions.open(SITE, &fence("first", transitions), start());
        let id = opened.unwrap().session.id;
        assert_eq!(state(&sessions), reporting);
        sessions.complete(SITE, &id, start()).unwrap();
        assert_eq!(state(&sessions), (true, None));
        let again = sessions.complete(SITE, &id, start());
        assert!(matches!(again, Err(Error::Protocol(_))));
        if transitions == 2 {
            sessions.close(&id, start());
        }
    }
    assert_eq!(state(&sessions), nobody);
}

#[test]
fn a_snapshot_counts_the_hosts_that_it_has_named() {
    let mut sessions = Sessions::new(None);
    let opened = sessions.open(SITE, &fence("first", 1), start()).unwrap();
    let id = opened.session.id;
    assert_eq!(sessions.named_hosts(), 0);
    let named = ["h1", "h2", "h1"].map(|name| HostName::new("metal", name).unwrap());

    let seen = sessions.seen(SITE, &id, start()).unwrap().unwrap();
    seen.hosts.extend(named);

    assert_eq!(sessions.named_hosts(), 2);
    let seen = sessions.complete(SITE, &id, start()).unwrap();
    assert_eq!((seen.hosts.len(), sessions.named_hosts()), (2, 0));
    assert!(sessions.seen(SITE, &id, start()).unwrap().is_none());
}

#[test]
fn a_reset_ends_the_session_and_admits_any_lease() {
    let mut sessions = after_second(Some(start()));
    let opened = sessions.open(SITE, &fence("second", 5), start()).unwrap();

    let former = sessions.reset().unwrap();

    assert_eq!(former.highest, fence("second", 5));
    assert!(opened.session.superseded.is_cancelled());
    assert!(sessions.require_current(SITE, &opened.session.id).is_err());
    let opened = sessions.open(SITE, &fence("first", 1), start()).unwrap();
    let (_, why) = opened.raised.unwrap();
    assert_eq!(why, "reporter first#1 is the first");
}
