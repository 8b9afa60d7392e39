use proptest::prelude::*;

use super::*;
use crate::fixtures::{of_kind, samples};

fn secret() -> SecretName {
    SecretName {
        namespace: "lab".to_owned(),
        name: "host-1-network-data".to_owned(),
    }
}

fn read(text: &str) -> (Vec<(String, String)>, Vec<String>) {
    let data = NetworkData::parse(&secret(), text.as_bytes());
    let addresses = data
        .addresses()
        .iter()
        .map(|(id, address)| (id.to_string(), address.to_string()))
        .collect();
    let faults = data
        .invalid()
        .map(|invalid| invalid.faults().iter().map(ToString::to_string).collect());
    (addresses, faults.unwrap_or_default())
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(id, address)| ((*id).to_owned(), (*address).to_owned()))
        .collect()
}

const JSON: &str = r#"{
	"links": [{ "id": "eno4", "type": "phy", "mtu": 1500 }],
	"networks": [
		{ "id": "oam-ipv6", "type": "ipv6", "link": "eno4", "ip_address": "2001:db8::139", "routes": [] },
		{ "id": "oam-ipv4", "type": "ipv4", "link": "eno4", "ip_address": "192.0.2.139", "netmask": "255.255.255.128" }
	]
}"#;

/// As ViNO writes it.
const VINO: &str = "
links:
- {id: br0, name: br0, type: bridge, mtu: 1500}
networks:
- {id: management, type: ipv4, link: br0, ip_address: 192.0.2.20, netmask: 255.255.255.0, dns_nameservers: 192.0.2.53}
- {id: external, type: ipv4, link: br0, ip_address: ''}
- {id: spare, type: ipv4, link: br0, ip_address: null}
- {id: unset, type: ipv4_dhcp, link: br0}
";

#[test]
fn json_with_tabs_and_yaml_are_read() {
    let expected = pairs(&[("oam-ipv4", "192.0.2.139"), ("oam-ipv6", "2001:db8::139")]);
    assert_eq!(read(JSON), (expected, Vec::new()));
    assert_eq!(read(VINO), (pairs(&[("management", "192.0.2.20")]), Vec::new()));
}

#[test]
fn a_host_without_networks_has_no_addresses_and_no_fault() {
    for text in ["", "{}", "links: []", "networks:", "networks: []", "null"] {
        assert_eq!(read(text), (Vec::new(), Vec::new()), "{text:?}");
    }
}

#[test]
fn addresses_that_mean_another_machine_to_each_are_faults() {
    for address in [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
    ] {
        let (found, faults) = read(&format!("networks: [{{id: a, ip_address: '{address}'}}]"));
        assert_eq!((found, faults.len()), (Vec::new(), 1), "{address}: {faults:?}");
    }
    for address in [
        "10.0.0.1",
        "192.0.2.1",
        "223.255.255.254",
        "2001:db8::1",
        "fd00::1",
    ] {
        let (found, faults) = read(&format!("networks: [{{id: a, ip_address: '{address}'}}]"));
        assert_eq!((found, faults), (pairs(&[("a", address)]), Vec::new()));
    }
    let mapped = read("networks: [{id: a, ip_address: '::ffff:192.0.2.1'}]");
    assert_eq!(mapped, (pairs(&[("a", "192.0.2.1")]), Vec::new()));
}

#[test]
fn faults_name_path_and_rule_and_hide_no_other_network() {
    let good = ("ok", "192.0.2.1");
    for (network, fault) in [
        (
            "{id: a, ip_address: banana}",
            "data[networkData].networks[0].ip_address is 6 characters: must be one unicast IPv4 or IPv6 address, not loopback or link-local, without a prefix length",
        ),
        (
            "{id: a, ip_address: 192.0.2.7/24}",
            "data[networkData].networks[0].ip_address is 12 characters: must be one unicast IPv4 or IPv6 address, not loopback or link-local, without a prefix length",
        ),
        (
            "{id: a, ip_address: 0.0.0.0}",
            "data[networkData].networks[0].ip_address is 7 characters: must be one unicast IPv4 or IPv6 address, not loopback or link-local, without a prefix length",
        ),
        (
            "{id: a, ip_address: \"192.0.2.7\\nserver evil\"}",
            "data[networkData].networks[0].ip_address is 21 characters: must be one unicast IPv4 or IPv6 address, not loopback or link-local, without a prefix length",
        ),
        (
            "{ip_address: 192.0.2.7}",
            "data[networkData].networks[0].id is 0 characters: must not be empty or contain control characters",
        ),
        (
            "[]",
            "data[networkData].networks[0] is a list: must be a mapping with the keys id and ip_address",
        ),
    ] {
        let text = format!("networks:\n- {network}\n- {{id: ok, ip_address: 192.0.2.1}}\n");
        assert_eq!(read(&text), (pairs(&[good]), vec![fault.to_owned()]), "{network}");
    }
}

#[test]
fn the_first_address_of_a_network_counts() {
    let text = "networks: [{id: a, ip_address: 192.0.2.1}, {id: a, ip_address: 192.0.2.2}, {id: a, ip_address: 192.0.2.1}]";
    let (addresses, faults) = read(text);
    assert_eq!(addresses, pairs(&[("a", "192.0.2.1")]));
    assert_eq!(
        faults,
        [
            "data[networkData].networks[1].ip_address is another address: must be that of the first network with the same id, which is used"
        ]
    );
}

#[test]
fn faults_quote_nothing_of_the_secret() {
    for network in [
        "{id: a, ip_address: hunter2}",
        "{id: \"hunter2\\n\", ip_address: 192.0.2.1}",
        "{id: hunter2, ip_address: 192.0.2.1}, {id: hunter2, ip_address: 192.0.2.2}",
    ] {
        let (_, faults) = read(&format!("networks: [{network}]"));
        let faults = faults.join("; ");
        assert!(!faults.is_empty(), "{network}");
        for quoted in ["hunter2", "192.0.2"] {
            assert!(!faults.contains(quoted), "{faults}");
        }
    }
}

#[test]
fn reserved_addresses_become_faults_and_hide_no_other_network() {
    let text = "networks: [{id: a, ip_address: 10.96.0.1}, {id: b, ip_address: 192.0.2.1}, \
        {id: c, ip_address: '::ffff:10.96.0.1'}, {id: d, ip_address: nowhere}]";
    let reserved: IpAddr = "10.96.0.1".parse().unwrap();
    let data = NetworkData::parse(&secret(), text.as_bytes())
        .without_reserved(&secret(), |address| address == reserved);
    let ids: Vec<_> = data.addresses().keys().map(ToString::to_string).collect();
    assert_eq!(ids, ["b"]);
    let invalid = data.invalid().unwrap();
    assert_eq!(invalid.faults().len(), 3, "{invalid}");
    assert!(!invalid.to_string().contains("10.96"), "{invalid}");
}

#[test]
fn unparsable_content_is_reported_without_quoting_it() {
    let invalid = NetworkData::parse(&secret(), b"password: [hunter2\nnetworks: {")
        .invalid()
        .unwrap()
        .to_string();
    assert!(invalid.starts_with(
        "Secret lab/host-1-network-data: data[networkData] is 30 bytes: must be JSON or YAML (see line"
    ));
    assert!(!invalid.contains("hunter2"));
    for (text, fault) in [
        (
            "[]",
            "data[networkData] is a list: must be a mapping with the key networks",
        ),
        (
            "hello",
            "data[networkData] is a text: must be a mapping with the key networks",
        ),
        (
            "networks: {}",
            "data[networkData].networks is a mapping: must be a list",
        ),
    ] {
        assert_eq!(read(text), (Vec::new(), vec![fault.to_owned()]), "{text}");
    }
}

#[test]
fn a_missing_secret_says_what_is_missing() {
    let missing = NetworkData::missing(&secret());
    assert_eq!(
        missing.invalid().unwrap().to_string(),
        "Secret lab/host-1-network-data: data[networkData] is absent: must be set: the BareMetalHost names this Secret as its networkData"
    );
    assert!(missing.addresses().is_empty());
}

#[test]
fn an_alias_bomb_is_refused_in_bounded_time() {
    let levels = (1..12).map(|level| {
        let previous = format!("*a{},", level - 1).repeat(10);
        format!("a{level}: &a{level} [{previous}]")
    });
    let lines: Vec<_> = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]".to_owned()]
        .into_iter()
        .chain(levels)
        .collect();
    let text = lines.join("\n");
    let started = std::time::Instant::now();
    let data = NetworkData::parse(&secret(), text.as_bytes());
    assert!(data.invalid().is_some());
    // It takes a second of a core; without a bound it would take days.
    assert!(started.elapsed() < std::time::Duration::from_mins(1));
}

#[test]
fn network_data_of_samples_is_read_without_a_fault() {
    for (file, objects) in samples(&["stock/secrets.yaml"], &["sip/baremetalhost-secrets.yaml"]) {
        let mut read = 0;
        for object in of_kind(objects, "Secret") {
            // k8s-openapi decodes the base64 of a Secret.
            let object: k8s_openapi::api::core::v1::Secret = serde_json::from_value(object).unwrap();
            let data = object.data.unwrap_or_default().remove(KEY).map(|bytes| bytes.0);
            let text = object.string_data.unwrap_or_default().remove(KEY);
            if let Some(bytes) = data.or(text.map(String::into_bytes)) {
                let data = NetworkData::parse(&secret(), &bytes);
                assert_eq!(data.invalid(), None);
                assert!(
                    data.addresses().keys().any(|id| id.as_str() == "oam-ipv4"),
                    "{data:?}"
                );
                read += 1;
            }
        }
        assert!(read > 0, "{}", file.display());
    }
}

proptest! {
    #[test]
    fn any_bytes_end_in_addresses_or_a_report(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let data = NetworkData::parse(&secret(), &bytes);
        if let Some(invalid) = data.invalid() {
            prop_assert!(!invalid.to_string().contains(char::is_control));
        }
    }

    #[test]
    fn what_is_written_is_read(networks in prop::collection::btree_map("[a-z0-9.-]{1,12}", any::<IpAddr>(), 0..8)) {
        let list: Vec<_> = networks.iter().map(|(id, ip)| serde_json::json!({ "id": id, "ip_address": ip })).collect();
        let json = serde_json::json!({ "links": [], "networks": list });
        let from_json = NetworkData::parse(&secret(), json.to_string().as_bytes());
        let from_yaml = NetworkData::parse(&secret(), serde_saphyr::to_string(&json).unwrap().as_bytes());
        prop_assert_eq!(&from_json, &from_yaml);
        let usable: Vec<_> = networks.iter().filter(|(_, ip)| unicast(&ip.to_string()).is_some()).collect();
        let found: Vec<_> = from_json.addresses().iter().map(|(id, ip)| (id.to_string(), *ip)).collect();
        prop_assert_eq!(found, usable.into_iter().map(|(id, ip)| (id.clone(), ip.to_canonical())).collect::<Vec<_>>());
    }
}
