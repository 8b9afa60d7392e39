//! Somebody without a name or a password begins logins at one provider until the storage is full.

use std::{sync::Arc, time::Duration};

use dex_agent::{metrics::StorageMetrics, storage::Store};
use etcd_client::{AlarmAction, AlarmType, Client, GetOptions, Txn, TxnOp};
use render::dex::Storage;
use sandbox::login::{Login, Provider, REDIRECT};
use tokio::{task::JoinSet, time};

use crate::stage::{ADA, SITE, Stage, root_client, storage_client};

const PATIENCE: Duration = Duration::from_mins(1);
const QUOTA: &str = "16777216";

/// Begins a login that Dex stores with this text; whether it was stored.
async fn begin(provider: &Provider, text: &str) -> bool {
    let form = provider.form("kubernetes", (REDIRECT, &[("nonce", text)])).await;
    form.is_ok_and(|form| form.is_ok())
}

/// Begins logins by several connections, until one is not stored.
async fn flood(provider: &Provider, text: &str) {
    let mut connections = JoinSet::new();
    for _ in 0..8 {
        let (provider, text) = (provider.anew().unwrap(), text.to_owned());
        connections.spawn(async move { while begin(&provider, &text).await {} });
    }
    while connections.join_next().await.is_some() {}
}

/// As its tenant can, who reads the password in a Secret: keys like begun logins, with names of 60 KB and no value, until etcd is full.
async fn fill_with_long_names(storage: &Storage) {
    let mut connections = JoinSet::new();
    for connection in 0..8 {
        let mut tenant = storage_client(storage).await;
        let prefix = format!("{}auth_req/{connection}", storage.prefix);
        connections.spawn(async move {
            let name = "k".repeat(60_000);
            for number in 0..usize::MAX {
                let key = format!("{prefix}-{number}-{name}");
                if tenant.put(key, "", None).await.is_err() {
                    break;
                }
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn alarms(root: &mut Client) -> usize {
    let alarms = root.alarm(AlarmAction::Get, AlarmType::Nospace, None).await;
    alarms.unwrap().alarms().len()
}

async fn count(root: &mut Client, prefix: &str) -> i64 {
    let counted = Some(GetOptions::new().with_prefix().with_count_only());
    root.get(prefix, counted).await.unwrap().count()
}

async fn logs_in(provider: &Provider) -> bool {
    let typed = (ADA.uid, ADA.password);
    let login = provider.log_in("kubernetes", (REDIRECT, &[]), typed).await;
    let Ok(Login::Code(code)) = login else {
        return false;
    };
    let token = provider.redeem("kubernetes", REDIRECT, &code, &[]).await;
    token.is_ok_and(|token| token.is_ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flooded_provider_prevents_no_logins_at_others() {
    let stage = Stage::start_with("flooded", &[("--quota-backend-bytes", QUOTA)]).await;
    let fields = || serde_json::json!({});
    let (shop, bank) = (
        stage.provider("shop", fields()).await,
        stage.provider("bank", fields()).await,
    );
    let _of_shop = stage.run("dex-shop", &shop).await;
    let _of_bank = stage.run("dex-bank", &bank).await;
    let (at_shop, at_bank) = (shop.person(), bank.person());
    assert!(logs_in(&at_bank).await);
    let text = "n".repeat(50_000);

    flood(&at_shop, &text).await;
    let mut root = root_client(&stage).await;
    assert_eq!(alarms(&mut root).await, 1);
    assert!(!logs_in(&at_bank).await);

    // As the agent does, while the flood goes on.
    let metrics = StorageMetrics::default();
    let store = Store::new(stage.storage.clone(), SITE, metrics.clone()).unwrap();
    let mut agent = JoinSet::new();
    agent.spawn(async move {
        let _ = Arc::new(store).compare_users(|| ()).await;
    });
    agent.spawn(async move {
        let mut pace = time::interval(Duration::from_millis(50));
        loop {
            // Where Dex has closed the connection, nothing is sent by it any more, and nothing is waited for.
            let provider = at_shop.anew().unwrap();
            while begin(&provider, &text).await {}
            pace.tick().await;
        }
    });
    let heals = async {
        let mut pace = time::interval(Duration::from_millis(500));
        // The history of etcd goes first, which can make room for a login before any of those that were begun is removed.
        while !logs_in(&at_bank).await || metrics.removed_logins() == 0 {
            pace.tick().await;
        }
    };
    assert!(time::timeout(PATIENCE, heals).await.is_ok());
    assert_eq!(alarms(&mut root).await, 0);
    // Only begun logins went.
    for kept in ["openid-connect-keys", "refresh_token/"] {
        let key = format!("{}{kept}", bank.storage.prefix);
        let found = root.get(key, Some(GetOptions::new().with_prefix())).await;
        assert!(found.unwrap().count() > 0, "{kept}");
    }
}

/// Where etcd is not full, and a provider has more than people ever begin.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_unfinished_logins_are_removed_first() {
    let stage = Stage::start("many").await;
    let shop = stage.provider("shop", serde_json::json!({})).await;
    let mut root = root_client(&stage).await;
    // 700 of 60,000 bytes are more than 32 MiB. Their names are in no order.
    let key = |number: u32| {
        format!(
            "{}auth_req/{:08x}",
            shop.storage.prefix,
            number.wrapping_mul(2_654_435_761)
        )
    };
    for number in 0..700 {
        root.put(key(number), "n".repeat(60_000), None).await.unwrap();
    }
    stage.store.keep_free().await.unwrap();
    let mut left = Vec::new();
    for number in 0..700 {
        if root.get(key(number), None).await.unwrap().count() > 0 {
            left.push(number);
        }
    }
    let gone = 700 - u32::try_from(left.len()).unwrap();
    assert!((100..200).contains(&gone), "{gone}");
    assert_eq!(left, (gone..700).collect::<Vec<_>>());
    stage.store.keep_free().await.unwrap();
    assert_eq!(
        count(&mut root, &shop.storage.prefix).await,
        i64::from(700 - gone)
    );
}

/// A page of them is larger than what a client of etcd reads if nothing else is set.
#[tokio::test(flavor = "multi_thread")]
async fn long_names_of_one_tenant_prevent_no_logins() {
    let stage = Stage::start_with("names", &[("--quota-backend-bytes", "67108864")]).await;
    let fields = || serde_json::json!({});
    let (shop, bank) = (
        stage.provider("shop", fields()).await,
        stage.provider("bank", fields()).await,
    );
    let _of_bank = stage.run("dex-bank", &bank).await;
    let at_bank = bank.person();
    assert!(logs_in(&at_bank).await);

    fill_with_long_names(&shop.storage).await;
    let mut root = root_client(&stage).await;
    let begun = format!("{}auth_req/", shop.storage.prefix);
    let written = count(&mut root, &begun).await;
    assert!(written > 600, "{written}");
    assert_eq!(alarms(&mut root).await, 1);
    assert!(!logs_in(&at_bank).await);

    let metrics = StorageMetrics::default();
    let store = Store::new(stage.storage.clone(), SITE, metrics.clone()).unwrap();
    store.keep_free().await.unwrap();
    assert!(logs_in(&at_bank).await);
    assert_eq!(alarms(&mut root).await, 0);
    assert_eq!(metrics.removed_logins(), u64::try_from(written).unwrap());
    let in_use = metrics.in_use_bytes();
    assert!((1..16 << 20).contains(&in_use), "{in_use}");
    assert_eq!(count(&mut root, &begun).await, 0);
}

/// Where etcd takes larger requests than usual, a page of values is larger than what the agent reads.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_be_listed_leave_room_for_others() {
    let flags = [
        ("--quota-backend-bytes", "134217728"),
        ("--max-request-bytes", "8388608"),
    ];
    let stage = Stage::start_with("values", &flags).await;
    let shop = stage.provider("shop", serde_json::json!({})).await;
    let mut root = root_client(&stage).await;
    let mut tenant = storage_client(&shop.storage).await;
    let begun = format!("{}device_req/", shop.storage.prefix);
    let value = "n".repeat(4 << 20);
    for number in 0..usize::MAX {
        let key = format!("{begun}{number}");
        if tenant.put(key, &*value, None).await.is_err() {
            break;
        }
    }
    let written = count(&mut root, &begun).await;
    assert!(written > 20, "{written}");
    assert_eq!(alarms(&mut root).await, 1);

    let metrics = StorageMetrics::default();
    let store = Store::new(stage.storage.clone(), SITE, metrics.clone()).unwrap();
    store.keep_free().await.unwrap();
    assert_eq!(alarms(&mut root).await, 0);
    assert_eq!(metrics.removed_logins(), u64::try_from(written).unwrap());
    let in_use = metrics.in_use_bytes();
    assert!((1..16 << 20).contains(&in_use), "{in_use}");
    tenant.put(begun, "", None).await.unwrap();
}

/// More than the agent lists: they go at once, and nothing else of the provider.
#[tokio::test(flavor = "multi_thread")]
async fn logins_that_are_too_many_to_list_are_removed() {
    let stage = Stage::start("all").await;
    let shop = stage.provider("shop", serde_json::json!({})).await;
    let mut root = root_client(&stage).await;
    let key = |kind: &str, number: u32| format!("{}{kind}/{number}", shop.storage.prefix);
    for hundred in 0..401 {
        let puts = (0..100).map(|number| TxnOp::put(key("auth_req", hundred * 100 + number), "{}", None));
        let puts: Vec<_> = puts.collect();
        root.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    for kind in ["device_req", "refresh_token", "auth_code"] {
        root.put(key(kind, 0), "{}", None).await.unwrap();
    }
    stage.store.keep_free().await.unwrap();
    assert_eq!(count(&mut root, &shop.storage.prefix).await, 3);
}
