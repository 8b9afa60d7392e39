//! Tokens that prove no jump host, made by a real API server or forged.

use std::time::{Duration, Instant, SystemTime};

use proto::power::v1::{Action, power_service_client::PowerServiceClient};
use sandbox::service_account_token::expiring;
use tonic::{Code, Status, transport::Channel};

use crate::{
    log::log,
    stage::{HOSTS, Stage, with_token},
    tenants::{get, reason, run, set, term},
};

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// How a read and an action by a token that proves no jump host are refused.
async fn both(client: &mut PowerServiceClient<Channel>, token: &str, term: &str) -> [Status; 2] {
    let read = client.get_host(with_token(get("own"), token)).await;
    let (_, acted) = run(client, token, set("own", Action::Reboot, "1", term)).await;
    [read.unwrap_err(), acted.unwrap_err()]
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_prove_no_jump_host_are_refused_and_audited() {
    let log = log();
    let stage = Stage::start("power-tokens", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let stranger = stage.jump_host(&orders, "loadbalancer-worker-orders").await;
    let host = stage.host("own", &stage.emulator.bmc_address("a")).await;
    stage.ledger.hold(&orders, &host, false);
    let mut client = stage.grpc();
    let good = stage.token(&jump_host).await;
    client.get_host(with_token(get("own"), &good)).await.unwrap();
    let term = term(&mut client, &good).await;

    // In the middle of the signature: of its last character some bits mean nothing.
    let at = good.len() - 40;
    let other = if good[at..].starts_with('A') { "B" } else { "A" };
    let mut forged = good.clone();
    forged.replace_range(at..=at, other);
    let (head, _) = good.rsplit_once('.').unwrap();
    let unsigned = format!("{head}.");
    // Signed by the API server's own key, as one that was made an hour ago; the same for an hour from now is good.
    let key = stage.site.directory().join("pki/service-accounts.key");
    let valid = expiring(&good, now() + 3600, &key).unwrap();
    client.get_host(with_token(get("own"), &valid)).await.unwrap();
    let expired = expiring(&good, now() - 3600, &key).unwrap();
    let refused = [
        ("forged", forged),
        ("without signature", unsigned),
        ("expired", expired),
        ("nonsense", "x".to_owned()),
        (
            "for another audience",
            stage
                .token_for(
                    &jump_host,
                    "https://kubernetes.default.svc",
                    Some(&jump_host.pod),
                    3600,
                )
                .await,
        ),
        (
            "not bound to a pod",
            stage.token_for(&jump_host, "sip-power", None, 3600).await,
        ),
    ];
    for (what, token) in refused {
        for status in both(&mut client, &token, &term).await {
            let found = (status.code(), &*reason(&status));
            assert_eq!(
                found,
                (Code::Unauthenticated, "TOKEN_REFUSED"),
                "{what}: {status:?}"
            );
        }
        assert!(
            !log.text().contains(&token) || token == "x",
            "{what}: a token is logged"
        );
    }
    let mut without = tonic::Request::new(get("own"));
    without
        .metadata_mut()
        .insert("sip-ssh-key", "SHA256:x".parse().unwrap());
    let status = client.get_host(without).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);

    // Another pod of the same cluster, under an account of its own.
    let token = stage.token(&stranger).await;
    for status in both(&mut client, &token, &term).await {
        let found = (status.code(), &*reason(&status));
        assert_eq!(found, (Code::PermissionDenied, "NOT_A_JUMP_HOST"), "{status:?}");
    }
    let pod = stranger.pod.metadata.name.as_deref().unwrap();
    let account = "account=\"shop/loadbalancer-worker-orders\"";
    let lines = log.audit(&["NOT_A_JUMP_HOST", account, pod]);
    assert_eq!(lines.len(), 2, "{}", log.text());
    // An account of the right name that belongs to another cluster.
    let billing = stage.cluster("shop", "billing").await;
    stage
        .site
        .kubectl_ok(&["delete", "-n", "shop", "serviceaccount", "jumphost-orders"])
        .await
        .unwrap();
    let impostor = stage.jump_host(&billing, "jumphost-orders").await;
    let token = stage.token(&impostor).await;
    for status in both(&mut client, &token, &term).await {
        assert_eq!(reason(&status), "NOT_A_JUMP_HOST", "{status:?}");
    }

    // In a namespace that has not allowed the agent to read its pods.
    let stray = stage.cluster(HOSTS, "stray").await;
    let stray = stage.jump_host(&stray, "jumphost-stray").await;
    let token = stage.token(&stray).await;
    for status in both(&mut client, &token, &term).await {
        assert_eq!(reason(&status), "NOT_A_JUMP_HOST", "{status:?}");
    }

    assert!(
        log.audit(&["TOKEN_REFUSED", "GetHost"]).len() >= 6,
        "{}",
        log.text()
    );
    assert!(
        log.audit(&["TOKEN_REFUSED", "SetPower"]).len() >= 6,
        "{}",
        log.text()
    );
    assert!(stage.emulator.resets().unwrap().is_empty());
}

/// The number after `withheld=` in a line of the audit log.
fn withheld(line: &str) -> usize {
    let (_, rest) = line.split_once("withheld=").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refused_call_of_a_proven_pod_is_counted() {
    let log = log();
    let stage = Stage::start("power-counted", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let (token, mut client) = (stage.token(&jump_host).await, stage.grpc());
    let pod = jump_host.pod.metadata.name.as_deref().unwrap();
    let mut reasons = Vec::new();
    for _ in 0..60 {
        let status = client.get_host(with_token(get("absent"), &token)).await;
        reasons.push(reason(&status.unwrap_err()));
    }
    for expected in ["NOT_A_MEMBER", "OVERLOADED"] {
        assert!(reasons.iter().any(|reason| reason == expected), "{reasons:?}");
    }
    // A line comes once a second, and counts those before it.
    let (begun, mut calls) = (Instant::now(), reasons.len());
    loop {
        let lines = log.audit(&[pod, "GetHost"]);
        let counted = lines.len() + lines.iter().map(|line| withheld(line)).sum::<usize>();
        if counted == calls {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{counted} of {calls}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        client
            .get_host(with_token(get("absent"), &token))
            .await
            .unwrap_err();
        calls += 1;
    }
}
