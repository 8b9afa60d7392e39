//! Deletion of instances that are no longer desired.

use kube::ResourceExt as _;

use super::{
    error::Error,
    kinds::{Children, Kind},
    ownership,
    site::Site,
};
use api::SIPCluster;

/// Deletes the children of an instance in the order of their list, and its Service last: as long as that exists, what is left of
/// the instance is found. Objects of this name that somebody else owns are not touched.
pub(super) async fn delete(site: &Site, object: &SIPCluster, name: &str) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    site.last_applied.forget(&namespace, name);
    if ownership::foreign(site, object, name).await?.is_some() {
        return Ok(());
    }
    let cluster = (object.uid().unwrap_or_default(), object.name_any());
    let cluster = (&*cluster.0, &*cluster.1);
    for Children { kind, suffix } in site.identity.children {
        delete_child(site, cluster, *kind, (&namespace, &format!("{name}{suffix}"))).await?;
    }
    delete_child(site, cluster, Kind::Service, (&namespace, name)).await
}

/// Deletes one child of a cluster, by uid and name, that its instance must not have. An object of somebody else stays.
pub(super) async fn delete_child(
    site: &Site,
    cluster: (&str, &str),
    kind: Kind,
    (namespace, name): (&str, &str),
) -> Result<(), Error> {
    let failed = || Error::kubernetes(format!("delete the {}", kind.as_str()));
    let Some(found) = kind.find(&site.client, namespace, name).await.map_err(failed())? else {
        return Ok(());
    };
    if ownership::foreign_child(site.identity, cluster, kind, &found).is_some() {
        return Ok(());
    }
    kind.delete(&site.client, namespace, &found)
        .await
        .map_err(failed())
}
