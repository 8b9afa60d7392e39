//! Counts what a report has, before it is decoded: an empty element takes two bytes on the wire, and hundreds in memory.
//!
//! The walk follows the encoding as its bytes come, and keeps none of them.

use crate::error::Error;

/// Maximum number of hosts, deleted hosts, clusters and deleted clusters in one message.
const MAX_OBJECTS: usize = 1000;
/// Maximum number of members of all clusters of one message: half of that with the shortest names fits into its bytes.
const MAX_MEMBERS: usize = 50_000;
/// Maximum length of a varint, in bytes.
const MAX_VARINT_BYTES: u32 = 10;

/// Elements that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Host,
    DeletedHost,
    Cluster,
    DeletedCluster,
    Member,
}

impl Element {
    /// What is at a field of `ReportHostsRequest` or of a message in it.
    fn at(path: &[u64], field: u64) -> Option<Self> {
        match (path, field) {
            ([CHANGES_FIELD], 1) => Some(Self::Host),
            ([CHANGES_FIELD], 2) => Some(Self::DeletedHost),
            ([CHANGES_FIELD], CLUSTERS_FIELD) => Some(Self::Cluster),
            ([CHANGES_FIELD], 4) => Some(Self::DeletedCluster),
            ([CHANGES_FIELD, CLUSTERS_FIELD], 5) => Some(Self::Member),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Host => "hosts",
            Self::DeletedHost => "deleted hosts",
            Self::Cluster => "clusters",
            Self::DeletedCluster => "deleted clusters",
            Self::Member => "members of clusters",
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Host | Self::DeletedHost | Self::Cluster | Self::DeletedCluster => MAX_OBJECTS,
            Self::Member => MAX_MEMBERS,
        }
    }
}

/// Field number of `ReportHostsRequest.changes`.
const CHANGES_FIELD: u64 = 3;
/// Field number of `HostChanges.clusters`.
const CLUSTERS_FIELD: u64 = 3;

/// Fields that are walked into.
fn is_walked(path: &[u64], field: u64) -> bool {
    matches!(
        (path, field),
        ([], CHANGES_FIELD) | ([CHANGES_FIELD], CLUSTERS_FIELD)
    )
}

/// What the varint that is being read means.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Key,
    Value,
    Length {
        field: u64,
    },
}

/// The walk through one `ReportHostsRequest`.
#[derive(Debug, Default)]
pub(super) struct Elements {
    counts: [usize; 5],
    /// Fields of the messages that the walk is in, outermost first.
    path: Vec<u64>,
    /// Where each of them ends.
    ends: Vec<u64>,
    at: u64,
    /// Bytes to skip: their content is not counted.
    skip: u64,
    next: Next,
    /// The varint so far, and how many of its bytes have come.
    varint: (u64, u32),
}

impl Elements {
    /// Walks on.
    ///
    /// # Errors
    /// When there is too much of something, or the bytes cannot be a message.
    pub(super) fn take(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while let Some((&byte, rest)) = data.split_first() {
            if self.skip > 0 {
                let here = u64::try_from(data.len()).unwrap_or(u64::MAX).min(self.skip);
                self.skip -= here;
                self.at += here;
                data = data
                    .get(usize::try_from(here).unwrap_or(usize::MAX)..)
                    .unwrap_or_default();
            } else {
                self.at += 1;
                data = rest;
                if let Some(number) = self.varint(byte)? {
                    self.number(number)?;
                }
            }
            self.end_messages()?;
        }
        Ok(())
    }

    /// Takes a byte of a varint; its value with the last one.
    fn varint(&mut self, byte: u8) -> Result<Option<u64>, Error> {
        let (value, length) = &mut self.varint;
        if *length >= MAX_VARINT_BYTES {
            return Err(malformed());
        }
        *value |= u64::from(byte & 0x7f) << (7 * *length);
        *length += 1;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        let (value, _) = std::mem::take(&mut self.varint);
        Ok(Some(value))
    }

    fn number(&mut self, number: u64) -> Result<(), Error> {
        match std::mem::take(&mut self.next) {
            Next::Key => match (number >> 3, number & 7) {
                (_, 0) => self.next = Next::Value,
                (_, 1) => self.skip = 8,
                (field, 2) => self.next = Next::Length { field },
                // The content of a group is read as if it were outside of the group.
                (_, 3 | 4) => {}
                (_, 5) => self.skip = 4,
                _ => return Err(malformed()),
            },
            Next::Value => {}
            Next::Length { field } => {
                let end = self.at.checked_add(number).ok_or_else(malformed)?;
                if self.ends.last().is_some_and(|outer| end > *outer) {
                    return Err(malformed());
                }
                if let Some(element) = Element::at(&self.path, field) {
                    self.count(element)?;
                }
                if is_walked(&self.path, field) {
                    self.path.push(field);
                    self.ends.push(end);
                } else {
                    self.skip = number;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, element: Element) -> Result<(), Error> {
        let Some(count) = self.counts.get_mut(element as usize) else {
            return Ok(());
        };
        *count += 1;
        if *count > element.most() {
            return Err(Error::TooMany {
                what: element.name(),
                most: element.most(),
            });
        }
        Ok(())
    }

    /// Leaves the messages that end here.
    fn end_messages(&mut self) -> Result<(), Error> {
        while let Some(end) = self.ends.last()
            && self.at >= *end
        {
            let is_between_fields = self.skip == 0 && self.varint.1 == 0 && matches!(self.next, Next::Key);
            if self.at > *end || !is_between_fields {
                return Err(malformed());
            }
            self.ends.pop();
            self.path.pop();
        }
        Ok(())
    }
}

fn malformed() -> Error {
    Error::Protocol("a report is not a protobuf message")
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use proto::inventory::v1::{
        ClusterRef, Hello, Host, HostChanges, HostRef, ObservedCluster, ObservedMember, ReportHostsRequest,
        report_hosts_request::Message,
    };

    use super::*;

    fn encoded(message: Message) -> Vec<u8> {
        let request = ReportHostsRequest {
            sequence: 300,
            message: Some(message),
        };
        request.encode_to_vec()
    }

    fn walked(bytes: &[u8], chunk: usize) -> Result<[usize; 5], Error> {
        let mut elements = Elements::default();
        for chunk in bytes.chunks(chunk) {
            elements.take(chunk)?;
        }
        assert!(elements.path.is_empty(), "it has left what it was in");
        Ok(elements.counts)
    }

    fn cluster(members: usize) -> ObservedCluster {
        ObservedCluster {
            r#ref: Some(ClusterRef::default()),
            generation: -1,
            members: vec![ObservedMember::default(); members],
            ..ObservedCluster::default()
        }
    }

    fn full() -> HostChanges {
        let host = Host {
            r#ref: Some(HostRef {
                namespace: "metal".to_owned(),
                name: "h1".to_owned(),
                uid: "uid".to_owned(),
            }),
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
            problems: vec![String::new(); 3],
            release_mark: u64::MAX,
            ..Host::default()
        };
        HostChanges {
            hosts: vec![host; MAX_OBJECTS],
            deleted_hosts: vec![HostRef::default(); MAX_OBJECTS],
            clusters: vec![cluster(3); MAX_OBJECTS],
            deleted_clusters: vec![ClusterRef::default(); MAX_OBJECTS],
        }
    }

    #[test]
    fn elements_are_counted_however_messages_are_cut() {
        let bytes = encoded(Message::Changes(full()));
        for chunk in [1, 2, 3, 7, 1000, bytes.len()] {
            let counts = walked(&bytes, chunk).unwrap();
            assert_eq!(
                counts,
                [
                    MAX_OBJECTS,
                    MAX_OBJECTS,
                    MAX_OBJECTS,
                    MAX_OBJECTS,
                    3 * MAX_OBJECTS
                ],
                "chunks of {chunk}"
            );
        }
        let hello = encoded(Message::Hello(Hello {
            lease_transitions: -1,
            ..Hello::default()
        }));
        assert_eq!(walked(&hello, 1).unwrap(), [0; 5]);
    }

    #[test]
    fn one_element_too_many_is_refused_by_its_name() {
        let extra = |element: Element| {
            let mut changes = full();
            match element {
                Element::Host => changes.hosts.push(Host::default()),
                Element::DeletedHost => changes.deleted_hosts.push(HostRef::default()),
                Element::Cluster => changes.clusters.push(cluster(0)),
                Element::DeletedCluster => changes.deleted_clusters.push(ClusterRef::default()),
                Element::Member => {
                    changes.clusters = vec![cluster(MAX_MEMBERS / 2), cluster(MAX_MEMBERS / 2 + 1)];
                }
            }
            encoded(Message::Changes(changes))
        };
        for element in [
            Element::Host,
            Element::DeletedHost,
            Element::Cluster,
            Element::DeletedCluster,
            Element::Member,
        ] {
            let refused = walked(&extra(element), 1000).unwrap_err();
            let Error::TooMany { what, most } = refused else {
                panic!("{refused}")
            };
            assert_eq!((what, most), (element.name(), element.most()));
        }
        // The changes may come in several parts, which are one when they are decoded.
        let halves = [
            encoded(Message::Changes(full())),
            encoded(Message::Changes(full())),
        ]
        .concat();
        assert!(matches!(walked(&halves, 1000), Err(Error::TooMany { .. })));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [
            // A varint without end; a kind of field that there is not; a cluster that is longer than what it is in.
            &[0x80; 11][..],
            &[0x0f],
            &[0x1a, 2, 0x1a, 5, 0, 0, 0, 0, 0],
            // Changes that end within a key.
            &[0x1a, 1, 0x80, 0],
        ] {
            let mut elements = Elements::default();
            let refused = elements.take(bytes).unwrap_err();
            assert!(matches!(refused, Error::Protocol(_)), "{bytes:?}: {refused}");
        }
    }
}
