//! A region on a ledger in memory, and builders for what a site reports.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use placement::{ClusterName, HostId, MemberState};
use proto::inventory::v1 as wire;
use redb::backends::InMemoryBackend;
use scheduler::{
    convert,
    error::Error,
    ledger::{self, Fence, Ledger, Position, commit, redb::Redb},
    policy::Policies,
    record::Record,
    region::{Region, Reporter, Told},
    site::{Apply, Author, SessionId},
    spec::Spec,
};

/// The site of every test.
pub(crate) const SITE: &str = "a";
/// Who calls, for the audit log.
pub(crate) const CALLER: &str = "site/a/agent/cluster";

/// A region with its ledger's thread.
pub(crate) struct Stage {
    pub(crate) region: Region,
    pub(crate) ledger: Arc<dyn Ledger>,
    writer: Option<JoinHandle<Result<(), ledger::Error>>>,
    now: Arc<Mutex<SystemTime>>,
    reporter: Mutex<Option<Reporter>>,
}

impl Stage {
    /// A region on an empty ledger.
    pub(crate) fn empty() -> Self {
        Self::on(Arc::new(Redb::on(InMemoryBackend::new()).unwrap()))
    }

    /// A region on a ledger.
    pub(crate) fn on(ledger: Arc<dyn Ledger>) -> Self {
        let contents = ledger.load().unwrap();
        let (committer, writer) = commit::committer(contents.position);
        let now = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)));
        let clock = Arc::clone(&now);
        let region = Region::with_clock(contents, Policies::new(), committer, move || {
            *clock.lock().unwrap()
        });
        let storage = Arc::clone(&ledger);
        let writer = thread::spawn(move || writer.run(&*storage));
        Self {
            region,
            ledger,
            writer: Some(writer),
            now,
            reporter: Mutex::new(None),
        }
    }

    /// Time goes by.
    pub(crate) fn pass(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    /// What time it is.
    pub(crate) fn now(&self) -> SystemTime {
        *self.now.lock().unwrap()
    }

    /// [`Self::restart`], and time goes on from where it was.
    pub(crate) fn restart_at(self) -> Self {
        let now = self.now();
        let again = self.restart();
        *again.now.lock().unwrap() = now;
        again
    }

    /// The process ends and starts again: all that is left is the ledger.
    pub(crate) fn restart(mut self) -> Self {
        let writer = self.writer.take();
        let ledger = Arc::clone(&self.ledger);
        drop(self.reporter);
        drop(self.region);
        writer
            .map(JoinHandle::join)
            .transpose()
            .unwrap()
            .transpose()
            .unwrap();
        Self::on(ledger)
    }

    /// A reporter by this election, that has seen nothing.
    pub(crate) async fn open(&self, lease: &str, transitions: i64) -> Result<Reporter, Error> {
        self.open_seen(lease, transitions, None).await
    }

    /// A reporter by this election.
    pub(crate) async fn open_seen(
        &self,
        lease: &str,
        transitions: i64,
        seen: Option<Position>,
    ) -> Result<Reporter, Error> {
        let fence = Fence {
            lease: lease.to_owned(),
            transitions,
        };
        self.region.open_session(SITE, &fence, seen, CALLER).await
    }

    /// Reports a complete site, in the place of the reporter before.
    pub(crate) async fn sync(&self, hosts: &[wire::Host]) -> SessionId {
        self.sync_with(hosts, &[], None).await
    }

    /// The same, with `SIPCluster`s and the highest revision in their status.
    pub(crate) async fn sync_with(
        &self,
        hosts: &[wire::Host],
        clusters: &[wire::ObservedCluster],
        seen: Option<Position>,
    ) -> SessionId {
        let reporter = self.open_seen("lease", 1, seen).await.unwrap();
        let session = reporter.session().id.clone();
        *self.reporter.lock().unwrap() = Some(reporter);
        let changes = wire::HostChanges {
            hosts: hosts.to_vec(),
            clusters: clusters.to_vec(),
            ..wire::HostChanges::default()
        };
        self.region.report(SITE, &session, changes).await.unwrap();
        self.region.complete_snapshot(SITE, &session).await.unwrap();
        session
    }

    /// The stream of reports breaks.
    pub(crate) fn lose_reporter(&self) {
        drop(self.reporter.lock().unwrap().take());
    }

    /// Reports hosts as they are now.
    pub(crate) async fn report(&self, session: &SessionId, hosts: &[wire::Host]) {
        let changes = wire::HostChanges {
            hosts: hosts.to_vec(),
            ..wire::HostChanges::default()
        };
        self.region.report(SITE, session, changes).await.unwrap();
    }

    /// Reports a `SIPCluster` of that name, with this uid.
    pub(crate) async fn report_cluster(&self, session: &SessionId, name: &str, uid: &str) {
        let mut cluster = observed(name);
        if let Some(reference) = &mut cluster.r#ref {
            uid.clone_into(&mut reference.uid);
        }
        let changes = wire::HostChanges {
            clusters: vec![cluster],
            ..wire::HostChanges::default()
        };
        self.region.report(SITE, session, changes).await.unwrap();
    }

    /// Reports that hosts are gone.
    pub(crate) async fn report_gone(&self, session: &SessionId, names: &[&str]) {
        let gone = names.iter().map(|name| host(name).r#ref.unwrap()).collect();
        let changes = wire::HostChanges {
            deleted_hosts: gone,
            ..wire::HostChanges::default()
        };
        self.region.report(SITE, session, changes).await.unwrap();
    }

    /// The scheduler decides again for all that wait, as it does by itself once a second.
    pub(crate) async fn retry(&self) {
        let site = self.region.site(SITE).unwrap();
        let now = *self.now.lock().unwrap();
        let order = site.lock().waiting(now);
        for cluster in order {
            let permit = self.region.committer().reserve().await.unwrap();
            let author = Author {
                caller: "scheduler",
                action: "retry",
                now,
            };
            site.lock().retry(&cluster, &author, permit);
        }
        self.all_durable().await;
    }

    /// What was claimed for `SIPCluster`s that are not there is given back, as the scheduler does by itself when it is time.
    pub(crate) async fn forget(&self) {
        let site = self.region.site(SITE).unwrap();
        let now = *self.now.lock().unwrap();
        let forgotten = site.lock().forgotten(now);
        for cluster in forgotten {
            let permit = self.region.committer().reserve().await.unwrap();
            let author = Author {
                caller: "scheduler",
                action: "forget",
                now,
            };
            site.lock().forget(&cluster, &author, permit);
        }
        self.all_durable().await;
    }

    async fn all_durable(&self) {
        let staged = self.region.committer().staged();
        self.region.committer().durable(staged.revision).await.unwrap();
    }

    /// Reports that the `SIPCluster` of that name and uid is gone.
    pub(crate) async fn report_cluster_gone(&self, session: &SessionId, name: &str, uid: &str) {
        let gone = wire::ClusterRef {
            uid: uid.to_owned(),
            ..observed(name).r#ref.unwrap()
        };
        let changes = wire::HostChanges {
            deleted_clusters: vec![gone],
            ..wire::HostChanges::default()
        };
        self.region.report(SITE, session, changes).await.unwrap();
    }

    /// An operator releases an orphan.
    pub(crate) async fn release_orphan(&self, host: &wire::Host) -> Result<Option<Arc<Record>>, Error> {
        let id = convert::host_id(host.r#ref.as_ref().unwrap()).unwrap();
        let told = self.region.release_orphan(SITE, &id, "operator/ann").await?;
        Ok(told.record)
    }

    /// Kinds of the conflicts that a cluster's record has now; each was written to the log of decisions.
    pub(crate) async fn conflicts(&self, name: &str) -> Vec<String> {
        let record = self.record(name).await.unwrap();
        let logged = self.ledger.decisions(u64::MAX, 1000, &|_| true).unwrap();
        for report in &record.conflicts {
            assert!(
                logged.iter().any(|entry| entry.found.contains(report)),
                "{report:?} is not in the log"
            );
        }
        record
            .conflicts
            .iter()
            .map(|report| report.kind.clone())
            .collect()
    }

    /// Why a host would not be taken by anyone.
    pub(crate) fn why_not(&self, name: &str) -> Vec<&'static str> {
        let site = self.region.site(SITE).unwrap();
        let site = site.lock();
        let spec = Spec::parse(spec(1), "spec").unwrap();
        let request = placement::Request {
            cluster: cluster("nobody"),
            roles: Vec::new(),
            networks: spec.networks().clone(),
        };
        let host = placement::HostName::new("metal", name).unwrap();
        let reasons = placement::explain(site.model(), &request, &spec.roles()[0], &host);
        reasons.iter().map(placement::Ineligible::kind).collect()
    }

    /// Declares a cluster of one role.
    pub(crate) async fn apply(
        &self,
        name: &str,
        generation: i64,
        workers: u32,
    ) -> Result<Arc<Record>, Error> {
        self.apply_as(name, "uid", generation, workers).await
    }

    /// The same, for a cluster with this uid.
    pub(crate) async fn apply_as(
        &self,
        name: &str,
        uid: &str,
        generation: i64,
        workers: u32,
    ) -> Result<Arc<Record>, Error> {
        let apply = Apply {
            cluster: cluster(name),
            uid: uid.to_owned(),
            generation,
            created: None,
            spec: Spec::parse(spec(workers), "spec").unwrap(),
        };
        let told = self.region.apply(SITE, apply, CALLER).await?;
        Ok(told.record.unwrap())
    }

    /// What the ledger says of a cluster, once it is durable.
    pub(crate) async fn record(&self, name: &str) -> Option<Arc<Record>> {
        match self.region.placement(SITE, &cluster(name), "", None).await {
            Ok(Told { record, epoch: _ }) => record,
            Err(Error::NotFound { what: _ }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Gives a cluster's hosts back.
    pub(crate) async fn release(&self, name: &str) -> Option<Arc<Record>> {
        self.region
            .release(SITE, &cluster(name), "uid", CALLER)
            .await
            .unwrap()
            .record
    }

    /// Confirms the release of every releasing member of a record.
    pub(crate) async fn confirm(&self, record: &Record) -> Option<Arc<Record>> {
        let releasing = record
            .members
            .iter()
            .filter(|(_, member)| member.state == MemberState::Releasing);
        let released: BTreeMap<HostId, u64> = releasing
            .map(|(id, member)| (id.clone(), member.revision))
            .collect();
        let told = self
            .region
            .confirm(SITE, &record.cluster, &record.uid, &released, CALLER)
            .await
            .unwrap();
        told.record
    }
}

/// A cluster's name.
pub(crate) fn cluster(name: &str) -> ClusterName {
    ClusterName::new("tenant", name).unwrap()
}

/// So many workers, one per rack.
pub(crate) fn spec(workers: u32) -> wire::ClusterSpec {
    wire::ClusterSpec {
        roles: vec![wire::Role {
            name: "Worker".to_owned(),
            label_selector: Some(wire::LabelSelector::default()),
            topology_key: "rack".to_owned(),
            active: workers,
            standby: 0,
            replace_after_error: None,
        }],
        network_ids: vec!["oam".to_owned()],
    }
}

/// An available host, in a rack of its own.
pub(crate) fn host(name: &str) -> wire::Host {
    wire::Host {
        r#ref: Some(wire::HostRef {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }),
        labels: BTreeMap::from([("rack".to_owned(), format!("rack-{name}"))]),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        addresses: BTreeMap::from([("oam".to_owned(), "192.0.2.7".to_owned())]),
        ..wire::Host::default()
    }
}

/// The host with the labels of a cluster.
pub(crate) fn labelled(name: &str, cluster: &str) -> wire::Host {
    let mut host = host(name);
    for (key, value) in [
        (convert::sip_label::NAMESPACE, "tenant"),
        (convert::sip_label::NAME, cluster),
        (convert::sip_label::ROLE, "Worker"),
    ] {
        host.labels.insert(key.to_owned(), value.to_owned());
    }
    host
}

/// The host with some of the labels of a cluster.
pub(crate) fn half_labelled(name: &str, cluster: &str) -> wire::Host {
    let mut host = labelled(name, cluster);
    host.labels.remove(convert::sip_label::ROLE);
    host
}

/// The same host under another uid: it was deleted and made again.
pub(crate) fn again(mut host: wire::Host) -> wire::Host {
    host.r#ref.as_mut().unwrap().uid.push_str("-again");
    host
}

/// The host in use.
pub(crate) fn used(host: wire::Host) -> wire::Host {
    wire::Host {
        consumer: Some(wire::Consumer {
            kind: "Metal3Machine".to_owned(),
            namespace: "tenant".to_owned(),
            name: "m-0".to_owned(),
            ..wire::Consumer::default()
        }),
        ..host
    }
}

/// A `SIPCluster` without status.
pub(crate) fn observed(name: &str) -> wire::ObservedCluster {
    wire::ObservedCluster {
        r#ref: Some(wire::ClusterRef {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
            uid: "uid".to_owned(),
        }),
        generation: 1,
        ..wire::ObservedCluster::default()
    }
}

/// The `SIPCluster` of a record, with the status that its agent has written.
pub(crate) fn with_status(record: &Record, epoch: u64) -> wire::ObservedCluster {
    let members = record.members.iter().map(|(id, member)| wire::ObservedMember {
        host: Some(convert::host_ref(id)),
        role: member.role.to_string(),
        state: convert::state(member.state).into(),
        revision: member.revision,
    });
    wire::ObservedCluster {
        members: members.collect(),
        revision: Some(wire::Revision {
            epoch,
            revision: record.revision,
        }),
        created: record.created.map(Into::into),
        r#ref: Some(record.reference()),
        ..observed(record.cluster.name())
    }
}

/// The host without labels and with the mark of a release.
pub(crate) fn released(name: &str, revision: u64) -> wire::Host {
    wire::Host {
        release_mark: revision,
        ..host(name)
    }
}

/// Names of a record's members, with their states.
pub(crate) fn members(record: &Record) -> Vec<(String, MemberState)> {
    record
        .members
        .iter()
        .map(|(id, member)| (id.name.name().to_owned(), member.state))
        .collect()
}
