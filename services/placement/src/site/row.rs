//! One host as it is stored: what is not in the columns, in little memory.

use std::collections::BTreeSet;

use vocabulary::{HostId, HostName, OperationalStatus, ProvisioningState, SipLabels};

use super::Site;
use super::column::Value;
use super::set::Slot;
use super::size::{VECTOR_GROWTH, entry};
use crate::host::{Consumer, Host};

/// A label key's number in a [`Site`].
pub(crate) type Key = u32;

/// Bytes of a host without its labels and networks: its row, its rank, its place in the sets.
const ROW_BYTES: usize = VECTOR_GROWTH * (size_of::<Option<Row>>() + size_of::<u64>())
    + entry(size_of::<(HostName, Slot)>())
    + entry(size_of::<(u64, Slot)>());
/// Bytes of a label of a host: its number in the row, and the host in the sets of its column.
const LABEL_BYTES: usize = size_of::<(u32, u32)>() + 6 * size_of::<Slot>();
/// Bytes of a network of a host.
const NETWORK_BYTES: usize = 3 * size_of::<Slot>();

fn of_parts(labels: usize, networks: usize, has_consumer: bool, has_labels: bool, problem: usize) -> usize {
    let consumer = if has_consumer { size_of::<Consumer>() } else { 0 };
    let sip_labels = if has_labels { size_of::<SipLabels>() } else { 0 };
    ROW_BYTES + labels * LABEL_BYTES + networks * NETWORK_BYTES + consumer + sip_labels + problem
}

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
    problem: Option<Box<str>>,
    sip_labels: Option<Box<SipLabels>>,
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
    unhealthy: bool,
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
            unhealthy,
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
                unhealthy,
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

    /// About how many bytes it takes. Its texts are those of the host that was given; only what is not shared counts.
    pub(crate) fn bytes(&self) -> usize {
        let problem = self.problem.as_deref().map_or(0, str::len);
        let (consumer, sip_labels) = (self.consumer.is_some(), self.sip_labels.is_some());
        of_parts(
            self.labels.len(),
            self.networks.len(),
            consumer,
            sip_labels,
            problem,
        )
    }

    /// The same of the row of a host.
    pub(crate) fn bytes_of(host: &Host) -> usize {
        let problem = host.problem.as_ref().map_or(0, String::len);
        let sip_labels = host.sip_labels != SipLabels::None;
        of_parts(
            host.labels.len(),
            host.networks.len(),
            host.consumer.is_some(),
            sip_labels,
            problem,
        )
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
            unhealthy,
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
            unhealthy,
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
