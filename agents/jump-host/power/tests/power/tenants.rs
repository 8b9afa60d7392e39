//! Who may do what: by tokens of a real API server, on hosts of an emulator.

use std::time::{Duration, Instant};

use proto::power::v1::{
    Action, GetHostRequest, ListHostsRequest, PowerState, SetPowerRequest, SetPowerResponse,
    power_service_client::PowerServiceClient, set_power_response::Step,
};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    log::log,
    stage::{HOSTS, Stage, with_token},
};

pub(crate) fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

pub(crate) fn get(host: &str) -> GetHostRequest {
    GetHostRequest {
        host: host.to_owned(),
    }
}

pub(crate) async fn term(client: &mut PowerServiceClient<Channel>, token: &str) -> String {
    let request = ListHostsRequest { without_hosts: true };
    let listed = client.list_hosts(with_token(request, token)).await;
    let listed = listed.unwrap().into_inner();
    assert!(listed.hosts.is_empty(), "{listed:?}");
    listed.term
}

/// A request for an action under a key of its own.
pub(crate) fn set(host: &str, action: Action, key: &str, term: &str) -> SetPowerRequest {
    SetPowerRequest {
        host: host.to_owned(),
        action: action.into(),
        idempotency_key: format!("{key:0>16}"),
        term: term.to_owned(),
    }
}

/// The steps of an action, and how it ended.
pub(crate) async fn run(
    client: &mut PowerServiceClient<Channel>,
    token: &str,
    request: SetPowerRequest,
) -> (Vec<Step>, Result<(), Status>) {
    let mut steps = Vec::new();
    let mut stream = match client.set_power(with_token(request, token)).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return (steps, Err(status)),
    };
    loop {
        match stream.message().await {
            Ok(Some(SetPowerResponse { time: _, step })) => steps.extend(step),
            Ok(None) => return (steps, Ok(())),
            Err(status) => return (steps, Err(status)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_changes_exactly_its_host_and_is_audited() {
    let log = log();
    let mut stage = Stage::start("power-reboot", &["a", "b", "c"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let mut hosts = Vec::new();
    for name in ["a", "b", "c"] {
        let host = stage.host(name, &stage.emulator.bmc_address(name)).await;
        stage.ledger.hold(&orders, &host, false);
        hosts.push(host);
    }
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());

    let listed = client
        .list_hosts(with_token(ListHostsRequest::default(), &token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.cluster, "shop/orders");
    let names: Vec<_> = listed.hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(listed.hosts[0].power_state(), PowerState::On);
    let term = listed.term;

    let request = set("a", Action::Reboot, "1", &term);
    let (steps, outcome) = run(&mut client, &token, request.clone()).await;
    outcome.unwrap();
    let [Step::Accepted(accepted), Step::Sent(_), .., Step::Done(done)] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(
        (&*accepted.host, &*accepted.reset_type),
        ("metal/a", "GracefulRestart")
    );
    assert_eq!((done.power_state(), done.changed), (PowerState::On, true));
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, Step::Observed(seen) if seen.power_state() == PowerState::Off))
    );

    let (again, outcome) = run(&mut client, &token, request).await;
    outcome.unwrap();
    assert_eq!(again, steps, "a repetition gets the same steps");
    assert_eq!(stage.emulator.resets().unwrap(), ["a"], "and sends nothing");

    let (steps, outcome) = run(&mut client, &token, set("b", Action::On, "2", &term)).await;
    outcome.unwrap();
    assert!(
        matches!(&steps[..], [Step::Accepted(_), Step::Done(done)] if !done.changed),
        "{steps:?}"
    );
    assert_eq!(stage.emulator.resets().unwrap(), ["a"]);

    stage.end().await;
    let line = log.audit(&[
        "shop/orders",
        "host=\"metal/a\"",
        "action=\"reboot\"",
        "outcome=\"OK\"",
        "SHA256:key-of-ana",
    ]);
    assert_eq!(line.len(), 1, "{}", log.text());
    assert!(
        line[0].contains(jump_host.pod.metadata.name.as_deref().unwrap()),
        "{line:?}"
    );
    let events = stage.events(&hosts[0]).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("PowerChanged GracefulRestart was sent: reboot (pod shop/"),
        "{events:?}"
    );
    assert!(
        events[0].contains("claims the ssh key SHA256:key-of-ana"),
        "{events:?}"
    );
    assert!(!log.has_the_password(), "no password is logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_others_and_hosts_that_left_are_refused() {
    let log = log();
    let stage = Stage::start("power-members", &["a", "b"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let billing = stage.cluster("bank", "billing").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let own = stage.host("own", &stage.emulator.bmc_address("a")).await;
    let other = stage.host("other", &stage.emulator.bmc_address("b")).await;
    stage.ledger.hold(&orders, &own, false);
    stage.ledger.hold(&billing, &other, false);
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;
    client.get_host(with_token(get("own"), &token)).await.unwrap();

    // One that exists and one that does not are not told apart.
    for (key, name) in [("1", "other"), ("2", "metal/other"), ("2", "absent")] {
        let status = client.get_host(with_token(get(name), &token)).await.unwrap_err();
        assert_eq!(
            (status.code(), &*reason(&status)),
            (Code::NotFound, "NOT_A_MEMBER")
        );
        let (_, outcome) = run(&mut client, &token, set(name, Action::Reboot, key, &term)).await;
        assert_eq!(reason(&outcome.unwrap_err()), "NOT_A_MEMBER");
    }
    assert!(
        !log.audit(&["SetPower", "host=\"other\"", "NOT_A_MEMBER"])
            .is_empty(),
        "{}",
        log.text()
    );

    stage.ledger.hold(&orders, &own, true);
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "3", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "HOST_RELEASING");

    stage.ledger.free(&own);
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "4", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "NOT_A_MEMBER");

    // A host that was made again under its name is another host.
    stage.ledger.hold(&orders, &own, false);
    stage
        .site
        .kubectl_ok(&["delete", "-n", HOSTS, "bmh/own", "secret/own-bmc"])
        .await
        .unwrap();
    stage.host("own", &stage.emulator.bmc_address("a")).await;
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "5", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "BMC_UNUSABLE");
    assert!(stage.emulator.resets().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_deleted_pod_is_refused_within_ten_seconds() {
    let stage = Stage::start("power-deleted", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    client
        .list_hosts(with_token(ListHostsRequest::default(), &token))
        .await
        .unwrap();

    stage.delete_pod(&jump_host).await;
    let deleted = Instant::now();
    let status = loop {
        match client
            .list_hosts(with_token(ListHostsRequest::default(), &token))
            .await
        {
            Err(status) => break status,
            Ok(_) => assert!(deleted.elapsed() < Duration::from_secs(10), "it is still let in"),
        }
    };
    println!("refused {:?} after the pod was deleted", deleted.elapsed());
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provisioning_host_is_refused_unless_an_operator_allows() {
    let stage = Stage::start("power-busy", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let host = stage.host("own", &stage.emulator.bmc_address("a")).await;
    stage.ledger.hold(&orders, &host, false);
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;

    stage.provisioned("own", "deprovisioning").await;
    let (_, outcome) = run(&mut client, &token, set("own", Action::ForceOff, "1", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "HOST_BUSY");
    let shown = client
        .get_host(with_token(get("own"), &token))
        .await
        .unwrap()
        .into_inner()
        .host
        .unwrap();
    assert!(shown.blocked.contains("deprovisioning"), "{shown:?}");
    assert!(stage.emulator.resets().unwrap().is_empty());

    stage.annotate("own", "sip.airshipit.org/power-while-busy").await;
    let (steps, outcome) = run(&mut client, &token, set("own", Action::ForceOff, "2", &term)).await;
    outcome.unwrap();
    let Step::Accepted(accepted) = &steps[0] else {
        panic!("{steps:?}");
    };
    assert!(
        accepted.notes[0].contains("turn the host on again"),
        "{accepted:?}"
    );
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "3", &term)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "HOST_IS_OFF");
    assert_eq!(stage.emulator.resets().unwrap(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_on_standby_and_another_term_refuse_actions() {
    let mut stage = Stage::start("power-standby", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let host = stage.host("own", &stage.emulator.bmc_address("a")).await;
    stage.ledger.hold(&orders, &host, false);
    let token = stage.token(&jump_host).await;
    let before = term(&mut stage.grpc(), &token).await;

    let replica = stage.serve().await;
    let mut client = stage.grpc();
    let status = client
        .list_hosts(with_token(ListHostsRequest::default(), &token))
        .await
        .unwrap_err();
    assert_eq!((status.code(), &*reason(&status)), (Code::Unavailable, "STANDBY"));
    replica.lead(stage.power().await);
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "1", &before)).await;
    assert_eq!(reason(&outcome.unwrap_err()), "TERM_OVER");
    let (_, outcome) = run(&mut client, &token, set("own", Action::Reboot, "1", "")).await;
    assert_eq!(outcome.unwrap_err().code(), Code::InvalidArgument);
    assert!(stage.emulator.resets().unwrap().is_empty());
}
