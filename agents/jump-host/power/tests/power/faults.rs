//! The Redfish client against BMCs that fail.

use std::time::{Duration, Instant};

use power::{
    bmc::Address,
    redfish::{Client, Failure, Network, NetworkArgs, Route, System, Timeouts, Unsent},
};

use crate::{
    emulated::credentials,
    fault_server::{Fault, FaultServer},
};

const ROUTE: Route = Route {
    verify: true,
    proxy: false,
};
/// So that tests end soon.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_millis(500),
    answer: Duration::from_millis(700),
};
/// Everything here must have ended by then: several exchanges, on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

fn network() -> Network {
    Network::new(&NetworkArgs::default(), TIMEOUTS)
        .unwrap()
        .with_loopback()
}

async fn login(server: &FaultServer) -> Result<Client, Failure> {
    let address = Address::parse(Some(&server.bmc_address())).unwrap();
    Client::login(&network(), &address, ROUTE, &credentials("root", "calvin")).await
}

async fn read(server: &FaultServer) -> Result<(Client, System), Failure> {
    let mut client = login(server).await?;
    let system = client.system().await?;
    Ok((client, system))
}

#[tokio::test]
async fn a_bmc_that_fails_is_named_within_a_bounded_time() {
    for (fault, kind) in [
        (Fault::Silent, "slow"),
        (Fault::Closes, "broken"),
        (Fault::Half, "slow"),
        (Fault::HalfAndCloses, "broken"),
        (Fault::Html, "not-redfish"),
        (Fault::Huge, "too-large"),
        (Fault::Slow, "slow"),
        (Fault::Redirects, "elsewhere"),
        (Fault::Unauthorized, "unauthorized"),
    ] {
        let server = FaultServer::start(fault).await;
        let begun = Instant::now();
        let failure = read(&server).await.map(|_| ()).unwrap_err();
        assert_eq!(failure.kind(), kind, "{fault:?}: {failure}");
        assert!(begun.elapsed() < BOUND, "{fault:?}: {:?}", begun.elapsed());
        assert!(
            !format!("{failure:?} {failure}").contains("calvin"),
            "{failure:?}"
        );
        assert!(server.actions().is_empty());
    }
}

#[tokio::test]
async fn a_bmc_that_is_down_is_named_within_a_bounded_time() {
    // A port of this machine that nobody listens on, and an address that drops what is sent to it.
    for (target, kinds) in [
        ("127.0.0.1:1", &["unreachable"][..]),
        ("192.0.2.1:80", &["unreachable", "slow"]),
    ] {
        let address = format!("redfish+http://{target}/redfish/v1/Systems/1");
        let address = Address::parse(Some(&address)).unwrap();
        let begun = Instant::now();
        let login = Client::login(&network(), &address, ROUTE, &credentials("root", "calvin")).await;
        let failure = login.unwrap_err();
        assert!(kinds.contains(&failure.kind()), "{failure}");
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_bmc_without_the_tls_that_its_address_names_is_named() {
    let server = FaultServer::start(Fault::None).await;
    let address = server.bmc_address().replace("http://", "https://");
    let address = Address::parse(Some(&address)).unwrap();
    let login = Client::login(&network(), &address, ROUTE, &credentials("root", "calvin")).await;
    let failure = login.unwrap_err();
    assert!(["tls", "slow"].contains(&failure.kind()), "{failure}");
}

#[tokio::test]
async fn an_action_is_sent_once_whatever_fails() {
    for (fault, unknown) in [
        (Fault::None, None),
        (Fault::SilentToActions, Some(true)),
        (Fault::ClosesOnActions, Some(true)),
        (Fault::ActionStatus(500), Some(true)),
        (Fault::ActionStatus(502), Some(true)),
        (Fault::ActionStatus(503), Some(false)),
        (Fault::ActionStatus(501), Some(false)),
        (Fault::ActionStatus(400), Some(false)),
        (Fault::ActionStatus(401), Some(false)),
        (Fault::ActionStatus(408), Some(true)),
        (Fault::ActionStatus(307), Some(false)),
        (Fault::ActionStatus(202), None),
    ] {
        let server = FaultServer::start(fault).await;
        let (client, system) = read(&server).await.unwrap();
        let begun = Instant::now();
        let sent = client.reset(&system, "GracefulRestart").await;
        let found = sent.err().map(|unsent| matches!(unsent, Unsent::Unknown(_)));
        assert_eq!(found, unknown, "{fault:?}");
        assert!(begun.elapsed() < BOUND, "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(
            server.actions(),
            [r#"{"ResetType":"GracefulRestart"}"#],
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn a_redirect_is_followed_to_the_same_system_alone() {
    for (fault, followed) in [
        (Fault::MovedTo("1", ""), true),
        (Fault::MovedTo("2", "1"), true),
        (Fault::MovedTo("2", "2"), false),
        (Fault::MovedTo("2", ""), false),
    ] {
        let server = FaultServer::start(fault).await;
        let read = read(&server).await;
        assert_eq!(read.is_ok(), followed, "{fault:?}");
        if let Err(failure) = read {
            assert_eq!(failure.kind(), "elsewhere", "{failure}");
        }
    }
}

#[tokio::test]
async fn a_bmc_on_this_machine_is_refused_unless_a_test_has_it() {
    let server = FaultServer::start(Fault::None).await;
    let network = Network::new(&NetworkArgs::default(), TIMEOUTS).unwrap();
    for address in [
        server.bmc_address(),
        server.bmc_address().replace("127.0.0.1", "localhost"),
    ] {
        let address = Address::parse(Some(&address)).unwrap();
        let login = Client::login(&network, &address, ROUTE, &credentials("root", "calvin")).await;
        assert_eq!(login.unwrap_err().kind(), "unreachable");
    }
    assert_eq!(server.made(), 0);
}

#[tokio::test]
async fn an_action_that_no_connection_carries_was_not_sent() {
    let server = FaultServer::start(Fault::None).await;
    let (client, system) = read(&server).await.unwrap();
    drop(server);
    let unsent = client.reset(&system, "On").await.unwrap_err();
    assert!(matches!(unsent, Unsent::Refused(_)), "{unsent:?}");
}

#[tokio::test]
async fn sessions_end_with_their_client() {
    let server = FaultServer::start(Fault::None).await;
    let (client, _) = read(&server).await.unwrap();
    assert_eq!(server.sessions(), 1);
    client.logout().await;
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn session_of_a_bmc_with_a_name_of_its_own_is_ended() {
    let server = FaultServer::start(Fault::NamesItself).await;
    let (client, _) = read(&server).await.unwrap();
    assert_eq!(server.sessions(), 1);
    client.logout().await;
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn session_that_is_named_in_the_body_is_ended() {
    let server = FaultServer::start(Fault::NamesInBody).await;
    let (client, _) = read(&server).await.unwrap();
    assert_eq!(server.sessions(), 1);
    client.logout().await;
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn references_that_lead_back_are_followed_a_few_times() {
    let server = FaultServer::start(Fault::RedirectsToItself).await;
    let failure = read(&server).await.unwrap_err();
    assert!(failure.to_string().contains("more than 3 redirects"), "{failure}");
    let server = FaultServer::start(Fault::RefersToItself).await;
    let (mut client, system) = read(&server).await.unwrap();
    let failure = client.offered(&system).await.unwrap_err();
    assert_eq!(failure.kind(), "not-redfish", "{failure}");
}

#[tokio::test]
async fn session_without_token_is_ended() {
    let server = FaultServer::start(Fault::NoToken).await;
    let failure = login(&server).await.unwrap_err();
    assert_eq!(failure.kind(), "not-redfish", "{failure}");
    assert_eq!((server.made(), server.sessions()), (1, 0));
}
