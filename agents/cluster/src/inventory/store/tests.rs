use serde_json::json;

use super::*;
use crate::fixtures::{host, inventory, key, labelled, parse, with};

fn secret(name: &str) -> SecretName {
    SecretName {
        namespace: "metal".to_owned(),
        name: name.to_owned(),
    }
}

fn data(address: &str) -> NetworkData {
    let text = json!({ "networks": [{ "id": "oam", "type": "ipv4", "ip_address": address }] }).to_string();
    NetworkData::parse(&secret("h1-network-data"), text.as_bytes())
}

fn addresses(changes: &Changes) -> Vec<Option<String>> {
    changes
        .hosts
        .iter()
        .map(|host| host.addresses.get("oam").cloned())
        .collect()
}

#[test]
fn a_host_is_told_again_when_its_secret_comes_changes_and_goes() {
    let inventory = inventory([host("h1"), host("h2")]);
    assert_eq!(addresses(&inventory.take(10)), [None, None]);
    for (secret_data, expected) in [
        (Some(data("192.0.2.7")), Some("192.0.2.7")),
        (Some(data("192.0.2.8")), Some("192.0.2.8")),
        (None, None),
    ] {
        inventory.put_network_data(&secret("h1-network-data"), secret_data.as_ref());
        assert_eq!(addresses(&inventory.take(10)), [expected.map(str::to_owned)]);
    }
}

#[test]
fn a_missing_secret_is_a_problem_of_its_host_and_of_no_other() {
    let bare = with(host("h2"), "/spec/networkData", json!(null));
    let inventory = inventory([host("h1"), bare]);
    let problems: Vec<usize> = inventory
        .take(10)
        .hosts
        .iter()
        .map(|host| host.problems.len())
        .collect();
    assert_eq!(problems, [1, 0]);
}

#[test]
fn what_has_not_changed_is_not_told_but_a_write_uses_the_newest_version() {
    let inventory = inventory([host("h1")]);
    assert_eq!(inventory.take(10).hosts.len(), 1);
    inventory.put_host(&parse(with(host("h1"), "/metadata/resourceVersion", json!("8"))));
    assert!(inventory.take(10).is_empty());
    assert_eq!(inventory.host(&key("h1")).unwrap().resource_version(), "8");
    inventory.put_host(&parse(labelled(host("h1"), "one", "Worker")));
    assert_eq!(inventory.take(10).hosts.len(), 1);
}

#[test]
fn a_host_that_goes_and_comes_back_before_it_is_told_is_told_as_it_is() {
    let inventory = inventory([host("h1")]);
    let _ = inventory.take(10);
    inventory.delete_host(&key("h1"));
    inventory.put_host(&parse(with(host("h1"), "/metadata/uid", json!("another"))));
    let changes = inventory.take(10);
    assert_eq!((changes.hosts.len(), changes.deleted_hosts.len()), (1, 0));
    assert_eq!(changes.hosts[0].r#ref.as_ref().unwrap().uid, "another");
}

#[test]
fn a_new_list_ends_what_it_does_not_name_in_its_namespace_only() {
    let elsewhere = with(host("h3"), "/metadata/namespace", json!("other"));
    let inventory = inventory([host("h1"), host("h2"), elsewhere]);
    let _ = inventory.take(10);
    inventory.retain_hosts("metal", &BTreeSet::from([key("h2")]));
    let gone: Vec<String> = inventory
        .take(10)
        .deleted_hosts
        .into_iter()
        .map(|host| host.name)
        .collect();
    assert_eq!(gone, ["h1"]);
}

#[test]
fn a_snapshot_tells_everything_in_pieces() {
    let inventory = inventory(["h1", "h2", "h3"].map(host));
    let _ = inventory.take(10);
    inventory.tell_all();
    let told: Vec<usize> = (0..3).map(|_| inventory.take(2).hosts.len()).collect();
    assert_eq!(told, [2, 1, 0]);
}

#[test]
fn the_time_of_an_error_is_that_of_the_fall_if_it_was_seen() {
    let error = |message: &str| {
        let broken = with(host("h1"), "/status/operationalStatus", json!("error"));
        with(broken, "/status/errorMessage", json!(message))
    };
    let inventory = inventory([error("a")]);
    let since = || inventory.take(10).hosts.pop().and_then(|host| host.error_since);
    assert_eq!(since(), None, "nobody saw it fall");
    inventory.put_host(&parse(host("h1")));
    assert_eq!(since(), None);
    inventory.put_host(&parse(error("b")));
    let fell = since();
    assert!(fell.is_some());
    inventory.put_host(&parse(error("c")));
    assert_eq!(since(), fell);
}
