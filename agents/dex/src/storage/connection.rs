//! Connections to etcd, as the user that may add users.

use std::{path::PathBuf, time::Duration};

use etcd_client::{Certificate, Client, ConnectOptions, DeleteOptions, GetOptions, TlsOptions};
use futures::future::join_all;

use super::{ANSWER_TIMEOUT, Error, StorageArgs, etcd, names::NAME_PREFIX, release};

/// etcd's role with all rights.
const ROOT_ROLE: &str = "root";
/// A key that exists until the agent has removed what etcd held before it required passwords, also across a restart of the agent.
const UNTRUSTED_KEY: &str = "sip-dex-untrusted";

/// Addresses of etcd, and the user that the agent has there.
#[derive(Clone, Debug)]
pub(super) struct Etcd {
    endpoints: Vec<String>,
    ca: Option<PathBuf>,
    user: String,
    /// File with the password.
    password: PathBuf,
}

impl Etcd {
    /// `None`: the site has no etcd for providers. Without a password the options count as absent, since no provider would be separate from
    /// another.
    pub(super) fn new(args: StorageArgs) -> Option<Self> {
        let StorageArgs {
            endpoints,
            ca,
            user,
            password,
        } = args;
        let password = password.filter(|_| !endpoints.is_empty())?;
        Some(Self {
            endpoints,
            ca,
            user,
            password,
        })
    }

    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The CA certificates that its certificate must chain to (PEM).
    pub(super) async fn authority(&self) -> Result<Option<String>, Error> {
        match &self.ca {
            Some(path) => read(path).await.map(Some),
            None => Ok(None),
        }
    }

    /// A client with the rights to add users. Turns on authentication in an etcd that has none: one that was just installed, or that has lost its
    /// data. Before, no provider is separate from another.
    pub(super) async fn connect(&self) -> Result<Client, Error> {
        let password = self.password().await?;
        let user = Some((self.user.as_str(), password.as_str()));
        let (mut client, was_open) = match self.connect_as(user).await {
            Err(error) if message_contains(&error, "authentication is not enabled") => {
                Box::pin(self.require_passwords(&password)).await?;
                (self.connect_as(user).await.map_err(etcd("log in"))?, true)
            }
            connected => (connected.map_err(etcd("log in"))?, false),
        };
        let untrusted = client
            .get(UNTRUSTED_KEY, None)
            .await
            .map_err(etcd("read a key"))?;
        if was_open || untrusted.count() > 0 {
            Box::pin(remove_untrusted(&mut client, &self.user)).await?;
        }
        Ok(client)
    }

    /// A client of each member that answers, for requests that take time. The etcd requires passwords.
    pub(super) async fn connect_members(&self, answer: Duration) -> Result<Vec<Client>, Error> {
        let password = self.password().await?;
        let user = Some((self.user.as_str(), password.as_str()));
        let members = self.endpoints.iter().map(async |endpoint| {
            let connected = self.connect_to(std::slice::from_ref(endpoint), user, answer);
            connected.await.map_err(etcd("log in"))
        });
        let (mut clients, mut result) = (Vec::new(), Ok(()));
        for member in join_all(members).await {
            match member {
                Ok(member) => clients.push(member),
                Err(error) => result = Err(error),
            }
        }
        match result {
            Err(error) if clients.is_empty() => Err(error),
            Err(error) => {
                let error = runtime::error_chain::chain(&error);
                tracing::warn!(
                    error,
                    "cannot connect to a member of the storage; continuing with the others"
                );
                Ok(clients)
            }
            Ok(()) => Ok(clients),
        }
    }

    /// Checks that every member that answers is of a release in which a user can access only the keys of its role.
    pub(super) async fn keeps_users_apart(&self) -> Result<(), Error> {
        let mut result = Err(Error::Timeout {
            within: ANSWER_TIMEOUT,
        });
        for endpoint in &self.endpoints {
            match self.release(endpoint).await {
                Ok(release) if !release::keeps_users_apart(&release) => return Err(Error::Release(release)),
                Ok(_) => result = Ok(()),
                Err(error) => result = result.or(Err(error)),
            }
        }
        result
    }

    async fn release(&self, endpoint: &String) -> Result<String, Error> {
        let password = self.password().await?;
        let user = Some((self.user.as_str(), password.as_str()));
        let member = self.connect_to(std::slice::from_ref(endpoint), user, ANSWER_TIMEOUT);
        let mut member = member.await.map_err(etcd("log in"))?;
        let status = member.status().await.map_err(etcd("report its release"))?;
        Ok(status.version().to_owned())
    }

    /// Whether a user has this password.
    pub(super) async fn accepts_password(&self, user: &str, password: &str) -> Result<bool, Error> {
        match self.connect_as(Some((user, password))).await {
            Ok(_) => Ok(true),
            Err(error) if message_contains(&error, "invalid user ID or password") => Ok(false),
            Err(error) => Err(etcd("log in as a provider")(error)),
        }
    }

    async fn password(&self) -> Result<String, Error> {
        let text = read(&self.password).await?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    async fn require_passwords(&self, password: &str) -> Result<(), Error> {
        let user = self.user.as_str();
        let mut client = self.connect_as(None).await.map_err(etcd("connect"))?;
        // Turning on authentication would lock out other users of this etcd.
        let count = foreign_keys(&mut client).await?;
        if count > 0 {
            return Err(Error::Foreign { count });
        }
        ignore_already_exists(client.user_add(user, password, None).await).map_err(etcd("add a user"))?;
        let changed = client.user_change_password(user, password).await;
        changed.map_err(etcd("change a password"))?;
        // This role is built in. etcd turns on authentication only when a user has it.
        let granted = client.user_grant_role(user, ROOT_ROLE).await;
        granted.map_err(etcd("grant a role"))?;
        let marked = client.put(UNTRUSTED_KEY, "", None).await;
        marked.map_err(etcd("write a key"))?;
        client
            .auth_enable()
            .await
            .map(drop)
            .map_err(etcd("turn on authentication"))?;
        tracing::info!("turned on authentication in the storage of identity providers");
        Ok(())
    }

    async fn connect_as(&self, user: Option<(&str, &str)>) -> Result<Client, etcd_client::Error> {
        self.connect_to(&self.endpoints, user, ANSWER_TIMEOUT).await
    }

    async fn connect_to(
        &self,
        endpoints: &[String],
        user: Option<(&str, &str)>,
        answer: Duration,
    ) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ANSWER_TIMEOUT)
            .with_timeout(answer);
        if let Some((user, password)) = user {
            options = options.with_user(user, password);
        }
        if let Some(path) = &self.ca {
            let authority = Certificate::from_pem(tokio::fs::read(path).await?);
            options = options.with_tls(TlsOptions::new().ca_certificate(authority));
        }
        Client::connect(endpoints, Some(options)).await
    }
}

/// How many keys are neither a provider's nor the agent's own.
async fn foreign_keys(client: &mut Client) -> Result<i64, Error> {
    let mut count = async |key: &str, options: GetOptions| {
        let counted = client.get(key, Some(options.with_count_only())).await;
        counted.map(|counted| counted.count()).map_err(etcd("count keys"))
    };
    let own = count(UNTRUSTED_KEY, GetOptions::new()).await?
        + count(&format!("{NAME_PREFIX}/"), GetOptions::new().with_prefix()).await?;
    Ok(count("\0", GetOptions::new().with_from_key()).await? - own)
}

/// Removes what etcd held before it required passwords: any client could have added users with all rights, or keys with which a provider would
/// sign. Each step may have been done before; the last one removes the mark.
async fn remove_untrusted(client: &mut Client, own: &str) -> Result<(), Error> {
    let users = client.user_list().await.map_err(etcd("list users"))?;
    for user in users.users().iter().filter(|user| *user != own) {
        tracing::warn!(user, "removing a user from before the storage required passwords");
        ignore_not_found(client.user_delete(&**user).await).map_err(etcd("delete a user"))?;
    }
    let roles = client.role_list().await.map_err(etcd("list roles"))?;
    for role in roles.roles().iter().filter(|role| *role != ROOT_ROLE) {
        ignore_not_found(client.role_delete(&**role).await).map_err(etcd("delete a role"))?;
    }
    let all = DeleteOptions::new().with_prefix();
    let keys = client.delete(format!("{NAME_PREFIX}/"), Some(all)).await;
    keys.map_err(etcd("delete keys"))?;
    let done = client.delete(UNTRUSTED_KEY, None).await;
    done.map(drop).map_err(etcd("delete a key"))
}

async fn read(path: &PathBuf) -> Result<String, Error> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| Error::File {
            path: path.clone(),
            source,
        })
}

/// Treats "already exists" as success.
pub(super) fn ignore_already_exists<T>(
    added: Result<T, etcd_client::Error>,
) -> Result<(), etcd_client::Error> {
    ignore_message(added, "already exists")
}

/// Treats "not found" as success.
pub(super) fn ignore_not_found<T>(deleted: Result<T, etcd_client::Error>) -> Result<(), etcd_client::Error> {
    ignore_message(deleted, "not found")
}

/// `None` where etcd answers "not found".
pub(super) fn none_if_not_found<T>(
    result: Result<T, etcd_client::Error>,
) -> Result<Option<T>, etcd_client::Error> {
    match result {
        Err(error) if message_contains(&error, "not found") => Ok(None),
        result => result.map(Some),
    }
}

fn ignore_message<T>(result: Result<T, etcd_client::Error>, words: &str) -> Result<(), etcd_client::Error> {
    match result {
        Err(error) if message_contains(&error, words) => Ok(()),
        result => result.map(drop),
    }
}

pub(super) fn message_contains(error: &etcd_client::Error, words: &str) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains(words))
}
