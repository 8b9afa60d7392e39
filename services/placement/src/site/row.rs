//! One host as it is stored: what is not in the columns, in little memory.

use std::collections::BTreeSet;

use vocabulary::{HostId, OperationalStatus, ProvisioningState, SipLabels};

use super::Site;
use super::column::Value;
use crate::host::{Consumer, Host};

/// A label key's number in a [`Site`].
pub(crate) type Key = u32;

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: HostId,
    /// Sorted by key number.
    pub(crate) labels: Box<[(Key, Value)]>,
    /// Sorted numbers of networks.
    pub(crate) networks: Box<[u32]>,
    pub(crate) provisioning: ProvisioningState,
    operational: OperationalStatus,
    flags: Flags,
    pub(crate) consumer: Option<Box<Consumer>>,
    pub(super) problem: Option<Box<str>>,
    pub(super) sip_labels: Option<Box<SipLabels>>,
}

#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about one host, as metal3 reports them"
)]
struct Flags {
    paused: bool,
    detached: bool,
    deleting: bool,
    powered_on: bool,
    inspected: bool,
    cordoned: bool,
    marked_failed: bool,
    replace_requested: bool,
    write_refused: bool,
}

impl Row {
    pub(crate) fn new(host: Host, labels: Box<[(Key, Value)]>, networks: Box<[u32]>) -> Self {
        let Host {
            id,
            labels: _,
            provisioning,
            operational,
            paused,
            detached,
            deleting,
            powered_on,
            inspected,
            cordoned,
            marked_failed,
            replace_requested,
            write_refused,
            consumer,
            networks: _,
            problem,
            sip_labels,
        } = host;
        Self {
            id,
            labels,
            networks,
            provisioning,
            operational,
            flags: Flags {
                paused,
                detached,
                deleting,
                powered_on,
                inspected,
                cordoned,
                marked_failed,
                replace_requested,
                write_refused,
            },
            consumer: consumer.map(Box::new),
            problem: problem.map(String::into_boxed_str),
            sip_labels: (sip_labels != SipLabels::None).then(|| Box::new(sip_labels)),
        }
    }

    pub(crate) fn is_marked_failed(&self) -> bool {
        self.flags.marked_failed
    }

    pub(crate) fn is_to_be_moved(&self) -> bool {
        self.flags.replace_requested
    }

    pub(crate) fn is_write_refused(&self) -> bool {
        self.flags.write_refused
    }

    /// The host as it was given.
    pub(crate) fn host(&self, site: &Site) -> Host {
        let label = |(key, value): &(Key, Value)| {
            let (name, column) = site.column_at(*key)?;
            Some((name.clone(), column.text(*value)?.clone()))
        };
        let Flags {
            paused,
            detached,
            deleting,
            powered_on,
            inspected,
            cordoned,
            marked_failed,
            replace_requested,
            write_refused,
        } = self.flags;
        Host {
            id: self.id.clone(),
            labels: self.labels.iter().filter_map(label).collect(),
            provisioning: self.provisioning.clone(),
            operational: self.operational.clone(),
            paused,
            detached,
            deleting,
            powered_on,
            inspected,
            cordoned,
            marked_failed,
            replace_requested,
            write_refused,
            consumer: self.consumer.as_deref().cloned(),
            networks: self
                .networks
                .iter()
                .filter_map(|n| site.network_at(*n))
                .cloned()
                .collect::<BTreeSet<_>>(),
            problem: self.problem.as_deref().map(str::to_owned),
            sip_labels: self.sip_labels.as_deref().cloned().unwrap_or_default(),
        }
    }
}
