//! What the agent finds of providers and directories.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{
    HttpsUrl,
    conditions::auth::{DIRECTORY_REFUSES_BIND, DIRECTORY_UNREACHABLE, ISSUER_CONFLICT, ISSUER_UNREACHABLE},
};
use dex_agent::{
    checks::{self, CheckResult, Refusals, Target},
    own_keys::OwnKeys,
};
use sandbox::slapd::BIND_DN;
use serde_json::json;

use crate::stage::{Stage, no_secrets, on_loopback};

async fn check(stage: &Stage, target: &Target) -> CheckResult {
    let own_keys = OwnKeys::new(Some(Arc::new(stage.restarted())));
    checks::check(
        target,
        &Refusals::default(),
        &own_keys,
        &no_secrets(),
        &on_loopback(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_checked_by_its_answers() {
    let mut stage = Stage::start("checked").await;
    let provider = stage.provider("shop", json!({})).await;
    let found = check(&stage, &provider.target).await.unwrap_err();
    assert_eq!(found.0, ISSUER_UNREACHABLE, "{found:?}");
    let _dex = stage.run("dex", &provider).await;
    assert_eq!(check(&stage, &provider.target).await, Ok(()));

    // Another issuer at the same place, and another CA.
    let right = provider.target.provider.clone().unwrap();
    let other = Target {
        provider: Some(checks::Provider {
            issuer: HttpsUrl::from_parts("127.0.0.1", provider.issuer.port(), "/other").unwrap(),
            ..right.clone()
        }),
        tenant: None,
    };
    assert_eq!(check(&stage, &other).await.unwrap_err().0, ISSUER_UNREACHABLE);
    let bank = stage.provider("bank", json!({})).await;
    // The target of another provider, with the issuer and the CA of this one.
    let taken = Target {
        provider: Some(checks::Provider {
            part: bank.target.provider.clone().unwrap().part,
            ..right.clone()
        }),
        tenant: None,
    };
    let found = check(&stage, &taken).await.unwrap_err();
    assert_eq!(found.0, ISSUER_CONFLICT, "{found:?}");
    let _bank = stage.run("dex-bank", &bank).await;
    let found = check(&stage, &taken).await.unwrap_err();
    assert_eq!(found.0, ISSUER_CONFLICT, "{found:?}");
    assert_eq!(check(&stage, &bank.target).await, Ok(()));
    let untrusted = Target {
        provider: Some(checks::Provider {
            bundle: bank.certificate.bundle.clone(),
            ..right
        }),
        tenant: None,
    };
    let found = check(&stage, &untrusted).await.unwrap_err();
    assert!(
        found.0 == ISSUER_UNREACHABLE && found.1.contains("UnknownIssuer"),
        "{found:?}"
    );

    // A wrong password of the account that searches.
    let mut wrong = stage.ldap();
    wrong["ldap"]["bindPassword"] = json!({"name": "console", "key": "secret"});
    let refused = stage.provider("wrong", json!({ "connectors": [wrong] })).await;
    let found = check(&stage, &refused.target).await.unwrap_err();
    assert_eq!(found.0, DIRECTORY_REFUSES_BIND);
    assert!(
        found.1.contains(BIND_DN) && !found.1.contains("s$HOME"),
        "{found:?}"
    );

    // It binds once: the directory, which answers nothing now, is not asked again.
    let refusals = Refusals::default();
    let again = async || {
        checks::check(
            &refused.target,
            &refusals,
            &OwnKeys::default(),
            &no_secrets(),
            &on_loopback(),
        )
        .await
    };
    assert_eq!(again().await.unwrap_err().0, DIRECTORY_REFUSES_BIND);
    stage.directory.process.pause().unwrap();
    assert_eq!(again().await.unwrap_err().0, DIRECTORY_REFUSES_BIND);

    // The directory hangs, is gone, and comes back.
    let before = Instant::now();
    assert_eq!(
        check(&stage, &provider.target).await.unwrap_err().0,
        DIRECTORY_UNREACHABLE
    );
    assert!(before.elapsed() < Duration::from_secs(10));
    stage.directory.process.resume().unwrap();
    stage.directory.process.kill9().await.unwrap();
    assert_eq!(
        check(&stage, &provider.target).await.unwrap_err().0,
        DIRECTORY_UNREACHABLE
    );
    stage.directory.process.restart().await.unwrap();
    stage.directory.listens().await.unwrap();
    assert_eq!(check(&stage, &provider.target).await, Ok(()));
}
