//! How large a `SIPCluster` is besides its members. An API server stores no object of more than 1.5 MiB, and what agents write into the status
//! because of the spec counts, too. The size has to be known before the scheduler claims hosts: a claim that cannot be written into the status
//! cannot be used.

use std::io::{self, Write};

use serde::Serialize;

use super::service::{Exposure, Parsed, Service};
use crate::fault::Fault;
use crate::sip_cluster::{SIPCluster, Services};
use crate::status::TenantNodes;

/// Bytes of the object without its members, at most; the members have the other 508 KiB then.
const MAX_BYTES: usize = 1 << 20;
/// Bytes that the scheduler reserves for every cluster that declares no size.
const RESERVED_BYTES: usize = 256 << 10;
/// Sizes beyond [`RESERVED_BYTES`] are declared in steps of so many bytes, so that a small edit declares nothing new.
const STEP_BYTES: usize = 64 << 10;
/// Bytes that do not depend on the spec: conditions with long messages, names, and managed fields of several managers.
const FIXED_BYTES: usize = 128 << 10;

/// Bytes of the fields of an endpoint without name and address, in the status and among the managed fields.
const ENDPOINT_BYTES: usize = 200;
/// The same for an entry of `status.applied`.
const APPLIED_BYTES: usize = 240;
/// Bytes by which the name of an endpoint may be longer than the name in the spec: an index, and a port after a colon.
const MAX_SUFFIX_BYTES: usize = 12;
/// Bytes of an address that a load balancer of the site gives, at most: it may be a host name.
const MAX_HOST_NAME_BYTES: usize = 253;
/// Bytes of the public host keys of a jump host with their fingerprints.
const HOST_KEYS_BYTES: usize = 4 << 10;
/// Bytes that issuer, client and CA certificates of an identity provider may take in the status, at most: see [`stored`].
pub const MAX_PROVIDER_BYTES: usize = 16 << 10;

/// The same for an entry of `status.tenantNodes.notPreferred`.
const NOT_PREFERRED_BYTES: usize = 240;
/// Bytes of the texts in such an entry, at most: namespace, name and uid of the host, name of the Node, and a reason. Its managed fields repeat the
/// first two.
const MAX_NOT_PREFERRED_TEXT_BYTES: usize = 2 * (63 + 253) + 64 + 253 + 64;
/// Bytes of `status.tenantNodes`, at most, with every character of the problem escaped.
const MAX_TENANT_NODES_BYTES: usize = TenantNodes::MAX_NOT_PREFERRED
    * (NOT_PREFERRED_BYTES + MAX_NOT_PREFERRED_TEXT_BYTES)
    + 6 * TenantNodes::MAX_PROBLEM_BYTES;

/// One part of an object.
struct Part {
    path: String,
    bytes: usize,
}

/// The bytes that the object takes besides its members, for [`super::Cluster::other_bytes`].
///
/// # Errors
/// Where the sum is more than allowed; the fault names the largest part.
pub(super) fn check(object: &SIPCluster, parsed: &Parsed) -> Result<u32, Fault> {
    let parts = parts(object, parsed);
    let sum = parts
        .iter()
        .fold(FIXED_BYTES, |sum, part| sum.saturating_add(part.bytes));
    if sum <= RESERVED_BYTES {
        return Ok(0);
    }
    if sum <= MAX_BYTES {
        return Ok(u32::try_from(sum.next_multiple_of(STEP_BYTES)).unwrap_or(u32::MAX));
    }
    let largest = parts.into_iter().max_by_key(|part| part.bytes);
    let Part { path, bytes } = largest.unwrap_or(Part {
        path: "spec".to_owned(),
        bytes: sum,
    });
    let rule = format!(
        "the whole object, with its endpoints and without its members, takes {sum} bytes and must take at most {MAX_BYTES}"
    );
    Err(Fault::new(&path, format_args!("{bytes} bytes"), rule))
}

fn parts(object: &SIPCluster, parsed: &Parsed) -> Vec<Part> {
    let part = |path: &str, bytes: usize| Part {
        path: path.to_owned(),
        bytes,
    };
    let SIPCluster { metadata, spec, .. } = object;
    // Maps have managed fields, one for each key and manager; lists have one as a whole.
    let annotations = stored(&metadata.annotations).saturating_add(spec.left_out.annotations);
    let labels = stored(&metadata.labels).saturating_add(spec.left_out.labels);
    let mut parts = vec![
        part("metadata.annotations", annotations),
        part("metadata.labels", labels.saturating_mul(2)),
        part("spec.nodes", stored(&spec.nodes).saturating_mul(3)),
        part("spec.clusterAPI", stored(&spec.cluster_api).saturating_mul(3)),
    ];
    let Some(Services {
        load_balancer_control_plane,
        load_balancer_worker,
        jump_host,
        auth,
    }) = &spec.services
    else {
        return parts;
    };
    let mut providers = parsed.auth.iter();
    let is_named = providers.any(|entry| entry.provider().kubeconfig_secret().is_some())
        || parsed
            .jump_hosts
            .iter()
            .any(|entry| entry.kubeconfig_secret().is_some());
    if is_named {
        parts.push(part("status.tenantNodes", MAX_TENANT_NODES_BYTES));
    }
    let entries = load_balancer_control_plane.iter().flatten();
    for (index, (entry, parsed)) in entries.zip(&parsed.load_balancers_control_plane).enumerate() {
        let path = format!("spec.services.loadBalancerControlPlane[{index}]");
        parts.push(part(
            &path,
            stored(entry).saturating_add(status_bytes(parsed.service(), 1)),
        ));
    }
    let entries = load_balancer_worker.iter().flatten();
    for (index, (entry, parsed)) in entries.zip(&parsed.load_balancers_worker).enumerate() {
        let path = format!("spec.services.loadBalancerWorker[{index}]");
        parts.push(part(&path, stored(entry)));
        let ports = parsed.ports().ports().count();
        parts.push(part(
            &format!("{path}.nodePortRange"),
            status_bytes(parsed.service(), ports),
        ));
    }
    let entries = jump_host.iter().flatten();
    for (index, (entry, parsed)) in entries.zip(&parsed.jump_hosts).enumerate() {
        let path = format!("spec.services.jumpHost[{index}]");
        let keys = stored(&entry.ssh_authorized_keys);
        parts.push(part(&format!("{path}.sshAuthorizedKeys"), keys));
        let rest = stored(entry).saturating_sub(keys);
        let status = status_bytes(parsed.service(), 1).saturating_add(HOST_KEYS_BYTES);
        parts.push(part(&path, rest.saturating_add(status)));
    }
    let entries = auth.iter().flatten();
    for (index, (entry, parsed)) in entries.zip(&parsed.auth).enumerate() {
        let path = format!("spec.services.auth[{index}]");
        let status = status_bytes(parsed.service(), 1).saturating_add(MAX_PROVIDER_BYTES);
        parts.push(part(&path, stored(entry).saturating_add(status)));
    }
    parts
}

/// What an entry with so many endpoints causes in the status.
fn status_bytes(service: &Service, endpoints: usize) -> usize {
    let name = service
        .object_name()
        .as_str()
        .len()
        .saturating_add(MAX_SUFFIX_BYTES);
    let address = match (service.cluster_ip(), service.changes().exposure()) {
        (Some(address), _) => address.to_string().len(),
        (None, Exposure::NodePort) => 0,
        (None, Exposure::LoadBalancer { .. }) => MAX_HOST_NAME_BYTES,
    };
    let names = name.saturating_mul(2);
    let endpoint = ENDPOINT_BYTES.saturating_add(names).saturating_add(address);
    endpoint
        .saturating_mul(endpoints)
        .saturating_add(APPLIED_BYTES)
        .saturating_add(names)
}

/// The bytes of a value as an API server writes it: as JSON in which `<`, `>`, `&` and two separators are escaped.
#[must_use]
pub fn stored(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // Of a value that is no JSON nothing would be stored.
        Err(_) => 0,
    }
}

/// A writer that counts bytes and stores nothing, since every pass of every agent measures an object.
struct Count(usize);

impl Write for Count {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let escaped = text.iter().filter(|byte| matches!(byte, b'<' | b'>' | b'&'));
        // Characters are written whole.
        let separators = text
            .windows(3)
            .filter(|bytes| matches!(bytes, [0xE2, 0x80, 0xA8 | 0xA9]));
        let more = escaped.count() * 5 + separators.count() * 3;
        self.0 = self.0.saturating_add(text.len()).saturating_add(more);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FIXED_BYTES, MAX_BYTES, MAX_TENANT_NODES_BYTES, RESERVED_BYTES, stored};
    use crate::fixtures::{faults, parse, sample, sample_with};
    use crate::status::{NotPreferred, TenantNodes};

    /// A line of `authorized_keys` with an RSA key of 4,096 bits.
    fn rsa_key(number: usize) -> String {
        format!(
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAACAQC{}{number:06} user@example.org",
            "x".repeat(678)
        )
    }

    /// The sample with an annotation so large that the object takes so many bytes besides its members.
    fn of_size(bytes: usize) -> Value {
        let mut object = sample();
        object["metadata"]["annotations"] = json!({ "a": "" });
        let note = |object: &mut Value, length: usize| {
            object["metadata"]["annotations"]["a"] = "x".repeat(length).into();
        };
        note(&mut object, 2 * MAX_BYTES);
        let found = faults(object.clone()).concat();
        let (_, after) = found.split_once("takes ").unwrap();
        let whole: usize = after.split(' ').next().unwrap().parse().unwrap();
        note(&mut object, 2 * MAX_BYTES + bytes - whole);
        object
    }

    fn declared(object: Value) -> Result<u32, String> {
        let parsed = parse(object).map_err(|invalid| invalid.to_string());
        parsed.map(|cluster| cluster.other_bytes())
    }

    #[test]
    fn what_fits_into_the_reserve_is_not_declared() {
        assert_eq!(declared(sample()), Ok(0));
        assert_eq!(declared(of_size(RESERVED_BYTES)), Ok(0));
        assert_eq!(declared(of_size(RESERVED_BYTES + 1)), Ok(320 << 10));
        assert_eq!(declared(of_size(320 << 10)), Ok(320 << 10));
        assert_eq!(declared(of_size((320 << 10) + 1)), Ok(384 << 10));
    }

    #[test]
    fn a_spec_that_leaves_no_room_is_refused_by_its_largest_field() {
        assert_eq!(declared(of_size(MAX_BYTES)), Ok(1 << 20));
        let refused = declared(of_size(MAX_BYTES + 1)).unwrap_err();
        for part in [
            "metadata.annotations is ",
            "takes 1048577 bytes and must take at most 1048576",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        let keys: Vec<String> = (0..1_000).map(rsa_key).collect();
        let one = sample_with("/services/jumpHost/0/sshAuthorizedKeys", json!(keys));
        let bytes = declared(one.clone()).unwrap();
        assert!(bytes > 768 << 10, "{bytes}");
        let mut two = one;
        let entry = two["spec"]["services"]["jumpHost"][0].clone();
        two["spec"]["services"]["jumpHost"] = json!([entry, entry]);
        two["spec"]["services"]["jumpHost"][1]["nodePort"] = 30_999.into();
        let refused = declared(two).unwrap_err();
        assert!(
            refused.contains("spec.services.jumpHost[1].sshAuthorizedKeys is "),
            "{refused}"
        );
    }

    #[test]
    fn every_port_counts_with_its_endpoint() {
        let range = |end: u32| json!({ "start": 31_000, "end": end });
        let with = |end: u32| {
            declared(sample_with(
                "/services/loadBalancerWorker/0/nodePortRange",
                range(end),
            ))
        };
        assert_eq!(with(31_029), Ok(0));
        assert!(with(31_999).unwrap() > 256 << 10);
    }

    #[test]
    fn a_kubeconfig_counts_with_what_is_known_of_nodes() {
        let named = sample_with("/services/jumpHost/0/kubeconfigSecret", json!("one-kubeconfig"));
        let count = |mut object: Value, note: usize| {
            object["metadata"]["annotations"] = json!({ "a": "x".repeat(note) });
            declared(object).unwrap()
        };
        let mut bare = named.clone();
        bare["spec"]["services"]["jumpHost"][0]
            .as_object_mut()
            .unwrap()
            .remove("kubeconfigSecret");
        bare["spec"]["services"].as_object_mut().unwrap().remove("auth");
        assert_eq!(count(bare, 60 << 10), 0);
        assert!(count(named, 60 << 10) > 0);

        let entry = NotPreferred {
            namespace: "s".repeat(63),
            name: "n".repeat(253),
            uid: "u".repeat(64),
            node: "o".repeat(253),
            reason: "r".repeat(64),
        };
        let key = format!(
            r#"k:{{"namespace":"{}","name":"{}"}}"#,
            entry.namespace, entry.name
        );
        let fields =
            json!({".": {}, "f:name": {}, "f:namespace": {}, "f:node": {}, "f:reason": {}, "f:uid": {}});
        let managed = stored(&json!({ key: fields }));
        let nodes = TenantNodes {
            problem: Some("<".repeat(TenantNodes::MAX_PROBLEM_BYTES)),
            not_preferred: vec![entry; TenantNodes::MAX_NOT_PREFERRED],
        };
        let bytes = stored(&nodes) + managed * nodes.not_preferred.len();
        assert!(
            bytes <= MAX_TENANT_NODES_BYTES,
            "{bytes} bytes are more than {MAX_TENANT_NODES_BYTES}"
        );
        assert!(
            bytes * 10 > MAX_TENANT_NODES_BYTES * 9,
            "{bytes} bytes are far less"
        );
    }

    #[test]
    fn texts_count_as_an_api_server_writes_them() {
        assert_eq!(stored(&"<a>"), 15);
        assert_eq!(stored(&"\"\n\u{2028}"), 12);
        assert_eq!(stored(&("&\u{2029}", "é\u{2027}")), 2 + 1 + 14 + 7);
        const { assert!(FIXED_BYTES < RESERVED_BYTES) };
    }
}
