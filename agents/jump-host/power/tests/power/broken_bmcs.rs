//! Actions through `PowerService` on BMCs that fail: one action at most, a bounded time, a clear error, no credential anywhere.

use std::time::{Duration, Instant};

use kit::placement::{ClusterId, HostId, ObjectKey};
use kube::ResourceExt as _;
use proto::power::v1::{Action, set_power_response::Step};
use sandbox::{
    process::Group,
    redfish_emulator::{PASSWORD, RedfishEmulator},
};
use tonic_types::StatusExt as _;

use crate::{
    fault_server::{Fault, FaultServer},
    log::log,
    stage::Stage,
    tenants::{reason, run, set, term},
};

/// Several exchanges of 5 s each, on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn an_action_on_a_broken_bmc_is_sent_at_most_once() {
    let log = log();
    let stage = Stage::start("power-broken", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;
    let cluster = ClusterId::for_object(&orders);
    for (name, fault, expected, sent) in [
        ("well", Fault::None, "", 1),
        ("silent", Fault::Silent, "BMC_FAILED", 0),
        ("closes", Fault::Closes, "BMC_FAILED", 0),
        ("half", Fault::HalfAndCloses, "BMC_FAILED", 0),
        ("html", Fault::Html, "BMC_FAILED", 0),
        ("huge", Fault::Huge, "BMC_FAILED", 0),
        ("elsewhere", Fault::Redirects, "BMC_FAILED", 0),
        ("unauthorized", Fault::Unauthorized, "BMC_FAILED", 0),
        ("refuses", Fault::ActionStatus(400), "BMC_FAILED", 1),
        ("silent-to-actions", Fault::SilentToActions, "OUTCOME_UNKNOWN", 1),
        ("closes-on-actions", Fault::ClosesOnActions, "OUTCOME_UNKNOWN", 1),
        ("fails-in-actions", Fault::ActionStatus(500), "OUTCOME_UNKNOWN", 1),
        ("slow", Fault::Slow, "BMC_FAILED", 0),
        // These two are reached by addresses that do not lead to the server.
        ("down", Fault::None, "BMC_FAILED", 0),
        ("no-tls", Fault::None, "BMC_FAILED", 0),
    ] {
        let server = FaultServer::start(fault).await;
        let address = match name {
            "down" => "redfish+http://127.0.0.1:1/redfish/v1/Systems/1".to_owned(),
            "no-tls" => server.bmc_address().replace("http://", "https://"),
            _ => server.bmc_address(),
        };
        let host = stage.host(name, &address).await;
        stage.ledger.hold(&orders, &host, false);
        let begun = Instant::now();
        let request = set(name, Action::Reboot, name, &term);
        let (_, outcome) = run(&mut client, &token, request.clone()).await;
        assert!(begun.elapsed() < BOUND, "{name}: {:?}", begun.elapsed());
        let found = outcome.as_ref().err().map(reason).unwrap_or_default();
        assert_eq!(found, expected, "{name}: {outcome:?}");
        let id = HostId::new(ObjectKey::for_object(&host), host.uid().unwrap());
        let unanswered = stage.answers.unanswered(&cluster, [&id]);
        assert_eq!(
            unanswered.hosts.is_empty(),
            expected.is_empty(),
            "{name}: {unanswered:?}"
        );
        // The BMC is well again: a repetition must not act all the same.
        server.set(Fault::None);
        let (_, again) = run(&mut client, &token, request).await;
        assert_eq!(
            again.err().map(|status| reason(&status)).unwrap_or_default(),
            expected,
            "{name}"
        );
        assert_eq!(server.actions().len(), sent, "{name}");
        if let Err(status) = outcome {
            assert!(
                !status.message().contains(PASSWORD),
                "{name}: {}",
                status.message()
            );
            let events = stage.events(&host).await;
            assert!(
                events.iter().any(|event| event.starts_with("PowerChangeFailed")),
                "{name}: {events:?}"
            );
            assert!(
                events.iter().all(|event| !event.contains(PASSWORD)),
                "{name}: {events:?}"
            );
        }
        let (key, outcome) = (
            format!("host=\"metal/{name}\""),
            format!(
                "outcome=\"{}\"",
                if expected.is_empty() { "OK" } else { expected }
            ),
        );
        let lines = log.audit(&["shop/orders", "SetPower", &key, &outcome]);
        assert_eq!(lines.len(), 1, "{name}: {}", log.text());
    }
    assert!(!log.has_the_password(), "a password is logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_outlives_its_call_and_excludes_others() {
    let mut stage = Stage::start("power-outlives", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let server = FaultServer::start(Fault::NoEffect).await;
    let host = stage.host("own", &server.bmc_address()).await;
    stage.ledger.hold(&orders, &host, false);
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;

    let request = set("own", Action::Reboot, "1", &term);
    let call = client
        .set_power(crate::stage::with_token(request.clone(), &token))
        .await;
    let mut steps = call.unwrap().into_inner();
    while !matches!(steps.message().await.unwrap().unwrap().step, Some(Step::Sent(_))) {}
    drop(steps);
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "2", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "ACTION_UNDER_WAY");
    // The operating system hangs: who wants the host off or restarted at once does not wait for it.
    let forced = set("own", Action::ForceReboot, "3", &term);
    let call = client
        .set_power(crate::stage::with_token(forced.clone(), &token))
        .await;
    let mut steps = call.unwrap().into_inner();
    let (_, superseded) = run(&mut client, &token, request).await;
    let superseded = superseded.unwrap_err();
    assert_eq!(reason(&superseded), "OUTCOME_UNKNOWN");
    assert!(superseded.message().contains("superseded"), "{superseded:?}");
    while !matches!(steps.message().await.unwrap().unwrap().step, Some(Step::Sent(_))) {}
    drop(steps);
    // The process ends: the action was sent, and its effect is not waited for.
    let again = client.set_power(crate::stage::with_token(forced, &token)).await;
    let mut following = again.unwrap().into_inner();
    while !matches!(
        following.message().await.unwrap().unwrap().step,
        Some(Step::Sent(_))
    ) {}
    let (outcome, ()) = tokio::join!(
        async {
            loop {
                if let Err(status) = following.message().await.map(|step| step.expect("an end")) {
                    break status;
                }
            }
        },
        stage.end()
    );
    assert_eq!(reason(&outcome), "NOT_OBSERVED");
    assert_eq!(server.actions().len(), 2);
    assert_eq!(server.sessions(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_an_untrusted_certificate_gets_no_credential() {
    let log = log();
    let stage = Stage::start("power-untrusted", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;
    let group = Group::new("power-untrusted-bmc").unwrap();
    // Its certificate is of an authority of its own.
    let other = RedfishEmulator::start(&group, "other", &["b"]).await.unwrap();
    let host = stage.host("untrusted", &other.bmc_address("b")).await;
    stage.ledger.hold(&orders, &host, false);
    let request = set("untrusted", Action::Reboot, "1", &term);
    for _ in 0..2 {
        let (_, outcome) = run(&mut client, &token, request.clone()).await;
        let status = outcome.unwrap_err();
        assert_eq!(reason(&status), "BMC_FAILED", "{status:?}");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["failure"], "tls", "{status:?}");
    }
    assert!(other.resets().unwrap().is_empty());
    let lines = log.audit(&["host=\"metal/untrusted\"", "outcome=\"BMC_FAILED\""]);
    assert_eq!(lines.len(), 1, "{}", log.text());
}

/// A host of the cluster `orders` whose BMC has this fault.
pub(crate) struct Broken {
    pub(crate) stage: Stage,
    pub(crate) server: FaultServer,
    pub(crate) host: api::BareMetalHost,
    /// Of the jump host.
    pub(crate) pod: String,
    pub(crate) token: String,
}

impl Broken {
    pub(crate) async fn start(name: &str, fault: Fault) -> Self {
        let stage = Box::pin(Stage::start(name, &["a"])).await;
        let orders = stage.cluster("shop", "orders").await;
        let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
        let server = FaultServer::start(fault).await;
        let host = stage.host("own", &server.bmc_address()).await;
        stage.ledger.hold(&orders, &host, false);
        let token = stage.token(&jump_host).await;
        Self {
            stage,
            server,
            host,
            pod: jump_host.pod.name_any(),
            token,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_read_leaves_no_session() {
    let broken = Broken::start("power-left", Fault::SilentToReads).await;
    let mut client = broken.stage.grpc();
    let get = proto::power::v1::GetHostRequest {
        host: "own".to_owned(),
    };
    let call = tokio::spawn({
        let request = crate::stage::with_token(get, &broken.token);
        async move { client.get_host(request).await }
    });
    let begun = Instant::now();
    while broken.server.sessions() == 0 {
        assert!(begun.elapsed() < BOUND, "no session is made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    call.abort();
    while broken.server.sessions() > 0 {
        assert!(begun.elapsed() < BOUND, "a session is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(broken.server.made(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_during_a_login_leaves_no_session() {
    let mut broken = Broken::start("power-ends", Fault::SlowLogin).await;
    let (mut client, token) = (broken.stage.grpc(), broken.token.clone());
    let request = set("own", Action::Reboot, "1", &term(&mut client, &token).await);
    let call = tokio::spawn(async move { run(&mut client, &token, request).await.1 });
    let begun = Instant::now();
    while broken.server.sessions() == 0 {
        assert!(begun.elapsed() < BOUND, "no session is made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    broken.stage.end().await;
    assert!(call.await.unwrap().is_err());
    assert_eq!((broken.server.made(), broken.server.sessions()), (1, 0));
    assert!(broken.server.actions().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_left_the_cluster_is_no_longer_observed() {
    let broken = Broken::start("power-leaves", Fault::NoEffect).await;
    let (mut client, token) = (broken.stage.grpc(), &broken.token);
    let term = term(&mut client, token).await;
    let request = set("own", Action::Reboot, "1", &term);
    let mut steps = client
        .set_power(crate::stage::with_token(request.clone(), token))
        .await
        .unwrap()
        .into_inner();
    while !matches!(steps.message().await.unwrap().unwrap().step, Some(Step::Sent(_))) {}
    broken.stage.ledger.free(&broken.host);
    let begun = Instant::now();
    let (_, outcome) = run(&mut client, token, request).await;
    assert_eq!(reason(&outcome.unwrap_err()), "OUTCOME_UNKNOWN");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    let (_, outcome) = run(&mut client, token, set("own", Action::Reboot, "2", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "NOT_A_MEMBER");
    assert_eq!(broken.server.sessions(), 0);
    assert_eq!(broken.server.actions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_with_two_names_takes_one_action_at_a_time() {
    let broken = Broken::start("power-names", Fault::SlowActions).await;
    let billing = broken.stage.cluster("shop", "billing").await;
    let jump_host = broken.stage.jump_host(&billing, "jumphost-billing").await;
    let address = broken.server.bmc_address().replace("127.0.0.1", "localhost");
    let host = broken.stage.host("alias", &address).await;
    broken.stage.ledger.hold(&billing, &host, false);
    let other = broken.stage.token(&jump_host).await;
    let sent = async |token: &str, host: &str| {
        let mut client = broken.stage.grpc();
        let term = term(&mut client, token).await;
        let request = set(host, Action::Reboot, "1", &term);
        let request = crate::stage::with_token(request, token);
        let mut steps = client.set_power(request).await.unwrap().into_inner();
        while !matches!(steps.message().await.unwrap().unwrap().step, Some(Step::Sent(_))) {}
    };
    tokio::join!(sent(&broken.token, "own"), sent(&other, "alias"));
    assert_eq!(broken.server.actions().len(), 2);
    assert_eq!(broken.server.acting_at_once(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_the_labels_of_another_cluster_is_refused() {
    let broken = Broken::start("power-labelled", Fault::None).await;
    let (mut client, token) = (broken.stage.grpc(), &broken.token);
    let term = term(&mut client, token).await;
    for (key, namespace, name, expected) in [
        ("1", "shop", "billing", "NOT_A_MEMBER"),
        ("2", "bank", "orders", "NOT_A_MEMBER"),
        ("3", "shop", "orders", ""),
    ] {
        broken.stage.label("own", namespace, name).await;
        let (_, outcome) = run(&mut client, token, set("own", Action::Reboot, key, &term)).await;
        let found = outcome.as_ref().err().map(reason).unwrap_or_default();
        assert_eq!(found, expected, "{namespace}/{name}: {outcome:?}");
    }
    assert_eq!(broken.server.actions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_on_one_bmc_are_observed_with_few_sessions() {
    const HOSTS: usize = 6;
    let broken = Broken::start("power-sessions", Fault::NoEffect).await;
    let orders = broken.stage.cluster("shop", "many").await;
    let jump_host = broken.stage.jump_host(&orders, "jumphost-many").await;
    let (token, mut client) = (broken.stage.token(&jump_host).await, broken.stage.grpc());
    let term = term(&mut client, &token).await;
    for host in (0..HOSTS).map(|index| format!("host-{index}")) {
        let object = broken.stage.host(&host, &broken.server.bmc_address()).await;
        broken.stage.ledger.hold(&orders, &object, false);
        let request = crate::stage::with_token(set(&host, Action::Reboot, &host, &term), &token);
        let mut steps = client.set_power(request).await.unwrap().into_inner();
        while !matches!(steps.message().await.unwrap().unwrap().step, Some(Step::Sent(_))) {}
    }
    assert_eq!(broken.server.actions().len(), HOSTS);
    // Every action waits for its effect, and has read once since the last one was sent.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (made, begun) = (broken.server.made(), Instant::now());
    let mut most = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        most = most.max(broken.server.sessions());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(most <= 2, "{most} sessions are open");
    assert!(broken.server.made() > made, "the hosts are still read");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_observed_after_the_bmc_has_ended_the_session() {
    let broken = Broken::start("power-again", Fault::EndsSessions).await;
    let (mut client, token) = (broken.stage.grpc(), &broken.token);
    let term = term(&mut client, token).await;
    let (_, outcome) = run(&mut client, token, set("own", Action::Reboot, "1", &term)).await;
    outcome.unwrap();
    assert_eq!(broken.server.made(), 2);
    assert_eq!(broken.server.actions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_when_the_last_checks_took_too_long() {
    let broken = Broken::start("power-stale", Fault::None).await;
    let (mut client, token) = (broken.stage.grpc(), &broken.token);
    let term = term(&mut client, token).await;
    // The host may have left meanwhile: the answer is older than an action allows.
    broken.stage.ledger.slow(Duration::from_secs(3));
    let (_, outcome) = run(&mut client, token, set("own", Action::Reboot, "1", &term)).await;
    let status = outcome.unwrap_err();
    assert_eq!(reason(&status), "TOO_LATE", "{status:?}");
    assert!(status.message().contains("nothing was changed"), "{status:?}");
    assert_eq!((broken.server.actions().len(), broken.server.sessions()), (0, 0));

    broken.stage.ledger.slow(Duration::ZERO);
    let (_, outcome) = run(&mut client, token, set("own", Action::Reboot, "2", &term)).await;
    outcome.unwrap();
    assert_eq!(broken.server.actions().len(), 1);
}
