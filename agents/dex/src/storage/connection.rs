//! Connections to etcd, as the user who may add users.

use std::path::PathBuf;

use etcd_client::{Certificate, Client, ConnectOptions, TlsOptions};

use super::{ANSWER, Error, StorageArgs, etcd};

/// A client with the rights to add users. An etcd without authentication has it from now on: before, no provider is
/// separate from another. It is one that was just installed, or one that has lost its data.
pub(super) async fn connect(args: &StorageArgs) -> Result<Client, Error> {
    let password = match &args.password {
        Some(path) => Some(read(path).await?.trim_end_matches(['\r', '\n']).to_owned()),
        None => None,
    };
    let Some(password) = password else {
        return connect_as(args, None).await.map_err(etcd("connect"));
    };
    let user = Some((args.user.as_str(), password.as_str()));
    match connect_as(args, user).await {
        Err(error) if says(&error, "authentication is not enabled") => {
            require_passwords(args, &password).await?;
            connect_as(args, user).await.map_err(etcd("log in"))
        }
        connected => connected.map_err(etcd("log in")),
    }
}

async fn require_passwords(args: &StorageArgs, password: &str) -> Result<(), Error> {
    let user = args.user.as_str();
    let mut client = connect_as(args, None).await.map_err(etcd("connect"))?;
    present(client.user_add(user, password, None).await).map_err(etcd("add a user"))?;
    let changed = client.user_change_password(user, password).await;
    changed.map_err(etcd("change a password"))?;
    // This role is built in, and etcd turns on authentication only when a user has it.
    let granted = client.user_grant_role(user, "root").await;
    granted.map_err(etcd("grant a role"))?;
    client
        .auth_enable()
        .await
        .map(drop)
        .map_err(etcd("turn on authentication"))?;
    tracing::info!("turned on authentication in the storage of identity providers");
    Ok(())
}

/// Whether a user has this password.
pub(super) async fn admits(args: &StorageArgs, user: &str, password: &str) -> Result<bool, Error> {
    match connect_as(args, Some((user, password))).await {
        Ok(_) => Ok(true),
        Err(error) if says(&error, "invalid user ID or password") => Ok(false),
        Err(error) => Err(etcd("log in as a provider")(error)),
    }
}

async fn connect_as(args: &StorageArgs, user: Option<(&str, &str)>) -> Result<Client, etcd_client::Error> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(ANSWER)
        .with_timeout(ANSWER);
    if let Some((user, password)) = user {
        options = options.with_user(user, password);
    }
    if let Some(path) = &args.ca {
        let authority = Certificate::from_pem(tokio::fs::read(path).await?);
        options = options.with_tls(TlsOptions::new().ca_certificate(authority));
    }
    Client::connect(&args.endpoints, Some(options)).await
}

pub(super) async fn read(path: &PathBuf) -> Result<String, Error> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| Error::File {
            path: path.clone(),
            source,
        })
}

/// That something is there already is as good as having added it.
pub(super) fn present<T>(added: Result<T, etcd_client::Error>) -> Result<(), etcd_client::Error> {
    unless(added, "already exists")
}

/// That something is gone already is as good as having deleted it.
pub(super) fn absent<T>(deleted: Result<T, etcd_client::Error>) -> Result<(), etcd_client::Error> {
    unless(deleted, "not found")
}

/// What there is; `None`: etcd does not have it.
pub(super) fn found<T>(found: Result<T, etcd_client::Error>) -> Result<Option<T>, etcd_client::Error> {
    match found {
        Err(error) if says(&error, "not found") => Ok(None),
        found => found.map(Some),
    }
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
