//! Node ports: their range, and that no two services of a cluster ask for the same one.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::fmt;
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
            "must be set: the ports that the load balancer serves",
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

/// The ports of a cluster's services, each with the field that has it.
#[derive(Default)]
pub(super) struct Claims {
    by_port: BTreeMap<NonZeroU16, String>,
}

impl Claims {
    /// Records that the field at `path` has these ports, and reports those that earlier fields contain too.
    pub(super) fn add(
        &mut self,
        ports: impl Iterator<Item = NonZeroU16>,
        path: &str,
        faults: &mut Vec<Fault>,
    ) {
        let mut taken: BTreeMap<String, PortSet> = BTreeMap::new();
        for port in ports {
            match self.by_port.entry(port) {
                Entry::Vacant(free) => {
                    free.insert(path.to_owned());
                }
                Entry::Occupied(owner) => taken.entry(owner.get().clone()).or_default().add(port.get()),
            }
        }
        for (owner, ports) in taken {
            faults.push(Fault::new(
                path,
                ports,
                format!("must be unique on a node, and is already set in {owner}"),
            ));
        }
    }
}

/// Ports, shown as ranges: `30000-30004, 30010`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PortSet(BTreeSet<u16>);

impl PortSet {
    /// Adds a port.
    pub fn add(&mut self, port: u16) {
        self.0.insert(port);
    }

    /// Whether it has no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has this port.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }

    /// The ports, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }
}

impl FromIterator<u16> for PortSet {
    fn from_iter<T: IntoIterator<Item = u16>>(ports: T) -> Self {
        Self(ports.into_iter().collect())
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| last.checked_add(1) == Some(*next)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PortSet;

    #[test]
    fn ports_are_printed_as_ranges() {
        for (ports, expected) in [
            (&[][..], ""),
            (&[30_001], "30001"),
            (&[30_002, 30_001], "30001-30002"),
            (&[1, 3, 4, 5, 9, 65_534, 65_535], "1, 3-5, 9, 65534-65535"),
        ] {
            assert_eq!(ports.iter().copied().collect::<PortSet>().to_string(), expected);
        }
    }
}
