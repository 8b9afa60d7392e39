//! A `BareMetalHost` as it is reported.

use std::{collections::BTreeMap, time::SystemTime};

use api::{
    BareMetalHost, Belongs, ClusterApiCluster, Host, NetworkData, OperationalStatus, ProvisioningState,
    SecretName, annotations, describe_consumer, labels,
};
use proto::inventory::v1 as wire;

use super::{Key, kept::KeptNetworkData};

/// Longest error message that is reported, in bytes.
const MESSAGE: usize = 1024;

/// A host as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct HostState {
    /// What is reported of it.
    pub host: wire::Host,
    /// Its `resourceVersion`: a write is conditioned on it.
    pub resource_version: String,
    /// The Secret with its addresses.
    pub secret: Option<SecretName>,
    /// Annotation [`annotations::CLUSTER_API_CLUSTER`].
    pub cluster_api: Option<String>,
    /// What could not be read of the object itself.
    pub(super) faults: Vec<String>,
}

impl HostState {
    /// Reads an object, without its addresses; `None` for one without namespace, name or uid, which no API server
    /// serves.
    pub(super) fn of(object: &BareMetalHost) -> Option<Self> {
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
        let cluster_api = annotations.and_then(|all| all.get(annotations::CLUSTER_API_CLUSTER).cloned());
        let faults = host.reports().iter().map(ToString::to_string);
        Some(Self {
            faults: faults.chain(stranger(&host, cluster_api.as_deref())).collect(),
            cluster_api,
            host: reported(&host),
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            secret,
        })
    }

    /// Its namespace and name.
    pub(super) fn key(&self) -> Key {
        let host = self.host.r#ref.clone().unwrap_or_default();
        Key {
            namespace: host.namespace,
            name: host.name,
        }
    }

    /// Takes its addresses from the Secret that it names.
    pub(super) fn read(&mut self, networks: &BTreeMap<SecretName, KeptNetworkData>) {
        let missing;
        let data = match &self.secret {
            None => None,
            Some(secret) => Some(if let Some(data) = networks.get(secret) {
                data
            } else {
                missing = KeptNetworkData::of(&NetworkData::missing(secret));
                &missing
            }),
        };
        let addresses = data.into_iter().flat_map(KeptNetworkData::addresses);
        self.host.addresses = addresses
            .map(|(id, address)| (id.to_owned(), address.to_string()))
            .collect();
        self.host.problems.clone_from(&self.faults);
        self.host
            .problems
            .extend(data.and_then(KeptNetworkData::invalid).map(str::to_owned));
    }

    /// Keeps the time at which it was seen to fall into error, of an earlier look at the same host. There is none for a
    /// host that was in error when it was seen first: this process may just have started, and the scheduler knows better.
    pub(super) fn remember(&mut self, before: Option<&Self>, now: SystemTime) {
        let is_in_error = |host: &wire::Host| host.operational_status() == wire::OperationalStatus::Error;
        let uid = |host: &wire::Host| host.r#ref.as_ref().map(|known| known.uid.clone());
        let known = before.filter(|before| uid(&before.host) == uid(&self.host));
        self.host.error_since = known.filter(|_| is_in_error(&self.host)).and_then(|before| {
            if is_in_error(&before.host) {
                before.host.error_since
            } else {
                Some(now.into())
            }
        });
    }
}

/// Says who uses a host that its labels do not give to them: for people, and for the scheduler.
fn stranger(host: &Host, cluster_api: Option<&str>) -> Option<String> {
    let consumer = host.consumer()?;
    let label = |key: &str| {
        host.labels()
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    };
    let cluster = label(labels::CLUSTER_API);
    let user = describe_consumer(consumer, cluster);
    match [labels::CLUSTER_NAMESPACE, labels::CLUSTER_NAME, labels::NODE_TYPE].map(label) {
        [Some(namespace), Some(name), Some(_)] => {
            let meant = ClusterApiCluster::meant(cluster_api, name);
            (meant.owns(consumer, namespace, cluster) == Belongs::No).then(|| {
                format!("it is used by {user}, and its labels give it to SIPCluster {namespace}/{name}, which serves {meant}")
            })
        }
        // A host that never was SIP's is not reported.
        _ if host.placement_revision().is_some() => Some(format!(
            "it is used by {user}, and was given back: no SIPCluster holds it"
        )),
        _ => None,
    }
}

fn reported(host: &Host) -> wire::Host {
    let mut message = host.error_message().to_owned();
    if message.len() > MESSAGE {
        let end = (0..=MESSAGE)
            .rev()
            .find(|end| message.is_char_boundary(*end))
            .unwrap_or(0);
        message.truncate(end);
    }
    wire::Host {
        r#ref: Some(wire::HostRef {
            namespace: host.namespace().to_owned(),
            name: host.name().to_owned(),
            uid: host.uid().to_owned(),
        }),
        labels: host.labels().clone(),
        provisioning_state: provisioning(host.provisioning_state()).into(),
        operational_status: operational(host.operational_status()).into(),
        error_message: message,
        error_since: None,
        paused: host.is_paused(),
        detached: host.is_detached(),
        deleting: host.is_deleting(),
        powered_on: host.is_powered_on(),
        inspected: host.is_inspected(),
        cordoned: host.is_cordoned(),
        marked_failed: host.is_failed() || host.is_unhealthy(),
        replace_requested: host.is_to_be_replaced(),
        consumer: host.consumer().map(|consumer| wire::Consumer {
            api_version: consumer.api_version.clone().unwrap_or_default(),
            kind: consumer.kind.clone().unwrap_or_default(),
            namespace: consumer.namespace.clone().unwrap_or_default(),
            name: consumer.name.clone().unwrap_or_default(),
        }),
        addresses: BTreeMap::new(),
        bmc_address: host.bmc_address().map(ToString::to_string).unwrap_or_default(),
        release_mark: host.placement_revision().unwrap_or_default(),
        problems: Vec::new(),
    }
}

fn provisioning(state: &ProvisioningState) -> wire::ProvisioningState {
    use wire::ProvisioningState as Wire;
    match state {
        ProvisioningState::None | ProvisioningState::NotReported | ProvisioningState::Unknown(_) => {
            Wire::Unspecified
        }
        ProvisioningState::Unmanaged => Wire::Unmanaged,
        ProvisioningState::Registering => Wire::Registering,
        ProvisioningState::MatchProfile => Wire::MatchProfile,
        ProvisioningState::Preparing => Wire::Preparing,
        ProvisioningState::Ready => Wire::Ready,
        ProvisioningState::Available => Wire::Available,
        ProvisioningState::Provisioning => Wire::Provisioning,
        ProvisioningState::Provisioned => Wire::Provisioned,
        ProvisioningState::ExternallyProvisioned => Wire::ExternallyProvisioned,
        ProvisioningState::Deprovisioning => Wire::Deprovisioning,
        ProvisioningState::Inspecting => Wire::Inspecting,
        ProvisioningState::PoweringOffBeforeDelete => Wire::PoweringOffBeforeDelete,
        ProvisioningState::Deleting => Wire::Deleting,
    }
}

fn operational(status: &OperationalStatus) -> wire::OperationalStatus {
    use wire::OperationalStatus as Wire;
    match status {
        OperationalStatus::None | OperationalStatus::Unknown(_) => Wire::Unspecified,
        OperationalStatus::Ok => Wire::Ok,
        OperationalStatus::Discovered => Wire::Discovered,
        OperationalStatus::Error => Wire::Error,
        OperationalStatus::Delayed => Wire::Delayed,
        OperationalStatus::Detached => Wire::Detached,
        OperationalStatus::Servicing => Wire::Servicing,
    }
}
