//! How hosts and their addresses are stored: packed, since a site has ten thousand of them and few are asked for.
//! As maps and strings of their own the agent of ten thousand hosts needs 74 MiB, and 44 like this.

use std::{collections::BTreeMap, net::IpAddr};

use api::{BareMetalHost, Host, NetworkData, SecretName, annotations};
use prost::Message as _;
use proto::inventory::v1 as wire;

use super::{host_report, observed_host::ObservedHost};

/// A host.
#[derive(Debug)]
pub(super) struct PackedHost {
    /// What is reported of it, encoded.
    report: Box<[u8]>,
    resource_version: Box<str>,
    /// The Secret with its addresses.
    secret: Option<SecretName>,
    /// Annotation [`annotations::CLUSTER_API_CLUSTER`].
    cluster_annotation: Option<Box<str>>,
    /// What could not be read of the object itself.
    faults: Box<[String]>,
}

impl PackedHost {
    /// Packs a host without addresses. Returns it with its report, which [`PackedHost::pack`] completes; `None` for an object
    /// without namespace, name or uid, which no API server serves.
    pub(super) fn parse(object: &BareMetalHost) -> Option<(Self, wire::Host)> {
        let host = Host::parse(object, None).ok()?;
        let secret = object.spec.network_data.as_ref().and_then(|reference| {
            let name = reference.name.clone().filter(|name| !name.is_empty())?;
            let namespace = reference
                .namespace
                .clone()
                .filter(|namespace| !namespace.is_empty());
            Some(SecretName {
                namespace: namespace.unwrap_or_else(|| host.namespace().to_owned()),
                name,
            })
        });
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
            secret,
            cluster_annotation: cluster_annotation.map(|text| text.as_str().into()),
            faults: host_report::faults(&host, cluster_annotation.map(String::as_str)).into(),
        };
        Some((packed, host_report::report(&host)))
    }

    /// Completes a report with the addresses in the Secret that the host names, and with what could not be read.
    pub(super) fn complete(
        &self,
        report: &mut wire::Host,
        networks: &BTreeMap<SecretName, PackedNetworkData>,
    ) {
        let missing;
        let data = match &self.secret {
            None => None,
            Some(secret) => Some(if let Some(data) = networks.get(secret) {
                data
            } else {
                missing = PackedNetworkData::pack(&NetworkData::missing(secret));
                &missing
            }),
        };
        let addresses = data.into_iter().flat_map(PackedNetworkData::addresses);
        report.addresses = addresses
            .map(|(id, address)| (id.to_owned(), address.to_string()))
            .collect();
        report.problems = self.faults.to_vec();
        let invalid = data.and_then(PackedNetworkData::invalid);
        report.problems.extend(invalid.map(str::to_owned));
    }

    /// Stores a report.
    pub(super) fn pack(&mut self, report: &wire::Host) {
        self.report = report.encode_to_vec().into();
    }

    /// What is reported of it.
    pub(super) fn report(&self) -> wire::Host {
        // These bytes were encoded above: they can be read.
        wire::Host::decode(&*self.report).unwrap_or_default()
    }

    /// What reconciling reads of it.
    pub(super) fn observed(&self) -> ObservedHost {
        ObservedHost::from_report(
            self.report(),
            self.resource_version.to_string(),
            self.cluster_annotation.as_deref().map(str::to_owned),
        )
    }

    /// The Secret with its addresses.
    pub(super) fn secret(&self) -> Option<&SecretName> {
        self.secret.as_ref()
    }
}

/// What a host takes from its networkData.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackedNetworkData {
    addresses: Box<[(Box<str>, IpAddr)]>,
    invalid: Option<Box<str>>,
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
