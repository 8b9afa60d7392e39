//! What the site reports goes into the model. Claims are not touched here: each change names the clusters whose
//! records must be settled against it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use ::placement::{ClusterName, Holder, HostId, HostName};
use proto::inventory::v1 as wire;

use super::{Author, Session, SessionId, Site, bounds, labels, session::Opened};
use crate::{
    convert,
    error::Error,
    ledger::{Commit, Fence, SiteFence, commit::Permit, weight::TooLarge},
};

impl Site {
    /// Lets a new reporter in, which must send a snapshot first. It may be told of that when the commit is
    /// durable, so that an older reporter is refused after a restart too.
    ///
    /// # Errors
    /// [`Error::Superseded`] when a later election has reported already; [`Error::TooLarge`].
    pub fn open_session(
        &mut self,
        fence: &Fence,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<(Session, Commit), Error> {
        let mut sessions = self.session.clone();
        let opened = sessions.open(&self.name, fence, author.now);
        let Opened {
            session,
            raised,
            replaced,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // That it was refused is remembered: another Lease waits from its first try on.
                self.session = sessions;
                return Err(error);
            }
        };
        let commit = match raised {
            Some((fence, why)) => self.stage_fence(Some(fence), &why, author, permit)?,
            None => Commit::NONE,
        };
        self.session = sessions;
        if let Some(replaced) = replaced {
            replaced.cancel();
        }
        Ok((session, commit))
    }

    /// Forgets which reporters were let in, and cuts the present one off. Returns the latest of them, and the commit
    /// of the change.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn reset_fence(
        &mut self,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Option<(Fence, Commit)>, Error> {
        let Some(SiteFence { highest, retired: _ }) = self.session.fence() else {
            self.session.reset();
            return Ok(None);
        };
        let why = format!("reporter {highest} is forgotten; the next one is let in whoever it is");
        let commit = self.stage_fence(None, &why, author, permit)?;
        self.session.reset();
        Ok(Some((highest, commit)))
    }

    fn stage_fence(
        &mut self,
        fence: Option<SiteFence>,
        why: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        tracing::warn!(site = self.name, caller = author.caller, "{why}");
        self.stage_entry(fence, None, why, author, permit)
    }

    /// Ends a session: nothing is placed in the site until another has reported.
    pub fn close_session(&mut self, id: &SessionId, now: SystemTime) {
        self.session.close(id, now);
    }

    /// Takes hosts and `SIPCluster`s in. Returns the clusters whose records must be settled.
    ///
    /// # Errors
    /// [`Error::Superseded`] when the session is not the site's any more.
    pub fn report(
        &mut self,
        id: &SessionId,
        changes: wire::HostChanges,
        time: SystemTime,
    ) -> Result<BTreeSet<ClusterName>, Error> {
        let wire::HostChanges {
            hosts,
            deleted_hosts,
            clusters,
            deleted_clusters,
        } = changes;
        if let Some(seen) = self.session.seen(&self.name, id, time)? {
            seen.hosts
                .extend(hosts.iter().filter_map(|host| host_name(host.r#ref.as_ref())));
            seen.clusters.extend(
                clusters
                    .iter()
                    .filter_map(|cluster| cluster_name(cluster.r#ref.as_ref())),
            );
        }
        self.last_report = Some(time);
        let mut touched = BTreeSet::new();
        for host in hosts {
            self.upsert_host(host, &mut touched);
        }
        for deleted in deleted_hosts {
            if let Ok(id) = convert::host_id(&deleted)
                && self.incarnation(&id.name).is_some_and(|known| known == id)
            {
                self.remove_host(&id.name, &mut touched);
            }
        }
        for cluster in clusters {
            self.gone_or_back(&cluster);
            if let Some(name) = cluster_name(cluster.r#ref.as_ref()) {
                let said = |cluster: &wire::ObservedCluster| (cluster.revision, cluster.members.clone());
                let now = said(&cluster);
                let before = self.clusters.insert(name.clone(), cluster);
                if before.as_ref().map(said) != Some(now) {
                    self.renew_promises(&name);
                }
                self.came_or_went(&name, time, &mut touched);
            }
        }
        for deleted in deleted_clusters {
            let Some(name) = cluster_name(Some(&deleted)) else {
                continue;
            };
            self.gone.insert(&name, &deleted.uid);
            if self.is_observed(&name, &deleted.uid) {
                self.clusters.remove(&name);
                self.withdraw_promises(&name);
                self.came_or_went(&name, time, &mut touched);
            }
        }
        if !self.session.synced() {
            // Until all is there, what is not there says nothing; the end of the snapshot settles every record.
            touched.clear();
        }
        Ok(touched)
    }

    /// Ends the snapshot: what it did not name is gone. The site's position is raised above what it shows, and what statuses
    /// promise and no record says is held, before anything is decided. Returns the clusters whose records must be settled,
    /// which are all of them.
    ///
    /// # Errors
    /// [`Error::Superseded`], or [`Error::Protocol`] when the snapshot has ended already; [`Error::TooLarge`].
    pub fn complete_snapshot(
        &mut self,
        id: &SessionId,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<BTreeSet<ClusterName>, Error> {
        let now = author.now;
        let seen = self.session.complete(&self.name, id, now)?;
        let gone: Vec<HostName> = self
            .hosts
            .keys()
            .filter(|name| !seen.hosts.contains(*name))
            .cloned()
            .collect();
        let mut touched: BTreeSet<ClusterName> = self.records.keys().cloned().collect();
        for name in gone {
            self.remove_host(&name, &mut touched);
        }
        let before = std::mem::take(&mut self.clusters);
        for (name, cluster) in before {
            if seen.clusters.contains(&name) {
                self.clusters.insert(name, cluster);
            } else {
                self.gone.insert(&name, uid(&cluster));
            }
        }
        if let Err(error) = self.take_position(author, permit) {
            // Nothing is decided on a position that the site is beyond.
            self.session.close(id, now);
            return Err(error.into());
        }
        self.epoch = self.history.epoch();
        self.hold_promises();
        self.find_orphans(now);
        Ok(touched)
    }

    /// Remembers the `SIPCluster` that another one has replaced under its name, and forgets one that is there after all.
    fn gone_or_back(&mut self, cluster: &wire::ObservedCluster) {
        let Some(name) = cluster_name(cluster.r#ref.as_ref()) else {
            return;
        };
        let now = uid(cluster);
        if let Some(before) = self.observed_uid(&name).filter(|before| *before != now) {
            let before = before.to_owned();
            self.gone.insert(&name, &before);
        }
        self.gone.remove(&name, now);
    }

    fn upsert_host(&mut self, mut reported: wire::Host, touched: &mut BTreeSet<ClusterName>) {
        bounds::clip_host(&self.name, &mut reported);
        let mut host = match convert::host(&reported) {
            Ok(host) => host,
            Err(error) => {
                tracing::warn!(site = self.name, %error, "a reported host has no usable identity and is left out");
                return;
            }
        };
        let id = host.id.clone();
        host.problem = self.judge_mark(&id, &reported);
        if self.incarnation(&id.name).is_some_and(|known| known != id) {
            self.remove_host(&id.name, touched);
        }
        self.note_marks(&id, &reported);
        self.forget_labels(&id.name, touched);
        if let Some(cluster) = labels::named(&reported) {
            touched.extend(self.records.contains_key(&cluster).then(|| cluster.clone()));
            self.labelled.entry(cluster).or_default().insert(id.clone());
        }
        touched.extend(self.holding_cluster(&id));
        self.hosts.insert(id.name.clone(), reported);
        self.model.upsert(host);
        self.mark(&id);
    }

    fn remove_host(&mut self, name: &HostName, touched: &mut BTreeSet<ClusterName>) {
        self.forget_labels(name, touched);
        let id = self.incarnation(name);
        self.faulty.remove(name);
        self.hosts.remove(name);
        self.model.remove(name);
        if let Some(id) = id {
            touched.extend(self.holding_cluster(&id));
            self.mark(&id);
        }
    }

    fn forget_labels(&mut self, name: &HostName, touched: &mut BTreeSet<ClusterName>) {
        let named = self.hosts.get(name).and_then(labels::named);
        let Some((cluster, id)) = named.zip(self.incarnation(name)) else {
            return;
        };
        if let Some(hosts) = self.labelled.get_mut(&cluster) {
            hosts.remove(&id);
            if hosts.is_empty() {
                self.labelled.remove(&cluster);
            }
        }
        touched.extend(Some(cluster).filter(|cluster| self.records.contains_key(cluster)));
    }

    /// The identity of the host that has this name now.
    pub(super) fn incarnation(&self, name: &HostName) -> Option<HostId> {
        self.hosts
            .get(name)
            .and_then(|host| convert::host_id(host.r#ref.as_ref()?).ok())
    }

    /// What was reported of exactly this host; `None` when it is gone or another has its name.
    pub(super) fn reported(&self, id: &HostId) -> Option<&wire::Host> {
        let host = self.hosts.get(&id.name)?;
        (host.r#ref.as_ref().map(|known| &*known.uid) == Some(id.uid.as_str())).then_some(host)
    }

    fn holding_cluster(&self, id: &HostId) -> Option<ClusterName> {
        match self.model.holder(id)? {
            Holder::Cluster {
                cluster,
                role: _,
                state: _,
            } => Some(cluster.clone()).filter(|cluster| self.records.contains_key(cluster)),
            Holder::Orphaned => None,
        }
    }

    /// The `SIPCluster`s of the site as reported.
    #[must_use]
    pub fn observed_clusters(&self) -> &BTreeMap<ClusterName, wire::ObservedCluster> {
        &self.clusters
    }
}

fn host_name(wire: Option<&wire::HostRef>) -> Option<HostName> {
    wire.and_then(|host| HostName::new(&host.namespace, &host.name).ok())
}

fn cluster_name(wire: Option<&wire::ClusterRef>) -> Option<ClusterName> {
    let known = wire.filter(|cluster| bounds::is_uid(&cluster.uid));
    known.and_then(|cluster| ClusterName::new(&cluster.namespace, &cluster.name).ok())
}

fn uid(cluster: &wire::ObservedCluster) -> &str {
    cluster.r#ref.as_ref().map_or("", |cluster| &cluster.uid)
}
