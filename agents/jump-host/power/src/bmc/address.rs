//! Addresses of BMCs, as baremetal-operator writes them in `spec.bmc.address`.
//!
//! `KIND[+http|+https]://HOST[:PORT]/redfish/v1/Systems/ID`. The kind states how baremetal-operator provisions the host; power control
//! of every kind that is accepted here is that of the Redfish standard. The path is kept whole: one BMC may serve many systems.
//! <https://github.com/metal3-io/baremetal-operator/blob/main/docs/api.md>

use std::{fmt, net::IpAddr};

/// Bytes of an address, at most.
const MAX_ADDRESS_BYTES: usize = 512;
/// What the path of a system begins with.
const SYSTEMS_PATH: [&str; 3] = ["redfish", "v1", "Systems"];

/// Why an address cannot be used. Its text never repeats an address that could hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is none.
    #[error("spec.bmc.address is absent: must name the host's BMC")]
    Absent,
    /// It is longer than any address.
    #[error("spec.bmc.address has {0} bytes: must have at most {MAX_ADDRESS_BYTES}")]
    TooLong(usize),
    /// It has characters that no address has.
    #[error(
        "spec.bmc.address (value redacted): must have no control characters, blanks or characters beyond ASCII"
    )]
    Characters,
    /// It is no URL.
    #[error(
        "spec.bmc.address (value redacted): must be a URL such as `redfish+https://192.0.2.12/redfish/v1/Systems/1`"
    )]
    NoUrl,
    /// It has a user name, or a password.
    #[error(
        "spec.bmc.address (value redacted): must have no user name and password: those belong in the Secret of spec.bmc.credentialsName"
    )]
    UserInfo,
    /// Another protocol than Redfish.
    #[error("spec.bmc.address has the scheme {0:?}: power control needs one of {known}, each also with +http or +https", known = Kind::all())]
    Scheme(String),
    /// No usable host.
    #[error("spec.bmc.address (value redacted): its host must be a DNS name or an address of one machine")]
    Host,
    /// No usable port.
    #[error("spec.bmc.address (value redacted): its port must be from 1 to 65535")]
    Port,
    /// No path of one system.
    #[error(
        "spec.bmc.address (value redacted): its path must be /redfish/v1/Systems/ID, since a BMC may serve several systems"
    )]
    Path,
}

/// How baremetal-operator provisions a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `redfish`
    Redfish,
    /// `redfish-virtualmedia`
    RedfishVirtualMedia,
    /// `redfish-uefihttp`
    RedfishUefiHttp,
    /// `idrac-redfish`
    IdracRedfish,
    /// `idrac-virtualmedia`
    IdracVirtualMedia,
    /// `ilo5-redfish`
    Ilo5Redfish,
    /// `ilo5-redfish-virtualmedia`
    Ilo5RedfishVirtualMedia,
    /// `ilo5-virtualmedia`
    Ilo5VirtualMedia,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Redfish,
        Self::RedfishVirtualMedia,
        Self::RedfishUefiHttp,
        Self::IdracRedfish,
        Self::IdracVirtualMedia,
        Self::Ilo5Redfish,
        Self::Ilo5RedfishVirtualMedia,
        Self::Ilo5VirtualMedia,
    ];

    /// As baremetal-operator spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redfish => "redfish",
            Self::RedfishVirtualMedia => "redfish-virtualmedia",
            Self::RedfishUefiHttp => "redfish-uefihttp",
            Self::IdracRedfish => "idrac-redfish",
            Self::IdracVirtualMedia => "idrac-virtualmedia",
            Self::Ilo5Redfish => "ilo5-redfish",
            Self::Ilo5RedfishVirtualMedia => "ilo5-redfish-virtualmedia",
            Self::Ilo5VirtualMedia => "ilo5-virtualmedia",
        }
    }

    fn all() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

/// Where a host's BMC is, and which of its systems the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    kind: Kind,
    tls: bool,
    host: Host,
    port: u16,
    system: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// Parses an address as a BareMetalHost has it.
    ///
    /// # Errors
    /// [`Refused`] names the part, the value and the rule.
    pub fn parse(text: Option<&str>) -> Result<Self, Refused> {
        let text = text.filter(|text| !text.is_empty()).ok_or(Refused::Absent)?;
        if text.len() > MAX_ADDRESS_BYTES {
            return Err(Refused::TooLong(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refused::Characters);
        }
        // This check comes before any message that quotes the address, which may hold a password.
        if text.contains('@') {
            return Err(Refused::UserInfo);
        }
        let (scheme, rest) = text.split_once("://").ok_or(Refused::NoUrl)?;
        let (kind, tls) = parse_scheme(scheme)?;
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = split_port(authority)?;
        let host = parse_host(host)?;
        let port = match port {
            None => default_port(tls),
            Some(port) => parse_port(port)?,
        };
        let system = parse_path(path)?;
        Ok(Self {
            kind,
            tls,
            host,
            port,
            system,
        })
    }

    /// How baremetal-operator provisions the host.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the BMC uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The BMC's name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        }
    }

    /// The BMC's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in a URL: an address of IPv6 in brackets, one of IPv4 in its usual form, the port always there. Equal for all
    /// systems of one BMC that are addressed alike.
    #[must_use]
    pub fn authority(&self) -> String {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            Host::Ip(IpAddr::V4(ip)) => format!("{ip}:{}", self.port),
            Host::Name(name) => format!("{name}:{}", self.port),
        }
    }

    /// The whole path of the host's system.
    #[must_use]
    pub fn system(&self) -> &str {
        &self.system
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(
            f,
            "{}+{scheme}://{}{}",
            self.kind.as_str(),
            self.authority(),
            self.system
        )
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

fn parse_scheme(scheme: &str) -> Result<(Kind, bool), Refused> {
    let (kind, tls) = match scheme.split_once('+') {
        None => (scheme, true),
        Some((kind, "https")) => (kind, true),
        Some((kind, "http")) => (kind, false),
        Some(_) => return Err(Refused::Scheme(scheme.to_owned())),
    };
    let known = Kind::ALL.into_iter().find(|known| known.as_str() == kind);
    let kind = known.ok_or_else(|| Refused::Scheme(scheme.to_owned()))?;
    Ok((kind, tls))
}

/// `[::1]:8000`, `192.0.2.1:8000`, `bmc.example`.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), Refused> {
    let wrong = || Refused::Host;
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or_else(wrong)?;
        let (host, rest) = authority.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(wrong()),
        };
    }
    match authority.split_once(':') {
        None => Ok((authority, None)),
        Some((_, port)) if port.contains(':') => Err(wrong()),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn parse_host(text: &str) -> Result<Host, Refused> {
    let wrong = || Refused::Host;
    if let Some(inner) = text.strip_prefix('[') {
        let ip = inner.strip_suffix(']').and_then(|ip| ip.parse().ok());
        return one_machine(IpAddr::V6(ip.ok_or_else(wrong)?)).ok_or_else(wrong);
    }
    if let Ok(ip) = text.parse() {
        return one_machine(IpAddr::V4(ip)).ok_or_else(wrong);
    }
    // Resolvers read texts such as `10.1`, `0x7f.1` and `2130706433` as IP addresses.
    let last = text.rsplit('.').next().unwrap_or_default();
    let numeric =
        last.bytes().all(|byte| byte.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x");
    if numeric || text.len() > 253 || !text.split('.').all(is_label) {
        return Err(wrong());
    }
    Ok(Host::Name(text.to_ascii_lowercase()))
}

/// `None` for an address of no single machine: unspecified, broadcast, multicast or link-local. At a link-local address a node may have, for
/// example, a cloud's metadata service.
fn one_machine(ip: IpAddr) -> Option<Host> {
    let ip = ip.to_canonical();
    let refused = match ip {
        IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local(),
    };
    (!refused).then_some(Host::Ip(ip))
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn parse_port(text: &str) -> Result<u16, Refused> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port != 0);
    port.ok_or(Refused::Port)
}

fn parse_path(path: &str) -> Result<String, Refused> {
    let wrong = || Refused::Path;
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let segments: Vec<&str> = trimmed.split('/').collect();
    let ["", a, b, c, id] = segments[..] else {
        return Err(wrong());
    };
    if [a, b, c] != SYSTEMS_PATH || !is_identifier(id) {
        return Err(wrong());
    }
    Ok(trimmed.to_owned())
}

/// Whether a path segment means the same before and after any normalization: no percent-encoding, and neither `.` nor `..`.
pub(crate) fn is_identifier(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:()!*'$,;=+".contains(&byte);
    !segment.is_empty() && segment.bytes().any(|byte| byte != b'.') && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests;
