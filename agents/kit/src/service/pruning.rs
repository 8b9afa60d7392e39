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
    for Children { kind, suffix } in site.identity.children {
        delete_child(site, *kind, &namespace, &format!("{name}{suffix}")).await?;
    }
    delete_child(site, Kind::Service, &namespace, name).await
}

/// Deletes one child that its instance must not have.
pub(super) async fn delete_child(site: &Site, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
    kind.delete(&site.client, namespace, name)
        .await
        .map_err(Error::kubernetes(format!("delete the {}", kind.as_str())))
}
