//! The options of a line of `authorized_keys`: only those that restrict the holder of the key. None that runs a command, sets a variable, makes
//! the key an authority, or allows what the jump host forbids to everybody.

use std::net::IpAddr;

/// Options without a value.
const FLAG_OPTIONS: [&str; 10] = [
    "no-agent-forwarding",
    "no-port-forwarding",
    "no-pty",
    "no-touch-required",
    "no-user-rc",
    "no-X11-forwarding",
    "port-forwarding",
    "pty",
    "restrict",
    "verify-required",
];
/// Whether a value has the form that sshd reads.
type ValueCheck = fn(&str) -> bool;
/// Options with a value.
const VALUE_OPTIONS: [(&str, ValueCheck); 3] = [
    ("expiry-time", is_time),
    ("from", is_list_of_sources),
    ("permitopen", is_destination),
];

/// Why options cannot be used; for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// A quote is not closed, or something follows a quote.
    #[error("must have options that are separated by commas")]
    Separation,
    /// An option that is not allowed.
    #[error(
        "option {0:?} is not allowed (allowed are {allowed})",
        allowed = FLAG_OPTIONS.into_iter().chain(VALUE_OPTIONS.map(|(name, _)| name)).collect::<Vec<_>>().join(", ")
    )]
    Forbidden(String),
    /// A value is not what sshd reads.
    #[error("option {0}: must have a value in the form that sshd reads")]
    Value(&'static str),
    /// The option occurs twice, and sshd accepts it once.
    #[error("option {0} occurs twice: must occur once")]
    Twice(&'static str),
}

/// Parses options as sshd does. Returns them separated by commas.
///
/// # Errors
/// The first that cannot be used.
pub fn parse(text: &str) -> Result<String, Error> {
    let mut parsed: Vec<String> = Vec::new();
    let mut valued = Vec::new();
    for option in split(text)? {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let Some(value) = value else {
            let flag = FLAG_OPTIONS
                .into_iter()
                .find(|flag| flag.eq_ignore_ascii_case(name));
            parsed.push(flag.ok_or_else(|| Error::Forbidden(printable(name)))?.to_owned());
            continue;
        };
        let mut known = VALUE_OPTIONS.into_iter();
        let Some((name, is_value)) = known.find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            return Err(Error::Forbidden(printable(name)));
        };
        let inner = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .filter(|inner| is_value(inner))
            .ok_or(Error::Value(name))?;
        // sshd refuses a second `from`, and takes the earlier of two times.
        if name != "permitopen" && valued.contains(&name) {
            return Err(Error::Twice(name));
        }
        valued.push(name);
        parsed.push(format!("{name}=\"{inner}\""));
    }
    Ok(parsed.join(","))
}

/// The first 40 characters of the name: a hostile one may be long.
fn printable(name: &str) -> String {
    name.chars().take(40).collect()
}

/// Splits options at commas outside of quotes.
fn split(text: &str) -> Result<Vec<&str>, Error> {
    let mut quoted = false;
    let options: Vec<&str> = text
        .split(|c: char| {
            quoted ^= c == '"';
            c == ',' && !quoted
        })
        .collect();
    if quoted || options.iter().any(|option| option.is_empty()) {
        return Err(Error::Separation);
    }
    Ok(options)
}

/// `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, with `Z` for UTC.
fn is_time(text: &str) -> bool {
    let digits = text.strip_suffix('Z').unwrap_or(text);
    let number = |from: usize, to: usize| digits.get(from..to).and_then(|part| part.parse::<u32>().ok());
    let within = |from: usize, to: usize, least: u32, most: u32| {
        digits.len() < to || number(from, to).is_some_and(|number| (least..=most).contains(&number))
    };
    matches!(digits.len(), 8 | 12 | 14)
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && within(0, 4, 1970, 9999)
        && within(4, 6, 1, 12)
        && within(6, 8, 1, 31)
        && within(8, 10, 0, 23)
        && within(10, 12, 0, 59)
        && within(12, 14, 0, 59)
}

/// Addresses, networks and patterns of names, separated by commas; `!` before one excludes it.
fn is_list_of_sources(text: &str) -> bool {
    text.split(',').all(|source| {
        let source = source.strip_prefix('!').unwrap_or(source);
        if let Some((address, bits)) = source.split_once('/') {
            is_network(address, bits)
        } else {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._:*?-".contains(c);
            !source.is_empty() && source.chars().all(plain)
        }
    })
}

/// sshd refuses a network whose address has bits behind its length.
fn is_network(address: &str, bits: &str) -> bool {
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let Some(bits) = bits.parse::<u32>().ok().filter(|_| plain) else {
        return false;
    };
    match address.parse() {
        Ok(IpAddr::V4(address)) => {
            let host = u32::MAX.checked_shr(bits).unwrap_or(0);
            bits <= 32 && u32::from(address) & host == 0
        }
        Ok(IpAddr::V6(address)) => {
            let host = u128::MAX.checked_shr(bits).unwrap_or(0);
            bits <= 128 && u128::from(address) & host == 0
        }
        Err(_) => false,
    }
}

/// `HOST:PORT`, an IPv6 address in brackets. The port may be `*`.
fn is_destination(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = if let Some(address) = bracketed {
        address.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        !host.is_empty() && host.chars().all(plain)
    };
    is_host && (port == "*" || port.parse::<std::num::NonZeroU16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_restrict_are_kept() {
        for (text, expected) in [
            ("restrict,PTY", "restrict,pty"),
            (
                r#"from="192.0.2.0/24,!192.0.2.7,*.example""#,
                r#"from="192.0.2.0/24,!192.0.2.7,*.example""#,
            ),
            (
                r#"no-pty,Expiry-Time="20270101""#,
                r#"no-pty,expiry-time="20270101""#,
            ),
            (
                r#"permitopen="192.0.2.1:22",permitopen="[2001:db8::1]:6443""#,
                r#"permitopen="192.0.2.1:22",permitopen="[2001:db8::1]:6443""#,
            ),
        ] {
            assert_eq!(parse(text).unwrap(), expected);
        }
    }

    #[test]
    fn every_other_option_is_refused() {
        for text in [
            r#"command="/bin/sh""#,
            r#"environment="LD_PRELOAD=x""#,
            r#"permitlisten="0.0.0.0:1""#,
            r#"tunnel="0""#,
            r#"principals="root""#,
            "cert-authority",
            "agent-forwarding",
            "X11-forwarding",
            "user-rc",
            "",
            ",",
            "restrict,",
            r#"from="a"#,
            r#"from="a" "#,
            r#"from="a"b"#,
            "from=a",
            r#"from="""#,
            r#"from="192.0.2.1/24""#,
            r#"from="192.0.2.0/033""#,
            r#"from="a\"b""#,
            r#"from="a",from="b""#,
            r#"expiry-time="tomorrow""#,
            r#"expiry-time="20271301""#,
            r#"permitopen="192.0.2.1""#,
            r#"permitopen="192.0.2.1:0""#,
            "restrict\u{a0}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("tunnel=\"0\"").unwrap_err().to_string();
        assert!(
            error.starts_with("option \"tunnel\" is not allowed (allowed are no-agent-forwarding,"),
            "{error}"
        );
    }
}
