//! The `ConfigMap` with the configuration.

use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kit::followed;
use kube::{Api, Client};
use render::load_balancer::{CONFIG_FILE, MEMBERSHIP_FILE};
use runtime::error_chain::chain;
use tokio::sync::watch;

use crate::wanted::Wanted;

/// The newest configuration.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The newest valid one.
    pub newest: Option<Arc<Wanted>>,
    /// Why the newer one in the `ConfigMap` cannot be used, for messages.
    pub unusable: Option<String>,
}

impl Source {
    /// Parses a `ConfigMap`; returns whether anything changed.
    pub fn take(&mut self, config_map: &ConfigMap) -> bool {
        let value = |key: &str| config_map.data.as_ref()?.get(key).map(String::as_str);
        let Some(config) = value(CONFIG_FILE) else {
            return self.refuse(&format!("the ConfigMap has no key {CONFIG_FILE}"));
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

/// Watches the `ConfigMap`. A deleted one counts as it was last: the load balancer keeps its configuration.
///
/// # Errors
/// None: it tries again.
pub async fn follow(
    client: Client,
    namespace: &str,
    name: &str,
    source: watch::Sender<Source>,
) -> Result<(), Infallible> {
    let observe = |config_map: Option<ConfigMap>| {
        let Some(config_map) = config_map else {
            tracing::warn!(
                namespace,
                name,
                "the ConfigMap does not exist; keeping its last configuration"
            );
            return;
        };
        let version = config_map.metadata.resource_version.as_deref();
        let is_new = source.send_if_modified(|source| source.take(&config_map));
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
            Some(_) | None => tracing::debug!(namespace, name, version, is_new, "read the ConfigMap"),
        }
    };
    followed::follow(Api::namespaced(client, namespace), name, observe).await
}

#[cfg(test)]
mod tests {
    use super::*;

    type Data<'a> = &'a [(&'a str, &'a str)];

    fn config_map(data: Data<'_>) -> ConfigMap {
        let data = data.iter();
        let data = data.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ConfigMap {
            data: Some(data.collect()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn an_invalid_config_map_keeps_the_previous_configuration() {
        let mut source = Source::default();
        assert!(source.take(&config_map(&[(CONFIG_FILE, "global\n")])));
        assert!(
            !source.take(&config_map(&[(CONFIG_FILE, "global\n")])),
            "nothing is new"
        );
        let digest = source.newest.clone().unwrap().digest().to_owned();
        let broken: [(Data<'_>, &str); 3] = [
            (&[], "no key haproxy.cfg"),
            (&[("else", "global\n")], "no key haproxy.cfg"),
            (
                &[(CONFIG_FILE, "global\n"), (MEMBERSHIP_FILE, "{}")],
                "membership.json cannot be used: it is not JSON of the expected schema: missing field",
            ),
        ];
        for (data, why) in broken {
            source.take(&config_map(data));
            let unusable = source.unusable.clone().unwrap();
            assert!(unusable.contains(why), "{unusable}");
            assert_eq!(source.newest.as_ref().unwrap().digest(), digest);
        }
        assert!(
            source.take(&config_map(&[(CONFIG_FILE, "global\n")])),
            "it is usable again"
        );
        assert_eq!(source.unusable, None);
    }
}
