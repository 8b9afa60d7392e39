//! Logins at a provider.

use sandbox::{
    login::{Login, Provider, REDIRECT, Token},
    slapd::Person,
};
use serde_json::json;

use crate::stage::{ADA, BOB, Stage};

const CLIENT: &str = "kubernetes";

async fn log_in(provider: &Provider, name: &str, password: &str) -> Login {
    let login = provider.log_in(CLIENT, (REDIRECT, &[]), (name, password)).await;
    login.unwrap()
}

/// A whole login, as kubelogin does it.
async fn token(provider: &Provider, person: Person<'_>) -> Token {
    let code = code(log_in(provider, person.uid, person.password).await);
    let token = provider.redeem(CLIENT, REDIRECT, &code, &[]).await.unwrap();
    token.unwrap()
}

fn code(login: Login) -> String {
    match login {
        Login::Code(code) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_of_the_directory_log_in() {
    let stage = Stage::start("logins").await;
    let of_shop = stage.provider("shop", json!({})).await;
    let mut first = stage.run("dex-1", &of_shop).await;
    let shop = of_shop.person();

    let ada = token(&shop, ADA).await;
    assert_eq!(ada.claims["iss"], of_shop.issuer.as_str());
    assert_eq!(ada.claims["aud"], CLIENT);
    assert_eq!(ada.claims["email"], "ada@example.org");
    assert_eq!(ada.claims["groups"], json!(["admins"]));
    assert_eq!(token(&shop, BOB).await.claims["groups"], json!(["readers"]));

    // Who is refused. A directory takes an empty password for an anonymous bind, which succeeds.
    for (name, password) in [
        (ADA.uid, "wrong"),
        (ADA.uid, ""),
        ("*)(uid=ada", ADA.password),
        ("*", ADA.password),
    ] {
        assert_eq!(
            log_in(&shop, name, password).await,
            Login::Again,
            "{name}: {password}"
        );
    }
    let person = (ADA.uid, ADA.password);
    for redirect in [
        "https://evil.example.org/",
        "http://localhost.evil.example.org:8000",
    ] {
        let login = shop.log_in(CLIENT, (redirect, &[]), person).await.unwrap();
        assert!(matches!(login, Login::Error(400, _)), "{redirect}: {login:?}");
    }
    let login = shop.log_in("nobody", (REDIRECT, &[]), person).await.unwrap();
    assert!(matches!(login, Login::Error(..)), "{login:?}");

    // A code, a refresh token and a signing key outlast the pod, and belong to all pods.
    let begun = code(log_in(&shop, ADA.uid, ADA.password).await);
    first.process.kill9().await.unwrap();
    let _second = stage.run("dex-2", &of_shop).await;
    let shop = of_shop.person();
    assert!(shop.keys().await.unwrap().contains(&ada.key));
    let refreshed = shop.refresh(CLIENT, &ada.refresh.unwrap()).await.unwrap();
    assert_eq!(refreshed.unwrap().claims["groups"], json!(["admins"]));
    let after = shop.redeem(CLIENT, REDIRECT, &begun, &[]).await.unwrap();
    assert_eq!(after.unwrap().claims["email"], "ada@example.org");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_secret_may_have_special_characters() {
    let stage = Stage::start("console").await;
    let console = r#"con sole"'$HOME\{}:#"#;
    let back = "https://console.example.org/back?a=b";
    let clients = json!([
        {"id": console, "secret": {"name": "console", "key": "secret"}, "redirectURIs": [back]},
    ]);
    let provider = stage.provider("shop", json!({ "clients": clients })).await;
    let _dex = stage.run("dex", &provider).await;
    let shop = provider.person();
    let person = (ADA.uid, ADA.password);
    let code = code(shop.log_in(console, (back, &[]), person).await.unwrap());
    for wrong in [[].as_slice(), &[("client_secret", "s")]] {
        let answer = shop.redeem(console, back, &code, wrong).await.unwrap();
        assert!(answer.unwrap_err().contains("invalid_client"));
    }
    let secret = [("client_secret", "s$HOME\"\\'")];
    let token = shop.redeem(console, back, &code, &secret).await.unwrap();
    assert_eq!(token.unwrap().claims["aud"], console);
    let elsewhere = shop.log_in(console, (REDIRECT, &[]), person).await.unwrap();
    assert!(matches!(elsewhere, Login::Error(400, _)), "{elsewhere:?}");
}

/// docs/auth.md states this: 2.13 knows no PKCE, later releases check it. They name the methods in the discovery document.
#[tokio::test(flavor = "multi_thread")]
async fn dex_2_13_ignores_pkce() {
    let stage = Stage::start("pkce").await;
    let provider = stage.provider("shop", json!({})).await;
    let _dex = stage.run("dex", &provider).await;
    let shop = provider.person();
    let document = shop.get("/.well-known/openid-configuration").await.unwrap();
    assert!(document["token_endpoint"].is_string());
    assert_eq!(document.get("code_challenge_methods_supported"), None);
    // The challenge of another verifier.
    let challenge = [
        ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
        ("code_challenge_method", "S256"),
    ];
    let verifier = [("code_verifier", "not-the-verifier-of-this-challenge-at-all-000")];
    let person = (ADA.uid, ADA.password);
    for verifier in [[].as_slice(), &verifier] {
        let login = shop.log_in(CLIENT, (REDIRECT, &challenge), person).await;
        let token = shop
            .redeem(CLIENT, REDIRECT, &code(login.unwrap()), verifier)
            .await;
        assert!(token.unwrap().is_ok());
    }
}
