//! Where in the messages of a request its bytes are, and messages that are refused before they are decoded.

use super::elements::Elements;
use crate::{call::Call, error::Error};

/// Maximum size, in bytes, of a message of which only these bytes count, whatever is decoded of it.
const MAX_SMALL_BYTES: usize = 4 << 10;

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
    head: [u8; 5],
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
            head: [0; 5],
            filled: 0,
            rest: 0,
            elements: (call == Call::ReportHosts).then(Elements::default),
        }
    }

    /// Takes bytes, and returns how many messages begin in them.
    ///
    /// # Errors
    /// [`Error::Unread`] by a message's length, before its bytes have come; [`Error::TooMany`].
    pub(super) fn take(&mut self, mut data: &[u8]) -> Result<usize, Error> {
        let mut begins = 0;
        while !data.is_empty() {
            if self.rest > 0 {
                let (here, after) = data.split_at(self.rest.min(data.len()));
                if let Some(elements) = &mut self.elements {
                    elements.take(here)?;
                }
                self.rest -= here.len();
                data = after;
                continue;
            }
            begins += usize::from(self.filled == 0);
            let taken = (self.head.len() - self.filled).min(data.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == self.head.len() {
                let [_, a, b, c, d] = self.head;
                self.begin(usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX))?;
            }
        }
        Ok(begins)
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
    pub(super) fn weight(&self) -> usize {
        if self.is_large() { self.weight } else { 1 }
    }

    /// Whether it is a large message with a spec, a role or a selector.
    pub(super) fn is_large_spec(&self) -> bool {
        self.has_spec && self.is_large()
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
            let begun: usize = all.chunks(size).map(|chunk| framing.take(chunk).unwrap()).sum();
            assert!(!framing.is_inside_message(), "chunks of {size}");
            assert_eq!(begun, 3, "chunks of {size}");
        }
        let mut framing = Framing::new(Call::GetHost);
        assert!(framing.take(&all[..2]).unwrap() == 1 && framing.is_inside_message());
        assert!(framing.take(&all[2..7]).unwrap() == 0 && framing.is_inside_message());
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
