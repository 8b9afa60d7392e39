//! Names of hosts: an action changes the host that has the name, never another one.

use proto::power::v1::Action;
use tonic::Code;

use crate::{
    stage::{Stage, with_token},
    tenants::{get, reason, run, set, term},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_host_that_left_changes_no_other_host() {
    let stage = Stage::start("power-names-left", &["a", "b", "c"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let mut hosts = Vec::new();
    for (name, system) in [("worker-1", "a"), ("worker-5", "b"), ("rack.worker", "c")] {
        let host = stage.host(name, &stage.emulator.bmc_address(system)).await;
        stage.ledger.hold(&orders, &host, false);
        hosts.push(host);
    }
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let term = term(&mut client, &token).await;

    // worker-5 has the number 1 in its role, and `rack` is the first label of another host.
    stage.ledger.free(&hosts[0]);
    for (key, name, names) in [
        ("1", "worker-1", ["metal/worker-5", "@worker-1"]),
        ("2", "rack", ["metal/rack.worker", "@worker-2"]),
    ] {
        let (_, outcome) = run(&mut client, &token, set(name, Action::Reboot, key, &term)).await;
        let status = outcome.unwrap_err();
        assert_eq!(
            (status.code(), &*reason(&status)),
            (Code::InvalidArgument, "INVALID"),
            "{status:?}"
        );
        for name in names {
            assert!(status.message().contains(name), "{status:?}");
        }
        // A read changes nothing.
        client.get_host(with_token(get(name), &token)).await.unwrap();
    }
    assert!(stage.emulator.resets().unwrap().is_empty());

    // No host can have this name.
    let request = set("@worker-1", Action::Reboot, "3", &term);
    let (_, outcome) = run(&mut client, &token, request).await;
    outcome.unwrap();
    assert_eq!(stage.emulator.resets().unwrap(), ["b"]);
}
