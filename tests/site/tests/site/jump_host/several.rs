//! Several jump hosts of one cluster: each keeps its objects and its host key, whatever happens to the others' entries.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{Api, ResourceExt as _, api::DynamicObject};
use sandbox::{inventory::NETWORK, wait};
use serde_json::{Value, json};

use super::{KEY, api, on_site, with_jump_hosts};
use crate::fixtures::PATIENCE;

fn entry(port: u16) -> Value {
    json!({"image": "jump-host:1", "nodeInterfaceId": NETWORK, "nodePort": port, "sshAuthorizedKeys": [KEY]})
}

/// Fingerprints of host keys by port, as users have noted them.
fn fingerprints(object: &DynamicObject) -> BTreeMap<u64, String> {
    let endpoints = object.data["status"]["endpoints"].as_array();
    let endpoints = endpoints.into_iter().flatten();
    let by_port = endpoints.filter_map(|endpoint| {
        let fingerprint = endpoint["hostKeyFingerprints"]["ssh-ed25519"].as_str()?;
        Some((endpoint["port"].as_u64()?, fingerprint.to_owned()))
    });
    by_port.collect()
}

#[test]
fn a_jump_host_keeps_its_key_when_another_is_removed() {
    on_site("jump-two", async |stage| {
        let (first, second) = (31_511, 31_512);
        let shop = with_jump_hosts("jump-two", &[entry(first), entry(second)]);
        stage.create(&shop).await;
        let before = fingerprints(&stage.ready(&shop).await);
        let known = &before[&u64::from(second)];
        assert_ne!(known, &before[&u64::from(first)]);

        stage
            .edit(&shop, json!({"services": {"jumpHost": [entry(second)]}}))
            .await;
        wait::until_gone(api::<Service>(stage, "jump-two"), "jumphost-shop", PATIENCE)
            .await
            .unwrap();
        let after = fingerprints(&stage.ready(&shop).await);
        let expected = BTreeMap::from([(u64::from(second), known.clone())]);
        assert_eq!(after, expected, "users would be warned of another host key");

        // Somebody deletes its Service: the status still tells whose the entry's objects are.
        stage
            .deleted_comes_back(&api::<Service>(stage, "jump-two"), "jumphost-shop-1")
            .await;
        assert_eq!(fingerprints(&stage.ready(&shop).await), expected);

        // A new one before it is another one.
        stage
            .edit(
                &shop,
                json!({"services": {"jumpHost": [entry(first), entry(second)]}}),
            )
            .await;
        let both = stage
            .until(&shop, "have two jump hosts", |object| {
                fingerprints(object).len() == 2 && wait::is_true(object, "Ready")
            })
            .await;
        let both = fingerprints(&both);
        assert_eq!(&both[&u64::from(second)], known);
        assert_ne!(&both[&u64::from(first)], known);
    });
}

#[test]
fn jump_hosts_whose_entries_are_swapped_stay_as_they_are() {
    on_site("jump-swap", async |stage| {
        let (first, second) = (31_513, 31_514);
        let shop = with_jump_hosts("jump-swap", &[entry(first), entry(second)]);
        stage.create(&shop).await;
        let before = fingerprints(&stage.ready(&shop).await);
        let deployments: Api<Deployment> = api(stage, "jump-swap");
        let uids = async || {
            let all = deployments.list(&kube::api::ListParams::default()).await.unwrap();
            all.items
                .iter()
                .map(|found| (found.name_any(), found.uid()))
                .collect::<BTreeMap<_, _>>()
        };
        let made = uids().await;
        stage
            .edit(
                &shop,
                json!({"services": {"jumpHost": [entry(second), entry(first)]}}),
            )
            .await;
        let after = fingerprints(&stage.ready(&shop).await);
        assert_eq!((after, uids().await), (before, made));
    });
}

#[test]
fn a_jump_host_with_a_name_has_it_whatever_its_port() {
    on_site("jump-name", async |stage| {
        let named = |port: u16| {
            let mut entry = entry(port);
            entry["name"] = json!("ops");
            entry
        };
        let shop = with_jump_hosts("jump-name", &[entry(31_515), named(31_516)]);
        stage.create(&shop).await;
        let before = fingerprints(&stage.ready(&shop).await);
        stage
            .edit(&shop, json!({"services": {"jumpHost": [named(31_517)]}}))
            .await;
        let object = stage
            .until(&shop, "have one jump host at the new port", |object| {
                fingerprints(object).keys().collect::<Vec<_>>() == [&31_517]
            })
            .await;
        assert_eq!(object.data["status"]["endpoints"][0]["name"], "jumphost-shop-ops");
        assert_eq!(fingerprints(&object)[&31_517], before[&31_516]);
    });
}
