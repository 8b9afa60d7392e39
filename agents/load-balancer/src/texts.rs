//! Identifies the configuration that the pods of a load balancer have to run, where they have no sidecar. A pod that starts reads the
//! `ConfigMap`, which may be newer than the Deployment. When an earlier text is restored, pods that were made for it may run the text in between.
//! So a restored text gets a new mark, which stays on the `ConfigMap` as long as the text.

use api::annotations;
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kit::service::{Error, Observed};
use kube::{Api, Client, ResourceExt as _};
use render::load_balancer::{CONFIG_FILE, config_digest};

/// The configuration on the API server before another one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CurrentText {
    /// There is no configuration. What was there before is not known, so the new text gets this mark.
    Absent { mark: String },
    /// The digest of a text, its mark, and the version of the object.
    Present {
        digest: String,
        mark: Option<String>,
        version: String,
    },
}

impl CurrentText {
    /// The configuration that this agent has written, unless the watch has delivered another since; otherwise the one on the API server now. The
    /// write that follows is made on the condition that it has not changed.
    pub(crate) async fn find(client: &Client, observed: &Observed<'_>, name: &str) -> Result<Self, Error> {
        match observed.written_configuration(name) {
            Some((configuration, version)) => Ok(Self::written(configuration, version)),
            None => Self::read(client, &observed.namespace(), name).await,
        }
    }

    async fn read(client: &Client, namespace: &str, name: &str) -> Result<Self, Error> {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let found = maps.get_opt(name).await;
        let found = found.map_err(Error::kubernetes("read the configuration"))?;
        Ok(match found {
            Some(map) => Self::present(&map),
            None => Self::Absent {
                mark: Timestamp::now().as_nanosecond().to_string(),
            },
        })
    }

    /// From a text that [`with_mark`] has made.
    fn written(configuration: &str, version: &str) -> Self {
        let (digest, mark) = split_mark(configuration);
        Self::Present {
            digest: digest.to_owned(),
            mark: mark.map(str::to_owned),
            version: version.to_owned(),
        }
    }

    fn present(map: &ConfigMap) -> Self {
        let text = map.data.as_ref().and_then(|data| data.get(CONFIG_FILE));
        Self::Present {
            digest: text.map_or_else(String::new, |text| config_digest(text)),
            mark: map.annotations().get(annotations::CONFIG_MARK).cloned(),
            version: map.resource_version().unwrap_or_default(),
        }
    }

    /// The mark of the text that is written next: the existing mark if the text is the same.
    pub(crate) fn mark(&self, next: &str) -> Option<String> {
        match self {
            Self::Absent { mark } => Some(mark.clone()),
            Self::Present { digest, mark, .. } if digest == next => mark.clone(),
            Self::Present { version, .. } => Some(version.clone()),
        }
    }
}

/// Separates the digest of a text from its mark.
const MARK_SEPARATOR: char = '.';

/// Identifies the configuration for pods: the digest of its text, and the mark.
pub(crate) fn with_mark(digest: &str, mark: Option<&str>) -> String {
    mark.map_or_else(
        || digest.to_owned(),
        |mark| format!("{digest}{MARK_SEPARATOR}{mark}"),
    )
}

/// The digest in such an identifier.
pub(crate) fn digest(configuration: &str) -> &str {
    split_mark(configuration).0
}

/// The digest and the mark in such an identifier.
fn split_mark(configuration: &str) -> (&str, Option<&str>) {
    match configuration.split_once(MARK_SEPARATOR) {
        Some((digest, mark)) => (digest, Some(mark)),
        None => (configuration, None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn current(text: &str, mark: &Value, version: &str) -> CurrentText {
        let map = json!({
            "metadata": {"resourceVersion": version, "annotations": {(annotations::CONFIG_MARK): mark}},
            "data": {(CONFIG_FILE): text},
        });
        let mut map: Value = map;
        if mark.is_null() {
            map["metadata"]["annotations"] = Value::Null;
        }
        CurrentText::present(&serde_json::from_value(map).unwrap())
    }

    #[test]
    fn a_text_that_comes_back_is_another_one() {
        let [first, second] = ["first\n", "second\n"].map(config_digest);
        let absent = CurrentText::Absent {
            mark: "now".to_owned(),
        };
        assert_eq!(absent.mark(&first).as_deref(), Some("now"));
        let made = current("first\n", &json!("now"), "7");
        assert_eq!(made.mark(&first).as_deref(), Some("now"), "it stays");
        assert_eq!(made.mark(&second).as_deref(), Some("7"));
        let current_second = current("second\n", &json!("7"), "9");
        assert_eq!(current_second.mark(&first).as_deref(), Some("9"), "it comes back");
        let without = current("first\n", &Value::Null, "5");
        assert_eq!(
            without.mark(&first),
            None,
            "one of before marks were written stays"
        );
        assert_eq!(without.mark(&second).as_deref(), Some("5"));
    }

    #[test]
    fn what_was_written_is_what_would_be_read() {
        for mark in [Value::Null, json!("5")] {
            let read = current("first\n", &mark, "7");
            let configuration = with_mark(&config_digest("first\n"), mark.as_str());
            assert_eq!(CurrentText::written(&configuration, "7"), read);
        }
    }

    #[test]
    fn pods_report_the_digest_without_the_mark() {
        for (mark, configuration) in [(None, "00ff"), (Some("7"), "00ff.7")] {
            assert_eq!(with_mark("00ff", mark), configuration);
            assert_eq!(digest(configuration), "00ff");
        }
    }
}
