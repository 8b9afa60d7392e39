//! The part of etcd that each provider has for itself: a user of its own, whose role admits one prefix.
//!
//! Dex stores its signing keys, codes and refresh tokens under fixed names. So providers of one namespace share nothing only if
//! each has another prefix, and a provider cannot be made to read another's only if etcd refuses it.

mod connection;
mod key_ids;
mod logins;
mod names;
mod quota;
mod release;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_client::{Client, DeleteOptions, Permission, PermissionType};
use render::dex::Storage;
use tokio::time;

use crate::metrics::StorageMetrics;

use self::connection::{Etcd, ignore_already_exists, ignore_not_found, none_if_not_found};
pub use self::names::StoragePart;

/// How long etcd may take for the calls of one operation.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two comparisons of the users that were added with those that etcd has.
const COMPARE_INTERVAL: Duration = Duration::from_secs(10);

/// The site's etcd for identity providers.
#[derive(Clone, Debug, clap::Args)]
pub struct StorageArgs {
    /// Address of the etcd in which identity providers store keys and tokens, such as `https://etcd:2379`; separate several by commas
    #[arg(
        long = "storage-endpoint",
        env = "SIP_DEX_STORAGE_ENDPOINTS",
        value_name = "URL",
        value_delimiter = ',',
        requires = "password"
    )]
    pub endpoints: Vec<String>,
    /// CA certificates that the certificate of that etcd must chain to (PEM)
    #[arg(long = "storage-ca", env = "SIP_DEX_STORAGE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// User of that etcd that the agent logs in as; it must have the right to add users
    #[arg(
        long = "storage-user",
        env = "SIP_DEX_STORAGE_USER",
        value_name = "NAME",
        default_value = "root"
    )]
    pub user: String,
    /// File with the password of --storage-user. Required with --storage-endpoint: the agent gives each provider an etcd user of its own
    #[arg(
        long = "storage-password",
        env = "SIP_DEX_STORAGE_PASSWORD_FILE",
        value_name = "FILE"
    )]
    pub password: Option<PathBuf>,
}

/// The key of the signing keys, as Dex calls it, after the prefix.
const SIGNING_KEYS: &str = "openid-connect-keys";

/// Why a provider has no storage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the options cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// etcd does not answer in time.
    #[error("etcd does not answer within {} s", within.as_secs())]
    Timeout {
        /// The time limit.
        within: Duration,
    },
    /// The etcd has no authentication, and other programs use it.
    #[error(
        "this etcd holds keys of others ({count}), so the agent does not turn on its authentication: \
         name an etcd that is for identity providers only, or delete those keys"
    )]
    Foreign {
        /// Number of those keys.
        count: i64,
    },
    /// The release of a member lets users read keys beyond their roles.
    #[error("etcd {0} lets a provider read and write the keys of others: use {first}", first = release::SUPPORTED_RELEASES)]
    Release(String),
    /// The agent could not check the unfinished logins of some providers.
    #[error("the agent could not check the unfinished logins of the provider {user} and of {others} others")]
    Provider {
        /// The user of the first of them.
        user: String,
        /// How many others there are.
        others: usize,
        /// The error of the first of them.
        source: Box<Self>,
    },
    /// etcd refuses a call.
    #[error("etcd refuses to {action}: {source}")]
    Etcd {
        /// What the agent tried.
        action: &'static str,
        /// The error of etcd.
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

/// The site's etcd for identity providers, and the users that the agent has added to it.
#[derive(Debug)]
pub struct Store {
    etcd: Etcd,
    site: String,
    /// Passwords by the names of users.
    passwords: Mutex<BTreeMap<String, String>>,
    metrics: StorageMetrics,
}

impl Store {
    /// The etcd of these options, for the providers of this site, `REGION/SITE`; `None`: the options name no etcd.
    #[must_use]
    pub fn new(args: StorageArgs, site: &str, metrics: StorageMetrics) -> Option<Self> {
        let etcd = Etcd::new(args)?;
        Some(Self {
            etcd,
            site: site.to_owned(),
            passwords: Mutex::default(),
            metrics,
        })
    }

    /// Makes the part of the storage for a provider, if it does not exist: for the `SIPCluster` with this uid, and the provider of this name. Its
    /// user has the password afterwards.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn ensure_part(&self, uid: &str, name: &str, password: &str) -> Result<Storage, Error> {
        let part = StoragePart {
            uid: uid.to_owned(),
            name: name.to_owned(),
        };
        let user = part.user(&self.site);
        let storage = Storage {
            endpoints: self.etcd.endpoints().to_vec(),
            authority: self.etcd.authority().await?,
            prefix: part.keys(&self.site),
            user: user.clone(),
            password: password.to_owned(),
        };
        if self.passwords().get(&user).is_some_and(|known| known == password) {
            return Ok(storage);
        }
        with_timeout(Box::pin(self.ensure_user(&storage))).await?;
        self.passwords().insert(user, password.to_owned());
        Ok(storage)
    }

    /// The ids of the keys with which a provider signs, or has signed; none before it has started.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn key_ids(&self, part: &StoragePart) -> Result<BTreeSet<String>, Error> {
        let key = format!("{}{SIGNING_KEYS}", part.keys(&self.site));
        with_timeout(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let kept = client.get(key, None).await.map_err(etcd("read keys"))?;
            let mut ids = BTreeSet::new();
            for kept in kept.kvs() {
                ids.extend(key_ids::from_record(kept.value()));
            }
            Ok(ids)
        }))
        .await
    }

    /// Removes the user of a provider and everything that it has stored.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn remove(&self, part: StoragePart) -> Result<(), Error> {
        let user = part.user(&self.site);
        self.passwords().remove(&user);
        with_timeout(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            // Without its role a provider that still runs writes nothing. The user is deleted last: by it the next sweep finds what
            // this one has not deleted.
            ignore_not_found(client.role_delete(&*user).await).map_err(etcd("delete a role"))?;
            let all = DeleteOptions::new().with_prefix();
            let deleted = client.delete(part.keys(&self.site), Some(all)).await;
            deleted.map_err(etcd("delete keys"))?;
            ignore_not_found(client.user_delete(&*user).await).map_err(etcd("delete a user"))
        }))
        .await
    }

    /// The providers of this site that have a user.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn parts(&self) -> Result<Vec<StoragePart>, Error> {
        with_timeout(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let users = client.user_list().await.map_err(etcd("list users"))?;
            let users = users.users().iter();
            Ok(users
                .filter_map(|user| StoragePart::from_user(&self.site, user))
                .collect())
        }))
        .await
    }

    /// Compares the users that were added with those that etcd has, without end: the next pass over a provider adds again what
    /// etcd has lost. `ready` is called once etcd requires authentication, and every member is of a release that keeps users apart.
    ///
    /// # Errors
    /// None.
    pub async fn compare_users(self: Arc<Self>, ready: impl Fn() + Send) -> Result<(), Infallible> {
        let (mut is_closed, mut is_ready) = (false, false);
        loop {
            match self.forget_lost().await {
                Ok(_) => is_closed = true,
                Err(error) => {
                    let error = runtime::error_chain::chain(&error);
                    tracing::warn!(error, "cannot compare the users of the storage; requeued");
                }
            }
            if is_closed && let Err(error) = self.keep_free().await {
                let error = runtime::error_chain::chain(&error);
                tracing::warn!(error, "cannot check the space of the storage; requeued");
            }
            if is_closed {
                match self.etcd.keeps_users_apart().await {
                    Ok(()) if is_ready => {}
                    Ok(()) => {
                        ready();
                        is_ready = true;
                    }
                    Err(error @ Error::Release(_)) => {
                        let error = runtime::error_chain::chain(&error);
                        tracing::warn!(error, "the storage does not keep providers apart; requeued");
                    }
                    Err(error) => {
                        let error = runtime::error_chain::chain(&error);
                        tracing::warn!(
                            error,
                            "cannot check whether the storage keeps providers apart; requeued"
                        );
                    }
                }
            }
            time::sleep(COMPARE_INTERVAL).await;
        }
    }

    /// Forgets users that etcd has lost, or whose role it has lost; returns whether there were any. An etcd that has no
    /// authentication gets it, whether or not there are providers.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn forget_lost(&self) -> Result<bool, Error> {
        // One that is added meanwhile may not be listed yet.
        let added: BTreeSet<String> = self.passwords().keys().cloned().collect();
        let (users, roles) = with_timeout(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let users = client.user_list().await.map_err(etcd("list users"))?;
            let roles = client.role_list().await.map_err(etcd("list roles"))?;
            let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
            Ok((set(users.users()), set(roles.roles())))
        }))
        .await?;
        let lost = |user: &String| added.contains(user) && !(users.contains(user) && roles.contains(user));
        let mut passwords = self.passwords();
        let before = passwords.len();
        passwords.retain(|user, _| !lost(user));
        let count = before - passwords.len();
        drop(passwords);
        if count > 0 {
            tracing::warn!(
                count,
                "the storage has lost users of identity providers; the next pass adds them again"
            );
        }
        Ok(count > 0)
    }

    /// Keeps room in the storage for every provider: see [`quota`].
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn keep_free(&self) -> Result<(), Error> {
        quota::keep_free(&self.etcd, &self.metrics).await
    }

    fn passwords(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.passwords.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the user, and a role with access to its prefix only. Each step may have been done before, and the agent does not write again what is
    /// as it should be: a change of a password ends the sessions of a provider that runs.
    async fn ensure_user(&self, storage: &Storage) -> Result<(), Error> {
        let mut client = self.etcd.connect().await?;
        let Storage {
            user,
            password,
            prefix,
            endpoints: _,
            authority: _,
        } = storage;
        let known = none_if_not_found(client.user_get(&**user).await).map_err(etcd("read a user"))?;
        if known.is_none() {
            // One that runs already is not stopped: it would be safer with a certificate that has ended.
            self.etcd.keeps_users_apart().await?;
        }
        grant_prefix(&mut client, user, prefix).await?;
        let Some(known) = known else {
            let added = client.user_add(&**user, &**password, None).await;
            ignore_already_exists(added).map_err(etcd("add a user"))?;
            let granted = client.user_grant_role(&**user, &**user).await;
            return granted.map(drop).map_err(etcd("grant a role"));
        };
        if !known.roles().contains(user) {
            let granted = client.user_grant_role(&**user, &**user).await;
            granted.map_err(etcd("grant a role"))?;
        }
        if !self.etcd.accepts_password(user, password).await? {
            let changed = client.user_change_password(&**user, &**password).await;
            changed.map_err(etcd("change a password"))?;
        }
        Ok(())
    }
}

/// Makes a role with access to this prefix only.
async fn grant_prefix(client: &mut Client, role: &str, prefix: &str) -> Result<(), Error> {
    let permission = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
    let known = none_if_not_found(client.role_get(role).await).map_err(etcd("read a role"))?;
    if known.is_none() {
        ignore_already_exists(client.role_add(role).await).map_err(etcd("add a role"))?;
    }
    let permissions = known.map(|known| known.permissions()).unwrap_or_default();
    if permissions.contains(&permission) {
        return Ok(());
    }
    let granted = client.role_grant_permission(role, permission).await;
    granted.map(drop).map_err(etcd("grant a permission"))
}

/// Waits for [`ANSWER_TIMEOUT`] at most.
async fn with_timeout<T>(operation: impl Future<Output = Result<T, Error>> + Unpin) -> Result<T, Error> {
    let answer = time::timeout(ANSWER_TIMEOUT, operation).await;
    answer.map_err(|_| Error::Timeout {
        within: ANSWER_TIMEOUT,
    })?
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Options {
        #[command(flatten)]
        storage: StorageArgs,
    }

    #[test]
    fn a_storage_without_a_password_is_refused() {
        let parsed = |arguments: &[&str]| Options::try_parse_from([&["agent"], arguments].concat());
        let endpoint = "--storage-endpoint=https://etcd:2379";
        let refused = parsed(&[endpoint]).unwrap_err().to_string();
        assert!(refused.contains("--storage-password <FILE>"), "{refused}");
        let store = |options: Options| Store::new(options.storage, "north/lab", StorageMetrics::default());
        let complete = parsed(&[endpoint, "--storage-password=/password"]).unwrap();
        assert!(store(complete).is_some());
        assert!(store(parsed(&[]).unwrap()).is_none());
        // Whoever makes the options without the command line gets no storage either.
        let mut without = parsed(&[endpoint, "--storage-password=/password"]).unwrap();
        without.storage.password = None;
        assert!(store(without).is_none());
    }
}
