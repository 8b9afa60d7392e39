//! A host and a port as one text.

/// `HOST:PORT`, with brackets around an IPv6 address, as in a URL. `host` is a DNS name or an IP address without brackets.
#[must_use]
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv6_addresses_have_brackets() {
        for (host, text) in [
            ("ldap.example.org", "ldap.example.org:636"),
            ("192.0.2.1", "192.0.2.1:636"),
            ("2001:db8::1", "[2001:db8::1]:636"),
        ] {
            assert_eq!(host_port(host, 636), text);
        }
    }
}
