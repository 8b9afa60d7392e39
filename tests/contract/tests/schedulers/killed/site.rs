//! What a site's API server holds: labels and marks of hosts, and the clusters there are.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use proto::inventory::v1 as wire;
use tokio::sync::watch;
use vocabulary::labels;

use super::HOSTS;

pub(crate) const NAMESPACE: &str = "tenant";

/// A site; everybody sees it as it is.
pub(crate) struct Site {
    pub(crate) name: String,
    state: Mutex<State>,
    /// Received of every change.
    changed: watch::Sender<()>,
}

#[derive(Default)]
pub(crate) struct State {
    hosts: BTreeMap<String, Host>,
    /// uid of each `SIPCluster`, and the position in its status.
    pub(crate) clusters: BTreeMap<String, (String, Option<wire::Revision>)>,
}

#[derive(Clone, Debug, Default)]
struct Host {
    label: Option<String>,
    mark: u64,
}

/// What has come of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Patched {
    Done,
    /// The host shows that the writer knows less than it should.
    Refused(String),
}

impl Site {
    pub(crate) fn new(number: usize) -> Self {
        let hosts = (0..HOSTS).map(|host| (format!("h{host:02}"), Host::default()));
        Self {
            name: format!("site-{number}"),
            state: Mutex::new(State {
                hosts: hosts.collect(),
                ..State::default()
            }),
            changed: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Changes the clusters.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut State) -> T) -> T {
        let result = edit(&mut self.state());
        self.changed.send_replace(());
        result
    }

    /// Puts a cluster's labels on a host, for the claim of that revision.
    pub(crate) fn label(&self, host: &str, cluster: &str, revision: u64) -> Patched {
        let mut state = self.state();
        let there = state.hosts.get_mut(host).unwrap();
        match &there.label {
            Some(label) if label != cluster => {
                return Patched::Refused(format!(
                    "{host} is labelled for {label}, and {cluster} was told {revision}"
                ));
            }
            Some(_) => return Patched::Done,
            None => {}
        }
        if there.mark >= revision {
            return Patched::Refused(format!("{host} was released at {}, after {revision}", there.mark));
        }
        there.label = Some(cluster.to_owned());
        drop(state);
        self.changed.send_replace(());
        Patched::Done
    }

    /// Takes them off, and marks the release.
    pub(crate) fn unlabel(&self, host: &str, cluster: &str, revision: u64) -> Patched {
        let mut state = self.state();
        let there = state.hosts.get_mut(host).unwrap();
        if there.label.as_ref().is_some_and(|label| label != cluster) {
            return Patched::Refused(format!("{host} is labelled for {:?}, not {cluster}", there.label));
        }
        there.label = None;
        there.mark = there.mark.max(revision);
        drop(state);
        self.changed.send_replace(());
        Patched::Done
    }

    /// All that there is, as it is reported.
    pub(crate) fn report(
        &self,
    ) -> (
        BTreeMap<String, wire::Host>,
        BTreeMap<String, wire::ObservedCluster>,
        Option<wire::Revision>,
    ) {
        let state = self.state();
        let hosts = state
            .hosts
            .iter()
            .map(|(name, host)| (name.clone(), reported(name, host)));
        let clusters = state.clusters.iter().map(|(name, (uid, _))| {
            let cluster = wire::ObservedCluster {
                r#ref: Some(reference(name, uid)),
                generation: 1,
                ..wire::ObservedCluster::default()
            };
            (name.clone(), cluster)
        });
        let seen = state.clusters.values().filter_map(|(_, seen)| *seen);
        let highest = seen.max_by_key(|seen| (seen.epoch, seen.revision));
        (hosts.collect(), clusters.collect(), highest)
    }
}

fn reported(name: &str, Host { label, mark }: &Host) -> wire::Host {
    let labels = label.iter().flat_map(|cluster| {
        [
            (labels::CLUSTER_NAMESPACE, NAMESPACE),
            (labels::CLUSTER_NAME, cluster),
            (labels::NODE_TYPE, "Worker"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    wire::Host {
        r#ref: Some(wire::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        labels: labels.collect(),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        release_mark: *mark,
        ..wire::Host::default()
    }
}

pub(crate) fn reference(name: &str, uid: &str) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}
