//! The storage loses its data while providers run.

use std::{fs, time::Duration};

use dex_agent::https;
use sandbox::login::{Login, REDIRECT};
use serde_json::json;
use tokio::time;

use crate::stage::{ADA, ROOT_PASSWORD, Stage, on_loopback, storage_client};

const PATIENCE: Duration = Duration::from_mins(1);
/// Where Dex of the provider `shop` has the keys that it signs with.
const PLANTED: &str = "sip-dex/north/lab/uid-shop/auth-shop/openid-connect-keys";
/// What the agent removes last of an etcd that was open.
const MARK: &str = "sip-dex-untrusted";

async fn as_user(stage: &Stage, name: &str) -> Result<etcd_client::Client, etcd_client::Error> {
    let user = etcd_client::ConnectOptions::new().with_user(name, ROOT_PASSWORD);
    etcd_client::Client::connect(stage.etcd.endpoints(), Some(user)).await
}

async fn assert_refused(stage: &Stage, name: &str) {
    let refused = as_user(stage, name).await.err().unwrap().to_string();
    assert!(refused.contains("invalid user ID or password"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_storage_heals_without_a_restart() {
    let mut stage = Stage::start("lost").await;
    let provider = stage.provider("shop", json!({})).await;
    let _dex = stage.run("dex", &provider).await;
    assert!(!stage.store.forget_lost().await.unwrap());

    // Everything is gone: users, roles, keys, and that passwords are required.
    let data = stage.group.directory().join("etcd-0");
    let member = &mut stage.etcd.members()[0];
    member.process.kill9().await.unwrap();
    fs::remove_dir_all(&data).unwrap();
    member.process.restart().await.unwrap();
    member.ready().await.unwrap();

    // The agent's comparison finds it, passwords are required again, and the next pass adds the user.
    assert!(stage.store.forget_lost().await.unwrap());
    let anybody = etcd_client::Client::connect(stage.etcd.endpoints(), None).await;
    let refused = anybody.unwrap().get("\0", None).await.unwrap_err().to_string();
    assert!(refused.contains("user name is empty"), "{refused}");
    let again = stage
        .store
        .ensure_part("uid-shop", "auth-shop", "password-of-shop")
        .await;
    assert!(again.unwrap() == provider.storage);
    storage_client(&provider.storage).await;

    // Dex, which runs on, makes new keys and takes logins.
    let person = provider.person();
    let logged_in = async {
        let mut pace = time::interval(Duration::from_millis(500));
        loop {
            pace.tick().await;
            let typed = (ADA.uid, ADA.password);
            let Ok(Login::Code(code)) = person.log_in("kubernetes", (REDIRECT, &[]), typed).await else {
                continue;
            };
            if let Ok(Ok(token)) = person.redeem("kubernetes", REDIRECT, &code, &[]).await {
                return token;
            }
        }
    };
    let token = time::timeout(PATIENCE, logged_in).await.unwrap();
    assert_eq!(token.claims["groups"], json!(["admins"]));
}

/// A kubelet starts what does not live again, and Dex does not start without its storage.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_lives_while_its_storage_does_not_answer() {
    let mut stage = Stage::start("stopped").await;
    let provider = stage.provider("shop", json!({})).await;
    let _dex = stage.run("dex", &provider).await;
    let (issuer, here) = (&provider.issuer, on_loopback());
    let status = async |path: &str| {
        let answer = https::request(issuer, path, None, &provider.tls, None, &here).await;
        answer.ok().map(|answer| answer.status.as_u16())
    };
    let [lives, is_ready] = &provider.probed;
    assert_eq!(
        (status(lives).await, status(is_ready).await),
        (Some(200), Some(200))
    );
    stage.etcd.members()[0].process.pause().unwrap();
    assert_eq!(status(lives).await, Some(200));
    assert_ne!(status(is_ready).await, Some(200));
    stage.etcd.members()[0].process.resume().unwrap();
    let heals = async {
        let mut pace = time::interval(Duration::from_millis(500));
        while status(is_ready).await != Some(200) {
            pace.tick().await;
        }
    };
    time::timeout(PATIENCE, heals).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_storage_is_closed_before_the_first_provider() {
    let stage = Stage::start("closed").await;
    let anybody = async || {
        let client = etcd_client::Client::connect(stage.etcd.endpoints(), None).await;
        client.unwrap().get("key", None).await
    };
    assert!(anybody().await.is_ok());
    assert!(!stage.store.forget_lost().await.unwrap());
    let refused = anybody().await.unwrap_err().to_string();
    assert!(refused.contains("user name is empty"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_open_storage_held_gives_nobody_rights() {
    let stage = Stage::start("open").await;
    let open = etcd_client::Client::connect(stage.etcd.endpoints(), None).await;
    let mut open = open.unwrap();
    open.user_add("evil", ROOT_PASSWORD, None).await.unwrap();
    open.user_grant_role("evil", "root").await.unwrap();
    open.put(PLANTED, "a key to sign with", None).await.unwrap();

    let provider = stage.provider("shop", json!({})).await;
    assert_refused(&stage, "evil").await;
    let mut own = storage_client(&provider.storage).await;
    let all = etcd_client::GetOptions::new().with_prefix();
    let left = own.get(&*provider.storage.prefix, Some(all)).await.unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_left_when_it_was_killed_is_removed() {
    let stage = Stage::start("killed").await;
    let open = etcd_client::Client::connect(stage.etcd.endpoints(), None).await;
    let mut open = open.unwrap();
    for user in ["evil", "root"] {
        open.user_add(user, ROOT_PASSWORD, None).await.unwrap();
        open.user_grant_role(user, "root").await.unwrap();
    }
    open.put(PLANTED, "a key to sign with", None).await.unwrap();
    // As far as an agent came: authentication is on, and nothing was removed.
    open.put(MARK, "", None).await.unwrap();
    open.auth_enable().await.unwrap();

    stage.restarted().forget_lost().await.unwrap();
    assert_refused(&stage, "evil").await;
    let mut root = as_user(&stage, "root").await.unwrap();
    for key in [PLANTED, MARK] {
        assert_eq!(root.get(key, None).await.unwrap().count(), 0, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_of_others_stays_as_it_is() {
    let stage = Stage::start("foreign").await;
    let open = etcd_client::Client::connect(stage.etcd.endpoints(), None).await;
    let mut open = open.unwrap();
    open.put("/registry/pods/a", "of an API server", None)
        .await
        .unwrap();

    let refused = stage.store.forget_lost().await.unwrap_err().to_string();
    assert!(
        refused.contains("this etcd holds keys of others (1)"),
        "{refused}"
    );
    let part = stage.store.ensure_part("uid-shop", "auth-shop", "password").await;
    assert!(part.is_err());
    let left = open.get("/registry/pods/a", None).await.unwrap();
    assert_eq!(left.count(), 1);
    assert!(open.user_list().await.unwrap().users().is_empty());

    // Nobody has to start the agent again.
    open.delete("/registry/pods/a", None).await.unwrap();
    assert!(!stage.store.forget_lost().await.unwrap());
    assert!(open.get("key", None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_user_is_not_written_again() {
    let stage = Stage::start("stands").await;
    let provider = stage.provider("shop", json!({})).await;
    let mut session = storage_client(&provider.storage).await;
    // As an agent that was started again: it knows nothing, and the provider's session goes on.
    let restarted = stage.restarted();
    let part = restarted
        .ensure_part("uid-shop", "auth-shop", "password-of-shop")
        .await;
    assert!(part.unwrap() == provider.storage);
    session.get(provider.storage.prefix.clone(), None).await.unwrap();
    // Another password is set, whatever the user had.
    let changed = restarted
        .ensure_part("uid-shop", "auth-shop", "another")
        .await
        .unwrap();
    storage_client(&changed).await;
}
