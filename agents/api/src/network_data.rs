//! networkData of a host: which address it has in which network.
//!
//! The format is OpenStack's `network_data`, as JSON or YAML
//! (<https://docs.openstack.org/nova/latest/_downloads/9119ca7ac90aa2990e762c08baea3a36/network_data.json>), read
//! tolerantly, since its makers are not strict: ViNO writes `type: bridge`, empty addresses, `dns_nameservers` that is no
//! list. Only `networks[].id` and `networks[].ip_address` are read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::Value;
use vocabulary::NetworkId;

use crate::fault::{Fault, Invalid};

/// Key of the Secret that holds the networkData.
pub const KEY: &str = "networkData";

/// Names a Secret.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SecretName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Addresses of a host, and what is wrong with the rest of its networkData. A fault in one network does not hide the
/// others. Faults quote nothing of the Secret: users who may read Events may not read Secrets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetworkData {
    addresses: BTreeMap<NetworkId, IpAddr>,
    invalid: Option<Invalid>,
    is_rendered: bool,
}

impl NetworkData {
    /// Reads the value of a Secret's [`KEY`].
    #[must_use]
    pub fn parse(secret: &SecretName, bytes: &[u8]) -> Self {
        let mut faults = Vec::new();
        let addresses = addresses(bytes, &mut faults);
        let invalid = (!faults.is_empty()).then(|| Invalid::new(&format!("Secret {secret}"), faults));
        Self {
            addresses,
            invalid,
            is_rendered: false,
        }
    }

    /// The data of a host whose Secret does not exist or has no [`KEY`]: no addresses, and a fault that names the Secret.
    #[must_use]
    pub fn missing(secret: &SecretName) -> Self {
        let fault = Fault::absent(
            &format!("data[{KEY}]"),
            "must be set: the BareMetalHost names this Secret as its networkData",
        );
        Self {
            addresses: BTreeMap::new(),
            invalid: Some(Invalid::new(&format!("Secret {secret}"), vec![fault])),
            is_rendered: false,
        }
    }

    /// Marks it as rendered for a Machine by a `Metal3DataTemplate` of CAPM3, which deletes it with the Machine.
    #[must_use]
    pub fn rendered(self) -> Self {
        Self {
            is_rendered: true,
            ..self
        }
    }

    /// Adds the addresses of `other` in networks in which this one has none.
    #[must_use]
    pub fn with_fallback(mut self, other: &Self) -> Self {
        for (id, address) in &other.addresses {
            self.addresses.entry(id.clone()).or_insert(*address);
        }
        self
    }

    /// Replaces addresses that no host of the site can have by faults.
    #[must_use]
    pub fn without_reserved(mut self, secret: &SecretName, is_reserved: impl Fn(IpAddr) -> bool) -> Self {
        let reserved = self
            .addresses
            .extract_if(.., |_, address| is_reserved(address.to_canonical()));
        let faults: Vec<Fault> = reserved.map(|_| reserved_address()).collect();
        if !faults.is_empty() {
            let known = self.invalid.iter().flat_map(Invalid::faults).cloned();
            let faults = known.chain(faults).collect();
            self.invalid = Some(Invalid::new(&format!("Secret {secret}"), faults));
        }
        self
    }

    /// The addresses, by network.
    #[must_use]
    pub fn addresses(&self) -> &BTreeMap<NetworkId, IpAddr> {
        &self.addresses
    }

    /// Whether it is deleted with a Machine.
    #[must_use]
    pub fn is_rendered(&self) -> bool {
        self.is_rendered
    }

    /// What could not be read.
    #[must_use]
    pub fn invalid(&self) -> Option<&Invalid> {
        self.invalid.as_ref()
    }
}

fn addresses(bytes: &[u8], faults: &mut Vec<Fault>) -> BTreeMap<NetworkId, IpAddr> {
    let path = format!("data[{KEY}]");
    let document = match document(bytes) {
        Ok(document) => document,
        Err(place) => {
            faults.push(Fault::new(
                &path,
                format_args!("{} bytes", bytes.len()),
                format!("must be JSON or YAML{place}"),
            ));
            return BTreeMap::new();
        }
    };
    let mut found = BTreeMap::new();
    let networks = match &document {
        Value::Object(fields) => fields.get("networks").unwrap_or(&Value::Null),
        // An empty document: a host without networks.
        Value::Null => &Value::Null,
        other => {
            faults.push(Fault::new(
                &path,
                kind(other),
                "must be a mapping with the key networks",
            ));
            return found;
        }
    };
    match networks {
        Value::Null => {}
        Value::Array(networks) => {
            for (index, network) in networks.iter().enumerate() {
                network_address(network, &format!("{path}.networks[{index}]"), &mut found, faults);
            }
        }
        other => faults.push(Fault::new(
            &format!("{path}.networks"),
            kind(other),
            "must be a list",
        )),
    }
    found
}

fn network_address(
    network: &Value,
    path: &str,
    found: &mut BTreeMap<NetworkId, IpAddr>,
    faults: &mut Vec<Fault>,
) {
    let Value::Object(fields) = network else {
        faults.push(Fault::new(
            path,
            kind(network),
            "must be a mapping with the keys id and ip_address",
        ));
        return;
    };
    let Some(address) = fields
        .get("ip_address")
        .and_then(scalar)
        .filter(|text| !text.is_empty())
    else {
        return;
    };
    let address_path = format!("{path}.ip_address");
    let Some(address) = unicast(&address) else {
        faults.push(Fault::new(
            &address_path,
            length(&address),
            "must be one unicast IPv4 or IPv6 address, not loopback or link-local, without a prefix length",
        ));
        return;
    };
    let id = fields.get("id").and_then(scalar).unwrap_or_default();
    let id = match NetworkId::new(&id) {
        Ok(id) => id,
        Err(error) => {
            let rule = if id.is_empty() || id.contains(char::is_control) {
                "must not be empty or contain control characters"
            } else {
                error.rule
            };
            faults.push(Fault::new(&format!("{path}.id"), length(&id), rule));
            return;
        }
    };
    let first = *found.entry(id.clone()).or_insert(address);
    if first != address {
        let rule = "must be that of the first network with the same id, which is used";
        faults.push(Fault::new(&address_path, "another address", rule));
    }
}

/// Parses an address that belongs to one host only. A load balancer connects to it: a loopback address would be its own pod, a link-local one any
/// service on its node, such as a metadata service.
fn unicast(text: &str) -> Option<IpAddr> {
    // A connection to `::ffff:192.0.2.1` reaches the IPv4 address in it, so both forms are the same address.
    let address = text.trim().parse::<IpAddr>().ok()?.to_canonical();
    let is_usable = match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            // 0.0.0.0/8 is this network, 240.0.0.0/4 reserved and broadcast.
            first != 0 && first < 240 && !v4.is_loopback() && !v4.is_link_local() && !v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            !v6.is_unspecified() && !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_multicast()
        }
    };
    is_usable.then_some(address)
}

fn reserved_address() -> Fault {
    Fault::new(
        &format!("data[{KEY}].networks[].ip_address"),
        "reserved",
        "must not be the API server's address or in reservedNetworks of the site's configuration",
    )
}

/// The length of a text of a Secret, which a fault may show instead of the text.
fn length(text: &str) -> String {
    format!("{} characters", text.chars().count())
}

/// JSON first, because not every JSON is YAML (tabs). The error states only the position: parsers quote what they read, and
/// a Secret's content belongs in no message.
fn document(bytes: &[u8]) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    serde_saphyr::from_slice(bytes).map_err(|error| match error.location() {
        Some(location) => format!(" (see line {}, column {})", location.line(), location.column()),
        None => String::new(),
    })
}

/// The text of a scalar. Ids that are written as bare numbers count as texts.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests;
