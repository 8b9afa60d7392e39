//! What is fuzzed, apart from the fuzzer: tests try random texts, and the seeds, on the same functions.

use std::net::IpAddr;

use api::{Cluster, Invalid, NetworkData, SIPCluster, SecretName, TolerantCluster};

/// Bytes of a message about one object, at most: it has to fit into a condition and a log line.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Reads a SIPCluster as the API server sends it. What is accepted has no text that could be a line of its own in a
/// configuration, is accepted again after a round trip, and always gives the same.
pub fn sip_cluster(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<TolerantCluster>(bytes) else {
        return;
    };
    let object: SIPCluster = object.into_inner();
    let parsed = Cluster::parse(&object);
    assert_eq!(parsed, Cluster::parse(&object));
    let cluster = match parsed {
        Ok(cluster) => cluster,
        Err(invalid) => return is_for_people(&invalid),
    };
    for role in cluster.roles() {
        assert!(!role.name().as_str().contains(char::is_control));
    }
    for service in cluster.services() {
        assert!(!format!("{service:?}").contains(char::is_control), "{service:?}");
    }
    let stored = serde_json::to_vec(&object).expect("an object can be written");
    let again: SIPCluster = serde_json::from_slice(&stored).expect("and read again");
    assert_eq!(Cluster::parse(&again).as_ref(), Ok(&cluster));
}

/// Reads networkData. Whatever the document: each address is one at which others reach one host, and no fault quotes it.
pub fn network_data(bytes: &[u8]) {
    let secret = SecretName {
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
    };
    let read = NetworkData::parse(&secret, bytes);
    for (network, address) in read.addresses() {
        assert!(!network.as_str().is_empty() && !network.as_str().contains(char::is_control));
        assert!(
            !address.is_loopback() && !address.is_multicast() && !address.is_unspecified(),
            "{address}"
        );
        match address.to_canonical() {
            IpAddr::V4(address) => assert!(!address.is_link_local() && !address.is_broadcast(), "{address}"),
            IpAddr::V6(address) => assert!(!address.is_unicast_link_local(), "{address}"),
        }
    }
    let Some(invalid) = read.invalid() else {
        return;
    };
    is_for_people(invalid);
    // The same document with other letters and digits in its scalars has the same faults, unless the letters mattered: so a fault
    // may tell a kind, a length or a place, and those have few letters of their own.
    for fault in invalid.faults() {
        let words = fault.value().split_ascii_whitespace();
        let quoted = words.filter(|word| word.parse::<u64>().is_err());
        for word in quoted {
            assert!(word.len() <= 12 && word.is_ascii(), "{fault}");
        }
    }
}

fn is_for_people(invalid: &Invalid) {
    assert!(!invalid.faults().is_empty());
    let text = invalid.to_string();
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(text.len() <= MAX_MESSAGE_BYTES, "{}", text.len());
}
