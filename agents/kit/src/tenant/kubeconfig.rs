//! A tenant's kubeconfig. The tenant writes its Secret, so it must not make the agent run a program, read a file, send the agent's own
//! credentials, or use a proxy: every field that could is refused.

use std::net::{IpAddr, SocketAddr};

use api::host_port;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, Kubeconfig as File},
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};

/// Bytes of a kubeconfig that is read, at most.
pub const MAX_BYTES: usize = 64 * 1024;
/// Bytes of a host name, at most: statuses contain it.
const MAX_HOST_BYTES: usize = 253;
/// Hexadecimal digits by which servers are compared.
const DIGEST_DIGITS: usize = 32;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("must be UTF-8 of at most {MAX_BYTES} bytes")]
    Text,
    /// The message of the parser is not repeated: it could quote the text.
    #[error("must be a kubeconfig in YAML")]
    Form,
    #[error("must have a current-context that names a cluster and a user of it")]
    Context,
    #[error("{field}: {rule}")]
    Field { field: &'static str, rule: &'static str },
}

fn bad(field: &'static str, rule: &'static str) -> Error {
    Error::Field { field, rule }
}

/// The cluster and the user of a kubeconfig's current context.
pub(super) struct Kubeconfig {
    host: String,
    port: u16,
    path: String,
    server_name: Option<String>,
    authorities: Vec<Vec<u8>>,
    user: AuthInfo,
}

impl Kubeconfig {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.len() <= MAX_BYTES);
        let file: File = serde_saphyr::from_str(text.ok_or(Error::Text)?).map_err(|_| Error::Form)?;
        let File {
            clusters,
            auth_infos,
            contexts,
            current_context,
            preferences: _,
            extensions: _,
            kind: _,
            api_version: _,
            other: _,
        } = file;
        let current = current_context.ok_or(Error::Context)?;
        let context = contexts.into_iter().find(|context| context.name == current);
        let context = context
            .and_then(|context| context.context)
            .ok_or(Error::Context)?;
        let cluster = clusters
            .into_iter()
            .find(|cluster| cluster.name == context.cluster);
        let cluster = cluster
            .and_then(|cluster| cluster.cluster)
            .ok_or(Error::Context)?;
        let user = auth_infos
            .into_iter()
            .find(|user| Some(&user.name) == context.user.as_ref());
        let user = user.and_then(|user| user.auth_info).ok_or(Error::Context)?;
        Self::from_entries(cluster, user)
    }

    fn from_entries(cluster: Cluster, user: AuthInfo) -> Result<Self, Error> {
        let Cluster {
            server,
            insecure_skip_tls_verify,
            certificate_authority,
            certificate_authority_data,
            proxy_url,
            tls_server_name,
            disable_compression: _,
            extensions: _,
            other: _,
        } = cluster;
        let absent = |field: &'static str, is_set: bool| {
            if is_set {
                Err(bad(field, "must not be set"))
            } else {
                Ok(())
            }
        };
        absent("insecure-skip-tls-verify", insecure_skip_tls_verify == Some(true))?;
        absent("certificate-authority", certificate_authority.is_some())?;
        absent("proxy-url", proxy_url.is_some())?;
        let rule =
            "must be an https URL of a host of at most 253 bytes, without a user, a query or a fragment";
        let server = server.and_then(|server| server.parse::<Uri>().ok());
        let server = server.filter(|server| {
            let authority = server.authority().map_or("@", http::uri::Authority::as_str);
            let is_short = server.host().is_some_and(|host| host.len() <= MAX_HOST_BYTES);
            server.scheme_str() == Some("https")
                && is_short
                && !authority.contains('@')
                && server.query().is_none()
        });
        let server = server.ok_or(bad("server", rule))?;
        let host = server
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let is_address = host.parse::<IpAddr>().is_ok();
        Ok(Self {
            port: server.port_u16().unwrap_or(443),
            path: server.path().trim_end_matches('/').to_owned(),
            // The connection is made to an address, and the certificate is for the name.
            server_name: tls_server_name.or_else(|| (!is_address).then(|| host.clone())),
            authorities: authorities(certificate_authority_data.as_deref())?,
            user: self::user(user)?,
            host,
        })
    }

    /// For messages.
    pub(super) fn server(&self) -> String {
        host_port(&self.host, self.port)
    }

    /// Digest of everything that identifies the server.
    pub(super) fn digest(&self) -> String {
        let Self {
            host,
            port,
            path,
            server_name,
            authorities,
            user: _,
        } = self;
        let port = port.to_string();
        let name = server_name.as_deref().unwrap_or_default();
        let mut hash = Sha256::new();
        let texts = [host, &port, path, name].map(str::as_bytes);
        for part in texts.into_iter().chain(authorities.iter().map(Vec::as_slice)) {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        let mut digest = hex::encode(hash.finalize());
        digest.truncate(DIGEST_DIGITS);
        digest
    }

    pub(super) fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// For a client that connects to this address.
    pub(super) fn config(&self, address: SocketAddr) -> Result<Config, Error> {
        let url = format!("https://{address}{}", self.path);
        let url = url.parse().map_err(|_| bad("server", "must be an https URL"))?;
        let mut config = Config::new(url);
        config.root_cert = Some(self.authorities.clone());
        config.tls_server_name.clone_from(&self.server_name);
        config.auth_info = self.user.clone();
        config.default_retry = false;
        Ok(config)
    }
}

/// The CA certificates in DER. Refused if there are none: the client would then trust the CAs of the machine.
fn authorities(data: Option<&str>) -> Result<Vec<Vec<u8>>, Error> {
    let rule = "must be CA certificates in PEM, in base64";
    let pem = data.and_then(|data| BASE64.decode(data.trim()).ok());
    let pem = pem.ok_or(bad("certificate-authority-data", rule))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|found| found.map(|der| der.to_vec()))
        .collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or(bad("certificate-authority-data", rule))
}

/// Nothing but a token, or a certificate and its key, in the kubeconfig itself.
fn user(user: AuthInfo) -> Result<AuthInfo, Error> {
    let AuthInfo {
        username,
        password,
        token,
        token_file,
        client_certificate,
        client_certificate_data,
        client_key,
        client_key_data,
        impersonate,
        impersonate_uid,
        impersonate_groups,
        impersonate_user_extra,
        extensions: _,
        auth_provider,
        exec,
        other: _,
    } = user;
    for (field, is_set) in [
        ("exec", exec.is_some()),
        ("auth-provider", auth_provider.is_some()),
        ("tokenFile", token_file.is_some()),
        ("client-certificate", client_certificate.is_some()),
        ("client-key", client_key.is_some()),
        ("username", username.is_some()),
        ("password", password.is_some()),
        ("as", impersonate.is_some()),
        ("as-uid", impersonate_uid.is_some()),
        ("as-groups", impersonate_groups.is_some()),
        ("as-user-extra", impersonate_user_extra.is_some()),
    ] {
        if is_set {
            return Err(bad(
                field,
                "must not be set: use a token, or a certificate and a key, as data",
            ));
        }
    }
    if token.is_none() && (client_certificate_data.is_none() || client_key_data.is_none()) {
        return Err(bad(
            "token",
            "must be set, or client-certificate-data and client-key-data",
        ));
    }
    Ok(AuthInfo {
        token,
        client_certificate_data,
        client_key_data,
        ..AuthInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A CA certificate.
    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUV+JkK+qmHfTb/Y4IflpLFMQ6HJEwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGdGVuYW50MB4XDTI2MTEyNjEwNDUwOFoXDTM2MTEyMzEwNDUw
OFowETEPMA0GA1UEAwwGdGVuYW50MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
ATKHY66oemymQaaXnp4wAuqYADQswTRCWUUQWMp6fL5hqPwzRILHfHlFlmwuCrnq
TlOSxUKpdMD4RMmGclFql6NTMFEwHQYDVR0OBBYEFHPT3AAMi1QZEM11Zl6RW+SK
zdz9MB8GA1UdIwQYMBaAFHPT3AAMi1QZEM11Zl6RW+SKzdz9MA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAKL3X1+PxDSVIcn64lDP88Jds3/tne6O
ppCyy1rGP+yCAiBTJuVlOfnl4BBDLdoAS3W4SjbGqjiEuIGgsAZif41JbA==
-----END CERTIFICATE-----
";

    fn good() -> Value {
        let authority = BASE64.encode(AUTHORITY);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "shop-admin@shop",
            "clusters": [{"name": "shop", "cluster": {"server": "https://[2001:db8::1]:6443", "certificate-authority-data": authority}}],
            "users": [{"name": "shop-admin", "user": {"token": "t"}}],
            "contexts": [{"name": "shop-admin@shop", "context": {"cluster": "shop", "user": "shop-admin"}}],
        })
    }

    fn read(file: &Value) -> Result<Kubeconfig, Error> {
        Kubeconfig::read(file.to_string().as_bytes())
    }

    #[test]
    fn servers_differ_by_all_that_leads_to_them() {
        let digest = |change: &dyn Fn(&mut Value)| {
            let mut file = good();
            change(&mut file);
            read(&file).unwrap().digest()
        };
        let same = digest(&|_| {});
        assert_eq!(same.len(), DIGEST_DIGITS);
        assert_eq!(
            digest(&|file| file["users"][0]["user"] = json!({"token": "other"})),
            same
        );
        let server = "https://[2001:db8::1]:6443";
        let mut all = vec![same];
        for (field, value) in [
            ("server", server.replace("db8::1", "db8::2")),
            ("server", server.replace("6443", "443")),
            ("server", format!("{server}/k8s/clusters/a")),
            ("server", format!("{server}/k8s/clusters/b")),
            ("tls-server-name", "shop.example.org".to_owned()),
            ("certificate-authority-data", BASE64.encode(AUTHORITY.repeat(2))),
        ] {
            let digest = digest(&|file| file["clusters"][0]["cluster"][field] = json!(value));
            assert!(!all.contains(&digest), "{field} {value}");
            all.push(digest);
        }
    }

    #[test]
    fn a_kubeconfig_of_cluster_api_is_read() {
        let read = read(&good()).unwrap();
        assert_eq!(read.server(), "[2001:db8::1]:6443");
        assert_eq!(read.server_name, None);
        let address = "[2001:db8::1]:6443".parse().unwrap();
        let config = read.config(address).unwrap();
        assert_eq!(config.cluster_url, "https://[2001:db8::1]:6443/");
        assert!(config.proxy_url.is_none() && !config.accept_invalid_certs);
    }

    #[test]
    fn a_name_is_resolved_by_the_agent_and_certified_for_the_name() {
        let mut file = good();
        file["clusters"][0]["cluster"]["server"] = "https://api.shop.example.org/k8s".into();
        let read = read(&file).unwrap();
        assert_eq!(read.host_and_port(), ("api.shop.example.org", 443));
        let config = read.config("192.0.2.7:443".parse().unwrap()).unwrap();
        assert_eq!(config.cluster_url, "https://192.0.2.7:443/k8s");
        assert_eq!(config.tls_server_name.as_deref(), Some("api.shop.example.org"));
        let longest = "a".repeat(MAX_HOST_BYTES);
        file["clusters"][0]["cluster"]["server"] = format!("https://{longest}").into();
        assert_eq!(self::read(&file).unwrap().host_and_port(), (&*longest, 443));
    }

    #[test]
    fn nothing_makes_the_agent_run_a_program_or_read_a_file() {
        let set = |pointer: &str, field: &str, value: Value| {
            let mut file = good();
            let place = file.pointer_mut(pointer).unwrap();
            place.as_object_mut().unwrap().insert(field.to_owned(), value);
            read(&file).map(drop).unwrap_err().to_string()
        };
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never"});
        let user = "/users/0/user";
        for (field, value) in [
            ("exec", exec),
            (
                "auth-provider",
                json!({"name": "gcp", "config": {"cmd-path": "/bin/sh"}}),
            ),
            (
                "tokenFile",
                json!("/var/run/secrets/kubernetes.io/serviceaccount/token"),
            ),
            ("client-certificate", json!("/etc/sip/tls/tls.crt")),
            ("client-key", json!("/etc/sip/tls/tls.key")),
            ("username", json!("admin")),
            ("password", json!("hidden")),
            ("as", json!("system:admin")),
            ("as-groups", json!(["system:masters"])),
        ] {
            let why = set(user, field, value);
            assert!(
                why.starts_with(&format!("{field}: must not be set")) && !why.contains("hidden"),
                "{why}"
            );
        }
        let cluster = "/clusters/0/cluster";
        for (field, value) in [
            ("insecure-skip-tls-verify", json!(true)),
            ("certificate-authority", json!("/etc/sip/storage/ca.crt")),
            ("proxy-url", json!("http://169.254.169.254")),
        ] {
            assert_eq!(set(cluster, field, value), format!("{field}: must not be set"));
        }
        let long = format!("https://{}:6443", "a".repeat(MAX_HOST_BYTES + 1));
        for server in [
            &*long,
            "http://192.0.2.1",
            "https://user:pass@192.0.2.1",
            "https://192.0.2.1/?x",
            "unix:///run/x.sock",
            "/etc/passwd",
            "",
        ] {
            let why = set(cluster, "server", json!(server));
            assert!(why.starts_with("server: must be"), "{server}: {why}");
        }
        for data in ["", "!", "aGlkZGVu"] {
            let why = set(cluster, "certificate-authority-data", json!(data));
            assert!(why.starts_with("certificate-authority-data: must"), "{why}");
        }
        assert!(set(user, "token", Value::Null).starts_with("token: must be set"));
        assert!(set("", "current-context", json!("other")).contains("current-context"));
    }

    #[test]
    fn hostile_files_are_refused_in_bounded_work() {
        let bomb = format!(
            "a: &a [x]\nb: &b [{0}]\nc: &c [{1}]\nd: [{2}]\n",
            ["*a"; 500].join(","),
            ["*b"; 500].join(","),
            ["*c"; 500].join(",")
        );
        let deep = "[".repeat(100_000);
        for hostile in [
            bomb.as_bytes(),
            deep.as_bytes(),
            b"\xff",
            &vec![b'a'; MAX_BYTES + 1],
            b"",
            b"hidden",
        ] {
            let why = Kubeconfig::read(hostile).map(drop).unwrap_err().to_string();
            assert!(!why.contains("hidden") && why.starts_with("must"), "{why}");
        }
    }
}
