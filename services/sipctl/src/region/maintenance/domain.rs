//! Cordoned domains in a site's policy, where the policy is: a file, or a `ConfigMap` that becomes one.

use std::{fmt::Write as _, io::Write as _, path::Path, path::PathBuf};

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use placement::{Domain, Policy};
use serde_json::json;

use super::{
    PolicyLocation,
    access::{self, Access},
};
use crate::files;
use crate::region::outcome::{DRY_RUN, Outcome};

/// Where the site's policy is.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub struct PolicyArgs {
    /// For a domain: file with the site policy, in the format of the scheduler's --site-policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// For a domain: `ConfigMap` with the site policy, in the Kubernetes cluster of the scheduler [default key: policy.yaml]
    #[arg(long, value_name = "NS/NAME[/KEY]", value_parser = config_map)]
    policy_configmap: Option<ConfigMapKey>,
}

/// A key of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigMapKey {
    namespace: String,
    name: String,
    key: String,
}

fn config_map(text: &str) -> Result<ConfigMapKey, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (namespace, name, key) = match *parts {
        [namespace, name] => (namespace, name, "policy.yaml"),
        [namespace, name, key] => (namespace, name, key),
        _ => return Err("expected NS/NAME or NS/NAME/KEY".to_owned()),
    };
    if [namespace, name, key].contains(&"") {
        return Err("expected NS/NAME or NS/NAME/KEY".to_owned());
    }
    Ok(ConfigMapKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    })
}

impl PolicyArgs {
    pub(super) fn location(self) -> Option<PolicyLocation> {
        let Self {
            policy,
            policy_configmap,
        } = self;
        let config_map = policy_configmap
            .map(|ConfigMapKey { namespace, name, key }| PolicyLocation::ConfigMap { namespace, name, key });
        policy.map(PolicyLocation::File).or(config_map)
    }
}

/// The message for a person who has not named the location of the policy.
pub(super) fn missing_policy(domain: &Domain) -> String {
    format!(
        "no policy of the site is named: set --policy FILE or --policy-configmap NS/NAME; or edit the policy by hand, below \
         `cordoned`: {{key: {}, value: {:?}}}",
        domain.key,
        domain.value.as_str()
    )
}

/// Says what will happen to a domain, and does it.
///
/// # Errors
/// When the policy cannot be read or written.
pub(super) async fn mark(
    location: PolicyLocation,
    access: Access,
    domain: Domain,
    cordoned: bool,
    dry_run: bool,
) -> anyhow::Result<Outcome> {
    let mut text = if cordoned {
        format!(
            "No new claim takes a host with the label {domain}; members on such hosts stay where they are.\n"
        )
    } else {
        format!("Claims may take hosts with the label {domain} again, unless another reason prevents it.\n")
    };
    let edit = Edit { domain, cordoned };
    let refusal = match location {
        PolicyLocation::File(path) => in_file(&path, &edit, dry_run, &mut text)?,
        PolicyLocation::ConfigMap { namespace, name, key } => {
            let maps: Api<ConfigMap> = Api::namespaced(access.client().await?, &namespace);
            in_config_map(&maps, &name, &key, &edit, dry_run, &mut text).await?
        }
    };
    Ok(match refusal {
        Some(refusal) => Outcome::refused(text, refusal),
        None => Outcome::done(text),
    })
}

/// Adds a domain to the cordoned ones, or removes it.
struct Edit {
    domain: Domain,
    cordoned: bool,
}

impl Edit {
    /// The policy's new text; `None` if the policy is already as wanted. Comments are not kept.
    fn apply(&self, policy: &Policy) -> anyhow::Result<Option<String>> {
        let Self { domain, cordoned } = self;
        let mut next = policy.clone();
        if *cordoned {
            next.cordoned.insert(domain.clone());
        } else {
            next.cordoned.remove(domain);
        }
        if next == *policy {
            return Ok(None);
        }
        let text = serde_saphyr::to_string(&next).context("the policy cannot be written as YAML")?;
        Ok(Some(text))
    }

    fn state(&self) -> String {
        let not = if self.cordoned { "" } else { "not " };
        format!("{} is {not}cordoned", self.domain)
    }
}

const RELOAD_HINT: &str = "a running scheduler reloads it";

fn in_file(path: &Path, edit: &Edit, dry_run: bool, text: &mut String) -> anyhow::Result<Option<String>> {
    let shown = path.display();
    let Some(next) = edit.apply(&files::policy(path)?)? else {
        writeln!(text, "Nothing to do: {} already.", edit.state())?;
        return Ok(None);
    };
    if dry_run {
        write!(text, "{shown} would be:\n{next}{DRY_RUN}")?;
        return Ok(None);
    }
    // The file that a link leads to, not the link: in its place, as a whole.
    let file = path
        .canonicalize()
        .with_context(|| format!("{shown} cannot be found"))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mut whole = tempfile::NamedTempFile::new_in(folder)?;
        whole.write_all(next.as_bytes())?;
        whole
            .as_file()
            .set_permissions(std::fs::metadata(&file)?.permissions())?;
        whole.as_file().sync_all()?;
        whole.persist(&file).map(drop).map_err(|error| error.error)
    };
    written().with_context(|| format!("{shown} cannot be written"))?;
    writeln!(text, "Done: {}, in {shown}; {RELOAD_HINT}.", edit.state())?;
    Ok(None)
}

async fn in_config_map(
    maps: &Api<ConfigMap>,
    name: &str,
    key: &str,
    edit: &Edit,
    dry_run: bool,
    text: &mut String,
) -> anyhow::Result<Option<String>> {
    let tried = async || {
        let map = maps.get(name).await.map_err(Fault::Kubernetes)?;
        let Some(policy) = map.data.as_ref().and_then(|data| data.get(key)) else {
            return Err(Fault::Refused(format!("ConfigMap {name} has no key {key}")));
        };
        let policy: Policy = serde_saphyr::from_str(policy)
            .map_err(|error| Fault::Refused(format!("ConfigMap {name}, {key}: {error}")))?;
        let next = edit.apply(&policy).map_err(Fault::Other)?;
        if let Some(next) = next.as_ref().filter(|_| !dry_run) {
            let patch = json!({
                "metadata": { "uid": map.uid(), "resourceVersion": map.resource_version() },
                "data": { key: next },
            });
            let params = PatchParams {
                field_manager: Some("sipctl".to_owned()),
                ..PatchParams::default()
            };
            let patched = maps.patch(name, &params, &Patch::Merge(patch)).await;
            patched.map_err(Fault::Kubernetes)?;
        }
        Ok(next)
    };
    let tried = tried
        .retry(ExponentialBuilder::default().with_max_times(5))
        .when(|fault| matches!(fault, Fault::Kubernetes(error) if access::is_conflict(error)));
    match tried.await {
        Ok(None) => writeln!(text, "Nothing to do: {} already.", edit.state())?,
        Ok(Some(next)) if dry_run => write!(text, "{key} of ConfigMap {name} would be:\n{next}{DRY_RUN}")?,
        Ok(Some(_)) => writeln!(
            text,
            "Done: {}, in ConfigMap {name}; {RELOAD_HINT} when its file has changed, within two minutes.",
            edit.state()
        )?,
        Err(Fault::Refused(why)) => return Ok(Some(why)),
        Err(Fault::Kubernetes(error)) => return access::refused(error).map(Some),
        Err(Fault::Other(error)) => return Err(error),
    }
    Ok(None)
}

/// Why a `ConfigMap` was not changed.
enum Fault {
    Kubernetes(kube::Error),
    Refused(String),
    Other(anyhow::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(cordoned: bool) -> Edit {
        Edit {
            domain: crate::lose::parse_domain("rack=r1").unwrap(),
            cordoned,
        }
    }

    #[test]
    fn cordoning_a_domain_changes_nothing_else_of_the_policy() {
        let before = "hierarchy: [room, rack]\nquotas: {tenant: 5}\ncordoned: [{key: rack, value: r9}]\n";
        let before: Policy = serde_saphyr::from_str(before).unwrap();
        let text = edit(true).apply(&before).unwrap().unwrap();
        let after: Policy = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(after.cordoned.len(), 2);
        assert_eq!(
            (&after.hierarchy, &after.quotas),
            (&before.hierarchy, &before.quotas)
        );
        assert_eq!(edit(true).apply(&after).unwrap(), None);
        let text = edit(false).apply(&after).unwrap().unwrap();
        assert_eq!(serde_saphyr::from_str::<Policy>(&text).unwrap(), before);
        assert_eq!(edit(false).apply(&before).unwrap(), None);
    }

    #[test]
    fn a_file_is_changed_as_a_whole_and_a_dry_run_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        std::fs::write(&path, "hierarchy: [rack]\n").unwrap();
        let mut text = String::new();
        assert_eq!(in_file(&path, &edit(true), true, &mut text).unwrap(), None);
        assert!(text.contains("value: r1") && text.ends_with(DRY_RUN), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hierarchy: [rack]\n");

        in_file(&path, &edit(true), false, &mut text).unwrap();
        assert_eq!(files::policy(&path).unwrap().cordoned.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(in_file(&folder.path().join("none"), &edit(true), false, &mut text).is_err());
    }

    #[test]
    fn a_config_map_is_named_with_its_namespace() {
        assert_eq!(config_map("a/b").unwrap().key, "policy.yaml");
        assert_eq!(config_map("a/b/c.yaml").unwrap().key, "c.yaml");
        for bad in ["a", "a/", "a/b/c/d"] {
            assert!(config_map(bad).is_err(), "{bad}");
        }
    }
}
