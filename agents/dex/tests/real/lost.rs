//! The storage loses its data while providers run.

use std::{fs, time::Duration};

use sandbox::login::{Login, REDIRECT};
use serde_json::json;
use tokio::time;

use crate::stage::{ADA, Stage, storage_client};

const PATIENCE: Duration = Duration::from_mins(1);

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
        .part("uid-shop", "auth-shop", "password-of-shop")
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
    open.user_add("evil", "secret", None).await.unwrap();
    open.user_grant_role("evil", "root").await.unwrap();
    let keys = "sip-dex/site-a/uid-shop/auth-shop/planted";
    open.put(keys, "a key to sign with", None).await.unwrap();

    let provider = stage.provider("shop", json!({})).await;
    let evil = etcd_client::ConnectOptions::new().with_user("evil", "secret");
    let refused = etcd_client::Client::connect(stage.etcd.endpoints(), Some(evil)).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("invalid user ID or password")));
    let mut own = storage_client(&provider.storage).await;
    let all = etcd_client::GetOptions::new().with_prefix();
    let left = own.get(&*provider.storage.prefix, Some(all)).await.unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_stands_is_not_written_again() {
    let stage = Stage::start("stands").await;
    let provider = stage.provider("shop", json!({})).await;
    let mut session = storage_client(&provider.storage).await;
    // As an agent that was started again: it knows nothing, and the provider's session goes on.
    let restarted = stage.restarted();
    let part = restarted.part("uid-shop", "auth-shop", "password-of-shop").await;
    assert!(part.unwrap() == provider.storage);
    session.get(provider.storage.prefix.clone(), None).await.unwrap();
    // Another password is set, whatever the user had.
    let changed = restarted.part("uid-shop", "auth-shop", "another").await.unwrap();
    storage_client(&changed).await;
}
