//! Membership as it must be, and as somebody hostile would have it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use runtime::error_chain::chain;

fn membership() -> Value {
    json!({
        "frame": "00ff",
        "keywords": "check inter 2s",
        "backends": [{"name": "http-backend", "port": 6443}, {"name": "b2", "port": 6444}],
        "servers": [{"name": "lab.a", "address": "192.0.2.1"}, {"name": "lab.b", "address": "[2001:db8::1]"}],
    })
}

fn parse(membership: &Value) -> Result<Members, String> {
    Members::parse(membership.to_string().as_bytes()).map_err(|error| chain(&error))
}

#[test]
fn every_backend_has_every_server() {
    let members = parse(&membership()).unwrap();
    let servers: Vec<_> = members
        .servers()
        .map(|(server, address)| format!("{server} {address}"))
        .collect();
    assert_eq!(
        servers,
        [
            "b2/lab.a 192.0.2.1:6444",
            "b2/lab.b [2001:db8::1]:6444",
            "http-backend/lab.a 192.0.2.1:6443",
            "http-backend/lab.b [2001:db8::1]:6443",
        ]
    );
}

#[test]
fn only_servers_may_differ_in_one_shape() {
    let shape = |change: fn(&mut Value)| {
        let mut changed = membership();
        change(&mut changed);
        parse(&changed).unwrap().shape().to_owned()
    };
    let same = shape(|_| {});
    assert_eq!(shape(|json| json["servers"] = json!([])), same);
    for change in [
        |json: &mut Value| json["frame"] = json!("ff00"),
        |json: &mut Value| json["keywords"] = json!("check inter 3s"),
        |json: &mut Value| json["backends"][0]["port"] = json!(1),
        |json: &mut Value| json["backends"] = json!([]),
    ] {
        assert_ne!(shape(change), same);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let cases: [(&str, Value, &str); 14] = [
        (
            "/servers/0/name",
            json!("a;b"),
            r#"servers[].name: "a;b" is not a word"#,
        ),
        (
            "/servers/0/name",
            json!("a b"),
            r#"servers[].name: "a b" is not a word"#,
        ),
        (
            "/servers/0/name",
            json!("a\nb"),
            r#"servers[].name: "a\nb" is not a word"#,
        ),
        (
            "/servers/0/name",
            json!("a\\b"),
            r#"servers[].name: "a\\b" is not a word"#,
        ),
        (
            "/servers/0/name",
            json!(""),
            r#"servers[].name: "" is not a word"#,
        ),
        (
            "/servers/1/name",
            json!("lab.a"),
            r#"servers: "lab.a" occurs twice"#,
        ),
        (
            "/backends/0/name",
            json!("b/c"),
            r#"backends[].name: "b/c" is not a word"#,
        ),
        ("/backends/0/name", json!("b2"), r#"backends: "b2" occurs twice"#),
        (
            "/backends/0/port",
            json!(0),
            "backends[http-backend].port: 0 is not a port",
        ),
        (
            "/keywords",
            json!("check;quit"),
            r#"keywords: "check;quit" is not a word"#,
        ),
        (
            "/keywords",
            json!("check  inter"),
            r#"keywords: "" is not a word"#,
        ),
        (
            "/servers/0/address",
            json!("host"),
            r#"servers[lab.a].address: "host" is not an IP address"#,
        ),
        ("/servers/0/address", json!("2001:db8::1"), "IPv6 in brackets"),
        ("/servers/0/address", json!("[192.0.2.1]"), "IPv6 in brackets"),
    ];
    for (at, value, expected) in cases {
        let mut changed = membership();
        *changed.pointer_mut(at).unwrap() = value;
        let error = parse(&changed).unwrap_err();
        assert!(error.contains(expected), "{at}: {error}");
    }
}

proptest! {
    #[test]
    fn a_name_is_one_word_of_an_order_or_refused(
        name in prop_oneof![any::<String>(), "[ -~\\n\\r\\t]{0,12}", "[a-zA-Z0-9_.:-]{1,12}"]
    ) {
        let mut changed = membership();
        changed["servers"][0]["name"] = json!(name);
        if let Ok(members) = parse(&changed) {
            for (server, _) in members.servers() {
                let server = server.to_string();
                prop_assert!(server.bytes().all(|byte| byte.is_ascii_graphic() && !b";\\#'\"<>@".contains(&byte)));
                prop_assert_eq!(server.split('/').count(), 2);
            }
        }
    }
}
