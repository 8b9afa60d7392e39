//! A `BareMetalHost` as the watches show it: what reconciling a cluster reads of it.

use api::{ConsumerReference, labels};
use kit::placement::{HostId, ObjectKey};
use proto::inventory::v1 as wire;

/// A host as it was observed at one `resourceVersion`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about one host"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedHost {
    id: HostId,
    resource_version: String,
    sip_labels: SipLabels,
    cluster_label: Option<String>,
    cluster_annotation: Option<String>,
    unremembered_secret: Option<String>,
    consumer: Option<ConsumerReference>,
    release_mark: u64,
    in_error: bool,
    error_message: String,
    marked_failed: bool,
    replace_requested: bool,
    write_refused: bool,
}

/// The labels that give a host to a `SIPCluster`, as far as it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SipLabels {
    /// [`labels::CLUSTER_NAMESPACE`].
    pub namespace: Option<String>,
    /// [`labels::CLUSTER_NAME`].
    pub name: Option<String>,
    /// [`labels::NODE_TYPE`].
    pub role: Option<String>,
}

impl ObservedHost {
    /// Takes a host from its report. `cluster_annotation`: its annotation [`api::annotations::CLUSTER_API_CLUSTER`]; `unremembered_secret`:
    /// what annotation [`api::annotations::NETWORK_DATA`] is to name, and does not.
    #[must_use]
    pub fn from_report(
        report: wire::Host,
        resource_version: String,
        cluster_annotation: Option<String>,
        unremembered_secret: Option<String>,
    ) -> Self {
        let in_error = report.operational_status() == wire::OperationalStatus::Error;
        let wire::Host {
            r#ref,
            mut labels,
            error_message,
            marked_failed,
            replace_requested,
            write_refused,
            consumer,
            release_mark,
            ..
        } = report;
        let wire::HostRef { namespace, name, uid } = r#ref.unwrap_or_default();
        Self {
            id: HostId::new(ObjectKey { namespace, name }, uid),
            resource_version,
            sip_labels: SipLabels {
                namespace: labels.remove(labels::CLUSTER_NAMESPACE),
                name: labels.remove(labels::CLUSTER_NAME),
                role: labels.remove(labels::NODE_TYPE),
            },
            cluster_label: labels.remove(labels::CLUSTER_API),
            cluster_annotation,
            unremembered_secret,
            consumer: consumer.map(|consumer| {
                let wire::Consumer {
                    api_version,
                    kind,
                    namespace,
                    name,
                } = consumer;
                ConsumerReference {
                    api_version: Some(api_version),
                    kind: Some(kind),
                    namespace: Some(namespace),
                    name: Some(name),
                }
            }),
            release_mark,
            in_error,
            error_message,
            marked_failed,
            replace_requested,
            write_refused,
        }
    }

    /// Which incarnation of the host it is.
    #[must_use]
    pub fn id(&self) -> &HostId {
        &self.id
    }

    /// Its `resourceVersion`: a write is conditioned on it.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// To which `SIPCluster` its labels give it.
    #[must_use]
    pub fn sip_labels(&self) -> &SipLabels {
        &self.sip_labels
    }

    /// Label [`labels::CLUSTER_API`].
    #[must_use]
    pub fn cluster_label(&self) -> Option<&str> {
        self.cluster_label.as_deref()
    }

    /// Annotation [`api::annotations::CLUSTER_API_CLUSTER`].
    #[must_use]
    pub fn cluster_annotation(&self) -> Option<&str> {
        self.cluster_annotation.as_deref()
    }

    /// The Secret of the site that its `networkData` names, where annotation [`api::annotations::NETWORK_DATA`] does not name it.
    #[must_use]
    pub fn unremembered_secret(&self) -> Option<&str> {
        self.unremembered_secret.as_deref()
    }

    /// What uses it.
    #[must_use]
    pub fn consumer(&self) -> Option<&ConsumerReference> {
        self.consumer.as_ref()
    }

    /// Revision of the last release that was written to it; 0 without.
    #[must_use]
    pub fn release_mark(&self) -> u64 {
        self.release_mark
    }

    /// What went wrong, where metal3 reports an error; it may be empty.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.in_error.then_some(&*self.error_message)
    }

    /// Whether Cluster API or an operator has marked it as failed.
    #[must_use]
    pub fn is_marked_failed(&self) -> bool {
        self.marked_failed
    }

    /// Whether a user requested that its member move to another host.
    #[must_use]
    pub fn is_to_be_replaced(&self) -> bool {
        self.replace_requested
    }

    /// Whether the API server refuses every write of it.
    #[must_use]
    pub fn is_write_refused(&self) -> bool {
        self.write_refused
    }
}
