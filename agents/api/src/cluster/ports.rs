//! Node ports: their range, and that no two services of a cluster ask for the same one.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use crate::fault::Fault;
use crate::sip_cluster::PortRangeSpec;

/// How many ports one worker load balancer may have. A cluster's whole default node port range is 2,768 ports; each is a
/// listener with health checks of its own for every worker.
pub const MAX_PORTS_PER_RANGE: u16 = 1_000;

const RULE: &str = "must be a port, 1 to 65535";

/// A range of ports, both ends included, start <= end, at most [`MAX_PORTS_PER_RANGE`] ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortRange {
    start: NonZeroU16,
    end: NonZeroU16,
}

impl PortRange {
    /// First port.
    #[must_use]
    pub fn start(self) -> NonZeroU16 {
        self.start
    }

    /// Last port.
    #[must_use]
    pub fn end(self) -> NonZeroU16 {
        self.end
    }

    /// Every port, in order.
    pub fn ports(self) -> impl Iterator<Item = NonZeroU16> + Clone {
        (self.start.get()..=self.end.get()).filter_map(NonZeroU16::new)
    }
}

pub(super) fn port(value: i64, path: &str, faults: &mut Vec<Fault>) -> Option<NonZeroU16> {
    let port = u16::try_from(value).ok().and_then(NonZeroU16::new);
    if port.is_none() {
        faults.push(Fault::new(path, value, RULE));
    }
    port
}

pub(super) fn range(range: Option<&PortRangeSpec>, path: &str, faults: &mut Vec<Fault>) -> Option<PortRange> {
    let Some(PortRangeSpec { start, end }) = range else {
        faults.push(Fault::absent(
            path,
            "must be set: it says which ports are balanced",
        ));
        return None;
    };
    let mut one = |value: &Option<i64>, path: String| {
        if value.is_none() {
            faults.push(Fault::absent(&path, "must be set"));
        }
        value.and_then(|value| port(value, &path, faults))
    };
    let start = one(start, format!("{path}.start"));
    let end = one(end, format!("{path}.end"));
    let (start, end) = (start?, end?);
    let found = format!("{start}-{end}");
    if start > end {
        faults.push(Fault::new(path, found, "start must not be greater than end"));
        return None;
    }
    if end.get() - start.get() >= MAX_PORTS_PER_RANGE {
        faults.push(Fault::new(
            path,
            found,
            format!("must be at most {MAX_PORTS_PER_RANGE} ports"),
        ));
        return None;
    }
    Some(PortRange { start, end })
}

/// The ports that a cluster's services ask for, each with the field that asks.
#[derive(Default)]
pub(super) struct Claims {
    by_port: BTreeMap<NonZeroU16, String>,
}

impl Claims {
    /// Notes that the field at `path` asks for these ports, and reports the first that an earlier field asks for too.
    pub(super) fn add(
        &mut self,
        ports: impl Iterator<Item = NonZeroU16> + Clone,
        path: &str,
        faults: &mut Vec<Fault>,
    ) {
        if let Some((port, owner)) = ports
            .clone()
            .find_map(|port| Some((port, self.by_port.get(&port)?)))
        {
            faults.push(Fault::new(
                path,
                port,
                format!("the node port is already asked for by {owner}"),
            ));
        }
        for port in ports {
            self.by_port.entry(port).or_insert_with(|| path.to_owned());
        }
    }
}
