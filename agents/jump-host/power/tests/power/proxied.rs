//! `bmc.proxy` of a jump host: the site's proxy is used where it is true, and only there.

use proto::power::v1::{GetHostRequest, PowerState};

use crate::{
    fault_server::{Fault, FaultServer},
    stage::{Stage, with_token},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_is_used_where_the_jump_host_says_so() {
    let stage = Stage::start("power-proxied", &["a", "b"]).await;
    let mut client = stage.grpc();
    let plain = FaultServer::start(Fault::None).await;
    for (namespace, name, proxy, system) in [("shop", "direct", false, "a"), ("bank", "proxied", true, "b")] {
        let cluster = stage.cluster_by(namespace, name, proxy).await;
        let jump_host = stage.jump_host(&cluster, &format!("jumphost-{name}")).await;
        let token = stage.token(&jump_host).await;
        let host = stage.host(name, &stage.emulator.bmc_address(system)).await;
        stage.ledger.hold(&cluster, &host, false);
        let get = GetHostRequest {
            host: name.to_owned(),
        };
        let got = client
            .get_host(with_token(get, &token))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(got.host.unwrap().power_state(), PowerState::On);
        let tunnel = format!("CONNECT {} HTTP/1.1", stage.emulator.address());
        let tunnels = stage
            .proxy
            .requests()
            .iter()
            .filter(|line| **line == tunnel)
            .count();
        assert_eq!(tunnels > 0, proxy, "{:?}", stage.proxy.requests());

        let host = stage.host(&format!("{name}-plain"), &plain.bmc_address()).await;
        stage.ledger.hold(&cluster, &host, false);
        let get = GetHostRequest {
            host: format!("{name}-plain"),
        };
        client.get_host(with_token(get, &token)).await.unwrap();
        let forwarded = stage
            .proxy
            .requests()
            .iter()
            .any(|line| line.starts_with("GET http://"));
        assert_eq!(forwarded, proxy, "{:?}", stage.proxy.requests());
    }
}
