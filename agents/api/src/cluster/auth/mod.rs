//! The parsed entry of an identity provider: its sources of users, the programs that users log in to, and the rights of their groups.

mod connector;
mod parse;
mod text;

use std::collections::BTreeSet;
use std::time::Duration;

pub use connector::{
    Connector, Github, GithubOrganization, GroupSearch, Ldap, Search, Source, UpstreamOidc, UserSearch,
};
pub(super) use parse::parse;
pub use text::{HttpsUrl, LdapAddress, SecretKey};

/// Id of the client that a provider gets where the spec names no client.
pub const DEFAULT_CLIENT: &str = "kubernetes";
/// Addresses at which kubelogin, the credential plugin of kubectl, waits for the code.
pub const KUBELOGIN_REDIRECTS: [&str; 2] = ["http://localhost:8000", "http://localhost:18000"];

/// A struct with private fields, and a method of the same name for each.
macro_rules! parsed {
    ($(#[$on:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$on])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name { $(pub(in crate::cluster::auth) $field: $type,)* }

        impl $name {
            $($(#[$doc])*
            #[must_use]
            pub fn $field(&self) -> &$type {
                &self.$field
            })*
        }
    };
}
pub(crate) use parsed;

parsed! {
    /// The parsed entry of an identity provider. None of its texts has a control character.
    pub struct Provider {
        /// DNS name under which users reach it.
        hostname: Option<String>,
        /// Issuer URL that tokens name, where the spec sets it.
        issuer: Option<HttpsUrl>,
        /// Sources of users, with unique ids.
        connectors: Vec<Connector>,
        /// Programs that users log in to, with unique ids. Never empty.
        clients: Vec<OidcClient>,
        /// How long signing keys and tokens stay valid.
        expiry: Expiry,
        /// Rights of groups.
        groups: Vec<GroupBinding>,
        /// Secret with a kubeconfig of the tenant cluster.
        kubeconfig_secret: Option<String>,
        /// `Issuer` of cert-manager in the namespace.
        certificate_issuer: Option<String>,
        /// Users with a password of their own.
        static_passwords: Option<SecretKey>,
    }
}

parsed! {
    /// A program that users log in to.
    pub struct OidcClient {
        /// Its client id.
        id: String,
        /// Name that the login page shows.
        name: String,
        /// Its secret; `None`: it is public.
        secret: Option<SecretKey>,
        /// Addresses to which Dex may return users. Never empty.
        redirects: Vec<String>,
    }
}

parsed! {
    /// How long signing keys and tokens stay valid.
    pub struct Expiry {
        /// Of keys that sign.
        signing_keys: Duration,
        /// Lifetime of the tokens of users.
        id_tokens: Duration,
    }
}

parsed! {
    /// Rights of a group in the tenant cluster.
    pub struct GroupBinding {
        /// The group, as the connector reports it.
        group: String,
        /// What it may do.
        role: BoundRole,
        /// Namespace to which that is limited; `None`: the whole cluster.
        namespace: Option<String>,
    }
}

/// Rights that a group can have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BoundRole {
    /// Those of a `ClusterRole`.
    Cluster(String),
    /// Those of a `Role`, in the namespace of the binding.
    Namespaced(String),
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            signing_keys: Duration::from_hours(6),
            id_tokens: Duration::from_hours(24),
        }
    }
}

impl OidcClient {
    /// The public client for kubectl.
    fn kubectl() -> Self {
        Self {
            id: DEFAULT_CLIENT.to_owned(),
            name: DEFAULT_CLIENT.to_owned(),
            secret: None,
            redirects: KUBELOGIN_REDIRECTS.map(str::to_owned).to_vec(),
        }
    }

    /// Whether the program runs on users' machines, where it cannot keep a secret.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.secret.is_none()
    }
}

impl Provider {
    /// The client for kubectl, whose id the tenant's API servers accept: the first public one, or the first.
    #[must_use]
    pub fn kubectl_client(&self) -> Option<&OidcClient> {
        let public = self.clients.iter().find(|client| client.is_public());
        public.or_else(|| self.clients.first())
    }

    /// The keys of Secrets that it needs.
    #[must_use]
    pub fn secret_keys(&self) -> BTreeSet<&SecretKey> {
        let connectors = self.connectors.iter().flat_map(Connector::secret_keys);
        let clients = self.clients.iter().filter_map(|client| client.secret.as_ref());
        connectors.chain(clients).chain(&self.static_passwords).collect()
    }
}
