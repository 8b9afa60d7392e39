//! The endpoint of a provider in `status.endpoints`. The scheduler has reserved a bounded size for it before it claimed hosts: with a larger one
//! the API server might refuse the status, and then the agents could write no placement.

use api::{Endpoint, PROVIDER_BYTES, conditions::auth::CERTIFICATE_INVALID, stored_bytes};
use kit::service::Problem;

/// The endpoint of a provider; without its CA certificates where they do not fit, and then with a problem that says so. `client`: the id of a
/// client that users can use. `outputs`: name of the `ConfigMap` that has the certificates in any case.
pub(crate) fn endpoint(
    issuer: String,
    client: Option<String>,
    bundle: &str,
    outputs: &str,
) -> (Endpoint, Option<Problem>) {
    let whole = Endpoint {
        issuer: Some(issuer),
        client_id: client,
        ca_bundle: Some(bundle.to_owned()),
        ..Endpoint::default()
    };
    let bytes = stored_bytes(&whole);
    if bytes <= PROVIDER_BYTES {
        return (whole, None);
    }
    let without = Endpoint {
        ca_bundle: None,
        ..whole
    };
    let why = format!(
        "status.endpoints leaves out caBundle: with {} bytes of CA certificates the endpoint would take {bytes} bytes, and there is room for \
         {PROVIDER_BYTES}; ca.crt in the ConfigMap {outputs} has them; publish fewer or smaller CA certificates",
        bundle.len()
    );
    (without, Some(Problem::new(CERTIFICATE_INVALID, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(bundle: &str) -> (Endpoint, Option<Problem>) {
        let (issuer, client) = ("https://192.0.2.1:30556".to_owned(), "kubernetes".to_owned());
        endpoint(issuer, Some(client), bundle, "auth-orders-oidc")
    }

    #[test]
    fn a_bundle_that_has_no_room_is_left_out_and_reported() {
        let bytes = |bundle: &str| stored_bytes(&published(bundle).0);
        let rest = bytes("");
        let fits = "x".repeat(PROVIDER_BYTES - rest);
        let (whole, problem) = published(&fits);
        assert_eq!(whole.ca_bundle.as_deref(), Some(&*fits));
        assert!(problem.is_none());

        // A new line takes two bytes in a status.
        for large in [format!("{fits}x"), format!("{}\n", &fits[1..])] {
            let (without, problem) = published(&large);
            assert_eq!(without.ca_bundle, None);
            assert!(without.issuer.is_some() && without.client_id.is_some());
            assert!(stored_bytes(&without) <= PROVIDER_BYTES);
            let why = problem.unwrap().message;
            for part in [
                "caBundle",
                "16385 bytes",
                "room for 16384",
                "ConfigMap auth-orders-oidc",
            ] {
                assert!(why.contains(part), "{why}");
            }
        }
    }
}
