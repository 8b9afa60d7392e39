//! The entries of `spec.services.auth` as users write them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ResourcesSpec;

/// An OIDC identity provider for the cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// Distinguishes the entry from others of its kind, and is part of the names of its objects: lowercase letters, digits and '-', not only
    /// digits. Default: the agent identifies the entry by its node port, and the names of the objects of the second and later entries end
    /// with the index of the entry, or with the first unused number if other objects have that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Required. Container image with Dex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// nodeSelector of the pods: they run only on nodes of the site's cluster that have all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Required, and ignored: a provider connects to no host. As in Airship SIP, `id` of a network in the hosts' networkData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_interface_id: Option<String>,
    /// IP address at which users reach the service, such as that of a node or of a load balancer in front of the site. The agents only
    /// publish it in `status.endpoints`: they do not assign it, and it is not `spec.clusterIP` of the Service.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// Number of pods, 0 to 32. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Resource requests and limits of the container, instead of the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Multus networks that the pods join: names of `NetworkAttachmentDefinition`s in the namespace of the SIPCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachments: Option<Vec<String>>,
    /// Fields of the Service: `service.metadata.labels` and `.annotations`, `service.spec.type` (`NodePort` or `LoadBalancer`),
    /// `.loadBalancerClass`, `.allocateLoadBalancerNodePorts` and `.externalTrafficPolicy`.
    #[serde(
        default,
        rename = "override",
        deserialize_with = "crate::bounded::shallow",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "crate::crd::any_object")]
    pub changes: Option<Value>,
    /// Node port that leads to the provider. Default: a node port that the site's API server assigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i64>,
    /// Secret in the SIPCluster's namespace with a CA (`tls.crt` and `tls.key`) that the provider's certificate is issued from.
    /// Default: `certificateIssuer`, else the site's issuer, else a CA that the agent creates for this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
    /// Name of an `Issuer` of cert-manager in the SIPCluster's namespace, which issues the provider's certificate. Not together with
    /// `caSecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_issuer: Option<String>,
    /// DNS name under which users reach the provider. Default: `clusterIP`, or else the address of the Service's load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// URL that tokens name as their issuer. Default: `https://HOST:PORT/dex` with the hostname and the port of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Sources of identities, each of one type. Without connectors and static passwords no user can log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connectors: Option<Vec<ConnectorSpec>>,
    /// Programs that users log in to. Default: `kubernetes`, a public client for kubectl on `localhost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<OidcClientSpec>>,
    /// How long tokens and signing keys are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<ExpirySpec>,
    /// Rights of users' groups in the tenant cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupSpec>>,
    /// Secret in the SIPCluster's namespace with a kubeconfig of the tenant cluster under the key `value`, as Cluster API writes it.
    /// The agent applies the bindings of `groups` there; the cluster agent reads and drains Nodes. Default: the bindings are in the
    /// `ConfigMap` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<String>,
    /// Key of a Secret with users and passwords for emergencies: one line `EMAIL:BCRYPT` for each user, with a cost of 10 to 16, as
    /// `htpasswd -nBC 12 EMAIL` writes it.
    /// While this field is set, `AuthReady` states that, with the reason `StaticPasswords` if nothing else is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_passwords: Option<SecretKeySpec>,
}

/// A key of a Secret in the SIPCluster's namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeySpec {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Key of the Secret under which the value is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A source of users: exactly one of `ldap`, `oidc`, `github` and `raw` is set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorSpec {
    /// Required. Unique id of the connector: at most 63 lowercase letters, digits and '-'. An upstream provider redirects users to `ISSUER/callback`,
    /// whatever the id is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name that users see. Default: `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An LDAP directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ldap: Option<LdapSpec>,
    /// Another OIDC provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<UpstreamOidcSpec>,
    /// GitHub, or GitHub Enterprise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub github: Option<GithubSpec>,
    /// Any other connector of Dex: key of a Secret with its `type` and `config`, as YAML or JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<SecretKeySpec>,
}

/// An LDAP directory, queried over TLS.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LdapSpec {
    /// Required. Host, and port if it is not 636 (389 with `startTLS`), such as `ldap.example.org:636`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the provider connects without TLS and then upgrades the connection with `StartTLS`, before it sends any credential. Default:
    /// false, that is, TLS from the start.
    #[serde(default, rename = "startTLS", skip_serializing_if = "Option::is_none")]
    pub start_tls: Option<bool>,
    /// Key of a Secret with the CA certificates (PEM) of the directory's certificate. Default: those that the image trusts.
    #[serde(default, rename = "rootCA", skip_serializing_if = "Option::is_none")]
    pub root_ca: Option<SecretKeySpec>,
    /// DN with which the provider binds to search. Default: anonymous bind.
    #[serde(default, rename = "bindDN", skip_serializing_if = "Option::is_none")]
    pub bind_dn: Option<String>,
    /// Key of a Secret with the password of `bindDN`. Required with `bindDN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_password: Option<SecretKeySpec>,
    /// Label of the name field on the login page. Default: `Username`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username_prompt: Option<String>,
    /// Required. How a user is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_search: Option<UserSearchSpec>,
    /// How a user's groups are found. Default: no user has groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_search: Option<GroupSearchSpec>,
}

/// How a user is found in a directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserSearchSpec {
    /// Required. Entry below which users are.
    #[serde(default, rename = "baseDN", skip_serializing_if = "Option::is_none")]
    pub base_dn: Option<String>,
    /// Filter that every user matches, such as `(objectClass=person)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// `sub`, the whole subtree, or `one`, one level. Default: `sub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Required. Attribute with the name that users enter, such as `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Attribute that identifies a user permanently. Default: `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_attr: Option<String>,
    /// Attribute that has the email address. Default: `mail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email_attr: Option<String>,
    /// Attribute that has the name to show. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_attr: Option<String>,
}

/// How a user's groups are found in a directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSearchSpec {
    /// Required. Entry below which groups are.
    #[serde(default, rename = "baseDN", skip_serializing_if = "Option::is_none")]
    pub base_dn: Option<String>,
    /// Filter that every group matches, such as `(objectClass=groupOfNames)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// `sub`, the whole subtree, or `one`, one level. Default: `sub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Attribute of a user's entry whose value `groupAttr` of a group contains; `DN` is the distinguished name of the user's entry. Default: `DN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_attr: Option<String>,
    /// Attribute of a group that names its members. Default: `member`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_attr: Option<String>,
    /// Attribute that has the name of a group. Default: `cn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_attr: Option<String>,
}

/// Another OIDC provider, with a client that its operators have made for this one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamOidcSpec {
    /// Required. Issuer URL of the other provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Required. Id of the client.
    #[serde(default, rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Required. Key of a Secret with the client's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretKeySpec>,
    /// Scopes besides `openid`. Default: `profile` and `email`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

/// GitHub or GitHub Enterprise, with an OAuth application.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GithubSpec {
    /// Required. Id of the application.
    #[serde(default, rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Required. Key of a Secret with the application's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretKeySpec>,
    /// DNS name of a GitHub Enterprise server. Default: github.com.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Required. Organizations whose members may log in, at least one: anyone can create a GitHub account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orgs: Option<Vec<GithubOrgSpec>>,
}

/// An organization, or teams of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GithubOrgSpec {
    /// Required. Name of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Teams whose members may log in. Default: every member of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teams: Option<Vec<String>>,
}

/// A program that users log in to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OidcClientSpec {
    /// Required. Id of the client, which tokens name as their audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name that users see. Default: `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Key of a Secret with the client's secret. Without `secret` the client is public: for a program on users' own computers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretKeySpec>,
    /// URLs to which the provider may redirect a user with the authorization code. Required with `secret`. Default of a public client:
    /// `http://localhost:8000` and `http://localhost:18000`, where kubelogin listens.
    #[serde(default, rename = "redirectURIs", skip_serializing_if = "Option::is_none")]
    pub redirect_uris: Option<Vec<String>>,
}

/// How long tokens and signing keys are valid.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpirySpec {
    /// How long a signing key is used: `10m` to `720h`. Default: `6h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_keys: Option<String>,
    /// How long an ID token is valid: `1m` to `168h`, and at most 100 times `signingKeys`. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_tokens: Option<String>,
}

/// Rights of a group: a `ClusterRole` in the whole tenant cluster, or a `ClusterRole` or `Role` in one of its namespaces.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSpec {
    /// Required. Name of the group, as the connector reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of a `ClusterRole` of the tenant cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_role: Option<String>,
    /// Name of a `Role` of the tenant cluster, in `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Namespace, in the tenant cluster, in which the group has the rights. Default: the whole tenant cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
