//! What one service agent defines: its section of a cluster, and its steps of a pass.

use api::{Cluster, Invalid, PortSet, SIPCluster};

use super::{
    error::Error,
    identity::Identity,
    members::Members,
    objects::{Applied, Objects},
    observed::Observed,
    outcome::{Drain, Probe, Rendered},
};

/// A cluster whose spec was parsed, and the members that its instances connect to.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// As it was observed.
    pub observed: &'a Observed<'a>,
    /// Its spec.
    pub cluster: &'a Cluster,
    /// Its members.
    pub members: &'a Members,
}

/// A service that clusters can have, such as load balancers: each entry of its section is an instance with objects of its own.
///
/// A pass over a cluster goes through these steps in order: [`parse`](Self::parse), [`prepare`](Self::prepare),
/// [`render`](Self::render), [`probe`](Self::probe), [`drain`](Self::drain). The framework does everything in between.
pub trait Service: Send + Sync + 'static {
    /// What it owns.
    const IDENTITY: &'static Identity;

    /// Whether its instances connect to the members. Otherwise the scheduler is not asked, and without it the spec is applied and checked as
    /// ever.
    const NEEDS_MEMBERS: bool = true;

    /// Whether the spec is also applied while the scheduler does not answer, with the members of its last answer: for services whose spec
    /// takes rights away. Otherwise what runs stays as it is.
    const APPLIES_WITHOUT_SCHEDULER: bool = false;

    /// One entry of its section.
    type Entry: Send + Sync;

    /// What [`prepare`](Self::prepare) has found for an entry.
    type Prepared: Send;

    /// Checks the spec. Entries without a name keep the names of what exists with their node ports, or is recorded with them. Override it
    /// where other ports than those of nodes tell entries from each other.
    ///
    /// # Errors
    /// Everything that is wrong with the spec.
    fn parse(observed: &Observed<'_>) -> Result<Cluster, Invalid> {
        Ok(Cluster::parse(observed.object())?.keep_names(&observed.made_ports()))
    }

    /// The entries of its section, in the order of the spec.
    fn entries(cluster: &Cluster) -> Vec<Self::Entry>;

    /// The part of an entry that entries of every service have.
    fn service(entry: &Self::Entry) -> &api::Service;

    /// The node ports that its section asks for.
    fn node_ports(cluster: &Cluster) -> PortSet;

    /// What is spoken on a port of its Services.
    fn protocol(port: i32) -> &'static str;

    /// What rendering an entry needs of the API server.
    fn prepare(
        &self,
        scope: Scope<'_>,
        entry: &Self::Entry,
    ) -> impl Future<Output = Result<Self::Prepared, Error>> + Send;

    /// The objects of an entry: no clock, no I/O, and it cannot fail.
    fn render(&self, scope: Scope<'_>, entry: &Self::Entry, prepared: Self::Prepared) -> Rendered;

    /// Asks the pods of an applied instance. `confirmed`: every pod has confirmed this configuration before.
    fn probe(
        &self,
        scope: Scope<'_>,
        entry: &Self::Entry,
        objects: &Objects<Applied>,
        confirmed: bool,
    ) -> impl Future<Output = Probe> + Send;

    /// Whether anything may still route to the hosts that leave the cluster. `desired`: the instances that are on the API server with
    /// the configuration of this pass, by name and configuration digest; all others are deleted, could not be
    /// changed, or stay until new ones serve.
    fn drain(
        &self,
        observed: &Observed<'_>,
        desired: &[(String, String)],
    ) -> impl Future<Output = Drain> + Send {
        let _ = desired;
        std::future::ready(Drain::unchanged(observed.drained()))
    }

    /// An entry is refused, or cannot be applied yet, so what runs of it stays as it is, also where a former cluster of the same name has left it.
    /// Takes away the rights that the entry does not give, and gives none.
    ///
    /// # Errors
    /// When that could not be done; it is tried again in the next pass.
    fn revoke(
        &self,
        (observed, cluster): (&Observed<'_>, &Cluster),
        entry: &Self::Entry,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = (observed, cluster, entry);
        std::future::ready(Ok(()))
    }

    /// A pass over a cluster begins, and these instances stay or are desired; nothing that is known of others is needed any more. An entry
    /// that was refused and is dropped has no objects, so it is not deleted, and [`forget`](Self::forget) is not called for it.
    fn retain(&self, cluster: &SIPCluster, names: &[&str]) {
        let _ = (cluster, names);
    }

    /// An instance of a cluster is deleted.
    fn forget(&self, cluster: &SIPCluster, name: &str) {
        let _ = (cluster, name);
    }
}
