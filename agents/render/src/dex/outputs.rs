//! What a tenant's API servers need of its provider: flags, or a structured configuration, and the bindings of groups.

use api::{HttpsUrl, OidcClient};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::{Plan, group_bindings};

/// Suffix of the `ConfigMap`'s name, after the name of the instance.
pub const OUTPUTS_SUFFIX: &str = "-oidc";
/// Key of the flags of kube-apiserver, one a line.
pub const FLAGS_KEY: &str = "kube-apiserver-flags";
/// Key of the file for kube-apiserver's `--authentication-config`.
pub const AUTHENTICATION_KEY: &str = "authentication-configuration.json";
/// Key of the manifests that give groups their rights.
pub const GROUP_BINDINGS_KEY: &str = "group-bindings.json";
const ISSUER_KEY: &str = "issuer";
const CLIENT_ID_KEY: &str = "client-id";
const CA_KEY: &str = "ca.crt";
/// Prefix of names of users and groups in the tenant's cluster. Whoever maintains a directory chooses its group names: without a prefix, a group
/// could have the name of one to which the cluster itself gives rights.
pub(super) const IDENTITY_PREFIX: &str = "oidc:";
/// Where the flags expect the CA certificates on machines of the tenant's API servers.
const CA_FILE: &str = "/etc/kubernetes/pki/oidc-ca.crt";

/// The `ConfigMap` for a tenant's operators; `None` as long as the issuer is not known.
#[must_use]
pub fn outputs(plan: &Plan<'_>) -> Option<ConfigMap> {
    let issuer = plan.issuer?;
    let provider = plan.entry.provider();
    let client = provider.kubectl_client()?;
    let bundle = &plan.certificate.bundle;
    let text = |value: &Value| format!("{value:#}\n");
    let data = [
        (ISSUER_KEY, issuer.to_string()),
        (CLIENT_ID_KEY, client.id().clone()),
        (CA_KEY, bundle.clone()),
        (FLAGS_KEY, flags(issuer, client)),
        (AUTHENTICATION_KEY, text(&authentication(issuer, client, bundle))),
        (
            GROUP_BINDINGS_KEY,
            text(&group_bindings(plan.site, plan.cluster, plan.entry).manifest()),
        ),
    ];
    let mut metadata = plan.instance().metadata();
    metadata.name = metadata.name.map(|name| format!("{name}{OUTPUTS_SUFFIX}"));
    Some(ConfigMap {
        metadata,
        data: Some(data.map(|(key, text)| (key.to_owned(), text)).into()),
        ..ConfigMap::default()
    })
}

fn flags(issuer: &HttpsUrl, client: &OidcClient) -> String {
    let client = client.id();
    [
        format!("--oidc-issuer-url={issuer}"),
        format!("--oidc-client-id={client}"),
        "--oidc-username-claim=email".to_owned(),
        format!("--oidc-username-prefix={IDENTITY_PREFIX}"),
        "--oidc-groups-claim=groups".to_owned(),
        format!("--oidc-groups-prefix={IDENTITY_PREFIX}"),
        format!("--oidc-ca-file={CA_FILE}"),
    ]
    .map(|flag| flag + "\n")
    .concat()
}

/// The same configuration as the flags: users and groups have the prefix.
fn authentication(issuer: &HttpsUrl, client: &OidcClient, bundle: &str) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": issuer.as_str(),
                "audiences": [client.id()],
                "certificateAuthority": bundle,
            },
            "claimMappings": {
                "username": {"claim": "email", "prefix": IDENTITY_PREFIX},
                "groups": {"claim": "groups", "prefix": IDENTITY_PREFIX},
            },
            // No user gets the identity of a component of Kubernetes by a name in a directory.
            "userValidationRules": [
                {
                    "expression": format!("!user.username.startsWith('{IDENTITY_PREFIX}system:')"),
                    "message": "the email must not begin with system:",
                },
                {
                    "expression": format!("user.groups.all(group, !group.startsWith('{IDENTITY_PREFIX}system:'))"),
                    "message": "no group may begin with system:",
                },
            ],
        }],
    })
}
