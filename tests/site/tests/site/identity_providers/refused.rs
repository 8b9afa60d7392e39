//! Who is not let in: by the provider, and by the tenant's API server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use sandbox::{
    login::{Login, Provider, REDIRECT, Token},
    site::{Nodes, Site},
};
use serde_json::json;

use super::{ADA, BIND_PASSWORD, BOB, Scene, endpoint, request, token};
use crate::fixtures::{Cluster, authenticating, published_outputs};

const PORT: u16 = 31_630;
const CONSOLE: &str = "https://console.example.org/callback";
const SECRET: [(&str, &str); 1] = [("client_secret", "secret of the console")];
/// For so long kube-apiserver remembers that it has accepted a token.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A provider for kubectl and for a program with a secret, whose tokens are valid for a minute.
async fn start(scene: &Scene) -> Cluster {
    let secrets: Api<Secret> = scene.api();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "console"}, "stringData": {"secret": SECRET[0].1},
    });
    let apply = PatchParams::apply("test").force();
    secrets
        .patch("console", &apply, &Patch::Apply(secret))
        .await
        .unwrap();
    scene.set_bind_password(BIND_PASSWORD).await;
    let clients = json!([
        {"id": "kubernetes", "redirectURIs": [REDIRECT]},
        {"id": "console", "secret": {"name": "console", "key": "secret"}, "redirectURIs": [CONSOLE]},
    ]);
    let cluster = scene.cluster("shop", PORT);
    let cluster = cluster
        .with("/services/auth/0/clients", clients)
        .with("/services/auth/0/expiry", json!({"idTokens": "1m"}));
    scene.stage.create(&cluster).await;
    scene
        .stage
        .condition_is(&cluster, AUTH_READY.as_str(), "False", "IssuerUnreachable")
        .await;
    cluster
}

async fn console_token(provider: &Provider) -> Token {
    let person = (ADA.uid, ADA.password);
    let login = provider.log_in("console", (CONSOLE, &[]), person).await.unwrap();
    let Login::Code(code) = login else {
        panic!("{login:?}");
    };
    let token = provider.redeem("console", CONSOLE, &code, &SECRET).await.unwrap();
    token.unwrap()
}

async fn is_accepted(tenant: &Site, token: &str) -> bool {
    let answer = request(tenant, token, &["auth", "whoami"]).await;
    assert!(
        answer.success || answer.stderr.contains("Unauthorized"),
        "{}",
        answer.stderr
    );
    answer.success
}

/// Waits until a token that was accepted is not any longer; it must be until it expires.
async fn expires(tenant: &Site, token: &Token) {
    let expiry = UNIX_EPOCH + Duration::from_secs(token.claims["exp"].as_u64().unwrap());
    loop {
        let before = SystemTime::now();
        let accepted = is_accepted(tenant, &token.text).await;
        if before >= expiry && !accepted {
            return;
        }
        assert!(
            accepted || SystemTime::now() >= expiry,
            "refused before it has expired"
        );
        assert!(
            before < expiry + 2 * REMEMBERED,
            "accepted {:?} after it has expired",
            before.duration_since(expiry)
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn the_wrong_password_address_audience_and_time_are_refused() {
    let mut scene = Scene::start().await;
    let condition = AUTH_READY.as_str();
    let shop = start(&scene).await;
    let mut dex = scene.run("auth-shop", PORT).await;
    let published = endpoint(&scene.stage.ready(&shop).await);
    let text = |field: &str| published[field].as_str().unwrap();
    let provider = Provider::new(text("issuer"), text("caBundle")).unwrap();
    let outputs = published_outputs(&scene.api()).await;
    let tenant = authenticating(&outputs, scene.group.directory(), Nodes::None).await;

    let ada = token(&provider, ADA).await;
    assert!(is_accepted(&tenant, &ada.text).await);
    let of_console = console_token(&provider).await;
    assert_eq!(of_console.claims["aud"], "console");
    assert!(!is_accepted(&tenant, &of_console.text).await);
    // What Ada's token says, signed as Bob's is.
    let bob = token(&provider, BOB).await;
    let (claims, _) = ada.text.rsplit_once('.').unwrap();
    let (_, signature) = bob.text.rsplit_once('.').unwrap();
    let forged = format!("{claims}.{signature}");
    assert!(!is_accepted(&tenant, &forged).await);

    let log_in = async |password: &str| {
        let login = provider
            .log_in("kubernetes", (REDIRECT, &[]), (ADA.uid, password))
            .await;
        login.unwrap()
    };
    assert_eq!(log_in("wrong").await, Login::Again);
    for (client, redirect) in [
        ("console", "https://console.example.org/callback/"),
        ("console", REDIRECT),
        ("kubernetes", CONSOLE),
        ("kubernetes", "http://localhost.example.org:8000"),
        ("kubernetes", "https://localhost:8000"),
    ] {
        let login = provider
            .log_in(client, (redirect, &[]), (ADA.uid, ADA.password))
            .await;
        let login = login.unwrap();
        assert!(
            matches!(login, Login::Error(400, _)),
            "{client}, {redirect}: {login:?}"
        );
    }

    // Without the directory nobody logs in; tokens stay valid. When it is back, nothing has to be restarted.
    scene.directory.process.kill9().await.unwrap();
    let stage = &scene.stage;
    stage
        .condition_is(&shop, condition, "False", "DirectoryUnreachable")
        .await;
    let login = log_in(ADA.password).await;
    assert!(matches!(login, Login::Error(500, _)), "{login:?}");
    scene.directory.process.restart().await.unwrap();
    scene.directory.listens().await.unwrap();
    let stage = &scene.stage;
    stage.ready(&shop).await;
    assert!(matches!(log_in(ADA.password).await, Login::Code(_)));
    dex.process.check().unwrap();

    expires(&tenant, &ada).await;
    assert!(is_accepted(&tenant, &token(&provider, ADA).await.text).await);
}
