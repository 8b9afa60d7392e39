//! What is reported of a `BareMetalHost`.

use std::{collections::BTreeMap, time::SystemTime};

use api::{
    ClusterApiCluster, Host, OperationalStatus, Ownership, ProvisioningState, describe_consumer, labels,
};
use kit::placement::ObjectKey;
use proto::inventory::v1 as wire;

/// Bytes of an error message that are reported at most.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Faults of a host, for Events and the scheduler: what cannot be read, what its BMC reports, and a consumer that its labels do not allow.
pub(super) fn faults(host: &Host, cluster_annotation: Option<&str>) -> Vec<String> {
    let faults = host.reports().iter().map(ToString::to_string);
    faults
        .chain(host.fault().map(bmc_fault))
        .chain(foreign_use(host, cluster_annotation))
        .collect()
}

/// States that a BMC reports a fault, for messages. metal3 chooses the message, so its length is limited.
fn bmc_fault(message: &str) -> String {
    let message = message
        .get(..message.floor_char_boundary(MAX_MESSAGE_BYTES))
        .unwrap_or_default();
    format!("its BMC reports a fault, condition Healthy is False: {message}")
}

/// A consumer on a host that no `SIPCluster` holds or has released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnplacedUse {
    /// Name of the Cluster in Cluster API.
    pub(super) cluster: Box<str>,
    user: Box<str>,
}

impl UnplacedUse {
    /// States, for messages, that the Cluster is the one that a `SIPCluster` serves: its template selects hosts that the `SIPCluster` does not
    /// hold.
    pub(super) fn fault(&self, served_for: &ObjectKey) -> String {
        format!(
            "it is used by {}, which SIPCluster {served_for} serves, and no SIPCluster holds it: select the labels of that SIPCluster in hostSelector",
            self.user
        )
    }
}

/// The consumer of a host that does not have all three SIP labels and was never released, if a label names the consumer's Cluster.
pub(super) fn unplaced_use(host: &Host) -> Option<UnplacedUse> {
    let label = |key: &str| host.labels().get(key).filter(|value| !value.is_empty());
    let consumer = host.consumer().filter(|_| host.placement_revision().is_none())?;
    let cluster = label(labels::CLUSTER_API)?;
    let is_placed = [labels::CLUSTER_NAMESPACE, labels::CLUSTER_NAME, labels::NODE_TYPE]
        .into_iter()
        .all(|key| label(key).is_some());
    (!is_placed).then(|| UnplacedUse {
        cluster: cluster.as_str().into(),
        user: describe_consumer(consumer, Some(cluster)).into(),
    })
}

/// Since when a host is in error: the time of the first report with the error. Absent if already the first report of this process had it: the
/// scheduler has the time from earlier reports.
pub(super) fn error_since(
    now: &wire::Host,
    before: Option<&wire::Host>,
    at: SystemTime,
) -> Option<prost_types::Timestamp> {
    let is_in_error = |host: &wire::Host| host.operational_status() == wire::OperationalStatus::Error;
    let same = before.filter(|before| before.r#ref == now.r#ref)?;
    if !is_in_error(now) {
        None
    } else if is_in_error(same) {
        same.error_since
    } else {
        Some(at.into())
    }
}

/// States that the host's consumer is not of the Cluster for which its labels are, for Events and the scheduler.
fn foreign_use(host: &Host, cluster_api: Option<&str>) -> Option<String> {
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
            let served = ClusterApiCluster::served_by(cluster_api, name);
            (served.owns(consumer, namespace, cluster) == Ownership::Foreign).then(|| {
                format!("it is used by {user}, and its labels give it to SIPCluster {namespace}/{name}, which serves {served}")
            })
        }
        // [`unplaced_use`] reports a host that SIP has never placed, since that depends on the existing `SIPCluster`s.
        _ if host.placement_revision().is_some() => Some(format!(
            "it is used by {user}, and no SIPCluster holds it: it was released"
        )),
        _ => None,
    }
}

/// What is reported of a host, without its addresses.
pub(super) fn report(host: &Host) -> wire::Host {
    let mut message = host.error_message().to_owned();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
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
        unhealthy: host.fault().is_some(),
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
        write_refused: false,
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
