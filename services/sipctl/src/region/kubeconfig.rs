//! `sipctl kubeconfig`: how people reach a tenant cluster with their own name. The file names the plugin kubelogin, which opens a
//! browser, and no secret: everybody may have it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use api::{Endpoint, SIPCluster};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use kube::Api;
use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use placement::ClusterName;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use crate::region::{executor::block_on, maintenance::Access, outcome::Outcome};

/// Prefix of the names of the endpoints of a cluster's load balancers for API servers.
const API_SERVER_PREFIX: &str = "loadbalancer-controlplane-";

/// Prefix of the names of the endpoints of a cluster's identity providers.
const PROVIDER_PREFIX: &str = "auth-";

/// The cluster of a kubeconfig, and values that its status does not have.
#[derive(Clone, Debug, clap::Args)]
pub struct Request {
    /// The SIPCluster
    #[arg(value_name = "NAMESPACE/NAME")]
    pub cluster: ClusterName,
    /// URL of the tenant's API servers [default: address and port of the load balancer in the status]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// File with the CA certificates (PEM) of the tenant's API servers [default: the CA certificates of the computer that runs kubectl]
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// The site's API server.
    #[command(flatten)]
    pub access: Access,
}

/// Reads the status of a cluster, and writes a kubeconfig.
///
/// # Errors
/// When a file or the API server cannot be read.
pub fn run(request: Request) -> anyhow::Result<Outcome> {
    let Request {
        cluster,
        server,
        certificate_authority,
        access,
    } = request;
    let authority = certificate_authority.as_deref().map(certificates).transpose()?;
    let (namespace, name) = (cluster.namespace().to_string(), cluster.name().to_string());
    let object = block_on(async {
        let clusters: Api<SIPCluster> = Api::namespaced(access.client().await?, &namespace);
        clusters
            .get_opt(&name)
            .await
            .context("the SIPCluster cannot be read")
    })?;
    let Some(object) = object else {
        let why = format!("there is no SIPCluster {namespace}/{name}");
        return Ok(Outcome::refused(String::new(), why));
    };
    let endpoints = object.status.map(|status| status.endpoints).unwrap_or_default();
    match kubeconfig(&name, &endpoints, server, authority.as_deref()) {
        Ok(config) => Ok(Outcome::done(serde_saphyr::to_string(&config)?)),
        Err(why) => Ok(Outcome::refused(String::new(), why)),
    }
}

/// The certificates of a file, as PEM: it may also hold a private key, which the kubeconfig must not have.
fn certificates(path: &Path) -> anyhow::Result<Vec<u8>> {
    let content = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    only_certificates(&content).with_context(|| format!("{} must hold certificates in PEM", path.display()))
}

/// What of a text in PEM are certificates; `None`: nothing, or what is not whole.
fn only_certificates(content: &[u8]) -> Option<Vec<u8>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let found = found.ok().filter(|found| !found.is_empty())?;
    let certificates = found.iter().map(|der| Pem::new("CERTIFICATE", der.to_vec()));
    let line_feeds = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let text: String = certificates.map(|pem| encode_config(&pem, line_feeds)).collect();
    Some(text.into_bytes())
}

/// The kubeconfig of a cluster with these endpoints, or why there is none. Pure.
fn kubeconfig(
    name: &str,
    endpoints: &[Endpoint],
    server: Option<String>,
    authority: Option<&[u8]>,
) -> Result<Value, String> {
    let mut providers = endpoints
        .iter()
        .filter(|endpoint| endpoint.name.starts_with(PROVIDER_PREFIX));
    let provider = providers.clone().find_map(|endpoint| {
        let (issuer, client) = (endpoint.issuer.as_ref()?, endpoint.client_id.as_ref()?);
        Some((issuer, client, endpoint.ca_bundle.as_ref()))
    });
    let Some((issuer, client, bundle)) = provider else {
        let why = if providers.any(|endpoint| endpoint.issuer.is_some()) {
            "its identity provider has no public client, and a kubeconfig cannot keep a secret: \
             add one without secret to services.auth[].clients"
        } else {
            "its status has no identity provider: see the condition AuthReady"
        };
        return Err(why.to_owned());
    };
    let Some(server) = server.or_else(|| api_servers(endpoints)) else {
        return Err("its status has no address of its API servers: name it by --server".to_owned());
    };
    let mut arguments = vec![
        "oidc-login".to_owned(),
        "get-token".to_owned(),
        format!("--oidc-issuer-url={issuer}"),
        format!("--oidc-client-id={client}"),
        "--oidc-extra-scope=email".to_owned(),
        "--oidc-extra-scope=groups".to_owned(),
        "--oidc-extra-scope=offline_access".to_owned(),
        "--oidc-pkce-method=S256".to_owned(),
    ];
    arguments.extend(bundle.map(|bundle| format!("--certificate-authority-data={}", BASE64.encode(bundle))));
    let mut cluster = json!({ "server": server });
    if let Some(authority) = authority {
        cluster["certificate-authority-data"] = BASE64.encode(authority).into();
    }
    let hint = "kubelogin is not installed: https://github.com/int128/kubelogin";
    let user = format!("{name}-oidc");
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "kubectl",
            "args": arguments,
            "interactiveMode": "IfAvailable",
            "installHint": hint,
        }}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }))
}

/// URL of the first load balancer for API servers whose address is known.
fn api_servers(endpoints: &[Endpoint]) -> Option<String> {
    endpoints.iter().find_map(|endpoint| {
        let (address, port) = (endpoint.address.as_ref()?, endpoint.port?);
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.clone()
        };
        endpoint
            .name
            .starts_with(API_SERVER_PREFIX)
            .then(|| format!("https://{host}:{port}"))
    })
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    fn endpoints(client: &str) -> Vec<Endpoint> {
        vec![
            Endpoint {
                name: "auth-shop".to_owned(),
                address: Some("192.0.2.1".to_owned()),
                port: Some(30_556),
                issuer: Some("https://sso.example.org:30556/dex".to_owned()),
                client_id: Some(client.to_owned()),
                ca_bundle: Some("CA".to_owned()),
                ..Endpoint::default()
            },
            Endpoint {
                name: "loadbalancer-controlplane-shop".to_owned(),
                address: Some("2001:db8::1".to_owned()),
                port: Some(30_001),
                ..Endpoint::default()
            },
        ]
    }

    #[test]
    fn kubectl_reads_what_is_written() {
        for client in ["kubernetes", "a: b\"' $HOME #{}", "null"] {
            let config = kubeconfig("shop", &endpoints(client), None, Some(b"CA of the tenant")).unwrap();
            let text = serde_saphyr::to_string(&config).unwrap();
            let read = Kubeconfig::from_yaml(&text).unwrap();
            let server = read.clusters[0].cluster.as_ref().unwrap().server.as_deref();
            assert_eq!(server, Some("https://[2001:db8::1]:30001"));
            let exec = read.auth_infos[0]
                .auth_info
                .as_ref()
                .unwrap()
                .exec
                .as_ref()
                .unwrap();
            let arguments = exec.args.as_ref().unwrap();
            assert!(
                arguments.contains(&format!("--oidc-client-id={client}")),
                "{text}"
            );
            assert!(arguments.contains(&"--certificate-authority-data=Q0E=".to_owned()));
            assert_eq!(read.current_context.as_deref(), Some("shop"));
        }
    }

    #[test]
    fn a_provider_without_a_public_client_is_named() {
        let mut all = endpoints("kubernetes");
        all[0].client_id = None;
        let why = kubeconfig("shop", &all, None, None).unwrap_err();
        assert!(why.contains("has no public client"), "{why}");
        all[0].issuer = None;
        let why = kubeconfig("shop", &all, None, None).unwrap_err();
        assert!(why.contains("no identity provider"), "{why}");
    }

    #[test]
    fn a_private_key_beside_the_certificates_is_left_out() {
        let section = |kind: &str, text: &str| pem::encode(&Pem::new(kind, text));
        let (one, two) = (section("CERTIFICATE", "one"), section("CERTIFICATE", "two"));
        let file = format!("# theirs\n{one}{}{two}", section("PRIVATE KEY", "secret"));
        let read =
            |text: &str| only_certificates(text.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        let plain = |text: &str| text.replace('\r', "");
        assert_eq!(read(&file), Some(plain(&format!("{one}{two}"))));
        for none in [section("PRIVATE KEY", "secret"), String::new(), "text".to_owned()] {
            assert_eq!(read(&none), None);
        }
    }

    #[test]
    fn only_an_identity_provider_names_the_issuer() {
        let mut other = endpoints("stolen").remove(0);
        other.name = "jumphost-shop".to_owned();
        let mut all = vec![other];
        assert!(kubeconfig("shop", &all, Some("https://a".to_owned()), None).is_err());
        all.extend(endpoints("kubernetes"));
        let config = kubeconfig("shop", &all, None, None).unwrap().to_string();
        assert!(config.contains("--oidc-client-id=kubernetes"), "{config}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let both = endpoints("kubernetes");
        let none = kubeconfig("shop", &both[1..], None, None).unwrap_err();
        assert!(none.contains("AuthReady"), "{none}");
        let nowhere = kubeconfig("shop", &both[..1], None, None).unwrap_err();
        assert!(nowhere.contains("--server"), "{nowhere}");
        let named = kubeconfig("shop", &both[..1], Some("https://a".to_owned()), None);
        assert_eq!(named.unwrap()["clusters"][0]["cluster"]["server"], "https://a");
    }
}
