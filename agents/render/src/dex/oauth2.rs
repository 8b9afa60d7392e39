//! Which grants a provider admits, and whether codes are bound to the program that asked for them.

use api::OidcClient;
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OAuth2 {
    /// Neither the device's nor the exchange of tokens. 2.13 does not know the key, and has no other types.
    grant_types: Vec<String>,
    pkce: Pkce,
    response_types: Vec<String>,
    skip_approval_screen: bool,
}

/// Releases that do not know these keys ignore them. From 2.26 on they check a code that was asked for with PKCE, and issue others too.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pkce {
    enforce: bool,
    code_challenge_methods_supported: Vec<String>,
}

impl OAuth2 {
    /// The grants for these clients.
    pub(super) fn new(clients: &[OidcClient]) -> Self {
        Self {
            grant_types: ["authorization_code", "refresh_token"]
                .map(str::to_owned)
                .to_vec(),
            pkce: Pkce {
                // Dex requires it of all clients or of none, and programs with a secret may not know it.
                enforce: clients.iter().all(OidcClient::is_public),
                code_challenge_methods_supported: vec!["S256".to_owned()],
            },
            response_types: vec!["code".to_owned()],
            skip_approval_screen: true,
        }
    }
}
