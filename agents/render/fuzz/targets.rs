//! The fuzzed functions, apart from the fuzzer: tests try random texts, and the seeds, on the same functions.

use api::{Cluster, HttpsUrl, SIPCluster, SecretKey};
use render::dex::{
    CONFIG_FILE, Certificate, Config, DOLLAR_VARIABLE, ISSUER_PATH, Plan, Secrets, Storage, objects,
};
use serde_json::{Value, json};

/// The texts of an entry that people write, and those that come from Secrets.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    pub name: String,
    pub base: String,
    pub filter: String,
    pub account: String,
    pub client: String,
    pub password: String,
    pub prompt: String,
    pub hostname: String,
    pub host: String,
    pub attribute: String,
    /// Of the entry, and of the provider behind it; empty: the entry has none.
    pub issuer: String,
}

/// One text a line, in the order of [`Texts`].
pub fn dex_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lines = text.split('\n').map(str::to_owned);
    let mut next = || lines.next().unwrap_or_default();
    check_entry(&Texts {
        name: next(),
        base: next(),
        filter: next(),
        account: next(),
        client: next(),
        password: next(),
        prompt: next(),
        hostname: next(),
        host: next(),
        attribute: next(),
        issuer: next(),
    });
}

/// Whether the parser accepts the entry. If it does, asserts that Dex reads what the texts say.
pub fn check_entry(texts: &Texts) -> bool {
    let Some(text) = render_config(texts) else {
        return false;
    };
    assert_dex_reads(texts, &read_by_dex(&text), &[]);
    true
}

/// Asserts that Dex has read what the texts say. `unknown`: the fields that its release does not know.
pub fn assert_dex_reads(texts: &Texts, read: &Value, unknown: &[&str]) {
    let Texts {
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
    } = texts;
    // Each is one line. An editor leaves a line break at the end of a password, which is no part of it.
    let password = &password.trim_end_matches(['\r', '\n']).to_owned();
    for text in [
        name, base, filter, account, client, password, prompt, hostname, host, attribute, issuer,
    ] {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    let at = |pointer: &str| read.pointer(pointer).and_then(Value::as_str).unwrap_or("absent");
    for (pointer, expected) in [
        ("/storage/config/password", password),
        ("/connectors/0/name", name),
        ("/connectors/0/config/bindDN", account),
        ("/connectors/0/config/bindPW", password),
        ("/connectors/0/config/usernamePrompt", prompt),
        ("/connectors/0/config/userSearch/baseDN", base),
        ("/connectors/0/config/userSearch/filter", filter),
        ("/connectors/0/config/userSearch/username", attribute),
        ("/connectors/0/config/userSearch/idAttr", attribute),
        ("/connectors/0/config/userSearch/emailAttr", attribute),
        ("/connectors/0/config/userSearch/nameAttr", attribute),
        ("/connectors/0/config/groupSearch/baseDN", base),
        ("/connectors/0/config/groupSearch/filter", filter),
        ("/connectors/0/config/groupSearch/nameAttr", attribute),
        ("/connectors/0/config/groupSearch/userAttr", attribute),
        ("/connectors/0/config/groupSearch/groupAttr", attribute),
        (
            "/connectors/0/config/groupSearch/userMatchers/0/userAttr",
            attribute,
        ),
        (
            "/connectors/0/config/groupSearch/userMatchers/0/groupAttr",
            attribute,
        ),
        ("/connectors/1/config/clientID", client),
        ("/connectors/1/config/clientSecret", password),
        ("/connectors/1/config/scopes/0", prompt),
        ("/connectors/2/config/orgs/0/name", name),
        ("/connectors/2/config/orgs/0/teams/0", base),
        ("/staticClients/0/id", client),
        ("/staticClients/0/name", name),
        ("/staticClients/0/secret", password),
    ] {
        let is_known = !unknown.iter().any(|unknown| pointer.ends_with(unknown));
        assert!(
            !is_known || at(pointer) == expected,
            "{pointer}: {:?} is not {expected:?}",
            at(pointer)
        );
    }
    if issuer.is_empty() {
        assert_eq!(at("/issuer"), format!("https://{hostname}:30556/dex"));
    } else {
        assert_eq!(at("/issuer"), issuer);
        assert_eq!(at("/connectors/1/config/issuer"), issuer);
    }
    // The address is written in one way; nothing is added to it.
    if !host.starts_with('[') {
        let (name, port) = host.split_once(':').unwrap_or((host, "636"));
        let port: u16 = port.parse().expect("a port");
        assert_eq!(at("/connectors/0/config/host"), format!("{name}:{port}"));
    }
    // Nobody is found by more than the filter, whatever is typed: it stays one filter.
    let (mut open, mut ended) = (0_i32, false);
    for (index, byte) in filter.bytes().enumerate() {
        assert!(!ended, "{filter}");
        open += i32::from(byte == b'(') - i32::from(byte == b')');
        ended = open == 0 && index > 0;
    }
    assert_eq!(open, 0, "{filter}");
}

/// The configuration of the entry; `None` if the parser refuses the entry.
pub fn render_config(texts: &Texts) -> Option<String> {
    let Texts {
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
    } = texts;
    let key = |key: &str| json!({"name": "sign-in", "key": key});
    let search = json!({
        "baseDN": base, "filter": filter, "username": attribute, "idAttr": attribute, "emailAttr": attribute,
        "nameAttr": attribute,
    });
    let groups = json!({
        "baseDN": base, "filter": filter, "userAttr": attribute, "groupAttr": attribute, "nameAttr": attribute,
    });
    let behind = if issuer.is_empty() {
        "https://up.example.org"
    } else {
        issuer
    };
    let mut entry = json!({
        "image": "dex:2", "nodeInterfaceId": "oam", "nodePort": 30_556, "hostname": hostname,
        "connectors": [
            {"id": "ldap", "name": name, "ldap": {
                "host": host, "bindDN": account, "bindPassword": key("password"), "usernamePrompt": prompt,
                "userSearch": search, "groupSearch": groups}},
            {"id": "up", "oidc": {"issuer": behind, "clientID": client, "clientSecret": key("up"),
                "scopes": [prompt]}},
            {"id": "github", "github": {"clientID": client, "clientSecret": key("hub"), "orgs": [{"name": name, "teams": [base]}]}},
        ],
        "clients": [{"id": client, "name": name, "secret": key("client"), "redirectURIs": ["https://a.example.org"]}],
    });
    if !issuer.is_empty() {
        entry["issuer"] = json!(issuer);
    }
    let object = json!({
        "metadata": {"namespace": "tenants", "name": "shop", "uid": "5a1e"},
        "spec": {"services": {"auth": [entry]}},
    });
    let object: SIPCluster = serde_json::from_value(object).expect("an object of this form");
    let cluster = Cluster::parse(&object).ok()?;
    let provider = cluster.auth()[0].provider();
    let values = provider.secret_keys().into_iter();
    let values = values.map(|key: &SecretKey| (key.clone(), password.clone().into_bytes()));
    let secrets = Secrets::read(provider, &values.collect()).ok()?;
    let issuer = match provider.issuer() {
        Some(issuer) => issuer.clone(),
        None => HttpsUrl::from_parts(hostname, 30_556, ISSUER_PATH)?,
    };
    let rendered = objects(&Plan {
        site: "north/site-a",
        cluster: &cluster,
        entry: &cluster.auth()[0],
        issuer: Some(&issuer),
        secrets: &secrets,
        storage: &Storage {
            endpoints: vec!["https://etcd.example.org:2379".to_owned()],
            authority: None,
            prefix: "sip-dex/lab/5a1e/auth-shop/".to_owned(),
            user: "sip-dex/lab/5a1e/auth-shop".to_owned(),
            // The agent makes it: it never ends with a line break, as those of people may.
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
        },
        certificate: &Certificate::default(),
    });
    let mut data = rendered.secret.data.expect("a Secret has data");
    let text = data.remove(CONFIG_FILE).expect("the issuer is known").0;
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    assert!(!text.contains('\n'));
    let again = Config::from_text(&text).expect("what was rendered is read");
    assert_eq!(again.to_text().expect("what was read is written"), text);
    // No secret is in any other object.
    let others = format!(
        "{:?}",
        (
            &rendered.deployment,
            &rendered.service,
            &rendered.policy,
            &rendered.account
        )
    );
    assert!(password.len() < 12 || !others.contains(password.as_str()));
    Some(text)
}

/// Reads a file as Dex does: YAML becomes JSON, then variables are expanded in the text of each connector and of the storage.
fn read_by_dex(text: &str) -> Value {
    let mut config: Value = serde_saphyr::from_str(text).expect("what was rendered is YAML");
    let expand = |value: &mut Value| {
        let expanded = expand_env(&value.to_string());
        *value = serde_json::from_str(&expanded).unwrap_or_else(|error| panic!("{error}: {expanded}"));
    };
    expand(&mut config["storage"]["config"]);
    for connector in config["connectors"].as_array_mut().expect("a list") {
        expand(&mut connector["config"]);
    }
    config
}

/// Go's `os.ExpandEnv`, in an environment whose values must never be in the result.
fn expand_env(text: &str) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, after) = variable(rest);
        let lone = name.is_empty() && after.len() == rest.len();
        if lone || name == DOLLAR_VARIABLE {
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
