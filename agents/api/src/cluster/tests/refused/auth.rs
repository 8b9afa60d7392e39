//! Identity providers.

use serde_json::{Value, json};

use crate::fixtures::{faults, parse, sample_with};
use crate::{BoundRole, Source};

const AT: &str = "spec.services.auth[0]";
const KEYS: &str =
    "idTokens must be at most 100 times signingKeys: Dex keeps every key until its tokens expire";

fn ldap() -> Value {
    json!({"id": "ldap", "ldap": {
        "host": "ldap.example.org", "bindDN": "cn=search", "bindPassword": {"name": "ldap", "key": "password"},
        "userSearch": {"baseDN": "ou=people", "username": "uid"},
    }})
}

/// A connector with one value changed.
fn ldap_with(pointer: &str, value: Value) -> Value {
    let mut connector = ldap();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = connector.pointer_mut(parent).unwrap();
    parent[field] = value;
    json!([connector])
}

/// The one fault of the sample with another value of a field of its provider.
#[track_caller]
fn refuses(field: &str, value: Value, expected: &str) {
    assert_eq!(
        faults(sample_with(&format!("/services/auth/0/{field}"), value)),
        [expected]
    );
}

#[test]
fn what_an_identity_provider_is_to_do_is_read() {
    let entry = json!([{
        "image": "dex:2", "nodeInterfaceId": "oam", "hostname": "sso.example.org",
        "connectors": [ldap()],
        "groups": [{"group": "dev", "role": "deploy", "namespace": "shop"}],
    }]);
    let cluster = parse(sample_with("/services/auth", entry)).unwrap();
    let provider = cluster.auth()[0].provider();
    let Source::Ldap(ldap) = provider.connectors()[0].source() else {
        panic!("{provider:?}");
    };
    assert_eq!(ldap.address().to_string(), "ldap.example.org:636");
    assert_eq!(ldap.user_search().email_attribute(), "mail");
    let client = provider.kubectl_client().unwrap();
    assert_eq!((client.id().as_str(), client.is_public()), ("kubernetes", true));
    assert_eq!(
        client.redirects(),
        &["http://localhost:8000", "http://localhost:18000"]
    );
    assert_eq!(
        provider.groups()[0].role(),
        &BoundRole::Namespaced("deploy".to_owned())
    );
    assert_eq!(cluster.auth()[0].service().replicas(), 2);
}

#[test]
fn places_and_connectors() {
    let line = "must be one line without control characters";
    for (field, value, expected) in [
        (
            "hostname",
            json!("a\nb"),
            format!("{AT}.hostname is \"a\\nb\": {line}"),
        ),
        (
            "hostname",
            json!("a_b"),
            format!(
                "{AT}.hostname is \"a_b\": must be a DNS name: at most 253 lowercase letters, digits, '-' and '.'"
            ),
        ),
        (
            "issuer",
            json!("http://a"),
            format!(
                "{AT}.issuer is \"http://a\": must be an https URL of a host, a port if it is not 443, and a path of letters, digits, '-', '.', '_', '~' and '/' that does not end with '/'"
            ),
        ),
        (
            "connectors",
            json!([{"id": "a"}]),
            format!("{AT}.connectors[0].ldap is absent: must be set, or exactly one of oidc, github and raw"),
        ),
        (
            "connectors",
            json!([ldap(), ldap()]),
            format!("{AT}.connectors[1].id is \"ldap\": must be unique, and is that of {AT}.connectors[0]"),
        ),
        (
            "connectors",
            ldap_with("/id", json!("local")),
            format!(
                "{AT}.connectors[0].id is \"local\": must be at most 63 lowercase letters, digits and '-', beginning with a letter, and not be local"
            ),
        ),
        (
            "connectors",
            ldap_with("/ldap/host", json!("ldap://a")),
            format!(
                "{AT}.connectors[0].ldap.host is \"ldap://a\": must be a DNS name or an IP address, with ':' and a port if it is not the usual one; an IPv6 address in brackets"
            ),
        ),
        (
            "connectors",
            ldap_with("/ldap/bindPassword", Value::Null),
            format!("{AT}.connectors[0].ldap.bindPassword is absent: must be set with bindDN"),
        ),
        (
            "connectors",
            ldap_with("/ldap/bindDN", json!("cn=\u{1b}[2J")),
            format!("{AT}.connectors[0].ldap.bindDN is \"cn=\\u{{1b}}[2J\": {line}"),
        ),
        (
            "connectors",
            ldap_with("/ldap/userSearch/username", json!("uid=*)(a")),
            format!(
                "{AT}.connectors[0].ldap.userSearch.username is \"uid=*)(a\": must be the name of an attribute: letters, digits and '-', or numbers with '.' between them"
            ),
        ),
        (
            "connectors",
            ldap_with("/ldap/userSearch/filter", json!("(a=b)(c=d)")),
            format!(
                "{AT}.connectors[0].ldap.userSearch.filter is \"(a=b)(c=d)\": must be one LDAP filter in parentheses, each closed, with \\ only before two hexadecimal digits"
            ),
        ),
    ] {
        refuses(field, value, &expected);
    }
}

#[test]
fn clients_and_groups() {
    let secret = json!({"name": "sign-in", "key": "secret"});
    let local = "must be an https URL without fragment, or an http URL of localhost, 127.0.0.1 or [::1]";
    for (field, value, expected) in [
        (
            "clients",
            json!([{"id": "a", "secret": secret}]),
            format!("{AT}.clients[0].redirectURIs is absent: must be set for a client with a secret"),
        ),
        (
            "clients",
            json!([{"id": "a", "redirectURIs": ["http://example.org"]}]),
            format!("{AT}.clients[0].redirectURIs[0] is \"http://example.org\": {local}"),
        ),
        (
            "clients",
            json!([{"id": "a", "redirectURIs": ["http://localhost.example.org"]}]),
            format!("{AT}.clients[0].redirectURIs[0] is \"http://localhost.example.org\": {local}"),
        ),
        (
            "clients",
            json!([{"id": "a", "secret": {"name": "A", "key": "k"}, "redirectURIs": ["https://a"]}]),
            format!(
                "{AT}.clients[0].secret.name is \"A\": must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'"
            ),
        ),
        (
            "clients",
            json!([{"id": "a\u{2028}--anonymous-auth=true"}]),
            format!(
                "{AT}.clients[0].id is \"a\\u{{2028}}--anonymous-auth=true\": must have printable ASCII characters only"
            ),
        ),
        (
            "certificateIssuer",
            json!("tenants"),
            format!("{AT}.certificateIssuer is \"tenants\": must not be set together with caSecret"),
        ),
        (
            "kubeconfigSecret",
            json!("Admin"),
            format!(
                "{AT}.kubeconfigSecret is \"Admin\": must be the name of a Secret: at most 253 lowercase letters, digits, '-' and '.'"
            ),
        ),
        (
            "expiry",
            json!({"idTokens": "0s"}),
            format!("{AT}.expiry.idTokens is \"0s\": must be a duration such as 6h, from 1m to 168h"),
        ),
        (
            "expiry",
            json!({"signingKeys": "1h", "idTokens": "101h"}),
            format!("{AT}.expiry.idTokens is \"101h\": {KEYS}"),
        ),
        (
            "expiry",
            json!({"signingKeys": "10m"}),
            format!("{AT}.expiry.signingKeys is \"10m\": {KEYS}"),
        ),
        (
            "groups",
            json!([{"group": "system:masters", "clusterRole": "edit"}]),
            format!(
                "{AT}.groups[0].group is \"system:masters\": must not begin with system:, which Kubernetes keeps for its own groups"
            ),
        ),
        (
            "groups",
            json!([{"group": "dev", "role": "edit"}]),
            format!("{AT}.groups[0].namespace is absent: must be set with role"),
        ),
        (
            "staticPasswords",
            json!({"name": "users"}),
            format!("{AT}.staticPasswords.key is absent: must be set"),
        ),
    ] {
        refuses(field, value, &expected);
    }
}

#[test]
fn lists_are_bounded() {
    let many = |count: usize, value: &dyn Fn(usize) -> Value| Value::Array((0..count).map(value).collect());
    let key = json!({"name": "sign-in", "key": "secret"});
    let uris = many(17, &|number| json!(format!("https://a{number}")));
    let orgs = many(33, &|number| json!({"name": format!("o{number}")}));
    let lines = many(33, &|number| json!(format!("l{number}")));
    let github =
        |orgs: &Value| json!([{"id": "a", "github": {"clientID": "dex", "clientSecret": key, "orgs": orgs}}]);
    for (field, value, expected) in [
        (
            "connectors",
            many(9, &|number| json!({"id": format!("c{number}"), "raw": key})),
            "connectors is a list of 9: must have at most 8",
        ),
        (
            "clients",
            many(33, &|number| json!({"id": format!("c{number}")})),
            "clients is a list of 33: must have at most 32",
        ),
        (
            "groups",
            many(65, &|_| json!({"group": "dev", "clusterRole": "edit"})),
            "groups is a list of 65: must have at most 64",
        ),
        (
            "clients",
            json!([{"id": "a", "secret": key, "redirectURIs": uris}]),
            "clients[0].redirectURIs is a list of 17: must have at most 16",
        ),
        (
            "connectors",
            github(&orgs),
            "connectors[0].github.orgs is a list of 33: must have at most 32",
        ),
        (
            "connectors",
            github(&json!([{"name": "o", "teams": lines}])),
            "connectors[0].github.orgs[0].teams is a list of 33: must have at most 32",
        ),
        (
            "connectors",
            json!([{"id": "a", "oidc": {"issuer": "https://a", "clientID": "dex", "clientSecret": key, "scopes": lines}}]),
            "connectors[0].oidc.scopes is a list of 33: must have at most 32",
        ),
    ] {
        refuses(field, value, &format!("{AT}.{expected}"));
    }
}

#[test]
fn hostile_texts_are_escaped() {
    for text in ["\u{0}", "a\r\nb", "\u{9b}31m", &"x".repeat(2000)] {
        for field in [
            "/id",
            "/name",
            "/ldap/host",
            "/ldap/bindDN",
            "/ldap/usernamePrompt",
            "/ldap/userSearch/baseDN",
        ] {
            let found = faults(sample_with(
                "/services/auth/0/connectors",
                ldap_with(field, json!(text)),
            ));
            assert_eq!(found.len(), 1, "{field}: {found:?}");
            assert!(!found[0].contains(char::is_control) && found[0].len() < 500);
        }
    }
}
