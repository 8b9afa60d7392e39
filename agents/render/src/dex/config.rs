//! The configuration of Dex, with the keys that 2.13 and later releases agree on. It holds secrets, so none of its types can be printed.

mod text;

use std::time::Duration;

use api::{Connector, GroupSearch, HttpsUrl, Ldap, OidcClient, Provider, Search, Source};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    HTTPS_PORT, METRICS_PORT, Storage,
    expansion::{Expanded, ExpandedMap},
    oauth2::OAuth2,
    objects::{CERTIFICATE_FILE, CONFIG_DIRECTORY, KEY_FILE, STORAGE_AUTHORITY_FILE},
    secrets::{Secrets, StaticUser},
};

pub use text::ConfigError;

/// The configuration of Dex.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The URL that tokens name.
    pub issuer: String,
    storage: StorageConfig,
    web: Web,
    telemetry: Telemetry,
    oauth2: OAuth2,
    expiry: Expiry,
    logger: Logger,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    connectors: Vec<ConnectorConfig>,
    static_clients: Vec<Client>,
    #[serde(rename = "enablePasswordDB")]
    enable_password_db: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    static_passwords: Vec<Password>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StorageConfig {
    r#type: String,
    config: Etcd,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Etcd {
    endpoints: Vec<Expanded>,
    namespace: Expanded,
    username: Expanded,
    password: Expanded,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ssl: Option<Ssl>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ssl {
    ca_file: Expanded,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Web {
    https: String,
    tls_cert: String,
    tls_key: String,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Telemetry {
    http: String,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expiry {
    /// How long a login that was begun is stored. 2.13 does not know the key, and stores it for a day.
    auth_requests: String,
    signing_keys: String,
    id_tokens: String,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Logger {
    level: String,
    format: String,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
struct ConnectorConfig {
    id: String,
    name: String,
    #[serde(flatten)]
    source: SourceConfig,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
enum SourceConfig {
    Ldap {
        r#type: LdapType,
        config: Box<LdapConfig>,
    },
    Oidc {
        r#type: OidcType,
        config: OidcConfig,
    },
    Github {
        r#type: GithubType,
        config: GithubConfig,
    },
    Raw {
        r#type: String,
        config: ExpandedMap,
    },
}

/// A type whose name is fixed.
macro_rules! fixed {
    ($($name:ident $text:literal)*) => { $(
        #[derive(Clone, Copy, Deserialize, PartialEq, Serialize)]
        enum $name {
            #[serde(rename = $text)]
            Name,
        }
    )* };
}

fixed!(LdapType "ldap" OidcType "oidc" GithubType "github");

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LdapConfig {
    host: Expanded,
    #[serde(rename = "insecureNoSSL")]
    insecure_no_ssl: bool,
    insecure_skip_verify: bool,
    #[serde(rename = "startTLS")]
    start_tls: bool,
    /// CA certificates in base64.
    #[serde(default, rename = "rootCAData", skip_serializing_if = "Option::is_none")]
    root_ca_data: Option<Expanded>,
    #[serde(default, rename = "bindDN", skip_serializing_if = "Option::is_none")]
    bind_dn: Option<Expanded>,
    #[serde(default, rename = "bindPW", skip_serializing_if = "Option::is_none")]
    bind_pw: Option<Expanded>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    username_prompt: Option<Expanded>,
    user_search: UserSearchConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_search: Option<GroupSearchConfig>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UserSearchConfig {
    #[serde(rename = "baseDN")]
    base_dn: Expanded,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<Expanded>,
    scope: Expanded,
    username: Expanded,
    id_attr: Expanded,
    email_attr: Expanded,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name_attr: Option<Expanded>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupSearchConfig {
    #[serde(rename = "baseDN")]
    base_dn: Expanded,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<Expanded>,
    scope: Expanded,
    /// Read by 2.13, which knows no `userMatchers`; later releases read those first.
    user_attr: Expanded,
    group_attr: Expanded,
    user_matchers: Vec<UserMatcher>,
    name_attr: Expanded,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UserMatcher {
    user_attr: Expanded,
    group_attr: Expanded,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OidcConfig {
    issuer: Expanded,
    #[serde(rename = "clientID")]
    client_id: Expanded,
    client_secret: Expanded,
    #[serde(rename = "redirectURI")]
    redirect_uri: Expanded,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<Expanded>,
    /// Whether the other provider's claim `groups` counts. 2.13 does not know the key, and gives no groups.
    insecure_enable_groups: bool,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GithubConfig {
    #[serde(rename = "clientID")]
    client_id: Expanded,
    client_secret: Expanded,
    #[serde(rename = "redirectURI")]
    redirect_uri: Expanded,
    #[serde(default, rename = "hostName", skip_serializing_if = "Option::is_none")]
    host_name: Option<Expanded>,
    orgs: Vec<Organization>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Organization {
    name: Expanded,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    teams: Vec<Expanded>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Client {
    id: String,
    name: String,
    #[serde(rename = "redirectURIs")]
    redirect_uris: Vec<String>,
    public: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Password {
    email: String,
    username: String,
    #[serde(rename = "userID")]
    user_id: String,
    hash: String,
}

impl Config {
    pub(super) fn new(provider: &Provider, issuer: &HttpsUrl, secrets: &Secrets, storage: &Storage) -> Self {
        let file = |name: &str| format!("{CONFIG_DIRECTORY}/{name}");
        let duration = |duration: &Duration| format!("{}s", duration.as_secs());
        let connectors = provider.connectors().iter();
        let clients = provider.clients().iter();
        Self {
            issuer: issuer.as_str().to_owned(),
            storage: StorageConfig {
                r#type: "etcd".to_owned(),
                config: Etcd {
                    endpoints: storage.endpoints.iter().map(Expanded::new).collect(),
                    namespace: Expanded::new(&storage.prefix),
                    username: Expanded::new(&storage.user),
                    password: Expanded::new(&storage.password),
                    ssl: storage.authority.as_ref().map(|_| Ssl {
                        ca_file: Expanded::new(file(STORAGE_AUTHORITY_FILE)),
                    }),
                },
            },
            web: Web {
                https: format!(":{HTTPS_PORT}"),
                tls_cert: file(CERTIFICATE_FILE),
                tls_key: file(KEY_FILE),
            },
            telemetry: Telemetry {
                http: format!(":{METRICS_PORT}"),
            },
            oauth2: OAuth2::new(provider.clients()),
            expiry: Expiry {
                auth_requests: "30m".to_owned(),
                signing_keys: duration(provider.expiry().signing_keys()),
                id_tokens: duration(provider.expiry().id_tokens()),
            },
            logger: Logger {
                level: "info".to_owned(),
                format: "json".to_owned(),
            },
            connectors: connectors
                .filter_map(|connector| self::connector(connector, issuer, secrets))
                .collect(),
            static_clients: clients.map(|client| self::client(client, secrets)).collect(),
            // Dex does not start without any way to log in. With none, nobody can: the file of users was deleted.
            enable_password_db: !secrets.users().is_empty() || provider.connectors().is_empty(),
            static_passwords: secrets.users().iter().map(password).collect(),
        }
    }
}

/// `None` for a raw connector whose Secret was not read; [`Secrets::read`] refuses that.
fn connector(connector: &Connector, issuer: &HttpsUrl, secrets: &Secrets) -> Option<ConnectorConfig> {
    let redirect_uri = Expanded::new(format!("{issuer}/callback"));
    let source = match connector.source() {
        Source::Ldap(ldap) => SourceConfig::Ldap {
            r#type: LdapType::Name,
            config: Box::new(self::ldap(ldap, secrets)),
        },
        Source::Oidc(oidc) => SourceConfig::Oidc {
            r#type: OidcType::Name,
            config: OidcConfig {
                issuer: Expanded::new(oidc.issuer().as_str()),
                client_id: Expanded::new(oidc.client_id()),
                client_secret: Expanded::new(secrets.text(oidc.client_secret())),
                redirect_uri,
                scopes: oidc.scopes().iter().map(Expanded::new).collect(),
                insecure_enable_groups: true,
            },
        },
        Source::Github(github) => SourceConfig::Github {
            r#type: GithubType::Name,
            config: GithubConfig {
                client_id: Expanded::new(github.client_id()),
                client_secret: Expanded::new(secrets.text(github.client_secret())),
                redirect_uri,
                host_name: github.hostname().as_ref().map(Expanded::new),
                orgs: github
                    .organizations()
                    .iter()
                    .map(|organization| Organization {
                        name: Expanded::new(organization.name()),
                        teams: organization.teams().iter().map(Expanded::new).collect(),
                    })
                    .collect(),
            },
        },
        Source::Raw(key) => {
            let raw = secrets.raw(key)?;
            SourceConfig::Raw {
                r#type: raw.kind.clone(),
                config: ExpandedMap(raw.config.clone()),
            }
        }
    };
    Some(ConnectorConfig {
        id: connector.id().clone(),
        name: connector.name().clone(),
        source,
    })
}

fn ldap(ldap: &Ldap, secrets: &Secrets) -> LdapConfig {
    let user = ldap.user_search();
    let root_ca = ldap.root_ca().as_ref();
    let bind_password = ldap.bind_password().as_ref();
    LdapConfig {
        host: Expanded::new(ldap.address().to_string()),
        insecure_no_ssl: false,
        insecure_skip_verify: false,
        start_tls: *ldap.start_tls(),
        root_ca_data: root_ca.map(|key| Expanded::new(BASE64.encode(secrets.text(key)))),
        bind_dn: ldap.bind_dn().as_ref().map(Expanded::new),
        bind_pw: bind_password.map(|key| Expanded::new(secrets.text(key))),
        username_prompt: ldap.username_prompt().as_ref().map(Expanded::new),
        user_search: UserSearchConfig {
            base_dn: Expanded::new(user.search().base_dn()),
            filter: user.search().filter().as_ref().map(Expanded::new),
            scope: scope(user.search()),
            username: Expanded::new(user.username()),
            id_attr: Expanded::new(user.id_attribute()),
            email_attr: Expanded::new(user.email_attribute()),
            name_attr: user.name_attribute().as_ref().map(Expanded::new),
        },
        group_search: ldap.group_search().as_ref().map(group_search),
    }
}

fn group_search(groups: &GroupSearch) -> GroupSearchConfig {
    let (user_attr, group_attr) = (
        Expanded::new(groups.user_attribute()),
        Expanded::new(groups.group_attribute()),
    );
    GroupSearchConfig {
        base_dn: Expanded::new(groups.search().base_dn()),
        filter: groups.search().filter().as_ref().map(Expanded::new),
        scope: scope(groups.search()),
        user_matchers: vec![UserMatcher {
            user_attr: user_attr.clone(),
            group_attr: group_attr.clone(),
        }],
        user_attr,
        group_attr,
        name_attr: Expanded::new(groups.name_attribute()),
    }
}

fn scope(search: &Search) -> Expanded {
    Expanded::new(if *search.one_level() { "one" } else { "sub" })
}

fn client(client: &OidcClient, secrets: &Secrets) -> Client {
    Client {
        id: client.id().clone(),
        name: client.name().clone(),
        redirect_uris: client.redirects().clone(),
        public: client.is_public(),
        secret: client.secret().as_ref().map(|key| secrets.text(key).to_owned()),
    }
}

fn password(user: &StaticUser) -> Password {
    let StaticUser { email, hash } = user;
    Password {
        email: email.clone(),
        username: email.clone(),
        user_id: hex::encode(&Sha256::digest(email.to_ascii_lowercase())[..16]),
        hash: hash.clone(),
    }
}
