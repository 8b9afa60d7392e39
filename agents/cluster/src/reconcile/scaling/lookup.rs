//! Reads an object with replicas and its template, by name. Writes nothing.

use std::collections::BTreeSet;

use api::Scaled;
use kit::{apply, placement::Placement};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};

use super::object::{HostLabels, INFRASTRUCTURE, Object, TEMPLATE, group};

/// Versions of the kinds of Cluster API and CAPM3, the newest first: any serves the fields that are read.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// What the API server has answered about an object that a spec names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum Lookup {
    /// The cluster has no hosts, whose namespace would be that of the object.
    NoHosts,
    /// The hosts are in several namespaces; the Machines of one object are in one.
    Namespaces(BTreeSet<String>),
    /// There is no such object in the namespace of the hosts, or no such kind.
    Missing {
        /// Namespace of the hosts.
        namespace: String,
    },
    /// The agent may not read objects of a kind.
    Forbidden {
        /// Namespace of the hosts.
        namespace: String,
    },
    /// Why it could not be read, for messages.
    Unreadable(String),
    /// The object, and the labels that its template, if it has one, requires of hosts.
    Found(Box<Object>, Option<HostLabels>),
}

/// Finds an object that a spec names. It is in the namespace of the hosts, as CAPM3 requires: a `SIPCluster` cannot name another namespace.
pub(in crate::reconcile) async fn find(client: &Client, scaled: &Scaled, placement: &Placement) -> Lookup {
    let namespaces = namespaces(placement, scaled.role().as_str());
    let mut all = namespaces.iter();
    let namespace = match (all.next(), all.next()) {
        (None, _) => return Lookup::NoHosts,
        (Some(only), None) => only.clone(),
        (Some(_), Some(_)) => return Lookup::Namespaces(namespaces),
    };
    match read(client, scaled, &namespace).await {
        Ok(Some((object, template))) => Lookup::Found(Box::new(object), template),
        Ok(None) => Lookup::Missing { namespace },
        Err(error) if apply::code(&error) == Some(403) => Lookup::Forbidden { namespace },
        Err(error) => Lookup::Unreadable(format!(
            "{} {namespace}/{} cannot be read: {}",
            scaled.kind(),
            scaled.name(),
            apply::reason(&error)
        )),
    }
}

/// The namespaces of the hosts of a role; of all hosts while the role has none.
fn namespaces(placement: &Placement, role: &str) -> BTreeSet<String> {
    let of = |role: Option<&str>| {
        let members = placement.members().iter();
        let members = members.filter(|member| role.is_none_or(|role| member.role() == role));
        let namespaces = members.map(|member| member.host().key().namespace.clone());
        namespaces.collect::<BTreeSet<_>>()
    };
    let own = of(Some(role));
    if own.is_empty() { of(None) } else { own }
}

async fn read(
    client: &Client,
    scaled: &Scaled,
    namespace: &str,
) -> kube::Result<Option<(Object, Option<HostLabels>)>> {
    let (group, kind) = (group(scaled.kind()), scaled.kind().as_str());
    let Some((version, found)) = newest(client, (group, kind), namespace, scaled.name()).await? else {
        return Ok(None);
    };
    let object = Object::parse(scaled, namespace, format!("{group}/{version}"), &found);
    let template = match &object.template {
        Some(name) => newest(client, (INFRASTRUCTURE, TEMPLATE), namespace, name).await?,
        None => None,
    };
    Ok(Some((
        object,
        template.map(|(_, found)| HostLabels::parse(&found)),
    )))
}

/// The object by the newest version that the API server has, and that version.
async fn newest(
    client: &Client,
    (group, kind): (&str, &str),
    namespace: &str,
    name: &str,
) -> kube::Result<Option<(&'static str, DynamicObject)>> {
    for version in VERSIONS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        match api.get(name).await {
            Ok(found) => return Ok(Some((version, found))),
            // The API server answers 404 to a version that it does not have, too.
            Err(error) if apply::code(&error) == Some(404) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use api::MemberState::Bound;
    use proto::placement::v1 as wire;

    use super::*;
    use crate::fixtures::{answer, placement};

    #[test]
    fn objects_are_where_the_hosts_of_the_role_are() {
        let member = |name: &str, namespace: &str, role: &str| {
            let mut member: wire::Member = answer(name, Bound);
            member.host.as_mut().unwrap().namespace = namespace.to_owned();
            member.role = role.to_owned();
            member
        };
        let (one, other) = (
            member("a", "metal", "Worker"),
            member("b", "metal-2", "ControlPlane"),
        );
        let third = member("c", "metal-3", "Worker");
        for (members, role, expected) in [
            (vec![], "Worker", &[][..]),
            (vec![one.clone(), other.clone()], "Worker", &["metal"]),
            (vec![one.clone(), other.clone()], "ControlPlane", &["metal-2"]),
            (vec![one.clone()], "ControlPlane", &["metal"]),
            (vec![one, other, third], "Worker", &["metal", "metal-3"]),
        ] {
            let found = namespaces(&placement(members), role);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        }
    }
}
