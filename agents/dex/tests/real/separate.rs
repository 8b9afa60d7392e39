//! Providers share nothing, though they share etcd.

use dex_agent::storage::StoragePart;
use etcd_client::{AlarmAction, AlarmType, GetOptions, Txn, TxnOp, WatchOptions};
use render::dex::Storage;
use sandbox::login::{Login, Provider, REDIRECT};
use serde_json::json;

use crate::stage::{ADA, Stage, storage_client};

async fn code(provider: &Provider) -> String {
    let person = (ADA.uid, ADA.password);
    match provider
        .log_in("kubernetes", (REDIRECT, &[]), person)
        .await
        .unwrap()
    {
        Login::Code(code) => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_share_no_key_and_no_token() {
    let stage = Stage::start("separate").await;
    let (shop, bank) = (
        stage.provider("shop", json!({})).await,
        stage.provider("bank", json!({})).await,
    );
    let _of_shop = stage.run("dex-shop", &shop).await;
    let _of_bank = stage.run("dex-bank", &bank).await;
    let (at_shop, at_bank) = (shop.person(), bank.person());

    let keys_of_shop = at_shop.keys().await.unwrap();
    assert!(!keys_of_shop.is_empty());
    for key in at_bank.keys().await.unwrap() {
        assert!(!keys_of_shop.contains(&key));
    }
    let stolen = code(&at_shop).await;
    let elsewhere = at_bank
        .redeem("kubernetes", REDIRECT, &stolen, &[])
        .await
        .unwrap();
    assert!(elsewhere.is_err());
    let token = at_shop
        .redeem("kubernetes", REDIRECT, &stolen, &[])
        .await
        .unwrap();
    let refresh = token.unwrap().refresh.unwrap();
    assert!(at_bank.refresh("kubernetes", &refresh).await.unwrap().is_err());
    assert!(at_shop.refresh("kubernetes", &refresh).await.unwrap().is_ok());

    // etcd itself refuses: each reads and writes its own keys only.
    let all = || Some(GetOptions::new().with_prefix());
    let mut client = storage_client(&shop.storage).await;
    let own = client.get(shop.storage.prefix.clone(), all()).await.unwrap();
    assert!(own.kvs().len() > 1);
    for prefix in [bank.storage.prefix.as_str(), "sip-dex/north/lab/", "\0"] {
        let denied = client.get(prefix, all()).await.unwrap_err().to_string();
        assert!(denied.contains("permission denied"), "{prefix}: {denied}");
    }
    let key = format!("{}openid-connect-keys", bank.storage.prefix);
    let denied = client.put(key, "{}", None).await.unwrap_err().to_string();
    assert!(denied.contains("permission denied"), "{denied}");
    assert!(client.user_list().await.is_err());
    Box::pin(another_way_to_keys_is_none(&shop.storage, &bank.storage)).await;

    // A provider that is removed leaves nothing, and its name can be used again.
    let part = |uid: &str, name: &str| StoragePart {
        uid: uid.to_owned(),
        name: name.to_owned(),
    };
    let parts = [part("uid-bank", "auth-bank"), part("uid-shop", "auth-shop")];
    assert_eq!(stage.store.parts().await.unwrap(), parts);
    stage.store.remove(parts[1].clone()).await.unwrap();
    let mut client = storage_client(&bank.storage).await;
    let left = client.get(bank.storage.prefix.clone(), all()).await.unwrap();
    assert!(!left.kvs().is_empty());
    let again = stage
        .store
        .ensure_part("uid-shop", "auth-shop", "another")
        .await
        .unwrap();
    let mut client = storage_client(&again).await;
    let left = client.get(again.prefix.clone(), all()).await.unwrap();
    assert!(left.kvs().is_empty());
}

/// What releases of etcd before those that the agent takes let a user do beyond its role.
async fn another_way_to_keys_is_none(own: &Storage, other: &Storage) {
    let mut client = storage_client(own).await;
    let key = format!("{}openid-connect-keys", other.prefix);
    let read = || TxnOp::get(key.clone(), None);
    let put = || TxnOp::put(key.clone(), "{}", None);
    let within = |operation: TxnOp| TxnOp::txn(Txn::new().and_then([operation]));
    for operation in [
        read(),
        put(),
        within(read()),
        within(put()),
        within(within(read())),
    ] {
        let denied = client.txn(Txn::new().and_then([operation])).await;
        let denied = denied.err().map(|denied| denied.to_string());
        let denied = denied.unwrap_or_default();
        assert!(denied.contains("permission denied"), "{denied}");
    }
    for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
        assert!(client.alarm(AlarmAction::Activate, alarm, None).await.is_err());
    }
    assert!(client.compact(1, None).await.is_err());

    // A watch that begins at a key of its own and has no end.
    let first = format!("{}a", own.prefix);
    let watch = client
        .watch(first, Some(WatchOptions::new().with_from_key()))
        .await;
    let Ok(mut stream) = watch else {
        return;
    };
    let mut of_other = storage_client(other).await;
    of_other
        .put(format!("{}sip-test", other.prefix), "hidden", None)
        .await
        .unwrap();
    let mut of_own = storage_client(own).await;
    of_own
        .put(format!("{}sip-test", own.prefix), "seen", None)
        .await
        .unwrap();
    loop {
        let Ok(Some(answer)) = stream.message().await else {
            return;
        };
        if answer.canceled() {
            return;
        }
        for event in answer.events() {
            let key = event.kv().unwrap().key();
            assert!(
                key.starts_with(own.prefix.as_bytes()),
                "{}",
                String::from_utf8_lossy(key)
            );
        }
        assert!(
            answer.events().is_empty(),
            "a watch without an end is not refused"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_of_one_name_keep_their_providers() {
    let stage = Stage::start("regions").await;
    let of_site = async |site: &str| {
        let store = stage.store_of(site);
        let part = store
            .ensure_part("uid-shop", "auth-shop", "password")
            .await
            .unwrap();
        (store, part)
    };
    let (north, of_north) = of_site("north/lab").await;
    let (south, of_south) = of_site("south/lab").await;
    assert_ne!(of_north.user, of_south.user);
    assert_ne!(of_north.prefix, of_south.prefix);
    let part = StoragePart {
        uid: "uid-shop".to_owned(),
        name: "auth-shop".to_owned(),
    };
    for store in [&north, &south] {
        assert_eq!(store.parts().await.unwrap(), std::slice::from_ref(&part));
    }
    // The sweep of one leaves that of the other.
    south.remove(part).await.unwrap();
    assert!(south.parts().await.unwrap().is_empty());
    storage_client(&of_north).await;
}
