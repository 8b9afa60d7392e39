//! Whether the Secrets that an entry names have the expected content. Only pods use the content: the agent reads it to report what is wrong with
//! it.

use std::collections::BTreeMap;

use api::{
    JumpHost,
    conditions::jump_host::{KEY_SECRET_INVALID, KEY_SECRET_MISSING, KUBECONFIG_MISSING},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kit::{
    apply,
    service::{Error, Problem},
};
use kube::{Api, Client};
use render::jump_host::{interface::KUBECONFIG_KEY, node_keys::NodeKeys};

/// What a Secret has, or why it is not known.
type Content = Result<BTreeMap<String, ByteString>, String>;

/// What is wrong with the Secrets that an entry names.
pub(crate) async fn problems(
    client: &Client,
    namespace: &str,
    jump_host: &JumpHost,
) -> Result<Vec<Problem>, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut problems = Vec::new();
    if let Some(name) = jump_host.node_ssh_private_keys() {
        problems.extend(node_keys(name, &find(&secrets, name).await?));
    }
    if let Some(name) = jump_host.kubeconfig_secret() {
        problems.extend(kubeconfig(name, &find(&secrets, name).await?));
    }
    Ok(problems)
}

async fn find(secrets: &Api<Secret>, name: &str) -> Result<Content, Error> {
    match secrets.get(name).await {
        Ok(secret) => Ok(Ok(secret.data.unwrap_or_default())),
        Err(error) if apply::code(&error) == Some(404) => Ok(Err("does not exist".to_owned())),
        Err(error) if apply::is_refusal(&error) => {
            Ok(Err(format!("cannot be read: {}", apply::reason(&error))))
        }
        Err(error) => Err(Error::kubernetes("read a Secret that the spec names")(error)),
    }
}

fn node_keys(name: &str, found: &Content) -> Option<Problem> {
    let data = match found {
        Ok(data) => data,
        Err(why) => {
            let message = format!("nodeSSHPrivateKeys: the Secret {name} {why}");
            return Some(Problem::new(KEY_SECRET_MISSING, message));
        }
    };
    let NodeKeys { unusable, keys, .. } = NodeKeys::read(data);
    if !unusable.is_empty() {
        let message = format!(
            "nodeSSHPrivateKeys: the Secret {name} has values that are no private keys: {}",
            unusable.join(", ")
        );
        return Some(Problem::new(KEY_SECRET_INVALID, message));
    }
    keys.is_empty().then(|| {
        let message = format!("nodeSSHPrivateKeys: the Secret {name} has no private key");
        Problem::new(KEY_SECRET_INVALID, message)
    })
}

fn kubeconfig(name: &str, found: &Content) -> Option<Problem> {
    let why = match found {
        Ok(data) if data.contains_key(KUBECONFIG_KEY) => return None,
        Ok(_) => format!("has no key {KUBECONFIG_KEY}"),
        Err(why) => why.clone(),
    };
    let message = format!("kubeconfigSecret: the Secret {name} {why}");
    Some(Problem::new(KUBECONFIG_MISSING, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(names: &[&str]) -> BTreeMap<String, ByteString> {
        let values = names.iter();
        let values = values.map(|name| ((*name).to_owned(), ByteString(b"DUMMY_DATA".to_vec())));
        values.collect()
    }

    #[test]
    fn a_problem_names_the_secret_and_its_key() {
        let absent = || Err("does not exist".to_owned());
        for (problem, expected) in [
            (
                node_keys("keys", &absent()),
                Some((
                    KEY_SECRET_MISSING,
                    "nodeSSHPrivateKeys: the Secret keys does not exist",
                )),
            ),
            (
                node_keys("keys", &Ok(data(&["b", "a"]))),
                Some((
                    KEY_SECRET_INVALID,
                    "nodeSSHPrivateKeys: the Secret keys has values that are no private keys: a, b",
                )),
            ),
            (
                node_keys("keys", &Ok(data(&["known_hosts"]))),
                Some((
                    KEY_SECRET_INVALID,
                    "nodeSSHPrivateKeys: the Secret keys has no private key",
                )),
            ),
            (kubeconfig("kube", &Ok(data(&["value"]))), None),
            (
                kubeconfig("kube", &Ok(data(&["config"]))),
                Some((
                    KUBECONFIG_MISSING,
                    "kubeconfigSecret: the Secret kube has no key value",
                )),
            ),
            (
                kubeconfig("kube", &absent()),
                Some((
                    KUBECONFIG_MISSING,
                    "kubeconfigSecret: the Secret kube does not exist",
                )),
            ),
        ] {
            let problem = problem.map(|problem| (problem.reason, problem.message));
            let expected = expected.map(|(reason, message)| (reason, message.to_owned()));
            assert_eq!(problem, expected);
        }
    }
}
