//! Tokens that prove no jump host, made by a real API server or forged.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use proto::power::v1::{Action, power_service_client::PowerServiceClient};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::Value;
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

/// The token with another time at which it expires, signed anew.
fn signed(key: &Path, token: &str, expires: i64) -> String {
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value =
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    claims["exp"] = expires.into();
    let message = format!(
        "{}.{}",
        parts[0],
        BASE64_URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let key = KeyPair::from_pem(&std::fs::read_to_string(key).unwrap()).unwrap();
    let signature = key.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(raw(&signature)))
}

/// A signature of ECDSA as JWT has it: both numbers with 32 bytes, instead of a sequence of two integers of ASN.1.
fn raw(signature: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    let mut rest = &signature[2..];
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let number: Vec<u8> = rest[2..2 + length]
            .iter()
            .copied()
            .skip_while(|byte| *byte == 0)
            .collect();
        raw.extend(std::iter::repeat_n(0, 32 - number.len()));
        raw.extend(number);
        rest = &rest[2 + length..];
    }
    raw
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
    let valid = signed(&key, &good, now() + 3600);
    client.get_host(with_token(get("own"), &valid)).await.unwrap();
    let expired = signed(&key, &good, now() - 3600);
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
