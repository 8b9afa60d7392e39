use std::{
    panic,
    sync::atomic::{AtomicU32, Ordering},
};

use tokio::time;

use super::*;

fn digests(password: &str) -> (Digests, Error) {
    let bind = Bind::with_password(password);
    (bind.digests(), bind.unanswered("lost".to_owned()))
}

/// Answers after a second, and counts.
fn directory(
    answer: BindResult,
    count: &Arc<AtomicU32>,
) -> impl Future<Output = BindResult> + Send + 'static {
    let count = Arc::clone(count);
    async move {
        count.fetch_add(1, Ordering::SeqCst);
        time::sleep(Duration::from_secs(1)).await;
        answer
    }
}

/// How often an account binds in a time, if every bind has this answer, and one is wanted every 10 s.
async fn binds(refusals: &Refusals, answer: &BindResult, lasting: Duration) -> u32 {
    let count = Arc::default();
    let began = Instant::now();
    let mut pace = time::interval(CHECK_INTERVAL);
    while began.elapsed() < lasting {
        pace.tick().await;
        let binding = || directory(answer.clone(), &count);
        refusals.answer(digests("right"), binding).await;
    }
    count.load(Ordering::SeqCst)
}

fn refused() -> BindResult {
    Err(Error::Refused {
        address: "ldap:636".to_owned(),
        account: "cn=search".to_owned(),
        reason: "invalid credentials".to_owned(),
    })
}

fn unanswered() -> BindResult {
    Err(Error::Unanswered {
        address: "ldap:636".to_owned(),
        account: "cn=search".to_owned(),
        reason: "no answer within 5 s".to_owned(),
    })
}

fn failed() -> BindResult {
    Err(Error::Failed {
        address: "ldap:636".to_owned(),
        reason: "result code 51".to_owned(),
    })
}

fn unreachable() -> BindResult {
    Err(Error::Unreachable {
        address: "ldap:636".to_owned(),
        reason: "connection refused".to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_refused_account_binds_in_growing_pauses() {
    let hour = Duration::from_hours(1);
    // After 0, 20, 60, 140, 300 and 620 s, then every 10 minutes; without pauses 360 times.
    for answer in [refused(), unanswered()] {
        let found = binds(&Refusals::default(), &answer, hour).await;
        assert!((9..=11).contains(&found), "{found} {answer:?}");
    }
    for answer in [Ok(()), unreachable(), failed()] {
        let found = binds(&Refusals::default(), &answer, hour).await;
        assert!(found >= 360, "{found} {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn equal_concurrent_binds_are_one() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    let bind = || refusals.answer(digests("wrong"), || directory(refused(), &count));
    let answers = futures::future::join_all((0..50).map(|_| bind())).await;
    assert!(answers.iter().all(|answer| *answer == Some(refused())));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // The next pause is the first one.
    time::sleep(CHECK_INTERVAL * 2).await;
    bind().await;
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// They all wait for a slot before one begins.
#[tokio::test(start_paused = true)]
async fn equal_binds_that_wait_for_a_slot_are_one() {
    let (refusals, others, count) = (Refusals::default(), Arc::default(), Arc::default());
    for other in 0..MAX_CONCURRENT_BINDS {
        let bind = refusals.answer(digests(&other.to_string()), || directory(Ok(()), &others));
        let _ = time::timeout(Duration::from_millis(1), bind).await;
    }
    let bind = || refusals.answer(digests("wrong"), || directory(refused(), &count));
    let answers = futures::future::join_all((0..50).map(|_| bind())).await;
    assert!(answers.iter().all(|answer| *answer == Some(refused())));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// A CA, or `startTLS`, that somebody changes is no other account.
#[tokio::test(start_paused = true)]
async fn binds_of_one_account_come_one_after_another() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    let of = |whole: u8| {
        let (Digests { account, .. }, lost) = digests("wrong");
        let whole = [whole; 32];
        (Digests { account, whole }, lost)
    };
    let bind = |whole, answer: BindResult| {
        let count = Arc::clone(&count);
        let refusals = refusals.clone();
        async move {
            let directory = || directory(answer.clone(), &count);
            refusals.answer(of(whole), directory).await
        }
    };
    // One cannot connect; then each has an answer of its own.
    let began = Instant::now();
    let (first, second) = tokio::join!(bind(0, unreachable()), bind(1, Ok(())));
    assert_eq!((first, second), (Some(unreachable()), Some(Ok(()))));
    assert_eq!((count.load(Ordering::SeqCst), began.elapsed().as_secs()), (2, 2));
    let (first, second) = tokio::join!(bind(0, refused()), bind(1, refused()));
    assert_eq!((first, second), (Some(refused()), Some(refused())));
    assert_eq!(bind(2, refused()).await, Some(refused()));
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// It may have been refused again, and it is not known for how long the directory cannot be reached.
#[tokio::test(start_paused = true)]
async fn a_directory_that_fails_after_refusals_keeps_its_pause() {
    for (then, expected) in [(failed(), 5..=7), (unreachable(), 360..=420)] {
        let (refusals, hour) = (Refusals::default(), Duration::from_hours(1));
        binds(&refusals, &refused(), hour).await;
        time::sleep(MAX_BIND_PAUSE).await;
        let found = binds(&refusals, &then, hour).await;
        assert!(expected.contains(&found), "{found} {then:?}");
        if then == failed() {
            let held = refusals.answer(digests("right"), || async { Ok(()) });
            assert_eq!(held.await, Some(failed()), "what the directory answered last");
        }
        let again = binds(&refusals, &refused(), hour).await;
        assert!((6..=7).contains(&again), "{again} {then:?}");
    }
}

/// Somebody edits the spec again and again, and each edit ends the check.
#[tokio::test(start_paused = true)]
async fn a_check_that_ends_does_not_end_its_bind() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    let began = Instant::now();
    while began.elapsed() < Duration::from_hours(1) {
        let bind = refusals.answer(digests("wrong"), || directory(refused(), &count));
        let _ = time::timeout(Duration::from_millis(300), bind).await;
        time::sleep(Duration::from_millis(300)).await;
    }
    let found = count.load(Ordering::SeqCst);
    assert!((9..=11).contains(&found), "{found}");
}

/// Somebody changes the password, and changes it back.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_known_while_another_password_is_tried() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    for round in 0..100 {
        let password = ["wrong", "also wrong"][round % 2];
        let found = refusals
            .answer(digests(password), || directory(refused(), &count))
            .await;
        assert_eq!(found, Some(refused()));
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // One that is accepted begins anew.
    time::sleep(CHECK_INTERVAL * 2).await;
    let accepted = refusals.answer(digests("wrong"), || directory(Ok(()), &count));
    assert_eq!(accepted.await, Some(Ok(())));
    refusals
        .answer(digests("wrong"), || directory(refused(), &count))
        .await;
    time::sleep(CHECK_INTERVAL * 2).await;
    refusals
        .answer(digests("wrong"), || directory(refused(), &count))
        .await;
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn refused_accounts_are_bounded_and_forgotten() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    for password in 0..MAX_REFUSED_ACCOUNTS + 10 {
        let bind = digests(&password.to_string());
        let (Digests { account, .. }, _) = bind;
        refusals.answer(bind, || directory(refused(), &count)).await;
        let known = refusals.0.accounts();
        assert!(known.refused.len() <= MAX_REFUSED_ACCOUNTS && known.refused.contains_key(&account));
    }
    assert!(!refusals.are_unused(Instant::now()));
    let user = refusals.clone();
    let later = Instant::now() + REFUSAL_TTL + MAX_BIND_PAUSE;
    assert!(!refusals.are_unused(later));
    drop(user);
    assert!(refusals.are_unused(later));
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_end_the_pauses() {
    let refusals = Refusals::default();
    binds(&refusals, &refused(), Duration::from_mins(20)).await;
    binds(&refusals, &unreachable(), REFUSAL_TTL * 2).await;
    // It was asked for a moment ago.
    assert!(!refusals.are_unused(Instant::now() + REFUSAL_TTL - CHECK_INTERVAL * 3));
    assert!(refusals.are_unused(Instant::now() + REFUSAL_TTL + CHECK_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn a_bind_waits_for_a_slot_for_a_bounded_time() {
    let refusals = Refusals::default();
    let hangs = || async {
        time::sleep(Duration::from_mins(1)).await;
        unreachable()
    };
    for other in 0..MAX_CONCURRENT_BINDS {
        let bind = refusals.answer(digests(&other.to_string()), hangs);
        let _ = time::timeout(Duration::from_millis(1), bind).await;
    }
    let began = Instant::now();
    assert_eq!(refusals.answer(digests("last"), hangs).await, None);
    assert!(began.elapsed() <= BIND_WAIT_TIMEOUT + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_a_bounded_number_of_binds() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    for password in 0..MAX_CONCURRENT_BINDS * 2 {
        let bind = refusals.answer(digests(&password.to_string()), || directory(Ok(()), &count));
        let _ = time::timeout(Duration::from_millis(1), bind).await;
    }
    let begun = usize::try_from(count.load(Ordering::SeqCst)).unwrap();
    assert_eq!(begun, MAX_CONCURRENT_BINDS);
    // They end, and others begin.
    assert_eq!(
        refusals
            .answer(digests("last"), || directory(Ok(()), &count))
            .await,
        Some(Ok(()))
    );
}

/// Its password may have been sent.
#[tokio::test(start_paused = true)]
async fn a_bind_that_panics_is_tried_again_after_a_pause() {
    let (refusals, count) = (Refusals::default(), Arc::default());
    let (bind, lost) = digests("right");
    let failing = || async { panic::resume_unwind(Box::new(())) };
    let found = refusals.answer((bind, lost.clone()), failing).await;
    assert_eq!(found, Some(Err(lost.clone())));
    let again = async || {
        let binding = || directory(Ok(()), &count);
        refusals.answer(digests("right"), binding).await
    };
    assert_eq!(again().await, Some(Err(lost)));
    time::sleep(CHECK_INTERVAL * 2).await;
    assert_eq!(again().await, Some(Ok(())));
}

/// A directory hangs for each of many ways to connect to it.
#[tokio::test(start_paused = true)]
async fn a_bind_waits_for_others_of_its_account_for_a_bounded_time() {
    let refusals = Refusals::default();
    let began = Instant::now();
    let binds = (0..20).map(|whole: u8| {
        let (Digests { account, .. }, lost) = digests("right");
        let whole = [whole; 32];
        let hangs = || async {
            time::sleep(Duration::from_secs(5)).await;
            unreachable()
        };
        refusals.answer((Digests { account, whole }, lost), hangs)
    });
    let found = futures::future::join_all(binds).await;
    assert!(
        began.elapsed() <= BIND_WAIT_TIMEOUT + Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(found.iter().any(Option::is_none) && found.contains(&Some(unreachable())));
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_fails_has_no_growing_pauses() {
    let bind = Bind::with_password("right");
    let minute = Duration::from_mins(1);
    // By RFC 4511: operationsError, timeLimitExceeded, busy, unavailable, other.
    for (code, again) in [
        (1, true),
        (3, true),
        (51, true),
        (52, true),
        (80, true),
        (49, false),
        (48, false),
        (53, false),
    ] {
        let found = bind.bind_result("cn=search".to_owned(), code);
        let count = binds(&Refusals::default(), &found, minute).await;
        assert_eq!(count > 3, again, "{count} {found:?}");
    }
    let why = bind.bind_result(String::new(), 48).unwrap_err().to_string();
    assert!(
        why.ends_with("refuses the bind as anonymous: result code 48"),
        "{why}"
    );
}
