//! Checks the fields of an entry that only identity providers have.

mod connectors;
mod place;

use std::ops::RangeInclusive;
use std::time::Duration;

use place::FieldPath;
use vocabulary::dns;

use super::text::{HttpsUrl, MAX_CHARACTERS};
use super::{BoundRole, Expiry, GroupBinding, KUBELOGIN_REDIRECTS, OidcClient, Provider};
use crate::fault::Fault;
use crate::sip_cluster::{AuthSpec, ExpirySpec, GroupSpec, OidcClientSpec};

const DNS_NAME: &str = "must be a DNS name: at most 253 lowercase letters, digits, '-' and '.'";
const REDIRECT: &str =
    "must be an https URL without fragment, or an http URL of localhost, 127.0.0.1 or [::1]";
const CLIENT_ID: &str = "must have printable ASCII characters only";
// A provider is checked and configured as a whole, so one entry must not make work without bounds.
const MAX_CONNECTORS: usize = 8;
const MAX_CLIENTS: usize = 32;
const MAX_GROUPS: usize = 64;
const MAX_REDIRECTS: usize = 16;
/// Items of each list of a connector, at most.
const MAX_CONNECTOR_ITEMS: usize = 32;
const SIGNING_KEY_EXPIRY: RangeInclusive<Duration> = Duration::from_mins(10)..=Duration::from_hours(720);
/// Most signing keys whose tokens may be valid at one time. Dex stores the public key of every signing key in one value until the tokens that it
/// has signed expire. With more keys the value is larger than 64 KiB, the most that the storage of `deploy/agents/dex/storage` takes.
const MAX_VALID_SIGNING_KEYS: u32 = 100;
const ID_TOKENS: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(168);

/// Checks the fields that only identity providers have.
pub(in crate::cluster) fn parse(spec: &AuthSpec, path: &str, faults: &mut Vec<Fault>) -> Option<Provider> {
    let AuthSpec {
        hostname,
        issuer,
        connectors,
        clients,
        expiry,
        groups,
        kubeconfig_secret,
        certificate_issuer,
        static_passwords,
        ca_secret,
        // Those of every service.
        name: _,
        image: _,
        node_labels: _,
        node_interface_id: _,
        cluster_ip: _,
        replicas: _,
        resources: _,
        network_attachments: _,
        changes: _,
        node_port: _,
    } = spec;
    let before = faults.len();
    let mut at = FieldPath::new(path, faults);
    let hostname = at.checked("hostname", hostname.as_deref(), dns::is_subdomain, DNS_NAME);
    let issuer = at.url("issuer", issuer.as_deref());
    let connectors = at.bounded("connectors", connectors.as_ref(), MAX_CONNECTORS);
    let connectors = connectors.iter().enumerate();
    let connectors: Vec<_> = connectors
        .filter_map(|(index, connector)| {
            connectors::connector(connector, &mut at.below(&format!("connectors[{index}]")))
        })
        .collect();
    at.unique(
        "connectors",
        "id",
        connectors.iter().map(|connector| connector.id().as_str()),
    );
    let listed = at
        .bounded("clients", clients.as_ref(), MAX_CLIENTS)
        .iter()
        .enumerate();
    let listed: Vec<_> = listed
        .filter_map(|(index, client)| oidc_client(client, &mut at.below(&format!("clients[{index}]"))))
        .collect();
    at.unique("clients", "id", listed.iter().map(|client| client.id().as_str()));
    let clients = if clients.as_ref().is_none_or(Vec::is_empty) {
        vec![OidcClient::kubectl()]
    } else {
        listed
    };
    let expiry = expiry
        .as_ref()
        .map(|spec| self::expiry(spec, &mut at.below("expiry")));
    let groups = at
        .bounded("groups", groups.as_ref(), MAX_GROUPS)
        .iter()
        .enumerate();
    let groups = groups
        .filter_map(|(index, group)| binding(group, &mut at.below(&format!("groups[{index}]"))))
        .collect();
    let kubeconfig_secret = at.secret_name("kubeconfigSecret", kubeconfig_secret.as_deref());
    let certificate_issuer = at.checked(
        "certificateIssuer",
        certificate_issuer.as_deref(),
        dns::is_subdomain,
        "must be the name of an Issuer: at most 253 lowercase letters, digits, '-' and '.'",
    );
    if let (Some(issuer), Some(_)) = (&certificate_issuer, ca_secret) {
        at.text(
            "certificateIssuer",
            issuer,
            "must not be set together with caSecret",
        );
    }
    let static_passwords = at.secret_key("staticPasswords", static_passwords.as_ref());
    (faults.len() == before).then(|| Provider {
        hostname,
        issuer,
        connectors,
        clients,
        expiry: expiry.unwrap_or_default(),
        groups,
        kubeconfig_secret,
        certificate_issuer,
        static_passwords,
    })
}

fn oidc_client(spec: &OidcClientSpec, at: &mut FieldPath<'_>) -> Option<OidcClient> {
    let OidcClientSpec {
        id,
        name,
        secret,
        redirect_uris,
    } = spec;
    if id.is_none() {
        at.absent("id", "must be set");
    }
    let id = at.checked("id", id.as_deref(), is_client_id, CLIENT_ID);
    let name = at.line("name", name.as_deref());
    let public = secret.is_none();
    let secret = at.secret_key("secret", secret.as_ref());
    let uris = at.bounded("redirectURIs", redirect_uris.as_ref(), MAX_REDIRECTS);
    for (index, uri) in uris.iter().enumerate() {
        at.checked(
            &format!("redirectURIs[{index}]"),
            Some(uri),
            is_redirect,
            REDIRECT,
        );
    }
    if redirect_uris.as_ref().is_none_or(Vec::is_empty) && !public {
        at.absent("redirectURIs", "must be set for a client with a secret");
    }
    let redirects = if uris.is_empty() {
        KUBELOGIN_REDIRECTS.map(str::to_owned).to_vec()
    } else {
        uris.to_vec()
    };
    let id = id?;
    Some(OidcClient {
        name: name.unwrap_or_else(|| id.clone()),
        id,
        secret,
        redirects,
    })
}

/// Whether a text is a client id (RFC 6749, appendix A.1). The agent writes ids as flags of API servers, one per line, and some characters beyond
/// ASCII end a line.
fn is_client_id(id: &str) -> bool {
    id.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

fn is_redirect(uri: &str) -> bool {
    let printable = uri
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\"\\<>^`{|}#".contains(&byte));
    let local = || {
        let rest = uri.strip_prefix("http://")?;
        let host = rest.find(['/', '?']).map_or(rest, |at| &rest[..at]);
        let port = |port: &str| {
            port.is_empty()
                || port
                    .strip_prefix(':')
                    .is_some_and(|port| port.parse::<u16>().is_ok())
        };
        ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .any(|local| host.strip_prefix(local).is_some_and(port))
            .then_some(())
    };
    let remote = || {
        let rest = uri.strip_prefix("https://")?;
        let host = rest.find(['/', '?']).map_or(rest, |at| &rest[..at]);
        HttpsUrl::new(&format!("https://{host}")).map(drop)
    };
    printable && uri.len() <= MAX_CHARACTERS && local().or_else(remote).is_some()
}

fn expiry(spec: &ExpirySpec, at: &mut FieldPath<'_>) -> Expiry {
    let ExpirySpec {
        signing_keys,
        id_tokens,
    } = spec;
    let default = Expiry::default();
    let expiry = Expiry {
        signing_keys: at
            .duration("signingKeys", signing_keys.as_deref(), &SIGNING_KEY_EXPIRY)
            .unwrap_or(default.signing_keys),
        id_tokens: at
            .duration("idTokens", id_tokens.as_deref(), &ID_TOKENS)
            .unwrap_or(default.id_tokens),
    };
    if expiry.id_tokens > expiry.signing_keys * MAX_VALID_SIGNING_KEYS {
        let (field, value) = match id_tokens {
            Some(id_tokens) => ("idTokens", id_tokens.as_str()),
            None => ("signingKeys", signing_keys.as_deref().unwrap_or_default()),
        };
        let rule =
            "idTokens must be at most 100 times signingKeys: Dex keeps every key until its tokens expire";
        at.text(field, value, rule);
    }
    expiry
}

fn binding(spec: &GroupSpec, at: &mut FieldPath<'_>) -> Option<GroupBinding> {
    let GroupSpec {
        group,
        cluster_role,
        role,
        namespace,
    } = spec;
    let group = at.required("group", group.as_deref());
    if group.as_deref().is_some_and(|group| group.starts_with("system:")) {
        at.text(
            "group",
            group.as_deref().unwrap_or_default(),
            "must not begin with system:, which Kubernetes keeps for its own groups",
        );
    }
    let namespace = at.checked(
        "namespace",
        namespace.as_deref(),
        dns::is_subdomain,
        "must be the name of a namespace: lowercase letters, digits and '-'",
    );
    let name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    let rule = "must be the name of a role: neither '.' nor '..', without '/' and '%'";
    let role = match (cluster_role, role) {
        (Some(cluster), None) => at
            .checked("clusterRole", Some(cluster), name, rule)
            .map(BoundRole::Cluster),
        (None, Some(role)) => {
            if namespace.is_none() {
                at.absent("namespace", "must be set with role");
            }
            at.checked("role", Some(role), name, rule)
                .map(BoundRole::Namespaced)
        }
        (Some(_), Some(role)) => {
            at.text("role", role, "must not be set together with clusterRole");
            None
        }
        (None, None) => {
            at.absent("clusterRole", "must be set, or role");
            None
        }
    };
    Some(GroupBinding {
        group: group?,
        role: role?,
        namespace,
    })
}
