//! How hosts and their addresses are kept: packed, since a site has ten thousand of them and hardly any is asked for.
//! As maps and strings of their own the agent of ten thousand hosts needs 74 MiB, and 44 like this.

use std::net::IpAddr;

use api::{NetworkData, SecretName};
use prost::Message as _;
use proto::inventory::v1 as wire;

use super::hosts::HostState;

/// A host.
#[derive(Debug)]
pub(super) struct KeptHost {
    /// As it is reported, encoded.
    host: Box<[u8]>,
    resource_version: Box<str>,
    secret: Option<SecretName>,
    cluster_api: Option<Box<str>>,
    faults: Box<[String]>,
}

impl KeptHost {
    /// Packs a host.
    pub(super) fn of(state: HostState) -> Self {
        let HostState {
            host,
            resource_version,
            secret,
            cluster_api,
            faults,
        } = state;
        Self {
            host: host.encode_to_vec().into(),
            resource_version: resource_version.into(),
            secret,
            cluster_api: cluster_api.map(Into::into),
            faults: faults.into(),
        }
    }

    /// The host.
    pub(super) fn state(&self) -> HostState {
        HostState {
            host: self.host(),
            resource_version: self.resource_version.to_string(),
            secret: self.secret.clone(),
            cluster_api: self.cluster_api.as_deref().map(str::to_owned),
            faults: self.faults.to_vec(),
        }
    }

    /// What is reported of it.
    pub(super) fn host(&self) -> wire::Host {
        // These bytes were encoded above: they can be read.
        wire::Host::decode(&*self.host).unwrap_or_default()
    }

    /// The Secret with its addresses.
    pub(super) fn secret(&self) -> Option<&SecretName> {
        self.secret.as_ref()
    }
}

/// What a host takes from its networkData.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeptNetworkData {
    addresses: Box<[(Box<str>, IpAddr)]>,
    invalid: Option<Box<str>>,
}

impl KeptNetworkData {
    /// Packs networkData.
    pub(super) fn of(data: &NetworkData) -> Self {
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
