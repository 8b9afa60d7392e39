use serde_json::json;

use super::*;
use crate::fixtures::{host, inventory, key, labelled, parse, used, with};

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
fn a_host_is_reported_again_when_its_secret_changes() {
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
fn a_missing_secret_is_a_fault_of_its_host_only() {
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

/// Secrets are watched in host namespaces only, so none of another namespace is ever here.
#[test]
fn a_secret_elsewhere_is_a_fault_and_no_namesake_is_used() {
    let elsewhere = with(host("h1"), "/spec/networkData/namespace", json!("tenant"));
    let inventory = inventory([elsewhere, host("h2")]);
    let _ = inventory.take(10);
    for name in ["h1-network-data", "h2-network-data"] {
        inventory.put_network_data(&secret(name), Some(&data("192.0.2.7")));
    }
    inventory.report_all();
    let changes = inventory.take(10);
    assert_eq!(addresses(&changes), [None, Some("192.0.2.7".to_owned())]);
    let [faulty, good] = &changes.hosts[..] else {
        panic!("{:?}", changes.hosts);
    };
    let expected = "Secret tenant/h1-network-data: data[networkData] is absent";
    assert!(
        faulty.problems.iter().any(|problem| problem.contains(expected)),
        "{:?}",
        faulty.problems
    );
    assert!(good.problems.is_empty(), "a fault of that host alone");
}

#[test]
fn an_unchanged_host_is_written_at_its_newest_version() {
    let inventory = inventory([host("h1")]);
    assert_eq!(inventory.take(10).hosts.len(), 1);
    inventory.put_host(&parse(with(host("h1"), "/metadata/resourceVersion", json!("8"))));
    assert!(inventory.take(10).is_empty());
    assert_eq!(inventory.host(&key("h1")).unwrap().resource_version(), "8");
    inventory.put_host(&parse(labelled(host("h1"), "one", "Worker")));
    assert_eq!(inventory.take(10).hosts.len(), 1);
}

#[test]
fn a_host_made_again_is_reported_as_it_is() {
    let inventory = inventory([host("h1")]);
    let _ = inventory.take(10);
    inventory.delete_host(&key("h1"));
    inventory.put_host(&parse(with(host("h1"), "/metadata/uid", json!("another"))));
    let changes = inventory.take(10);
    assert_eq!((changes.hosts.len(), changes.deleted_hosts.len()), (1, 0));
    assert_eq!(changes.hosts[0].r#ref.as_ref().unwrap().uid, "another");
}

#[test]
fn a_list_removes_hosts_of_its_namespace_only() {
    let elsewhere = with(host("h3"), "/metadata/namespace", json!("other"));
    let inventory = inventory([host("h1"), host("h2"), elsewhere]);
    let _ = inventory.take(10);
    let _ = inventory.retain_hosts("metal", &BTreeSet::from([key("h2")]));
    let gone: Vec<String> = inventory
        .take(10)
        .deleted_hosts
        .into_iter()
        .map(|host| host.name)
        .collect();
    assert_eq!(gone, ["h1"]);
}

#[test]
fn a_snapshot_reports_everything_in_pieces() {
    let inventory = inventory(["h1", "h2", "h3"].map(host));
    let _ = inventory.take(10);
    inventory.report_all();
    let reported: Vec<usize> = (0..3).map(|_| inventory.take(2).hosts.len()).collect();
    assert_eq!(reported, [2, 1, 0]);
}

#[test]
fn an_error_is_dated_only_if_it_was_observed_to_begin() {
    let error = |message: &str| {
        let broken = with(host("h1"), "/status/operationalStatus", json!("error"));
        with(broken, "/status/errorMessage", json!(message))
    };
    let inventory = inventory([error("a")]);
    let since = || inventory.take(10).hosts.pop().and_then(|host| host.error_since);
    assert_eq!(since(), None, "it was in error at first sight");
    inventory.put_host(&parse(host("h1")));
    assert_eq!(since(), None);
    inventory.put_host(&parse(error("b")));
    let began = since();
    assert!(began.is_some());
    inventory.put_host(&parse(error("c")));
    assert_eq!(since(), began);
}

/// A host whose `networkData` a data template has replaced.
fn templated() -> serde_json::Value {
    let rendered = with(host("h1"), "/spec/networkData/name", json!("rendered"));
    let remembered = "/metadata/annotations/sip.airshipit.org~1network-data";
    with(rendered, remembered, json!("h1-network-data"))
}

#[test]
fn an_unused_host_falls_back_on_secrets_of_the_site() {
    let inventory = inventory([templated()]);
    let _ = inventory.take(10);
    let site = secret("h1-network-data");
    inventory.put_network_data(&site, Some(&data("192.0.2.7")));
    let changes = inventory.take(10);
    assert_eq!(addresses(&changes), [Some("192.0.2.7".to_owned())]);
    assert!(changes.hosts[0].problems.is_empty(), "its addresses are known");
    inventory.put_network_data(&secret("rendered"), Some(&data("192.0.2.9").rendered()));
    assert_eq!(addresses(&inventory.take(10)), [Some("192.0.2.9".to_owned())]);
    inventory.put_network_data(&secret("rendered"), None);
    assert_eq!(addresses(&inventory.take(10)), [Some("192.0.2.7".to_owned())]);
    inventory.put_host(&parse(used(templated())));
    assert_eq!(
        addresses(&inventory.take(10)),
        [None],
        "it runs with what its consumer gave it"
    );
    inventory.put_host(&parse(templated()));
    assert_eq!(addresses(&inventory.take(10)), [Some("192.0.2.7".to_owned())]);
    inventory.put_network_data(&site, None);
    assert_eq!(
        addresses(&inventory.take(10)),
        [None],
        "they hold as long as the Secret exists"
    );
    let preprovisioned = with(
        templated(),
        "/spec/preprovisioningNetworkDataName",
        json!("before"),
    );
    inventory.put_host(&parse(preprovisioned));
    inventory.put_network_data(&secret("before"), Some(&data("192.0.2.5")));
    assert_eq!(addresses(&inventory.take(10)), [Some("192.0.2.5".to_owned())]);
}

#[test]
fn a_consumer_of_a_served_cluster_is_reported_on_any_host() {
    let taken = with(
        used(host("h1")),
        "/metadata/labels/cluster.x-k8s.io~1cluster-name",
        json!("shop"),
    );
    let bare = with(taken, "/spec/networkData", json!(null));
    let inventory = inventory([bare.clone()]);
    let problems = || {
        let hosts = inventory.take(10).hosts;
        hosts
            .into_iter()
            .flat_map(|host| host.problems)
            .collect::<Vec<_>>()
    };
    assert_eq!(problems(), [""; 0], "nobody asked SIP for hosts of this Cluster");
    let shop = crate::fixtures::reference();
    inventory.put_served(shop.key(), Some("shop"));
    let reported = problems();
    assert!(
        reported[0].contains("Metal3Machine tenant/m-0") && reported[0].contains("SIPCluster tenant/one"),
        "{reported:?}"
    );
    inventory.put_served(shop.key(), Some("stall"));
    assert_eq!(inventory.take(10).hosts[0].problems, [""; 0]);
    inventory.put_served(shop.key(), Some("shop"));
    assert_eq!(problems().len(), 1);
    inventory.put_host(&parse(labelled(bare, "shop", "Worker")));
    assert_eq!(problems(), [""; 0], "its labels give it to the consumer");
}

#[test]
fn only_a_secret_of_the_site_is_remembered() {
    let inventory = inventory([host("h1")]);
    let unremembered = || {
        let host = inventory.host(&key("h1")).unwrap();
        host.unremembered_secret().map(str::to_owned)
    };
    assert_eq!(unremembered(), None, "there is no such Secret");
    inventory.put_network_data(&secret("h1-network-data"), Some(&data("192.0.2.7").rendered()));
    assert_eq!(unremembered(), None, "it is deleted with its Machine");
    inventory.put_network_data(&secret("h1-network-data"), Some(&data("192.0.2.7")));
    assert_eq!(unremembered().as_deref(), Some("h1-network-data"));
    inventory.put_host(&parse(used(host("h1"))));
    assert_eq!(unremembered(), None, "a consumer may have named it");
    let remembered = "/metadata/annotations/sip.airshipit.org~1network-data";
    inventory.put_host(&parse(with(host("h1"), remembered, json!("h1-network-data"))));
    assert_eq!(unremembered(), None, "it is named already");
}

#[test]
fn a_refused_host_is_reported_until_it_is_written() {
    let inventory = inventory([host("h1")]);
    let id = inventory.host(&key("h1")).unwrap().id().clone();
    let _ = inventory.take(10);
    inventory.write_refused(&id, "no MAC");
    let reported = inventory.take(10).hosts.remove(0);
    assert!(reported.write_refused && reported.problems.concat().contains("no MAC"));
    inventory.put_host(&parse(labelled(host("h1"), "one", "Worker")));
    assert!(
        inventory.take(10).hosts[0].write_refused,
        "a change proves nothing"
    );
    assert!(inventory.host(&key("h1")).unwrap().is_write_refused());
    inventory.write_accepted(&key("h1"));
    assert!(!inventory.take(10).hosts[0].write_refused);
    inventory.write_refused(&id, "no MAC");
    inventory.put_host(&parse(with(host("h1"), "/metadata/uid", json!("another"))));
    assert!(!inventory.take(10).hosts[0].write_refused, "it is another host");
    assert!(inventory.refused().is_empty());
}

#[test]
fn a_message_ends_at_its_bytes_and_the_next_continues() {
    const HOSTS: usize = 30;
    let large = |number: usize| {
        with(
            host(&format!("h{number:0>2}")),
            "/metadata/labels",
            json!({ "large": "x".repeat(100 << 10) }),
        )
    };
    let inventory = inventory((0..HOSTS).map(large));
    let (mut reported, mut messages) = (Vec::new(), 0);
    loop {
        let Changes { hosts, .. } = inventory.take(500);
        if hosts.is_empty() {
            break;
        }
        assert!(hosts.iter().map(prost::Message::encoded_len).sum::<usize>() < MESSAGE_BYTES + (200 << 10));
        reported.extend(
            hosts
                .into_iter()
                .filter_map(|host| host.r#ref)
                .map(|host| host.name),
        );
        messages += 1;
    }
    assert_eq!(messages, 3, "one message each MiB");
    let all: Vec<String> = (0..HOSTS).map(|number| format!("h{number:0>2}")).collect();
    assert_eq!(reported, all);
}

#[test]
fn users_and_owners_of_a_host_outlast_it() {
    let owner = json!([{ "apiVersion": "x/v1", "kind": "Metal3Machine", "name": "m-0", "uid": "u", "controller": true }]);
    let owned = with(used(host("h1")), "/metadata/ownerReferences", owner);
    let inventory = inventory([owned.clone(), host("h2")]);
    let id = |name: &str| inventory.host(&key(name)).unwrap().id().clone();
    let (first, second) = (id("h1"), id("h2"));
    assert_eq!(inventory.gone_host(&first), None, "it is there");
    inventory.delete_host(&key("h1"));
    let _ = inventory.retain_hosts("metal", &BTreeSet::new());
    let gone = inventory.gone_host(&first).unwrap();
    let consumer = gone.consumer.and_then(|consumer| consumer.name);
    assert_eq!(consumer.as_deref(), Some("m-0"));
    assert_eq!(gone.owners.first().map(|owner| &*owner.uid), Some("u"));
    assert_eq!(inventory.gone_host(&second), None, "nothing used or owned it");
    inventory.put_host(&parse(owned));
    assert_eq!(inventory.gone_host(&first), None, "it is there again");
}

#[test]
fn a_fault_that_a_bmc_reports_is_told_and_fails_nothing() {
    let condition =
        json!([{ "type": "Healthy", "status": "False", "reason": "CriticalError", "message": "fan 2" }]);
    let inventory = inventory([
        with(host("h1"), "/status/conditions", condition),
        with(host("h2"), "/spec/networkData", json!(null)),
    ]);
    let hosts = inventory.take(10).hosts;
    let told: Vec<bool> = hosts.iter().map(|host| host.unhealthy).collect();
    assert_eq!(told, [true, false]);
    assert!(!hosts[0].marked_failed && hosts[0].operational_status() == wire::OperationalStatus::Ok);
    let expected = "its BMC reports a fault, condition Healthy is False: CriticalError: fan 2";
    assert!(
        hosts[0].problems.iter().any(|problem| problem == expected),
        "{:?}",
        hosts[0].problems
    );
    assert!(hosts[1].problems.is_empty());
}
