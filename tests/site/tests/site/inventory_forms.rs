//! Every form in which hosts come: what can be read of them is used, what cannot be read is told to people, and no host
//! keeps another one from being used.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use sandbox::{
    inventory::{NETWORK, SERVER},
    region::{AGENTS_NAMESPACE, HOSTS_NAMESPACE},
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{
    PATIENCE, Role, Stage, cluster, host, in_role, members, on_shared_site, set_network_data, sip_labels,
};

/// The scheduler's record of a host, when it is as it should be.
pub(crate) async fn reported(stage: &Stage, host: &str, as_it_should: impl Fn(&Value) -> bool) -> Value {
    let request = json!({"site": "shared", "namespace": HOSTS_NAMESPACE, "name": host});
    let answer = stage
        .until_answer("sip.inventory.v1.InventoryService/GetHost", request, |answer| {
            as_it_should(&answer["host"]["host"])
        })
        .await;
    answer["host"]["host"].clone()
}

/// Waits for an Event on a host whose note contains a text.
async fn event(stage: &Stage, host: &str, text: &str) {
    let events: Api<Event> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
    let config = watcher::Config::default().fields(&format!(
        "involvedObject.kind=BareMetalHost,involvedObject.name={host},reason=InvalidHost"
    ));
    let what = format!("an Event on BareMetalHost {host} that contains {text:?}");
    wait::until_all(events, config, &what, PATIENCE, |events| {
        events
            .iter()
            .any(|event| event.message.as_deref().is_some_and(|note| note.contains(text)))
    })
    .await
    .unwrap();
}

async fn patch(stage: &Stage, host: &str, change: Value) {
    stage
        .hosts()
        .patch(host, &PatchParams::default(), &Patch::Merge(change))
        .await
        .unwrap();
}

#[test]
fn many_systems_behind_one_bmc_are_many_hosts() {
    on_shared_site("one-bmc", async |stage| {
        // As ViNO makes them: several virtual machines of one server, behind one port.
        let systems = ["master-0", "worker-0", "worker-1"];
        let hosts = systems.map(|system| {
            let mut made = host("one-bmc", "worker", "r1", system).label(SERVER, "one-bmc-server");
            system.clone_into(&mut made.system);
            made
        });
        stage.load(&hosts).await;
        for (host, system) in hosts.iter().zip(systems) {
            let expected = format!("redfish+http://127.0.0.1:8000/redfish/v1/Systems/{system}");
            let known = reported(stage, &host.name, |host| host["bmcAddress"].is_string()).await;
            assert_eq!(known["bmcAddress"], expected);
        }
        // One server is one domain, where the cluster says so; and three hosts, where it does not.
        let apart = cluster("one-bmc", "apart").role(Role::Worker, 2);
        stage.create(&apart).await;
        let why = stage
            .condition_is(&apart, "Ready", "False", "Unschedulable")
            .await;
        assert!(why.contains("Worker: 2 wanted, 1 can be placed"), "{why}");
        stage.delete(&apart).await;
        stage.gone(&apart).await;
        let together = cluster("one-bmc", "together")
            .role(Role::Worker, 3)
            .with("/nodes/Worker/topologyKey", Value::Null);
        stage.create(&together).await;
        stage.ready(&together).await;
        assert_eq!(stage.labelled("one-bmc", &together).await.len(), 3);
    });
}

/// A name, networkData, and the addresses that are in it.
type Form = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The forms that its makers write.
const FORMS: [Form; 8] = [
    (
        "vino",
        "links: [{id: br0, name: br0, type: bridge, mtu: '1500'}]\n\
         networks:\n\
         - {id: oam, type: ipv4, link: br0, ip_address: 192.0.2.20, netmask: 255.255.255.0, dns_nameservers: 192.0.2.53}\n\
         - {id: external, type: ipv4, link: br0, ip_address: ''}\n\
         - {id: spare, type: ipv4, link: br0, ip_address: null, dns_nameservers: {first: 192.0.2.53}}\n",
        &[("oam", "192.0.2.20")],
    ),
    (
        "json-with-tabs",
        "{\n\t\"networks\": [\n\t\t{\"id\": \"oam\", \"type\": \"ipv4\", \"ip_address\": \"192.0.2.21\", \"routes\": []}\n\t]\n}",
        &[("oam", "192.0.2.21")],
    ),
    (
        "ipv6",
        "networks: [{id: oam, type: ipv6, link: eno1, ip_address: '2001:DB8:0:0::21', netmask: '64'}]",
        &[("oam", "2001:db8::21")],
    ),
    (
        "several",
        "networks: [{id: oam, ip_address: 192.0.2.22}, {id: 7, ip_address: 198.51.100.22}, {id: v6, ip_address: '2001:db8::22'}]",
        &[
            ("7", "198.51.100.22"),
            ("oam", "192.0.2.22"),
            ("v6", "2001:db8::22"),
        ],
    ),
    (
        "vlan",
        "links:\n\
         - {id: eno1, type: phy, ethernet_mac_address: '52:54:00:00:00:01'}\n\
         - {id: eno1.7, type: vlan, vlan_link: eno1, vlan_id: 7, vlan_mac_address: '52:54:00:00:00:01'}\n\
         networks: [{id: oam, type: ipv4, link: eno1.7, ip_address: 192.0.2.23}]\n",
        &[("oam", "192.0.2.23")],
    ),
    (
        "bond",
        "links:\n\
         - {id: a, type: phy}\n\
         - {id: b, type: phy}\n\
         - {id: bond0, type: bond, bond_links: [a, b], bond_mode: 802.3ad, bond_miimon: 100}\n\
         networks: [{id: oam, type: ipv4, link: bond0, ip_address: 192.0.2.24}]\n",
        &[("oam", "192.0.2.24")],
    ),
    ("dhcp", "networks: [{id: oam, type: ipv4_dhcp, link: eno1}]", &[]),
    ("empty", "{}", &[]),
];

#[test]
fn network_data_is_read_in_every_form_that_its_makers_write() {
    on_shared_site("forms", async |stage| {
        for (name, data, expected) in FORMS {
            let host = host("forms", "cp", name, name);
            stage.load(std::slice::from_ref(&host)).await;
            set_network_data(stage, &host.name, data).await;
            let expected: BTreeMap<&str, &str> = expected.iter().copied().collect();
            let expected = json!(expected);
            reported(stage, &host.name, |known| {
                let addresses = known.get("addresses").cloned().unwrap_or_else(|| json!({}));
                known
                    .get("problems")
                    .is_none_or(|problems| problems == &json!([]))
                    && addresses == expected
            })
            .await;
        }
        let shop = cluster("forms", "shop").role(Role::ControlPlane, 6).with(
            "/services/loadBalancerControlPlane",
            json!([{"image": "haproxy:2.8", "nodeInterfaceId": "oam", "nodePort": 30_620}]),
        );
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let config = stage.haproxy_config(&shop, "controlplane").await;
        for address in ["192.0.2.20", "192.0.2.24", "2001:db8::21"] {
            assert!(config.contains(address), "{address} is not in\n{config}");
        }
    });
}

/// The networkData of a host, which can be read, in the namespace of a tenant. Such a namespace has no hosts.
const ELSEWHERE: &str = "unread-c-elsewhere-network-data";

async fn create_elsewhere(stage: &Stage) {
    let data = json!({"networks": [{"id": NETWORK, "ip_address": "192.0.2.40"}]}).to_string();
    let secret = json!({"metadata": {"name": ELSEWHERE}, "stringData": {"networkData": data}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::namespaced(stage.site.client(), "unread");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// It is named in the fault of its host, and its addresses are not known, since nobody has asked for it.
async fn no_agent_has_read_elsewhere(stage: &Stage) {
    reported(stage, "unread-c-elsewhere", |known| {
        let problems = known["problems"].to_string();
        let addresses = known["addresses"].as_object();
        problems.contains(&format!("Secret unread/{ELSEWHERE}"))
            && addresses.is_none_or(serde_json::Map::is_empty)
    })
    .await;
    let agents = format!("system:serviceaccount:{AGENTS_NAMESPACE}:");
    let of_secrets = |line: &str| line.contains(&agents) && line.contains(r#""resource":"secrets""#);
    let asked = stage.site.audit_log_where(of_secrets).unwrap();
    let namespaces: BTreeSet<String> = asked
        .into_iter()
        .filter_map(|entry| Some(entry.object_ref?.namespace))
        .collect();
    assert!(namespaces.contains(HOSTS_NAMESPACE), "{namespaces:?}");
    assert!(!namespaces.contains("unread"), "{namespaces:?}");
}

#[test]
fn an_unreadable_host_gets_an_event_and_stops_no_other() {
    on_shared_site("unread", async |stage| {
        // They sort first. What is wrong with each, and what people are told of it.
        let absent = "data[networkData] is absent: must be set";
        let address = "spec.bmc.address is a redacted value: must name a host";
        let mark =
            "metadata.annotations[sip.airshipit.org/placement-revision] is \"next\": must be a revision";
        let bad = [
            (
                "a-bmc",
                json!({"spec": {"bmc": {"address": "redfish://root:hunter2@192.0.2.1/redfish/v1"}}}),
                address,
            ),
            (
                "b-no-secret",
                json!({"spec": {"networkData": {"name": "unread-nowhere"}}}),
                absent,
            ),
            (
                "c-elsewhere",
                json!({"spec": {"networkData": {"namespace": "unread"}}}),
                absent,
            ),
            (
                "d-mark",
                json!({"metadata": {"annotations": {"sip.airshipit.org/placement-revision": "next"}}}),
                mark,
            ),
        ];
        for (name, change, _) in &bad {
            let made = host("unread", "cp", name, name);
            stage.load(std::slice::from_ref(&made)).await;
            patch(stage, &made.name, change.clone()).await;
        }
        create_elsewhere(stage).await;
        let text = host("unread", "cp", "e-text", "e-text");
        stage
            .load(&[text.clone(), host("unread", "cp", "z", "z-good")])
            .await;
        set_network_data(stage, &text.name, "password: [hunter2\nnetworks: {").await;
        let unreadable = "data[networkData] is 30 bytes: must be JSON or YAML";
        let unusable = "data[networkData].networks[0].ip_address is 7 characters: must be one unicast";
        let reserved = "data[networkData].networks[].ip_address is reserved: must not be the API server's";
        for (name, address) in [("f-value", "hunter2"), ("g-reserved", "172.31.0.10")] {
            let made = host("unread", "cp", name, name);
            stage.load(std::slice::from_ref(&made)).await;
            let data = json!({"networks": [{"id": NETWORK, "ip_address": address}]});
            set_network_data(stage, &made.name, &data.to_string()).await;
        }

        let shop = cluster("unread", "shop").role(Role::ControlPlane, 1).with(
            "/nodes/ControlPlane/labelSelector/matchLabels/vino.airshipit.org~1rack",
            json!("z"),
        );
        stage.create(&shop).await;
        stage.ready(&shop).await;
        assert_eq!(
            in_role(&stage.labelled("unread", &shop).await, "ControlPlane"),
            ["unread-z-good"]
        );
        let told = bad.iter().map(|(name, _, text)| (*name, *text));
        for (name, text) in told.chain([
            ("e-text", unreadable),
            ("f-value", unusable),
            ("g-reserved", reserved),
        ]) {
            let host = format!("unread-{name}");
            reported(stage, &host, |known| {
                known["problems"].to_string().contains(&text.replace('"', "\\\""))
            })
            .await;
            event(stage, &host, text).await;
        }
        no_agent_has_read_elsewhere(stage).await;
        let events: Api<Event> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
        for event in events.list(&kube::api::ListParams::default()).await.unwrap() {
            let note = event.message.unwrap_or_default();
            for quoted in ["hunter2", "172.31.0.10"] {
                assert!(!note.contains(quoted), "the note quotes a Secret: {note}");
            }
            let of_good = event.involved_object.name.as_deref() == Some("unread-z-good");
            assert!(!of_good || event.type_.as_deref() == Some("Normal"), "{note}");
        }
    });
}

#[test]
fn a_changed_secret_updates_services_and_never_removes_members() {
    on_shared_site("rewritten", async |stage| {
        let hosts = ["a", "b"].map(|name| host("rewritten", "cp", name, name));
        stage.load(&hosts).await;
        let shop = cluster("rewritten", "shop")
            .role(Role::ControlPlane, 2)
            .balanced(30_625);
        stage.create(&shop).await;
        let before = stage.ready(&shop).await;
        let moved = &hosts[0].name;
        let config = async |address: &str| {
            let config_maps: Api<ConfigMap> = Api::namespaced(stage.site.client(), "rewritten");
            let name = "loadbalancer-controlplane-shop";
            wait::until(
                config_maps,
                name,
                &format!("{address} to be balanced to"),
                PATIENCE,
                |map: &ConfigMap| {
                    let config = map.data.as_ref().and_then(|data| data.get("haproxy.cfg"));
                    config.is_some_and(|config| config.contains(address))
                },
            )
            .await
            .unwrap();
        };

        let at = |address: &str| json!({"networks": [{"id": NETWORK, "ip_address": address}]}).to_string();
        set_network_data(stage, moved, &at("203.0.113.7")).await;
        config("203.0.113.7").await;

        // Cluster API's metal3 provider renders networkData of its own for a member, and names that instead.
        let rendered = Secret {
            metadata: kube::api::ObjectMeta {
                name: Some("rewritten-rendered".to_owned()),
                ..kube::api::ObjectMeta::default()
            },
            string_data: Some(BTreeMap::from([("networkData".to_owned(), at("203.0.113.8"))])),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(stage.site.client(), HOSTS_NAMESPACE);
        secrets.create(&PostParams::default(), &rendered).await.unwrap();
        let machine = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
                             "namespace": "rewritten", "name": "shop-0"});
        let taken =
            json!({"consumerRef": machine, "networkData": {"name": "rewritten-rendered", "namespace": null}});
        patch(stage, moved, json!({"spec": taken})).await;
        config("203.0.113.8").await;

        // Other ids, as CAPM3's templates may have, and then no Secret at all: what runs goes on.
        let other = r#"{"networks": [{"id": "provisioning", "ip_address": "203.0.113.9"}]}"#;
        let patched = Patch::Merge(json!({"stringData": {"networkData": other}}));
        secrets
            .patch("rewritten-rendered", &PatchParams::default(), &patched)
            .await
            .unwrap();
        reported(stage, moved, |known| {
            known["addresses"] == json!({"provisioning": "203.0.113.9"})
        })
        .await;
        secrets
            .delete("rewritten-rendered", &DeleteParams::default())
            .await
            .unwrap();
        event(stage, moved, "Secret metal/rewritten-rendered").await;

        let after = stage.ready(&shop).await;
        let uids = |object| {
            members(object)
                .into_iter()
                .map(|member| member.uid)
                .collect::<Vec<_>>()
        };
        assert_eq!(uids(&after), uids(&before));
        let held = stage.labelled("rewritten", &shop).await;
        assert_eq!(held.len(), 2, "{held:?}");
        let balanced = stage.haproxy_config(&shop, "controlplane").await;
        assert!(balanced.contains("203.0.113.8"), "as last known:\n{balanced}");
        assert_eq!(sip_labels(&stage.hosts().get(moved).await.unwrap()).len(), 3);
    });
}
