//! An entry that is refused, or cannot be applied yet, no longer admits users whom it does not name: the agent only removes lines of what its pods
//! read.

use std::collections::{BTreeMap, BTreeSet};

use api::{Cluster, JumpHost};
use k8s_openapi::api::core::v1::ConfigMap;
use kit::{
    apply,
    service::{self, Error},
};
use kube::{Api, Client, ResourceExt as _};
use render::jump_host::{
    authorized_keys::{Authority, AuthorizedKey},
    files::{ALL, AUTHORITIES, AUTHORIZED_KEYS},
    interface::POWER_CA_KEY,
    plan::instance,
};

use crate::identity::MANAGER;

/// Removes the keys and authorities from the entry's `ConfigMap` that the entry does not name. One that is not the cluster's stays as it is, and
/// so does everything else of ours.
pub(crate) async fn revoke(client: &Client, cluster: &Cluster, entry: &JumpHost) -> Result<(), Error> {
    let instance = instance(cluster, entry);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), cluster.namespace());
    let found = maps.get_opt(instance.name()).await;
    let found = found.map_err(Error::kubernetes(
        "read the ConfigMap of a jump host that is not applied",
    ))?;
    let Some(found) = found.filter(|found| belongs_to(found, cluster)) else {
        return Ok(());
    };
    let files = found.data.clone().unwrap_or_default();
    let Some(data) = without_removed_lines(files, entry) else {
        return Ok(());
    };
    let mut metadata = instance.metadata();
    // Another replica may have written it since.
    metadata.resource_version = found.resource_version();
    let map = ConfigMap {
        metadata,
        data: Some(data),
        ..ConfigMap::default()
    };
    let applied = apply::apply::<ConfigMap>(client, MANAGER, &map).await;
    applied.map_err(Error::kubernetes(
        "remove keys from the ConfigMap of a jump host that is not applied",
    ))?;
    tracing::info!(
        namespace = cluster.namespace(),
        name = instance.name(),
        "removed keys that the entry of a jump host does not name, though the entry is not applied"
    );
    Ok(())
}

/// Whether a `ConfigMap` is the cluster's: it owns it, or it has no owner and was made for a cluster of this name, such as a former one that was
/// deleted with `--cascade=orphan`.
fn belongs_to(found: &ConfigMap, cluster: &Cluster) -> bool {
    let owners = found.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.kind == "SIPCluster").peekable();
    if owners.peek().is_some() {
        return owners.any(|owner| owner.uid == cluster.uid());
    }
    service::made_for(found.labels()) == Some(cluster.name())
}

/// The files without the lines that the entry does not have; `None`: it has all of them.
fn without_removed_lines(
    mut files: BTreeMap<String, String>,
    entry: &JumpHost,
) -> Option<BTreeMap<String, String>> {
    // A line with another comment admits the same person: it stays as it is.
    let key = |line: &str| {
        let key = AuthorizedKey::parse(line).ok()?;
        Some(key.without_comment().to_string())
    };
    let authority = |line: &str| {
        let authority = Authority::parse(line).ok()?;
        Some(authority.without_comment().to_string())
    };
    let keys = remaining_lines(&files, AUTHORIZED_KEYS, entry.ssh_authorized_keys(), key);
    let authorities = remaining_lines(&files, AUTHORITIES, entry.ssh_user_ca(), authority);
    if keys.is_none() && authorities.is_none() {
        return None;
    }
    let changed = [(AUTHORIZED_KEYS, keys), (AUTHORITIES, authorities)];
    let changed = changed
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)));
    files.extend(changed);
    // Other keys are not ours to write.
    files.retain(|name, _| ALL.contains(&name.as_str()) || name == POWER_CA_KEY);
    Some(files)
}

/// The text of a file without the lines that are none of `named`; `None`: there are none. `parse`: a line as it is compared.
fn remaining_lines(
    files: &BTreeMap<String, String>,
    file: &str,
    named: &[String],
    parse: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let named: BTreeSet<String> = named.iter().filter_map(|line| parse(line)).collect();
    let lines = files.get(file)?.lines();
    let stays = |line: &&str| parse(line).is_some_and(|line| named.contains(&line));
    let staying: Vec<&str> = lines.clone().filter(stays).collect();
    if staying.len() == lines.count() {
        return None;
    }
    Some(staying.iter().flat_map(|line| [*line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use api::{SIPCluster, labels};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_key_with_another_comment_stays() {
        const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq";
        let entry = |keys: Value, authorities: Value| {
            let entry = json!({
                "image": "jump-host:1", "nodeInterfaceId": "oam-ipv4", "sshAuthorizedKeys": keys, "sshUserCA": authorities,
            });
            let object: SIPCluster = serde_json::from_value(json!({
                "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {"services": {"jumpHost": [entry]}},
            }))
            .unwrap();
            Cluster::parse(&object).unwrap().jump_hosts()[0].clone()
        };
        let files = || {
            let file = |name: &str, line: &str| (name.to_owned(), format!("{line}\n"));
            let keys = file(AUTHORIZED_KEYS, &format!("restrict {KEY} ana@old"));
            BTreeMap::from([keys, file(AUTHORITIES, &format!("{KEY} ca@old"))])
        };
        let renamed = entry(
            json!([format!("restrict {KEY} ana@new")]),
            json!([format!("{KEY} ca@new")]),
        );
        assert_eq!(without_removed_lines(files(), &renamed), None);
        let freed = entry(json!([format!("{KEY} ana@old")]), json!([]));
        let left = without_removed_lines(files(), &freed).unwrap();
        assert_eq!((&*left[AUTHORIZED_KEYS], &*left[AUTHORITIES]), ("", ""));
    }

    #[test]
    fn only_a_config_map_of_the_clusters_name_is_revoked() {
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "now"}, "spec": {},
        }))
        .unwrap();
        let cluster = Cluster::parse(&object).unwrap();
        let made_for =
            |cluster: &str| json!({(labels::PART_OF): labels::PART_OF_SIP, (labels::CLUSTER_NAME): cluster});
        let owner =
            |kind: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "shop", "uid": uid}]);
        for (on_object, owners, expected) in [
            (made_for("shop"), owner("SIPCluster", "now"), true),
            // Of an earlier build.
            (Value::Null, owner("SIPCluster", "now"), true),
            // A former cluster of the name has left it.
            (made_for("shop"), Value::Null, true),
            (made_for("shop"), owner("Job", "j"), true),
            (made_for("shop"), owner("SIPCluster", "before"), false),
            (made_for("bank"), Value::Null, false),
            // The Airship SIP operator may have made it.
            (
                json!({(labels::PART_OF): labels::PART_OF_SIP}),
                Value::Null,
                false,
            ),
            (Value::Null, Value::Null, false),
        ] {
            let metadata = json!({"name": "jumphost-shop", "labels": on_object, "ownerReferences": owners});
            let found: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(belongs_to(&found, &cluster), expected, "{metadata}");
        }
    }
}
