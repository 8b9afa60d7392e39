//! Ways to reach the site's API server: an administrator's, the components', and those of `ServiceAccounts`.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    client::{ConfigExt as _, retry::RetryPolicy},
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
    },
};
use rcgen::SanType;
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use super::{Error, PATIENCE, Site};
use crate::{
    node::Membership,
    pki::{self, CertificateAuthority, Files, Subject, Validity},
    wait,
};

/// How long a `ServiceAccount`'s token is valid: longer than any test, and not a year.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

#[derive(Debug)]
pub(super) struct Access {
    ca: CertificateAuthority,
    directory: PathBuf,
    server: String,
    admin: PathBuf,
    client: DebugClient,
}

struct DebugClient(Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

impl Access {
    pub(super) async fn new(
        directory: &Path,
        ca: CertificateAuthority,
        (address, port): (Ipv4Addr, u16),
    ) -> Result<Self, Error> {
        let server = format!("https://{address}:{port}");
        let directory = directory.to_owned();
        let subject = Subject {
            common_name: "sandbox-admin",
            organization: Some("system:masters"),
            names: Vec::new(),
        };
        let files = ca.issue("admin", subject, Validity::DAY)?;
        let kubeconfig = kubeconfig(&server, ca.certificate(), "admin", certificate_login(&files));
        let admin = write(&directory, "admin", &kubeconfig)?;
        let client = client(kubeconfig).await?;
        Ok(Self {
            ca,
            directory,
            server,
            admin,
            client: DebugClient(client),
        })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn client(&self) -> Client {
        self.client.0.clone()
    }

    pub(super) fn admin(&self) -> &Path {
        &self.admin
    }

    /// The kubeconfig of a control plane component, whose user name is `system:NAME`.
    pub(super) fn component_kubeconfig(&self, name: &str) -> Result<PathBuf, Error> {
        self.system_kubeconfig(name, &format!("system:{name}"), None)
    }

    /// What a real node of this name and address needs to join.
    pub(super) fn membership(&self, name: &str, address: Ipv4Addr) -> Result<Membership, Error> {
        let user = format!("system:node:{name}");
        let not_ascii = |source| pki::Error::Certificate {
            subject: user.clone(),
            source,
        };
        let subject = Subject {
            common_name: &user,
            organization: Some("system:nodes"),
            names: vec![
                SanType::DnsName(name.try_into().map_err(not_ascii)?),
                SanType::IpAddress(address.into()),
            ],
        };
        Ok(Membership {
            client: self.client(),
            ca: self.ca.certificate().to_owned(),
            serving: self.ca.issue("kubelet-serving", subject, Validity::DAY)?,
            kubelet: self.system_kubeconfig("kubelet", &user, Some("system:nodes"))?,
            kube_proxy: self.component_kubeconfig("kube-proxy")?,
        })
    }

    fn system_kubeconfig(
        &self,
        name: &str,
        user: &str,
        organization: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let subject = Subject {
            common_name: user,
            organization,
            names: Vec::new(),
        };
        let files = self.ca.issue(name, subject, Validity::DAY)?;
        write(
            &self.directory,
            name,
            &kubeconfig(
                &self.server,
                self.ca.certificate(),
                name,
                certificate_login(&files),
            ),
        )
    }

    fn token_kubeconfig(&self, name: &str, token: &str, server: &str) -> Result<PathBuf, Error> {
        // A file of its own, as in a pod: programs must be able to read a renewed one.
        let token_file = self.directory.join(format!("{name}.token"));
        fs::write(&token_file, token).map_err(|source| Error::File {
            path: token_file.clone(),
            source,
        })?;
        let login = AuthInfo {
            token_file: Some(token_file.display().to_string()),
            ..AuthInfo::default()
        };
        write(
            &self.directory,
            name,
            &kubeconfig(server, self.ca.certificate(), name, login),
        )
    }
}

impl Site {
    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.access.client()
    }

    /// A kubeconfig file with all rights.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> &Path {
        self.access.admin()
    }

    /// A kubeconfig file of a `ServiceAccount`, which must exist or come into being soon: real RBAC applies to it.
    ///
    /// # Errors
    /// When there is no such `ServiceAccount`, or the file cannot be written.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        self.service_account_kubeconfig_by(namespace, name, self.server())
            .await
    }

    /// The same, for somebody who reaches the API server by another URL: through a proxy.
    ///
    /// # Errors
    /// As [`Site::service_account_kubeconfig`].
    pub async fn service_account_kubeconfig_by(
        &self,
        namespace: &str,
        name: &str,
        server: &str,
    ) -> Result<PathBuf, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let what = format!("ServiceAccount {namespace}/{name} to exist");
        wait::until(accounts.clone(), name, &what, PATIENCE, |_| true).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }
            .into(),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(api_error(format!(
                "request a token for ServiceAccount {namespace}/{name}"
            )))?;
        let token = answer
            .status
            .and_then(|status| status.token)
            .ok_or_else(|| Error::NoToken {
                account: format!("{namespace}/{name}"),
            })?;
        // Of one account there may be several, by different ways.
        let way = server.rsplit_once(':').map_or("", |(_, port)| port);
        let file = if server == self.server() {
            format!("{namespace}-{name}")
        } else {
            format!("{namespace}-{name}-{way}")
        };
        self.access.token_kubeconfig(&file, &token, server)
    }

    /// A client from a kubeconfig file, for example of a `ServiceAccount`.
    ///
    /// # Errors
    /// When the file is not a kubeconfig.
    pub async fn client_from(&self, path: &Path) -> Result<Client, Error> {
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| Error::Api {
            action: format!("read {}", path.display()),
            source: Box::new(kube::Error::InferKubeconfig(error)),
        })?;
        client(kubeconfig).await
    }
}

/// Turns a client's error into ours, saying what was tried.
pub(super) fn api_error(action: String) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Api {
        action,
        source: Box::new(source),
    }
}

/// How long a connection without requests is kept.
const IDLE: Duration = Duration::from_mins(1);

async fn client(kubeconfig: Kubeconfig) -> Result<Client, Error> {
    let action = || "make a client for the API server".to_owned();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::Api {
            action: action(),
            source: Box::new(kube::Error::InferKubeconfig(error)),
        })?;
    // A proxy from the environment has no business on loopback.
    config.proxy_url = None;
    let failed = |source| api_error(action())(source);
    // kube-apiserver closes a connection that was idle for 90 s, and hyper would keep it as long: a request that is sent while it closes
    // gets no answer.
    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .build(config.rustls_https_connector().map_err(failed)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        // As clients in Go do: a server that has just started answers 429 until its caches are filled.
        .layer(RetryLayer::new(RetryPolicy::default()))
        .map_err(BoxError::from)
        .service(pool);
    Ok(Client::new(service, config.default_namespace))
}

fn certificate_login(files: &Files) -> AuthInfo {
    AuthInfo {
        client_certificate: Some(files.certificate.display().to_string()),
        client_key: Some(files.key.display().to_string()),
        ..AuthInfo::default()
    }
}

fn kubeconfig(server: &str, ca: &Path, user: &str, login: AuthInfo) -> Kubeconfig {
    let cluster = Cluster {
        server: Some(server.to_owned()),
        certificate_authority: Some(ca.display().to_string()),
        ..Cluster::default()
    };
    let context = Context {
        cluster: "site".to_owned(),
        user: Some(user.to_owned()),
        ..Context::default()
    };
    Kubeconfig {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        clusters: vec![NamedCluster {
            name: "site".to_owned(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: user.to_owned(),
            auth_info: Some(login),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: "site".to_owned(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some("site".to_owned()),
        ..Kubeconfig::default()
    }
}

fn write(directory: &Path, name: &str, kubeconfig: &Kubeconfig) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{name}.kubeconfig"));
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    let text = serde_saphyr::to_string(kubeconfig).map_err(|error| failed(std::io::Error::other(error)))?;
    fs::write(&path, text).map_err(failed)?;
    Ok(path)
}
