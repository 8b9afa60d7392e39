//! Random texts for every field of an identity provider, which mean something to whatever reads them.

use proptest::prelude::*;

use super::targets::Texts;

/// A text without control characters, as the door lets it in, that means something to YAML, JSON, a shell, HTML or a directory.
pub(crate) fn line() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "$HOME",
        "${HOME}",
        "$$",
        "$",
        "${",
        "}",
        "$1",
        "${DEX_DOLLAR}",
        "$DEX_DOLLAR",
        "\\",
        "\"",
        "'",
        ": ",
        " #",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "&a",
        "*a",
        "!x",
        "|",
        ">",
        "%",
        "@",
        "`",
        "<<",
        "~",
        "null",
        "true",
        "0x1",
        "\\u0024",
        "\u{2028}",
        "\u{feff}",
        "\u{fffe}",
        "\u{1f600}",
        "é",
        "*)(uid=*",
        "<script>",
        "{{ .x }}",
        "---",
    ]);
    let part = prop_oneof![
        3 => nasty.prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,8}",
    ];
    prop::collection::vec(part, 1..6).prop_map(|parts| {
        let text: String = parts
            .concat()
            .chars()
            .filter(|character| !character.is_control())
            .collect();
        let text: String = text.trim().chars().take(200).collect();
        format!("x{text}x")
    })
}

/// One filter, which may have parts that mean something to directories.
pub(crate) fn filter() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "(uid=*)",
        "(&(a=b)(!(c=d)))",
        r"(cn=\28\29\2a\5c)",
        "(cn=$HOME)",
        "(cn=\"'${HOME}$$)",
        "(cn=é\u{1f600})",
        "(cn=a: b # c)",
        // Not one filter: refused.
        "(uid=*))(|(uid=*",
        "uid=*",
        r"(cn=\)",
    ]);
    part.prop_map(str::to_owned)
}

pub(crate) fn host() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "ldap.example.org",
        "ldap.example.org:1636",
        "192.0.2.1:636",
        "[2001:db8::1]:636",
        // Not a host: refused.
        "ldap.example.org/$HOME",
        "${HOME}:636",
        "ldap.example.org:636 #",
    ]);
    part.prop_map(str::to_owned)
}

pub(crate) fn attribute() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["uid", "2.5.4.3", "x-y", "DN", "uid=*)(x", "$HOME"]);
    part.prop_map(str::to_owned)
}

pub(crate) fn hostname() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "sso.example.org",
        "a",
        "a.b-c.d",
        "$HOME",
        "a/../b",
        "a:1",
        "A",
    ]);
    part.prop_map(str::to_owned)
}

pub(crate) fn issuer() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "",
        "",
        "https://login.example.org/shop",
        "https://[2001:db8::1]:8443/dex",
        // Refused, or read as it is.
        "https://login.example.org/$HOME",
        "https://login.example.org/${HOME}",
        "https://$HOME/dex",
        "https://login.example.org/a: b",
        "https://login.example.org/\"'",
        "https://login.example.org/#a",
        "http://login.example.org/dex",
    ]);
    part.prop_map(str::to_owned)
}

/// One of each. Some are refused.
pub(crate) fn hostile() -> impl Strategy<Value = Texts> {
    let client = line().prop_map(|text| text.chars().filter(char::is_ascii).collect::<String>());
    let texts = (
        prop::array::uniform5(line()),
        client,
        filter(),
        host(),
        attribute(),
        hostname(),
        issuer(),
    );
    texts.prop_map(
        |([name, base, account, password, prompt], client, filter, host, attribute, hostname, issuer)| {
            Texts {
                name,
                base,
                filter,
                account,
                client,
                password,
                prompt,
                hostname,
                host,
                attribute,
                issuer,
            }
        },
    )
}
