//! The Secret with the configuration.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::sync::Arc;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kit::retries::watch_pauses;
use kube::runtime::{WatchStreamExt as _, watcher::watch_object};
use kube::{Api, Client};
use render::load_balancer::{CONFIG_FILE, MEMBERSHIP_FILE};
use runtime::error_chain::chain;
use tokio::sync::watch;

use crate::wanted::Wanted;

/// The newest configuration.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The newest that can be used.
    pub newest: Option<Arc<Wanted>>,
    /// Why what is newer than that cannot be, for people.
    pub unusable: Option<String>,
}

impl Source {
    /// Takes what a Secret holds. Whether anything is new.
    pub fn take(&mut self, secret: &Secret) -> bool {
        let value = |key: &str| {
            let data = secret.data.as_ref()?;
            data.get(key).map(|bytes| bytes.0.as_slice())
        };
        let Some(config) = value(CONFIG_FILE) else {
            return self.refuse(&format!("the Secret has no key {CONFIG_FILE}"));
        };
        match Wanted::parse(config, value(MEMBERSHIP_FILE)) {
            Ok(wanted) => {
                let is_new = self.newest.as_deref() != Some(&wanted);
                if is_new {
                    self.newest = Some(Arc::new(wanted));
                }
                self.unusable.take().is_some() || is_new
            }
            Err(error) => self.refuse(&chain(&error)),
        }
    }

    fn refuse(&mut self, why: &str) -> bool {
        let why = Some(format!("the newest configuration cannot be used: {why}"));
        let is_new = self.unusable != why;
        self.unusable = why;
        is_new
    }
}

/// Follows the Secret, for ever. One that is deleted counts as it was: its load balancer is not to stop by that.
///
/// # Errors
/// None: it tries again.
pub async fn follow(
    client: Client,
    namespace: &str,
    name: &str,
    source: watch::Sender<Source>,
) -> Result<(), Infallible> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let events = watch_object(api, name).backoff(watch_pauses());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Some(secret)) => {
                let version = secret.metadata.resource_version.as_deref();
                let is_new = source.send_if_modified(|source| source.take(&secret));
                let unusable = source.borrow().unusable.clone();
                match unusable {
                    Some(why) if is_new => {
                        tracing::warn!(
                            namespace,
                            name,
                            version,
                            why,
                            "keeping the previous configuration"
                        );
                    }
                    Some(_) | None => {
                        tracing::debug!(namespace, name, version, is_new, "read the Secret");
                    }
                }
            }
            Ok(None) => tracing::warn!(
                namespace,
                name,
                "the Secret does not exist; keeping its last configuration"
            ),
            Err(error) => tracing::warn!(
                namespace,
                name,
                error = &error as &dyn StdError,
                "the Secret cannot be watched; retrying"
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    type Data<'a> = &'a [(&'a str, &'a [u8])];

    fn secret(data: Data<'_>) -> Secret {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
        Secret {
            data: Some(data.collect()),
            ..Secret::default()
        }
    }

    #[test]
    fn what_cannot_be_used_leaves_the_configuration_before() {
        let mut source = Source::default();
        assert!(source.take(&secret(&[(CONFIG_FILE, b"global\n")])));
        assert!(
            !source.take(&secret(&[(CONFIG_FILE, b"global\n")])),
            "nothing is new"
        );
        let digest = source.newest.clone().unwrap().digest().to_owned();
        let broken: [(Data<'_>, &str); 4] = [
            (&[], "no key haproxy.cfg"),
            (&[("else", b"global\n")], "no key haproxy.cfg"),
            (
                &[(CONFIG_FILE, b"\xff")],
                "haproxy.cfg is not UTF-8: invalid utf-8 sequence",
            ),
            (
                &[(CONFIG_FILE, b"global\n"), (MEMBERSHIP_FILE, b"{}")],
                "membership.json cannot be used: it is not of its form: missing field",
            ),
        ];
        for (data, why) in broken {
            source.take(&secret(data));
            let unusable = source.unusable.clone().unwrap();
            assert!(unusable.contains(why), "{unusable}");
            assert_eq!(source.newest.as_ref().unwrap().digest(), digest);
        }
        assert!(
            source.take(&secret(&[(CONFIG_FILE, b"global\n")])),
            "it is usable again"
        );
        assert_eq!(source.unusable, None);
    }
}
