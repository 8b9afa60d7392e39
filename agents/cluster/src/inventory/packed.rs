//! Hosts and their addresses in packed form: a site has ten thousand hosts, and few of them are read at a time. The agent of ten thousand hosts
//! needs 44 MiB with them, and 74 MiB with maps and strings instead.

use std::{collections::BTreeMap, net::IpAddr};

use api::{BareMetalHost, Host, NetworkData, NetworkSecrets, SecretName, annotations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use prost::Message as _;
use proto::inventory::v1 as wire;

use super::{
    gone_hosts::GoneHost,
    host_report::{self, UnplacedUse},
    observed_host::ObservedHost,
    served::Served,
};

/// A host.
#[derive(Debug)]
pub(super) struct PackedHost {
    /// What is reported of it, encoded.
    report: Box<[u8]>,
    resource_version: Box<str>,
    /// The Secrets with its addresses.
    secrets: NetworkSecrets,
    /// Annotation [`annotations::CLUSTER_API_CLUSTER`].
    cluster_annotation: Option<Box<str>>,
    /// What could not be read of the object itself.
    faults: Box<[String]>,
    unplaced_use: Option<Box<UnplacedUse>>,
    owners: Box<[OwnerReference]>,
}

impl PackedHost {
    /// Packs a host without addresses. Returns it with its report, which [`PackedHost::pack`] completes; `None` for an object
    /// without namespace, name or uid, which no API server serves.
    pub(super) fn parse(object: &BareMetalHost) -> Option<(Self, wire::Host)> {
        let host = Host::parse(object, None).ok()?;
        let annotations = object.metadata.annotations.as_ref();
        let cluster_annotation = annotations.and_then(|all| all.get(annotations::CLUSTER_API_CLUSTER));
        let packed = Self {
            report: Box::default(),
            resource_version: object
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default()
                .into(),
            secrets: NetworkSecrets::named_by(object),
            cluster_annotation: cluster_annotation.map(|text| text.as_str().into()),
            faults: host_report::faults(&host, cluster_annotation.map(String::as_str)).into(),
            unplaced_use: host_report::unplaced_use(&host).map(Box::new),
            owners: object
                .metadata
                .owner_references
                .clone()
                .unwrap_or_default()
                .into(),
        };
        Some((packed, host_report::report(&host)))
    }

    /// Completes a report with the addresses in the Secrets that the host names, and with faults. `refused`: the API server's message, where it
    /// refuses every write of the host; `served`: the Clusters that the `SIPCluster`s serve.
    pub(super) fn complete(
        &self,
        report: &mut wire::Host,
        networks: &BTreeMap<SecretName, PackedNetworkData>,
        refused: Option<&str>,
        served: &Served,
    ) {
        let is_used = report.consumer.is_some();
        let fallbacks = self.secrets.fallbacks().iter().filter(|_| !is_used);
        let named = self.secrets.named();
        let mut found: Vec<&PackedNetworkData> = named
            .into_iter()
            .chain(fallbacks)
            .filter_map(|secret| networks.get(secret))
            .collect();
        let missing = named.filter(|_| found.is_empty()).map(NetworkData::missing);
        let missing = missing.as_ref().map(PackedNetworkData::pack);
        found.extend(&missing);
        report.addresses.clear();
        report.problems = self.faults.to_vec();
        for data in found {
            for (id, address) in data.addresses() {
                let known = report.addresses.entry(id.to_owned());
                known.or_insert_with(|| address.to_string());
            }
            report.problems.extend(data.invalid().map(str::to_owned));
        }
        report.write_refused = refused.is_some();
        let refused = refused.map(|message| format!("the API server refuses every write of it: {message}"));
        report.problems.extend(refused);
        let unplaced = self.unplaced_use.as_ref().and_then(|unplaced| {
            let served_for = served.first_serving(&unplaced.cluster)?;
            Some(unplaced.fault(served_for))
        });
        report.problems.extend(unplaced);
    }

    /// Stores a report.
    pub(super) fn pack(&mut self, report: &wire::Host) {
        self.report = report.encode_to_vec().into();
    }

    /// Decodes the report on the host.
    pub(super) fn report(&self) -> wire::Host {
        // These bytes were encoded above: they can be read.
        wire::Host::decode(&*self.report).unwrap_or_default()
    }

    /// What reconciling reads of it.
    pub(super) fn observed(&self, networks: &BTreeMap<SecretName, PackedNetworkData>) -> ObservedHost {
        let report = self.report();
        let unremembered = self.secrets.unremembered();
        // While the host has a consumer, its networkData may be the consumer's, and not the site's own.
        let unremembered = unremembered.filter(|_| report.consumer.is_none());
        let unremembered =
            unremembered.filter(|secret| networks.get(secret).is_some_and(|data| !data.is_rendered));
        ObservedHost::from_report(
            report,
            self.resource_version.to_string(),
            self.cluster_annotation.as_deref().map(str::to_owned),
            unremembered.map(|secret| secret.name.clone()),
        )
    }

    /// The host as it was, when it is gone.
    pub(super) fn gone(&self) -> GoneHost {
        let host = self.observed(&BTreeMap::new());
        GoneHost {
            id: host.id().clone(),
            consumer: host.consumer().cloned(),
            owners: self.owners.to_vec(),
            verdict: None,
        }
    }

    /// Name, in Cluster API, of the Cluster that uses the host though no `SIPCluster` holds it.
    pub(super) fn unplaced_cluster(&self) -> Option<&str> {
        self.unplaced_use.as_ref().map(|unplaced| &*unplaced.cluster)
    }

    /// The Secrets with its addresses.
    pub(super) fn secrets(&self) -> &NetworkSecrets {
        &self.secrets
    }
}

/// What a host takes from its networkData.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackedNetworkData {
    addresses: Box<[(Box<str>, IpAddr)]>,
    invalid: Option<Box<str>>,
    /// Whether it is deleted with a Machine.
    is_rendered: bool,
}

impl PackedNetworkData {
    /// Packs networkData.
    pub(super) fn pack(data: &NetworkData) -> Self {
        let addresses = data.addresses().iter();
        Self {
            addresses: addresses
                .map(|(id, address)| (id.as_str().into(), *address))
                .collect(),
            invalid: data.invalid().map(|invalid| invalid.to_string().into()),
            is_rendered: data.is_rendered(),
        }
    }

    /// Addresses by network.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.addresses.iter().map(|(id, address)| (&**id, *address))
    }

    /// What could not be read.
    pub(super) fn invalid(&self) -> Option<&str> {
        self.invalid.as_deref()
    }
}
