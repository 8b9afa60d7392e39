//! Hostile texts in every field: what Dex reads is what was meant.

use std::env;

use api::HttpsUrl;
use proptest::{
    prelude::*,
    test_runner::{Config as Runs, TestRunner},
};
use serde_json::{Value, json};

use super::{certificate, cluster, secrets, storage};
use crate::dex::{CONFIG_FILE, Config, DOLLAR, ISSUER_PATH, Plan, Storage, objects};

/// As Dex reads a file: YAML becomes JSON, then variables are expanded in the text of each connector and of the storage.
fn read_by_dex(text: &str) -> Value {
    let mut config: Value = serde_saphyr::from_str(text).unwrap();
    let expand = |value: &mut Value| {
        let expanded = expand_env(&value.to_string());
        *value = serde_json::from_str(&expanded).unwrap_or_else(|error| panic!("{error}: {expanded}"));
    };
    expand(&mut config["storage"]["config"]);
    for connector in config["connectors"].as_array_mut().unwrap() {
        expand(&mut connector["config"]);
    }
    config
}

/// Go's `os.ExpandEnv`, in an environment that has what must never come out.
fn expand_env(text: &str) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, after) = variable(rest);
        let lone = name.is_empty() && after.len() == rest.len();
        if lone || name == DOLLAR {
            expanded.push('$');
        } else if !name.is_empty() {
            expanded.push_str("EXPANDED");
        }
        rest = after;
    }
    expanded + rest
}

fn variable(text: &str) -> (&str, &str) {
    if let Some(rest) = text.strip_prefix('{') {
        return rest.split_once('}').unwrap_or(("", rest));
    }
    let special = |character: char| "*#$@!?-0123456789".contains(character);
    if text.starts_with(special) {
        return text.split_at(1);
    }
    let end = text.find(|character: char| character != '_' && !character.is_ascii_alphanumeric());
    text.split_at(end.unwrap_or(text.len()))
}

/// A text without control characters, as the door lets it in, that means something to YAML, JSON, a shell, HTML or a directory.
fn line() -> impl Strategy<Value = String> {
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

#[test]
fn what_dex_reads_is_what_was_meant() {
    let cases = env::var("SOAK_HOSTILE").ok().and_then(|cases| cases.parse().ok());
    let mut runner = TestRunner::new(Runs::with_cases(cases.unwrap_or(256)));
    println!("{} random providers", runner.config().cases);
    let texts = prop::array::uniform6(line());
    // A failure prints its seed and its smallest case.
    runner
        .run(&texts, |[name, base, account, client, password, prompt]| {
            let key = |key: &str| json!({"name": "sign-in", "key": key});
            let cluster = cluster(&json!({
                "image": "dex:2", "nodeInterfaceId": "oam", "nodePort": 30_556, "hostname": "sso.example.org",
                "connectors": [
                    {"id": "ldap", "name": name, "ldap": {
                        "host": "ldap.example.org", "bindDN": account, "bindPassword": key("password"), "usernamePrompt": prompt,
                        "userSearch": {"baseDN": base, "username": "uid"}, "groupSearch": {"baseDN": base}}},
                    {"id": "up", "oidc": {"issuer": "https://up.example.org", "clientID": client, "clientSecret": key("up"),
                        "scopes": [prompt]}},
                    {"id": "github", "github": {"clientID": client, "clientSecret": key("hub"), "orgs": [{"name": name, "teams": [base]}]}},
                ],
                "clients": [{"id": client, "name": name, "secret": key("client"), "redirectURIs": ["https://a.example.org"]}],
            }));
            let issuer = HttpsUrl::of("sso.example.org", 30_556, ISSUER_PATH).unwrap();
            let storage = Storage { password: password.clone(), ..storage() };
            let secrets = secrets(&cluster, &password);
            let rendered = objects(&Plan {
                cluster: &cluster,
                entry: &cluster.auth()[0],
                issuer: Some(&issuer),
                secrets: &secrets,
                storage: &storage,
                certificate: &certificate(),
            });
            let text = String::from_utf8(rendered.secret.data.unwrap()[CONFIG_FILE].0.clone()).unwrap();
            prop_assert!(text.bytes().all(|byte| byte != b'\n'));
            let again = Config::from_text(&text).unwrap();
            prop_assert_eq!(again.to_text(), text.clone());

            let read = read_by_dex(&text);
            let at = |pointer: &str| read.pointer(pointer).and_then(Value::as_str).unwrap_or("absent").to_owned();
            for (pointer, meant) in [
                ("/storage/config/password", &password),
                ("/connectors/0/name", &name),
                ("/connectors/0/config/bindDN", &account),
                ("/connectors/0/config/bindPW", &password),
                ("/connectors/0/config/usernamePrompt", &prompt),
                ("/connectors/0/config/userSearch/baseDN", &base),
                ("/connectors/0/config/groupSearch/baseDN", &base),
                ("/connectors/1/config/clientID", &client),
                ("/connectors/1/config/clientSecret", &password),
                ("/connectors/1/config/scopes/0", &prompt),
                ("/connectors/2/config/orgs/0/name", &name),
                ("/connectors/2/config/orgs/0/teams/0", &base),
                ("/staticClients/0/id", &client),
                ("/staticClients/0/name", &name),
                ("/staticClients/0/secret", &password),
            ] {
                prop_assert_eq!(&at(pointer), meant, "{}", pointer);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
