//! Checks the connectors of an identity provider.

use vocabulary::dns;

use super::place::FieldPath;
use super::{DNS_NAME, MAX_CONNECTOR_ITEMS};
use crate::cluster::auth::connector::{
    Connector, Github, GithubOrganization, GroupSearch, Ldap, Search, Source, UpstreamOidc, UserSearch,
};
use crate::cluster::auth::text::{HttpsUrl, LdapAddress, is_attribute, is_filter};
use crate::sip_cluster::{
    ConnectorSpec, GithubOrgSpec, GithubSpec, GroupSearchSpec, LdapSpec, UpstreamOidcSpec, UserSearchSpec,
};

const ID: &str =
    "must be at most 63 lowercase letters, digits and '-', beginning with a letter, and not be local";
const ATTRIBUTE: &str =
    "must be the name of an attribute: letters, digits and '-', or numbers with '.' between them";
const FILTER: &str =
    r"must be one LDAP filter in parentheses, each closed, with \ only before two hexadecimal digits";

pub(super) fn connector(spec: &ConnectorSpec, at: &mut FieldPath<'_>) -> Option<Connector> {
    let ConnectorSpec {
        id,
        name,
        ldap,
        oidc,
        github,
        raw,
    } = spec;
    if id.is_none() {
        at.absent("id", "must be set");
    }
    // Dex calls its own users local.
    let is_id = |id: &str| dns::is_label(id) && id != "local";
    let id = at.checked("id", id.as_deref(), is_id, ID);
    let name = at.line("name", name.as_deref());
    let source = match (ldap, oidc, github, raw) {
        (Some(ldap), None, None, None) => self::ldap(ldap, &mut at.below("ldap"))
            .map(Box::new)
            .map(Source::Ldap),
        (None, Some(oidc), None, None) => self::oidc(oidc, &mut at.below("oidc")).map(Source::Oidc),
        (None, None, Some(github), None) => self::github(github, &mut at.below("github")).map(Source::Github),
        (None, None, None, Some(raw)) => at.secret_key("raw", Some(raw)).map(Source::Raw),
        _ => {
            let rule = "must be set, or exactly one of oidc, github and raw";
            at.absent("ldap", rule);
            None
        }
    };
    let id = id?;
    Some(Connector {
        name: name.unwrap_or_else(|| id.clone()),
        id,
        source: source?,
    })
}

fn ldap(spec: &LdapSpec, at: &mut FieldPath<'_>) -> Option<Ldap> {
    let LdapSpec {
        host,
        start_tls,
        root_ca,
        bind_dn,
        bind_password,
        username_prompt,
        user_search,
        group_search,
    } = spec;
    let start_tls = start_tls.unwrap_or_default();
    let host = at.required("host", host.as_deref());
    let address = host.as_deref().and_then(|host| LdapAddress::new(host, start_tls));
    if let (Some(host), None) = (&host, &address) {
        at.text("host", host, LdapAddress::RULE);
    }
    let root_ca = at.secret_key("rootCA", root_ca.as_ref());
    // A directory takes a bind without a password for an anonymous one, which always succeeds.
    if bind_dn.is_some() && bind_password.is_none() {
        at.absent("bindPassword", "must be set with bindDN");
    }
    if bind_dn.is_none() && bind_password.is_some() {
        at.absent("bindDN", "must be set with bindPassword");
    }
    let bind_dn = at.line("bindDN", bind_dn.as_deref());
    let bind_password = at.secret_key("bindPassword", bind_password.as_ref());
    let username_prompt = at.line("usernamePrompt", username_prompt.as_deref());
    if user_search.is_none() {
        at.absent("userSearch", "must be set");
    }
    let user_search = user_search
        .as_ref()
        .and_then(|search| self::user_search(search, &mut at.below("userSearch")));
    let group_search = group_search
        .as_ref()
        .map(|search| self::group_search(search, &mut at.below("groupSearch")));
    let group_search = match group_search {
        Some(search) => Some(search?),
        None => None,
    };
    Some(Ldap {
        address: address?,
        start_tls,
        root_ca,
        bind_dn,
        bind_password,
        username_prompt,
        user_search: user_search?,
        group_search,
    })
}

fn user_search(spec: &UserSearchSpec, at: &mut FieldPath<'_>) -> Option<UserSearch> {
    let UserSearchSpec {
        base_dn,
        filter,
        scope,
        username,
        id_attr,
        email_attr,
        name_attr,
    } = spec;
    let search = search(base_dn.as_deref(), filter.as_deref(), scope.as_deref(), at);
    if username.is_none() {
        at.absent(
            "username",
            "must be set: the attribute with the name that users enter",
        );
    }
    let username = attribute("username", username.as_deref(), at);
    let id = attribute("idAttr", id_attr.as_deref(), at);
    let email = attribute("emailAttr", email_attr.as_deref(), at);
    let name_attribute = attribute("nameAttr", name_attr.as_deref(), at);
    Some(UserSearch {
        search: search?,
        username: username?,
        id_attribute: id.unwrap_or_else(|| "uid".to_owned()),
        email_attribute: email.unwrap_or_else(|| "mail".to_owned()),
        name_attribute,
    })
}

fn group_search(spec: &GroupSearchSpec, at: &mut FieldPath<'_>) -> Option<GroupSearch> {
    let GroupSearchSpec {
        base_dn,
        filter,
        scope,
        user_attr,
        group_attr,
        name_attr,
    } = spec;
    let search = search(base_dn.as_deref(), filter.as_deref(), scope.as_deref(), at);
    let user = attribute("userAttr", user_attr.as_deref(), at);
    let group = attribute("groupAttr", group_attr.as_deref(), at);
    let name = attribute("nameAttr", name_attr.as_deref(), at);
    Some(GroupSearch {
        search: search?,
        user_attribute: user.unwrap_or_else(|| "DN".to_owned()),
        group_attribute: group.unwrap_or_else(|| "member".to_owned()),
        name_attribute: name.unwrap_or_else(|| "cn".to_owned()),
    })
}

fn search(
    base: Option<&str>,
    filter: Option<&str>,
    scope: Option<&str>,
    at: &mut FieldPath<'_>,
) -> Option<Search> {
    let base_dn = at.required("baseDN", base);
    let filter = at.checked("filter", filter, is_filter, FILTER);
    let scopes = |scope: &str| ["sub", "one"].contains(&scope);
    let scope = at.checked("scope", scope, scopes, "must be sub or one");
    Some(Search {
        base_dn: base_dn?,
        filter,
        one_level: scope.is_some_and(|scope| scope == "one"),
    })
}

fn attribute(field: &str, value: Option<&str>, at: &mut FieldPath<'_>) -> Option<String> {
    at.checked(field, value, is_attribute, ATTRIBUTE)
}

fn oidc(spec: &UpstreamOidcSpec, at: &mut FieldPath<'_>) -> Option<UpstreamOidc> {
    let UpstreamOidcSpec {
        issuer,
        client_id,
        client_secret,
        scopes,
    } = spec;
    if issuer.is_none() {
        at.absent("issuer", "must be set");
    }
    let issuer: Option<HttpsUrl> = at.url("issuer", issuer.as_deref());
    let client_id = at.required("clientID", client_id.as_deref());
    if client_secret.is_none() {
        at.absent("clientSecret", "must be set");
    }
    let client_secret = at.secret_key("clientSecret", client_secret.as_ref());
    let scopes = lines("scopes", scopes.as_ref(), at);
    Some(UpstreamOidc {
        issuer: issuer?,
        client_id: client_id?,
        client_secret: client_secret?,
        scopes,
    })
}

fn github(spec: &GithubSpec, at: &mut FieldPath<'_>) -> Option<Github> {
    let GithubSpec {
        client_id,
        client_secret,
        hostname,
        orgs,
    } = spec;
    let client_id = at.required("clientID", client_id.as_deref());
    if client_secret.is_none() {
        at.absent("clientSecret", "must be set");
    }
    let client_secret = at.secret_key("clientSecret", client_secret.as_ref());
    let hostname = at.checked("hostname", hostname.as_deref(), dns::is_subdomain, DNS_NAME);
    if orgs.as_ref().is_none_or(Vec::is_empty) {
        at.absent(
            "orgs",
            "must have at least one organization: anyone can create a GitHub account",
        );
    }
    let organizations = at.bounded("orgs", orgs.as_ref(), MAX_CONNECTOR_ITEMS);
    let organizations = organizations.iter().enumerate();
    let organizations = organizations
        .filter_map(|(index, GithubOrgSpec { name, teams })| {
            let mut at = at.below(&format!("orgs[{index}]"));
            let name = at.required("name", name.as_deref());
            let teams = lines("teams", teams.as_ref(), &mut at);
            Some(GithubOrganization { name: name?, teams })
        })
        .collect();
    Some(Github {
        client_id: client_id?,
        client_secret: client_secret?,
        hostname,
        organizations,
    })
}

fn lines(field: &str, values: Option<&Vec<String>>, at: &mut FieldPath<'_>) -> Vec<String> {
    let values = at.bounded(field, values, MAX_CONNECTOR_ITEMS).iter().enumerate();
    values
        .filter_map(|(index, value)| at.line(&format!("{field}[{index}]"), Some(value)))
        .collect()
}
