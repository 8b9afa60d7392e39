//! The sources of users of an identity provider: connectors of Dex.

use super::parsed;
use super::text::{HttpsUrl, LdapAddress, SecretKey};

parsed! {
    /// One source of users.
    pub struct Connector {
        /// Unique among the connectors of the provider: at most 63 lowercase letters, digits and '-'.
        id: String,
        /// Name that the login page shows.
        name: String,
        /// What the connector connects to.
        source: Source,
    }
}

/// What a connector connects to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A directory.
    Ldap(Box<Ldap>),
    /// Another OIDC provider.
    Oidc(UpstreamOidc),
    /// GitHub.
    Github(Github),
    /// A connector of Dex whose type and configuration are in a Secret.
    Raw(SecretKey),
}

impl Connector {
    /// The keys of Secrets that it needs.
    #[must_use]
    pub fn secret_keys(&self) -> Vec<&SecretKey> {
        match &self.source {
            Source::Ldap(ldap) => ldap.root_ca.iter().chain(&ldap.bind_password).collect(),
            Source::Oidc(oidc) => vec![&oidc.client_secret],
            Source::Github(github) => vec![&github.client_secret],
            Source::Raw(raw) => vec![raw],
        }
    }
}

parsed! {
    /// A directory that Dex queries by LDAP over TLS.
    pub struct Ldap {
        /// Where it is.
        address: LdapAddress,
        /// Whether a connection begins without TLS.
        start_tls: bool,
        /// CA certificates of its certificate.
        root_ca: Option<SecretKey>,
        /// The account that searches.
        bind_dn: Option<String>,
        /// The account's password: there is one where there is an account.
        bind_password: Option<SecretKey>,
        /// Label of the name field on the login page.
        username_prompt: Option<String>,
        /// How a user is found.
        user_search: UserSearch,
        /// How a user's groups are found.
        group_search: Option<GroupSearch>,
    }
}

parsed! {
    /// Where entries are searched.
    pub struct Search {
        /// Entry below which they are.
        base_dn: String,
        /// One filter in parentheses, with every parenthesis in it closed.
        filter: Option<String>,
        /// Whether only one level is searched.
        one_level: bool,
    }
}

parsed! {
    /// How a user is found. Attributes have only letters, digits, '-' and '.'.
    pub struct UserSearch {
        /// Base, filter and scope of the search.
        search: Search,
        /// Attribute with the name that users enter.
        username: String,
        /// Attribute that identifies a user permanently.
        id_attribute: String,
        /// Attribute that has the email address.
        email_attribute: String,
        /// Attribute that has the name to show.
        name_attribute: Option<String>,
    }
}

parsed! {
    /// How a user's groups are found. Attributes have only letters, digits, '-' and '.'.
    pub struct GroupSearch {
        /// Base, filter and scope of the search.
        search: Search,
        /// Attribute of a user that groups name; `DN` is the name of the user's entry.
        user_attribute: String,
        /// Attribute of a group that names its members.
        group_attribute: String,
        /// Attribute that has the name of a group.
        name_attribute: String,
    }
}

parsed! {
    /// Another OIDC provider.
    pub struct UpstreamOidc {
        /// Its issuer URL.
        issuer: HttpsUrl,
        /// Id of the client that it knows this provider by.
        client_id: String,
        /// The client's secret.
        client_secret: SecretKey,
        /// Scopes besides `openid`; empty: as Dex sees fit.
        scopes: Vec<String>,
    }
}

parsed! {
    /// GitHub, or GitHub Enterprise.
    pub struct Github {
        /// Id of the OAuth application.
        client_id: String,
        /// Its secret.
        client_secret: SecretKey,
        /// DNS name of a GitHub Enterprise server.
        hostname: Option<String>,
        /// Organizations whose members may log in. Never empty.
        organizations: Vec<GithubOrganization>,
    }
}

parsed! {
    /// An organization, or teams of it.
    pub struct GithubOrganization {
        /// Its name.
        name: String,
        /// Teams whose members may log in; empty: all of the organization.
        teams: Vec<String>,
    }
}
