//! The Redfish client against the emulator.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use power::{
    action::Action,
    bmc::{Address, Credentials},
    observation::Observation,
    redfish::{Client, Failure, Network, NetworkArgs, Power, Route, Timeouts},
};
use sandbox::{
    process::Group,
    redfish_emulator::{PASSWORD, RedfishEmulator, USER},
};

const SYSTEMS: [&str; 3] = ["a", "b", "c"];
const VERIFIED: Route = Route {
    verify: true,
    proxy: false,
};

pub(crate) fn credentials(user: &str, password: &str) -> Credentials {
    let data = [("username", user), ("password", password)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    Credentials::parse(&Secret {
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    })
    .unwrap()
}

fn trusting(emulator: &RedfishEmulator) -> Network {
    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        network: NetworkArgs,
    }
    let ca = emulator.authority().display().to_string();
    let Program { network } = clap::Parser::parse_from(["program", "--bmc-ca", &ca]);
    Network::new(&network, Timeouts::default())
        .unwrap()
        .with_loopback()
}

fn address(emulator: &RedfishEmulator, system: &str) -> Address {
    Address::parse(Some(&emulator.bmc_address(system))).unwrap()
}

async fn power(network: &Network, emulator: &RedfishEmulator, system: &str) -> Power {
    let address = address(emulator, system);
    let login = Client::login(network, &address, VERIFIED, &credentials(USER, PASSWORD)).await;
    let mut client = login.unwrap();
    let power = client.system().await.unwrap().reading.power;
    client.logout().await;
    power
}

#[tokio::test]
async fn a_reset_reaches_exactly_its_system_among_many() {
    let group = Group::new("power-emulated").unwrap();
    let emulator = RedfishEmulator::start(&group, "bmc", &SYSTEMS).await.unwrap();
    let network = trusting(&emulator);
    let address = address(&emulator, "b");
    let login = Client::login(&network, &address, VERIFIED, &credentials(USER, PASSWORD)).await;
    let mut client = login.unwrap();

    let system = client.system().await.unwrap();
    let offered = client.offered(&system).await.unwrap();
    let reset_type = Action::Reboot
        .decide(system.reading.power, offered.as_deref())
        .unwrap()
        .unwrap();
    assert_eq!(reset_type, "GracefulRestart");
    client.reset(&system, reset_type).await.unwrap();
    let mut observation = Observation::new(Action::Reboot.goal(), system.reading);
    let observed = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            let reading = client.system().await.unwrap().reading;
            if observation.observe(reading).reached {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    observed.await.expect("the emulator shows the restart");
    client.logout().await;

    assert_eq!(emulator.resets().unwrap(), ["b"]);
    for system in SYSTEMS {
        assert_eq!(power(&network, &emulator, system).await, Power::On, "{system}");
    }
}

#[tokio::test]
async fn wrong_credentials_and_untrusted_certificates_are_named() {
    let group = Group::new("power-refused").unwrap();
    let emulator = RedfishEmulator::start(&group, "bmc", &SYSTEMS).await.unwrap();
    let address = address(&emulator, "a");

    let login = Client::login(
        &trusting(&emulator),
        &address,
        VERIFIED,
        &credentials(USER, "wrong"),
    )
    .await;
    let failure = login.unwrap().system().await.unwrap_err();
    assert!(matches!(failure, Failure::Unauthorized { .. }), "{failure}");

    let strangers = Network::new(&NetworkArgs::default(), Timeouts::default())
        .unwrap()
        .with_loopback();
    let failure = Client::login(&strangers, &address, VERIFIED, &credentials(USER, PASSWORD))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::Tls { .. }), "{failure}");
    let unverified = Route {
        verify: false,
        ..VERIFIED
    };
    let login = Client::login(&strangers, &address, unverified, &credentials(USER, PASSWORD)).await;
    assert_eq!(login.unwrap().system().await.unwrap().reading.power, Power::On);
    assert!(emulator.resets().unwrap().is_empty());
}

#[tokio::test]
async fn a_system_that_the_bmc_does_not_have_is_named() {
    let group = Group::new("power-absent").unwrap();
    let emulator = RedfishEmulator::start(&group, "bmc", &SYSTEMS).await.unwrap();
    let address = address(&emulator, "absent");
    let login = Client::login(
        &trusting(&emulator),
        &address,
        VERIFIED,
        &credentials(USER, PASSWORD),
    )
    .await;
    let failure = login.unwrap().system().await.unwrap_err();
    assert!(
        matches!(failure, Failure::Status { status: 404, .. }),
        "{failure}"
    );
}
