//! The part of etcd that each provider has for itself: a user of its own, whose role admits one prefix.
//!
//! Dex stores its signing keys, codes and refresh tokens under fixed names. So providers of one namespace share nothing only if
//! each has another prefix, and a provider cannot be made to read another's only if etcd refuses it.

mod begun;
mod connection;
mod key_ids;
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

use self::connection::{Etcd, absent, found, present};
pub use self::names::Part;

/// Within this time etcd answers, or it counts as unreachable.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two comparisons of the users that were added with those that etcd has.
const COMPARE: Duration = Duration::from_secs(10);

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
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// etcd does not answer.
    #[error("etcd does not answer within {} s", within.as_secs())]
    Late {
        /// So long it had.
        within: Duration,
    },
    /// It has no authentication, and is not for identity providers only.
    #[error(
        "this etcd holds keys of others ({count}), so its authentication is not turned on: \
         name one that is for identity providers only, or delete those keys"
    )]
    Foreign {
        /// How many.
        count: i64,
    },
    /// Its release lets users read what they must not.
    #[error("etcd {0} lets a provider read and write the keys of others: use {first}", first = release::FIRST)]
    Release(String),
    /// The begun logins of providers cannot be checked.
    #[error("the unfinished logins of the provider {user} and of {others} others were not checked")]
    Provider {
        /// The user of the first of them.
        user: String,
        /// How many others there are.
        others: usize,
        /// Why not, of the first of them.
        source: Box<Self>,
    },
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
    etcd: Etcd,
    site: String,
    /// Passwords by the names of users.
    known: Mutex<BTreeMap<String, String>>,
    metrics: StorageMetrics,
}

impl Store {
    /// By its options, for the providers of this site, `REGION/SITE`; `None`: the site has none.
    #[must_use]
    pub fn new(args: StorageArgs, site: &str, metrics: StorageMetrics) -> Option<Self> {
        let etcd = Etcd::new(args)?;
        Some(Self {
            etcd,
            site: site.to_owned(),
            known: Mutex::default(),
            metrics,
        })
    }

    /// The part of a provider: of the `SIPCluster` with this uid, and with this name. Its user has the password afterwards.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn part(&self, uid: &str, name: &str, password: &str) -> Result<Storage, Error> {
        let part = Part {
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
        if self.known().get(&user).is_some_and(|known| known == password) {
            return Ok(storage);
        }
        within(Box::pin(self.admit(&storage))).await?;
        self.known().insert(user, password.to_owned());
        Ok(storage)
    }

    /// The ids of the keys with which a provider signs, or has signed; none before it has started.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn key_ids(&self, part: &Part) -> Result<BTreeSet<String>, Error> {
        let key = format!("{}{SIGNING_KEYS}", part.keys(&self.site));
        within(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let kept = client.get(key, None).await.map_err(etcd("read keys"))?;
            let mut ids = BTreeSet::new();
            for kept in kept.kvs() {
                ids.extend(key_ids::of_record(kept.value()));
            }
            Ok(ids)
        }))
        .await
    }

    /// Removes the user of a provider and everything that it has stored.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn remove(&self, part: Part) -> Result<(), Error> {
        let user = part.user(&self.site);
        self.known().remove(&user);
        within(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            // Without its role a provider that still runs writes nothing. The user is last: by it the next sweep finds what
            // this one has left.
            absent(client.role_delete(&*user).await).map_err(etcd("delete a role"))?;
            let all = DeleteOptions::new().with_prefix();
            let deleted = client.delete(part.keys(&self.site), Some(all)).await;
            deleted.map_err(etcd("delete keys"))?;
            absent(client.user_delete(&*user).await).map_err(etcd("delete a user"))
        }))
        .await
    }

    /// The providers of this site that have a user.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn parts(&self) -> Result<Vec<Part>, Error> {
        within(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let users = client.user_list().await.map_err(etcd("list users"))?;
            let users = users.users().iter();
            Ok(users.filter_map(|user| Part::of_user(&self.site, user)).collect())
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
                    tracing::warn!(error, "the users of the storage were not compared; requeued");
                }
            }
            if is_closed && let Err(error) = self.keep_free().await {
                let error = runtime::error_chain::chain(&error);
                tracing::warn!(error, "the space of the storage was not checked; requeued");
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
                        tracing::warn!(error, "the storage does not keep providers apart; checked again");
                    }
                    Err(error) => {
                        let error = runtime::error_chain::chain(&error);
                        tracing::warn!(
                            error,
                            "whether the storage keeps providers apart is not known; checked again"
                        );
                    }
                }
            }
            time::sleep(COMPARE).await;
        }
    }

    /// Forgets users that etcd has lost, or whose role it has lost; returns whether there were any. An etcd that has no
    /// authentication gets it, whether or not there are providers.
    ///
    /// # Errors
    /// When etcd does not do what it is asked.
    pub async fn forget_lost(&self) -> Result<bool, Error> {
        // One that is added meanwhile may not be listed yet.
        let added: BTreeSet<String> = self.known().keys().cloned().collect();
        let (users, roles) = within(Box::pin(async {
            let mut client = self.etcd.connect().await?;
            let users = client.user_list().await.map_err(etcd("list users"))?;
            let roles = client.role_list().await.map_err(etcd("list roles"))?;
            let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
            Ok((set(users.users()), set(roles.roles())))
        }))
        .await?;
        let lost = |user: &String| added.contains(user) && !(users.contains(user) && roles.contains(user));
        let mut known = self.known();
        let before = known.len();
        known.retain(|user, _| !lost(user));
        let count = before - known.len();
        drop(known);
        if count > 0 {
            tracing::warn!(
                count,
                "the storage has lost users of identity providers; they are added again"
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

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the user, and a role that admits its prefix only. Each step may have been done before, and what is as it should be is
    /// not written again: a change of a password ends the sessions of a provider that runs.
    async fn admit(&self, storage: &Storage) -> Result<(), Error> {
        let mut client = self.etcd.connect().await?;
        let Storage {
            user,
            password,
            prefix,
            endpoints: _,
            authority: _,
        } = storage;
        let known = found(client.user_get(&**user).await).map_err(etcd("read a user"))?;
        if known.is_none() {
            // One that runs already is not stopped: it would be safer with a certificate that has ended.
            self.etcd.keeps_users_apart().await?;
        }
        grant_prefix(&mut client, user, prefix).await?;
        let Some(known) = known else {
            let added = client.user_add(&**user, &**password, None).await;
            present(added).map_err(etcd("add a user"))?;
            let granted = client.user_grant_role(&**user, &**user).await;
            return granted.map(drop).map_err(etcd("grant a role"));
        };
        if !known.roles().contains(user) {
            let granted = client.user_grant_role(&**user, &**user).await;
            granted.map_err(etcd("grant a role"))?;
        }
        if !self.etcd.admits(user, password).await? {
            let changed = client.user_change_password(&**user, &**password).await;
            changed.map_err(etcd("change a password"))?;
        }
        Ok(())
    }
}

/// A role that admits this prefix.
async fn grant_prefix(client: &mut Client, role: &str, prefix: &str) -> Result<(), Error> {
    let permission = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
    let known = found(client.role_get(role).await).map_err(etcd("read a role"))?;
    if known.is_none() {
        present(client.role_add(role).await).map_err(etcd("add a role"))?;
    }
    let permissions = known.map(|known| known.permissions()).unwrap_or_default();
    if permissions.contains(&permission) {
        return Ok(());
    }
    let granted = client.role_grant_permission(role, permission).await;
    granted.map(drop).map_err(etcd("grant a permission"))
}

/// In bounded time.
async fn within<T>(asking: impl Future<Output = Result<T, Error>> + Unpin) -> Result<T, Error> {
    let answer = time::timeout(ANSWER, asking).await;
    answer.map_err(|_| Error::Late { within: ANSWER })?
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        storage: StorageArgs,
    }

    #[test]
    fn a_storage_has_a_password() {
        let parsed = |arguments: &[&str]| Line::try_parse_from([&["agent"], arguments].concat());
        let endpoint = "--storage-endpoint=https://etcd:2379";
        let refused = parsed(&[endpoint]).unwrap_err().to_string();
        assert!(refused.contains("--storage-password <FILE>"), "{refused}");
        let store = |line: Line| Store::new(line.storage, "north/lab", StorageMetrics::default());
        let complete = parsed(&[endpoint, "--storage-password=/password"]).unwrap();
        assert!(store(complete).is_some());
        assert!(store(parsed(&[]).unwrap()).is_none());
        // Whoever makes the options without the command line gets no storage either.
        let mut without = parsed(&[endpoint, "--storage-password=/password"]).unwrap();
        without.storage.password = None;
        assert!(store(without).is_none());
    }
}
