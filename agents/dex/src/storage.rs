//! The part of etcd that each provider has for itself: a user of its own, whose role admits one prefix.
//!
//! Dex stores its signing keys, codes and refresh tokens under fixed names. So providers of one namespace share nothing only if
//! each has another prefix, and a provider cannot be made to read another's only if etcd refuses it.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{
    Certificate, Client, ConnectOptions, DeleteOptions, Permission, PermissionType, TlsOptions,
};
use render::dex::Storage;

/// Within this time etcd answers, or it counts as unreachable.
const ANSWER: Duration = Duration::from_secs(5);
/// What the names of users and roles, and every key, begin with.
const PREFIX: &str = "sip-dex";

/// The site's etcd for identity providers.
#[derive(Clone, Debug, clap::Args)]
pub struct StorageArgs {
    /// Address of the etcd in which identity providers store keys and tokens, such as `https://etcd:2379`; several by commas
    #[arg(
        long = "storage-endpoint",
        env = "SIP_DEX_STORAGE_ENDPOINTS",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub endpoints: Vec<String>,
    /// CA certificates that the certificate of that etcd must chain to (PEM)
    #[arg(long = "storage-ca", env = "SIP_DEX_STORAGE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// User of that etcd who may add users
    #[arg(
        long = "storage-user",
        env = "SIP_DEX_STORAGE_USER",
        value_name = "NAME",
        default_value = "root"
    )]
    pub user: String,
    /// File with the password of that user
    #[arg(
        long = "storage-password",
        env = "SIP_DEX_STORAGE_PASSWORD_FILE",
        value_name = "FILE"
    )]
    pub password: Option<PathBuf>,
}

/// Why a provider has no storage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the options cannot be read.
    #[error("read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// etcd does not answer.
    #[error("etcd does not answer within {} s", ANSWER.as_secs())]
    Late,
    /// etcd refuses.
    #[error("etcd refuses to {action}: {source}")]
    Etcd {
        /// What was tried.
        action: &'static str,
        /// What it answered.
        #[source]
        source: Box<etcd_client::Error>,
    },
}

fn etcd(action: &'static str) -> impl FnOnce(etcd_client::Error) -> Error {
    move |source| Error::Etcd {
        action,
        source: Box::new(source),
    }
}

/// The site's etcd for identity providers, and which users are known to be in it.
#[derive(Debug)]
pub struct Store {
    args: StorageArgs,
    /// Passwords by the names of users.
    known: Mutex<BTreeMap<String, String>>,
}

impl Store {
    /// By its options; `None`: the site has none.
    #[must_use]
    pub fn new(args: StorageArgs) -> Option<Self> {
        (!args.endpoints.is_empty()).then(|| Self {
            args,
            known: Mutex::default(),
        })
    }

    /// The part of a provider: of the `SIPCluster` with this uid, and with this name. Its user has the password afterwards.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn part(&self, uid: &str, name: &str, password: &str) -> Result<Storage, Error> {
        let user = format!("{PREFIX}.{uid}.{name}");
        let storage = Storage {
            endpoints: self.args.endpoints.clone(),
            authority: self.authority().await?,
            prefix: prefix(uid, name),
            user: user.clone(),
            password: password.to_owned(),
        };
        if self.known().get(&user).is_some_and(|known| known == password) {
            return Ok(storage);
        }
        let admitted = Box::pin(self.admit(&storage));
        tokio::time::timeout(ANSWER, admitted)
            .await
            .map_err(|_| Error::Late)??;
        self.known().insert(user, password.to_owned());
        Ok(storage)
    }

    /// Removes the user of a provider and everything that it has stored.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn remove(&self, uid: &str, name: &str) -> Result<(), Error> {
        let user = format!("{PREFIX}.{uid}.{name}");
        self.known().remove(&user);
        let removed = async {
            let mut client = self.connect().await?;
            absent(client.user_delete(&*user).await).map_err(etcd("delete a user"))?;
            absent(client.role_delete(&*user).await).map_err(etcd("delete a role"))?;
            let all = DeleteOptions::new().with_prefix();
            let deleted = client.delete(prefix(uid, name), Some(all)).await;
            deleted.map(drop).map_err(etcd("delete keys"))
        };
        tokio::time::timeout(ANSWER, Box::pin(removed))
            .await
            .map_err(|_| Error::Late)?
    }

    /// The parts that there are, by the uid of the `SIPCluster` and the name of the provider.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn parts(&self) -> Result<Vec<(String, String)>, Error> {
        let listed = async {
            let mut client = self.connect().await?;
            let users = client.user_list().await.map_err(etcd("list users"))?;
            Ok(users.users().iter().filter_map(|user| part(user)).collect())
        };
        let listed = tokio::time::timeout(ANSWER, Box::pin(listed)).await;
        listed.map_err(|_| Error::Late)?
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn authority(&self) -> Result<Option<String>, Error> {
        match &self.args.ca {
            Some(path) => read(path).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes the user, and a role that admits its prefix only. Each step may have been done before.
    async fn admit(&self, storage: &Storage) -> Result<(), Error> {
        let mut client = self.connect().await?;
        let Storage {
            user,
            password,
            prefix,
            endpoints: _,
            authority: _,
        } = storage;
        present(client.role_add(&**user).await).map_err(etcd("add a role"))?;
        let permission = Permission::new(PermissionType::Readwrite, &**prefix).with_prefix();
        let granted = client.role_grant_permission(&**user, permission).await;
        granted.map_err(etcd("grant a permission"))?;
        present(client.user_add(&**user, &**password, None).await).map_err(etcd("add a user"))?;
        let changed = client.user_change_password(&**user, &**password).await;
        changed.map_err(etcd("change a password"))?;
        let granted = client.user_grant_role(&**user, &**user).await;
        granted.map(drop).map_err(etcd("grant a role"))
    }

    /// A client with the rights to add users. An etcd that asks nobody for a password does so from now on: before, no provider is
    /// separate from another.
    async fn connect(&self) -> Result<Client, Error> {
        let password = match &self.args.password {
            Some(path) => Some(read(path).await?.trim_end_matches(['\r', '\n']).to_owned()),
            None => None,
        };
        let Some(password) = password else {
            return self.connect_as(None).await.map_err(etcd("connect"));
        };
        let user = Some((self.args.user.as_str(), password.as_str()));
        match self.connect_as(user).await {
            Err(error) if says(&error, "authentication is not enabled") => {
                self.require_passwords(&password).await?;
                self.connect_as(user).await.map_err(etcd("log in"))
            }
            connected => connected.map_err(etcd("log in")),
        }
    }

    async fn require_passwords(&self, password: &str) -> Result<(), Error> {
        let user = self.args.user.as_str();
        let mut client = self.connect_as(None).await.map_err(etcd("connect"))?;
        present(client.user_add(user, password, None).await).map_err(etcd("add a user"))?;
        let changed = client.user_change_password(user, password).await;
        changed.map_err(etcd("change a password"))?;
        // etcd knows this role without anybody adding it, and turns on nothing before somebody has it.
        let granted = client.user_grant_role(user, "root").await;
        granted.map_err(etcd("grant a role"))?;
        client
            .auth_enable()
            .await
            .map(drop)
            .map_err(etcd("turn on authentication"))
    }

    async fn connect_as(&self, user: Option<(&str, &str)>) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ANSWER)
            .with_timeout(ANSWER);
        if let Some((user, password)) = user {
            options = options.with_user(user, password);
        }
        if let Some(path) = &self.args.ca {
            let authority = Certificate::from_pem(tokio::fs::read(path).await?);
            options = options.with_tls(TlsOptions::new().ca_certificate(authority));
        }
        Client::connect(&self.args.endpoints, Some(options)).await
    }
}

/// Whose a user is. Neither a uid nor the name of an object has a dot.
fn part(user: &str) -> Option<(String, String)> {
    let (uid, name) = user.strip_prefix(PREFIX)?.strip_prefix('.')?.split_once('.')?;
    Some((uid.to_owned(), name.to_owned()))
}

fn prefix(uid: &str, name: &str) -> String {
    format!("{PREFIX}/{uid}/{name}/")
}

async fn read(path: &PathBuf) -> Result<String, Error> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| Error::File {
            path: path.clone(),
            source,
        })
}

/// That something is there already is as good as having added it.
fn present<T>(added: Result<T, etcd_client::Error>) -> Result<(), etcd_client::Error> {
    unless(added, "already exists")
}

fn absent<T>(deleted: Result<T, etcd_client::Error>) -> Result<(), etcd_client::Error> {
    unless(deleted, "not found")
}

fn unless<T>(result: Result<T, etcd_client::Error>, words: &str) -> Result<(), etcd_client::Error> {
    match result {
        Err(error) if says(&error, words) => Ok(()),
        result => result.map(drop),
    }
}

fn says(error: &etcd_client::Error, words: &str) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains(words))
}
