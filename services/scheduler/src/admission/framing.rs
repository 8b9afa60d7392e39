//! Where in the messages of a request its bytes are, and messages that are refused before they are decoded.

use super::elements::Elements;
use crate::{call_rules::Call, error::Error};

/// Maximum size, in bytes, of a message of which only these bytes count, whatever is decoded of it.
const MAX_SMALL_BYTES: usize = 4 << 10;

/// Length of what comes before each message: a flag, and four bytes of length.
const HEAD_BYTES: usize = 5;

/// What bytes of a request have in them. Each message counts by its own length: a small one in the same bytes must not make a large one cheap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many messages begin.
    pub(super) begins: usize,
    /// For how many bytes large messages with a spec count.
    pub(super) specs: usize,
    /// For how many bytes all others count.
    pub(super) others: usize,
}

/// Where in a gRPC message a body is: a flag, four bytes of length, and so many bytes.
#[derive(Debug)]
pub(super) struct Framing {
    /// Bytes that a message may have.
    most: usize,
    /// How many times its bytes a large message counts for.
    weight: usize,
    /// Whether the messages have a spec, a role or a selector.
    has_spec: bool,
    /// Bytes of the message.
    length: usize,
    head: [u8; HEAD_BYTES],
    filled: usize,
    rest: usize,
    /// The walk through a report; `None` for other calls.
    elements: Option<Elements>,
}

impl Framing {
    pub(super) fn new(call: Call) -> Self {
        Self {
            most: call.descriptor().largest,
            weight: call.descriptor().weight,
            has_spec: call.descriptor().has_spec(),
            length: 0,
            head: [0; HEAD_BYTES],
            filled: 0,
            rest: 0,
            elements: (call == Call::ReportHosts).then(Elements::default),
        }
    }

    /// Takes bytes, and returns what they have in them. The head of a message counts once all of it is there.
    ///
    /// # Errors
    /// [`Error::Unread`] by a message's length, before its bytes have come; [`Error::TooMany`].
    pub(super) fn take(&mut self, mut data: &[u8]) -> Result<Taken, Error> {
        let mut found = Taken::default();
        while !data.is_empty() {
            if self.rest > 0 {
                let (here, after) = data.split_at(self.rest.min(data.len()));
                if let Some(elements) = &mut self.elements {
                    elements.take(here)?;
                }
                self.rest -= here.len();
                self.count(here.len(), &mut found);
                data = after;
                continue;
            }
            found.begins += usize::from(self.filled == 0);
            let taken = (self.head.len() - self.filled).min(data.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == self.head.len() {
                let [_, a, b, c, d] = self.head;
                self.begin(usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX))?;
                self.count(HEAD_BYTES, &mut found);
            }
        }
        Ok(found)
    }

    /// Counts so many bytes of the message.
    fn count(&self, bytes: usize, found: &mut Taken) {
        let bytes = bytes.saturating_mul(self.weight());
        if self.has_spec && self.is_large() {
            found.specs = found.specs.saturating_add(bytes);
        } else {
            found.others = found.others.saturating_add(bytes);
        }
    }

    /// A message of so many bytes begins.
    fn begin(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes > self.most {
            return Err(Error::Unread {
                most: self.most,
                found: bytes,
            });
        }
        (self.rest, self.length) = (bytes, bytes);
        self.filled = 0;
        if let Some(elements) = &mut self.elements {
            *elements = Elements::default();
        }
        Ok(())
    }

    /// How many times its bytes the message counts for.
    fn weight(&self) -> usize {
        if self.is_large() { self.weight } else { 1 }
    }

    fn is_large(&self) -> bool {
        self.length > MAX_SMALL_BYTES
    }

    pub(super) fn is_inside_message(&self) -> bool {
        self.filled > 0 || self.rest > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, length];
        bytes.extend(vec![7; length.into()]);
        bytes
    }

    #[test]
    fn framing_follows_messages_however_they_are_cut() {
        let all: Vec<u8> = [3, 0, 200].into_iter().flat_map(message).collect();
        for size in 1..all.len() {
            let mut framing = Framing::new(Call::GetHost);
            let begun: usize = all
                .chunks(size)
                .map(|chunk| framing.take(chunk).unwrap().begins)
                .sum();
            assert!(!framing.is_inside_message(), "chunks of {size}");
            assert_eq!(begun, 3, "chunks of {size}");
        }
        let mut framing = Framing::new(Call::GetHost);
        assert!(framing.take(&all[..2]).unwrap().begins == 1 && framing.is_inside_message());
        assert!(framing.take(&all[2..7]).unwrap().begins == 0 && framing.is_inside_message());
    }

    #[test]
    fn a_message_counts_by_its_own_length_beside_any_other() {
        const LARGE: usize = 2 * MAX_SMALL_BYTES;
        let mut large = vec![0];
        large.extend(u32::try_from(LARGE).unwrap().to_be_bytes());
        large.resize(HEAD_BYTES + LARGE, 0);
        let all = [message(3), large, message(0)].concat();
        let counts = |call: Call, size: usize| {
            let mut framing = Framing::new(call);
            let found = all.chunks(size).map(|chunk| framing.take(chunk).unwrap());
            found.fold((0, 0), |(specs, others), found| {
                (specs + found.specs, others + found.others)
            })
        };
        let small = HEAD_BYTES + 3 + HEAD_BYTES;
        for size in [1, 7, 4096, all.len()] {
            let specs = (HEAD_BYTES + LARGE) * 64;
            assert_eq!(
                counts(Call::ApplyCluster, size),
                (specs, small),
                "chunks of {size}"
            );
            let hosts = (HEAD_BYTES + LARGE) * 8;
            assert_eq!(
                counts(Call::ConfirmHosts, size),
                (0, small + hosts),
                "chunks of {size}"
            );
        }
    }

    #[test]
    fn a_large_message_counts_for_what_is_decoded_of_it() {
        let weight = |call: Call, bytes: usize| {
            let mut framing = Framing::new(call);
            let head = u32::try_from(bytes).unwrap().to_be_bytes();
            framing.take(&[&[0], &head[..]].concat()).unwrap();
            framing.weight()
        };
        for call in [
            Call::ApplyCluster,
            Call::PlanCluster,
            Call::FindCapacity,
            Call::ExplainHost,
        ] {
            assert_eq!(
                (weight(call, MAX_SMALL_BYTES), weight(call, MAX_SMALL_BYTES + 1)),
                (1, 64),
                "{call:?}"
            );
        }
        assert_eq!(weight(Call::GetHost, MAX_SMALL_BYTES + 1), 1);
        // One of the largest is always taken.
        for call in Call::ALL {
            let largest = call.descriptor().largest;
            assert!(largest * weight(call, largest) < 17 << 20, "{call:?}");
        }
    }

    #[test]
    fn a_message_is_refused_by_the_length_in_its_head() {
        for call in Call::ALL {
            let most = call.descriptor().largest;
            let head = |bytes: usize| {
                let mut head = vec![0];
                head.extend(u32::try_from(bytes).unwrap().to_be_bytes());
                head
            };
            Framing::new(call).take(&head(most)).unwrap();
            let refused = Framing::new(call).take(&head(most + 1)).unwrap_err();
            let Error::Unread { most: told, found } = refused else {
                panic!("{call:?}: {refused}")
            };
            assert_eq!((told, found), (most, most + 1), "{call:?}");
        }
    }
}
