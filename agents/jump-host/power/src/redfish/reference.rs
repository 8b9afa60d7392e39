//! References in a BMC's answers: followed only where they stay on that BMC.

use super::failure::{Failure, printable};
use crate::bmc::{Address, is_identifier};

/// Bytes of a path, at most.
const MAX_PATH_BYTES: usize = 1024;

/// The path that a reference names on the BMC itself: a path below `/redfish`, or a URL with such a path and the BMC's own origin.
pub(super) fn path_on_bmc(address: &Address, reference: &str) -> Result<String, Failure> {
    local(address, reference).ok_or_else(|| foreign_reference(address, reference))
}

/// The path of a resource that the BMC has just created, such as a session. Its origin is dropped: a BMC may name itself by a host name that
/// the address does not have, and requests are sent to the address alone.
pub(super) fn created(address: &Address, reference: &str) -> Result<String, Failure> {
    let path = if reference.starts_with('/') {
        Some(reference)
    } else {
        split(reference).map(|(_, _, path)| path)
    };
    path.and_then(below_redfish)
        .ok_or_else(|| foreign_reference(address, reference))
}

fn foreign_reference(address: &Address, reference: &str) -> Failure {
    Failure::Elsewhere {
        bmc: address.authority(),
        found: printable(reference),
    }
}

fn local(address: &Address, reference: &str) -> Option<String> {
    if reference.starts_with('/') {
        return below_redfish(reference);
    }
    let (scheme, authority, path) = split(reference)?;
    let (own_scheme, default) = if address.is_tls() {
        ("https", 443)
    } else {
        ("http", 80)
    };
    let with_port = address.authority();
    let without = with_port.strip_suffix(&format!(":{default}"));
    let same = |own: &str| authority.eq_ignore_ascii_case(own);
    let is_own = scheme == own_scheme && (same(&with_port) || without.is_some_and(same));
    is_own.then(|| below_redfish(path)).flatten()
}

/// Scheme, authority and path of a URL.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/')?);
    Some((scheme, authority, path))
}

fn below_redfish(path: &str) -> Option<String> {
    let inner = path.strip_prefix("/redfish/")?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    (path.len() <= MAX_PATH_BYTES && inner.split('/').all(is_identifier)).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stay_on_the_bmc() {
        let tls = Address::parse(Some("redfish://192.0.2.1/redfish/v1/Systems/1")).unwrap();
        let plain = Address::parse(Some("redfish+http://bmc.example:8000/redfish/v1/Systems/1")).unwrap();
        for (address, reference, path) in [
            (&tls, "/redfish/v1/Systems/2/", "/redfish/v1/Systems/2/"),
            (
                &tls,
                "https://192.0.2.1/redfish/v1/Systems/2",
                "/redfish/v1/Systems/2",
            ),
            (&tls, "https://192.0.2.1:443/redfish/v1", "/redfish/v1"),
            (&plain, "http://BMC.example:8000/redfish/v1", "/redfish/v1"),
        ] {
            assert_eq!(path_on_bmc(address, reference).unwrap(), path);
        }
        for (address, reference) in [
            (&tls, ""),
            (&tls, "redfish/v1"),
            (&tls, "//evil.example/redfish/v1"),
            (&tls, "https://evil.example/redfish/v1"),
            (&tls, "http://192.0.2.1/redfish/v1"),
            (&tls, "https://192.0.2.1:8443/redfish/v1"),
            (&tls, "https://192.0.2.1@evil.example/redfish/v1"),
            (&tls, "https://192.0.2.1"),
            (&tls, "/etc/passwd"),
            (&tls, "/redfish/../etc"),
            (&tls, "/redfish//v1"),
            (&tls, "/redfish/v1?x"),
            (&tls, "/redfish/v1#x"),
            (&tls, "/redfish/v1\r\nHost: x"),
            (&plain, "http://bmc.example/redfish/v1"),
            (&plain, "https://bmc.example:8000/redfish/v1"),
        ] {
            let error = path_on_bmc(address, reference).unwrap_err();
            assert!(matches!(error, Failure::Elsewhere { .. }), "{reference}: {error}");
        }
    }

    #[test]
    fn created_resource_is_on_the_bmc_whatever_its_origin() {
        let address = Address::parse(Some("redfish://192.0.2.1/redfish/v1/Systems/1")).unwrap();
        let session = "/redfish/v1/SessionService/Sessions/1";
        for origin in [
            "",
            "https://192.0.2.1",
            "https://its-own-name",
            "http://192.0.2.1:8080",
        ] {
            let reference = format!("{origin}{session}");
            assert_eq!(created(&address, &reference).unwrap(), session, "{reference}");
        }
        for reference in [
            "",
            "https://its-own-name",
            "https://its-own-name/etc",
            "/redfish/../etc",
        ] {
            let error = created(&address, reference).unwrap_err();
            assert!(matches!(error, Failure::Elsewhere { .. }), "{reference}: {error}");
        }
    }
}
