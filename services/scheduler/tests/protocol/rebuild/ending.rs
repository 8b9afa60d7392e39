//! How a history ends: everybody does what is left to do, and no promise is left open.

use placement::MemberState::{Bound, Releasing};
use scheduler::{
    convert,
    site::{MISSING_LIMIT, UNOBSERVED_LIMIT},
};

use super::{people, world::World};
use crate::{fixtures::members, replacement::report};

impl World {
    /// Everybody does what is left to do.
    pub(super) async fn settle(&mut self) {
        self.calm_down().await;
        // A host that was made again without labels: for so long its member may still be on its way under the uid in the status.
        self.stage.pass(MISSING_LIMIT);
        report(&self.stage).await;
        for _ in 0..8 {
            self.stage.retry().await;
            for name in ["c0", "c1", "c2"] {
                match self
                    .clusters
                    .get(name)
                    .map(|cluster| (cluster.deleting, cluster.workers))
                {
                    Some((true, _)) => self.delete(name).await,
                    Some((false, workers)) => self.apply(name, workers).await,
                    None => {}
                }
                self.act(name).await;
                self.check();
            }
        }
        self.end_abandoned().await;
        let records = self.stage.ledger.load().unwrap().records;
        for record in records.values() {
            let left: Vec<_> = members(record)
                .into_iter()
                .filter(|(_, state)| *state != Bound)
                .collect();
            assert_eq!(left, [], "{}: releases end and claims are bound", record.cluster);
        }
    }

    /// Claims of `SIPCluster`s that were deleted while the ledger was lost are released by the scheduler itself, after a while.
    async fn end_abandoned(&mut self) {
        self.stage.pass(UNOBSERVED_LIMIT);
        self.stage.forget().await;
        let records = self.stage.ledger.load().unwrap().records;
        for record in records.values() {
            if self.clusters.contains_key(record.cluster.name()) {
                continue;
            }
            for (id, member) in &record.members {
                let host = self.hosts.get_mut(id.name.name());
                let host = host.filter(|host| people::is_same(host, &convert::host_ref(id)));
                if let Some(host) = host.filter(|_| member.state == Releasing) {
                    people::unlabel(host, member.revision);
                }
            }
            let hosts: Vec<_> = self.hosts.values().cloned().collect();
            self.stage.report(&self.session, &hosts).await;
            self.stage.confirm(record).await;
        }
    }
}
