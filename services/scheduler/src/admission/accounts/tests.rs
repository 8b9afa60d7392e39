use std::num::NonZeroU32;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use runtime::{identity::Caller, tls::Peer};

use super::super::{audit::Refused, call_metrics::CallMetrics, unread::Guard};
use super::*;

fn agent(site: &str, name: &str) -> PeerIdentity {
    PeerIdentity::Verified(Arc::new(Caller::Agent {
        site: site.parse().unwrap(),
        name: name.parse().unwrap(),
    }))
}

fn limit(error: &Error) -> Limit {
    let Error::Limited { limit, .. } = error else {
        panic!("{error}")
    };
    *limit
}

#[test]
fn permits_are_of_one_identity_and_one_kind() {
    let accounts = Accounts::new(Limits::of_each_kind(2));
    let (own, other) = (agent("a", "cluster"), agent("b", "cluster"));
    let account = accounts.account(&own).unwrap();
    let taken: Vec<_> = (0..2).map(|_| account.enter(CallKind::Reads).unwrap()).collect();
    let refused = account.enter(CallKind::Reads).unwrap_err();
    assert_eq!(limit(&refused), Limit::Calls(CallKind::Reads));
    assert!(refused.to_string().contains("site/a/agent/cluster"), "{refused}");
    let _ = account.enter(CallKind::Writes).unwrap();
    let _ = accounts.account(&other).unwrap().enter(CallKind::Reads).unwrap();
    drop(taken);
    let _ = accounts.account(&own).unwrap().enter(CallKind::Reads).unwrap();
}

#[test]
fn a_rate_refusal_carries_a_retry_time() {
    let limits = Limits {
        rate: NonZeroU32::new(1),
        ..Limits::default()
    };
    let account = Accounts::new(limits).account(&agent("a", "cluster")).unwrap();
    for _ in 0..2 {
        let _ = account.enter(CallKind::Reads).unwrap();
    }
    let refused = account.enter(CallKind::Reads).unwrap_err();
    let Error::Limited { limit, again, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(limit, Limit::Rate);
    assert!(
        again > Duration::from_millis(500) && again <= Duration::from_secs(1),
        "{again:?}"
    );
}

#[test]
fn bytes_are_counted_until_they_are_dropped() {
    let account = Accounts::new(Limits::default())
        .account(&agent("a", "cluster"))
        .unwrap();
    let first = account.charge(CallKind::Reads);
    first.add(account.limits.buffer / 2).unwrap();
    let second = account.charge(CallKind::Reads);
    assert_eq!(
        limit(&second.add(account.limits.buffer / 2).unwrap_err()),
        Limit::Buffer
    );
    assert_eq!(limit(&account.enter(CallKind::Reads).unwrap_err()), Limit::Buffer);
    drop(second);
    let _ = account.enter(CallKind::Reads).unwrap();
    drop(first);
    assert!(account.buffer.is_empty() && account.shared.buffer.is_empty());
}

#[test]
fn large_specs_refuse_no_other_call() {
    let account = Accounts::new(Limits::default())
        .account(&agent("a", "cluster"))
        .unwrap();
    let specs = account.charge(CallKind::Writes);
    specs.add_spec(account.limits.buffer).unwrap();
    let refused = account.charge(CallKind::Writes).add_spec(1).unwrap_err();
    assert_eq!(limit(&refused), Limit::Buffer);
    assert!(refused.to_string().contains("requests with a spec"), "{refused}");
    for kind in CallKind::ALL {
        let _ = account.enter(kind).unwrap();
        account.charge(kind).add(1 << 20).unwrap();
    }
}

#[test]
fn names_of_one_site_share_four_times_what_one_has() {
    let limits = Limits {
        rate: NonZeroU32::new(10),
        ..Limits::default()
    };
    let buffer = limits.buffer;
    let accounts = Accounts::new(limits);
    let of = |site: &str, number: usize| accounts.account(&agent(site, &format!("n{number}"))).unwrap();
    let charges: Vec<_> = (0..64)
        .map(|number| {
            let charge = of("a", number).charge(CallKind::Reads);
            let kept = charge.add(buffer / 8);
            (charge, kept)
        })
        .collect();
    let taken = charges.iter().take_while(|(_, kept)| kept.is_ok()).count();
    assert_eq!(
        taken,
        4 + 7,
        "four have room of their own, and seven that of all kinds"
    );
    let refused = charges[taken].1.as_ref().unwrap_err();
    assert_eq!(limit(refused), Limit::Buffer);
    assert!(
        refused.to_string().contains("all agents of its site keep"),
        "{refused}"
    );
    assert!(of("b", 0).charge(CallKind::Reads).add(1).is_ok());
    assert!(of("a", 0).charge(CallKind::Reports).add(buffer / 2).is_ok());
    drop(charges);

    let calls = |site: &str| {
        let names = (0..64).flat_map(|number| [number; 30]);
        names
            .filter(|number| of(site, *number).require_rate(1).is_ok())
            .count()
    };
    let made = calls("a");
    // Four times ten, twice as many at once, and what comes while they are made.
    assert!((80..160).contains(&made), "{made}");
    assert!(of("b", 0).require_rate(1).is_ok());
}

#[test]
fn names_of_one_site_share_permits_and_denials() {
    let accounts = Accounts::new(Limits::of_each_kind(2));
    let of = |site: &str, number: usize| accounts.account(&agent(site, &format!("n{number}"))).unwrap();
    let watches: Vec<_> = (0..64)
        .flat_map(|number| [of("a", number), of("a", number)])
        .map(|account| (account.enter(CallKind::Watches), account))
        .collect();
    let taken = watches.iter().filter(|(permit, _)| permit.is_ok()).count();
    assert_eq!(taken, 8, "four times what one has");
    let refused = watches[127].0.as_ref().unwrap_err();
    assert_eq!(limit(refused), Limit::Calls(CallKind::Watches));
    assert!(refused.to_string().contains("agents of its site"), "{refused}");
    assert!(of("b", 0).enter(CallKind::Watches).is_ok());
    drop(watches);
    assert!(of("a", 0).enter(CallKind::Watches).is_ok());

    let denials = (0..64).flat_map(|number| [number; 30]);
    let audited = denials.filter(|number| of("a", *number).denied().is_ok()).count();
    // Four times twenty, twice as many at once, and what comes meanwhile.
    assert!((160..240).contains(&audited), "{audited}");
    assert!(of("b", 0).denied().is_ok());
}

#[test]
fn idle_identities_make_room_and_busy_ones_stay() {
    let limits = Limits {
        identities: 2,
        ..Limits::default()
    };
    let accounts = Accounts::new(limits);
    let busy = accounts.account(&agent("a", "one")).unwrap();
    accounts.account(&agent("a", "two")).unwrap();
    let another = accounts.account(&agent("a", "three")).unwrap();
    let refused = accounts.account(&agent("a", "four")).unwrap_err().error;
    assert_eq!(limit(&refused), Limit::Identities);
    accounts.account(&agent("b", "one")).unwrap();
    drop((busy, another));
    accounts.account(&agent("a", "four")).unwrap();
}

#[test]
fn an_account_with_withheld_lines_stays_until_its_notice() {
    let limits = Limits {
        identities: 1,
        ..Limits::default()
    };
    let accounts = Accounts::new(limits);
    let withheld = |name: &str| {
        let account = accounts.account(&agent("a", name)).unwrap();
        account.lines.withhold_denied();
    };
    withheld("one");
    let refused = accounts.account(&agent("a", "two")).unwrap_err().error;
    assert_eq!(limit(&refused), Limit::Identities);
    withheld("one");
    accounts.write_notices();
    let two = accounts.account(&agent("a", "two")).unwrap();
    assert!(!two.lines.has_withheld());
}

#[test]
fn denials_of_identities_without_an_account_are_noticed() {
    let limits = Limits {
        identities: 1,
        ..Limits::default()
    };
    let accounts = Accounts::new(limits);
    let _one = accounts.account(&agent("a", "one")).unwrap();
    let Crowded { error, shared } = *accounts.account(&agent("a", "two")).unwrap_err();
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), agent("a", "two"));
    let metrics = CallMetrics::default();
    let _ = Refused::new(&metrics, Some(&peer)).crowded(error, &shared);
    assert!(shared.crowd.lines.has_withheld());
    accounts.write_notices();
    assert!(!shared.crowd.lines.has_withheld());
}

#[test]
fn refusals_of_others_neither_slow_nor_disconnect() {
    let accounts = Accounts::new(Limits::default());
    let now = Instant::now();
    let mut disconnected = 0;
    for other in 0..10 {
        let other = accounts.account(&agent("a", &format!("other-{other}"))).unwrap();
        for _ in 0..5000 {
            disconnected += usize::from(other.refused(now).1);
        }
    }
    assert!(disconnected > 0, "a flood is disconnected");
    let own = accounts.account(&agent("a", "cluster")).unwrap();
    let (wait, exceeds_limit) = own.refused(now);
    // A thousand calls a second have a millisecond each.
    assert!(wait <= Duration::from_millis(4) && !exceeds_limit, "{wait:?}");
}

#[test]
fn names_of_one_site_share_one_rate_of_refusals() {
    const TIME: Duration = Duration::from_secs(10);
    let accounts = Accounts::new(Limits::default());
    let names = (0..64).map(|number| agent("a", &format!("n{number}")));
    let all: Vec<_> = names.map(|name| accounts.account(&name).unwrap()).collect();
    let begun = Instant::now();
    let mut refused = 0;
    for account in &all {
        // Each calls again as soon as its connection is read again.
        let mut now = begun;
        while now < begun + TIME {
            let (wait, exceeds_limit) = account.refused(now);
            assert!(!exceeds_limit);
            now += wait;
            refused += 1;
        }
    }
    // Four times a thousand a second, and the last of each.
    assert!(refused <= 40_064, "{refused}");
    assert_eq!(all[0].shared.identities_of_a_share(), 16);
    let other = accounts.account(&agent("b", "cluster")).unwrap();
    assert_eq!(other.refused(begun).0, Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn identities_that_call_no_more_delay_no_others() {
    let accounts = Accounts::new(Limits::default());
    let own = agent("a", "cluster");
    for number in 0..63 {
        accounts.account(&agent("a", &format!("n{number}"))).unwrap();
    }
    let delay = || accounts.account(&own).unwrap().refused(Instant::now()).0;
    assert_eq!(delay(), Duration::from_millis(16));
    accounts.write_notices();
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(
        delay(),
        Duration::from_millis(16),
        "they have called a minute ago"
    );
    tokio::time::advance(Duration::from_mins(1)).await;
    accounts.write_notices();
    assert_eq!(delay(), Duration::from_millis(1));
    let account = accounts.account(&own).unwrap();
    assert_eq!(account.shared.identities_of_a_share(), 1);
}

#[tokio::test(start_paused = true)]
async fn names_without_number_are_no_new_identities() {
    let accounts = Accounts::new(Limits::default());
    let called = |number: usize| {
        let account = accounts.account(&agent("a", &format!("n{number}")));
        account.map(|account| account.refused(Instant::now())).is_ok()
    };
    // Each has one refused call, which takes its time.
    assert_eq!((0..1000).filter(|number| called(*number)).count(), 64);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(called(1000));
}

#[test]
fn names_of_one_site_share_lines_of_the_log() {
    let accounts = Accounts::new(Limits::default());
    let lines = |site: &str| {
        let calls = (0..64).flat_map(|number| [number; 100]);
        let logged = calls.filter(|number| {
            let account = accounts.account(&agent(site, &format!("n{number}"))).unwrap();
            account.log().line().is_some()
        });
        logged.count()
    };
    for site in ["a", "b"] {
        let lines = lines(site);
        assert!((32..40).contains(&lines), "{site}: {lines}");
    }
}

#[test]
fn few_unread_heads_end_no_connection_for_those_of_others() {
    const BYTES: usize = 1500;
    let limits = Limits::default();
    let accounts = Accounts::new(limits.clone());
    // Each has fewer than it may, and all together more.
    let hoard = |name: &str| {
        let account = accounts.account(&agent("a", name)).unwrap();
        let most = limits.buffer / 8 / BYTES - 1;
        let heads: Vec<_> = (0..most)
            .filter_map(|_| Head::new(Some(&account), None, BYTES))
            .collect();
        (account, heads)
    };
    let (first, _first) = hoard("one");
    let (_second, _others) = hoard("two");
    let own = accounts.account(&agent("a", "cluster")).unwrap();
    let heads: Vec<_> = (0..4)
        .filter_map(|_| Head::new(Some(&own), None, BYTES))
        .collect();
    assert!(
        own.shared.buffer.require(Content::Heads).is_err(),
        "all have too many"
    );
    assert!(heads.len() == 4 && heads.iter().all(|(_, disconnects)| !disconnects));
    let more = Head::new(Some(&first), None, BYTES);
    assert!(more.is_some_and(|(_, disconnects)| disconnects));
}

#[test]
fn large_heads_of_requests_count_and_few_usual_ones_do_not() {
    let account = Accounts::new(Limits::default())
        .account(&agent("a", "cluster"))
        .unwrap();
    let guard = || Guard::new(account.enter(CallKind::Reads).unwrap(), CallKind::Reads, &account);
    let headers = |count: usize| -> HeaderMap {
        let names = (0..count).map(|number| HeaderName::try_from(format!("x-{number}")).unwrap());
        names
            .map(|name| (name, HeaderValue::from_static("value")))
            .collect()
    };
    let (usual, large) = (headers(10), headers(400));
    let uri = Uri::from_static("https://scheduler/sip.inventory.v1.InventoryService/GetHost");
    let heads: Vec<_> = (0..200)
        .map(|_| guard().request_head(&uri, &usual).unwrap())
        .collect();
    assert!(account.buffer.is_empty());
    drop(heads);
    // About 50 KiB each, of 20 MiB.
    let tried = (0..1000).map(|_| guard().request_head(&uri, &large));
    let heads: Vec<_> = tried.map_while(Result::ok).collect();
    assert!((300..500).contains(&heads.len()), "{}", heads.len());
    let error = guard().request_head(&uri, &large).unwrap_err();
    assert_eq!(limit(&error), Limit::Buffer);
    let _ = guard().request_head(&uri, &usual).unwrap();
    account.charge(CallKind::Writes).add(1 << 20).unwrap();
    drop(heads);
    assert!(account.buffer.is_empty() && account.shared.buffer.is_empty());
}

#[test]
fn a_large_target_of_a_request_counts() {
    let limits = Limits {
        rate: None,
        ..Limits::default()
    };
    let account = Accounts::new(limits).account(&agent("a", "cluster")).unwrap();
    let guard = || Guard::new(account.enter(CallKind::Reads).unwrap(), CallKind::Reads, &account);
    let path = format!(
        "/sip.inventory.v1.InventoryService/GetHost?{}",
        "q".repeat(14 << 10)
    );
    for uri in [path.clone(), format!("https://scheduler{path}")] {
        let uri: Uri = uri.parse().unwrap();
        // About 11 KiB each beyond a usual head, of 20 MiB.
        let tried = (0..4000).map(|_| guard().request_head(&uri, &HeaderMap::new()));
        let heads: Vec<_> = tried.map_while(Result::ok).collect();
        assert!((1500..2500).contains(&heads.len()), "{}", heads.len());
    }
    assert!(account.buffer.is_empty() && account.shared.buffer.is_empty());
}

#[test]
fn heads_of_those_without_an_account_are_bounded_in_every_group() {
    let limits = Limits::default();
    for group in [Group::Operators, Group::new(&agent("a", "cluster"))] {
        let crowd = Arc::new(Shared::new(&group, &limits));
        let heads = (0..100_000).map_while(|_| Head::new(None, Some(&crowd), 1500).filter(|(_, ends)| !ends));
        let kept = heads.collect::<Vec<_>>().len() * 1500;
        assert!(kept <= limits.buffer / 8, "{kept}");
    }
}
