//! A pass of a load-balancer agent that was paused. Meanwhile another process has become the Lease holder, and the spec, the status and the
//! placement have changed. When the process goes on, its writes arrive late. Each is made on a condition: of a configuration, that it is as it
//! was when the pass began; of the status, that the whole object is.
//!
//! Nothing is made late here: no configuration where there was none when the pass began, and no Deployment, before which the product reads the
//! `SIPCluster` once more (`agents/kit/src/service/apply.rs`). Nor is anything written late for a `SIPCluster` that is gone or made again. A
//! configuration that was there and is deleted meanwhile is not written by the product either: the API server refuses the condition on its version.

use kit::placement::Position;

use crate::{
    balancer::{Config, ENTRIES, View},
    mutations::Mutation,
    protocol::State,
    world::Cluster,
};

/// What the pass has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    cluster: u8,
    /// The `SIPCluster`.
    object: Cluster,
    /// The configurations on the API server.
    found: [Option<Config>; ENTRIES],
    view: View,
}

impl State {
    /// An agent begins a pass over a cluster, reads, and is paused.
    pub(crate) fn pause(&mut self, cluster: u8) {
        let object = self.world.now.clusters[usize::from(cluster)].clone();
        if let Some((object, view)) = object.zip(self.view(cluster)) {
            let found = [0, 1].map(|entry| self.config(cluster, entry).cloned());
            self.paused = Some(Pass {
                cluster,
                object,
                found,
                view,
            });
        }
    }

    /// The cluster and the configuration that the paused pass writes for an entry, if the API server takes that; `None` in place of the
    /// configuration: it deletes the one that is there.
    fn late_write(&self, entry: u8) -> Option<(u8, Option<&Config>)> {
        let Pass {
            cluster,
            object,
            found,
            view,
        } = self.paused.as_ref()?;
        let there = self.world.now.clusters[usize::from(*cluster)].as_ref();
        let is_there = there.is_some_and(|there| there.uid == object.uid);
        let config = self.config(*cluster, entry);
        let is_as_found = config == found[usize::from(entry)].as_ref();
        let is_taken = is_as_found || self.mutation == Some(Mutation::LateConfigurationTaken);
        let next = view.config(entry);
        (is_there && config.is_some() && is_taken && config != next).then_some((*cluster, next))
    }

    /// Whether the paused pass changes the configuration of an entry.
    pub(crate) fn writes_late(&self, entry: u8) -> bool {
        self.late_write(entry).is_some()
    }

    /// The paused pass writes the configuration of an entry.
    pub(crate) fn render_late(&mut self, entry: u8) {
        let write = self.late_write(entry);
        if let Some((cluster, config)) = write.map(|(cluster, config)| (cluster, config.cloned())) {
            self.put_config(cluster, entry, config);
        }
    }

    /// What the paused pass reports of a cluster once it asks its pods, if the API server takes that.
    fn late_report(&self) -> Option<(u8, Position)> {
        let Pass {
            cluster,
            object,
            found: _,
            view,
        } = self.paused.as_ref()?;
        let index = usize::from(*cluster);
        let is_as_read = self.world.now.clusters[index].as_ref() == Some(object)
            && view.is_of_spec(&self.world.balancers[index]);
        let drained = self.drained(*cluster, view).filter(|_| is_as_read)?;
        Some((*cluster, drained))
    }

    /// Whether the paused pass has something to report.
    pub(crate) fn reports_late(&self) -> bool {
        self.late_report().is_some()
    }

    /// The paused pass reports that no pod routes to a host that leaves.
    pub(crate) fn drain_late(&mut self) {
        if let Some((cluster, drained)) = self.late_report() {
            self.report_drained(cluster, drained);
        }
    }
}
