//! Requests as they arrive and answers as they are sent: counted, in time, and holding the call's place until both are over.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{BoxError, body::Body};
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};
use tonic::{Code, Status};

use super::{
    accounts::{Account, Charge},
    audit::Record,
    metrics::CallMetrics,
};
use crate::{call::Call, error::Error};

/// What a call holds while it is under way.
#[derive(Debug)]
pub(super) struct Guard {
    _place: OwnedSemaphorePermit,
    request: Arc<Charge>,
    answer: Charge,
}

impl Guard {
    pub(super) fn new(place: OwnedSemaphorePermit, account: &Arc<Account>) -> Self {
        Self {
            _place: place,
            request: Arc::new(account.charge()),
            answer: account.charge(),
        }
    }
}

/// Where in a gRPC message a body is: a flag, four bytes of length, and so many bytes.
#[derive(Debug, Default)]
struct Framing {
    head: [u8; 5],
    filled: usize,
    rest: usize,
}

impl Framing {
    /// Takes bytes, and says whether another message begins in them.
    fn take(&mut self, mut data: &[u8]) -> bool {
        let mut begins = false;
        while !data.is_empty() {
            if self.rest > 0 {
                let taken = self.rest.min(data.len());
                self.rest -= taken;
                data = &data[taken..];
                continue;
            }
            begins |= self.filled == 0;
            let taken = (self.head.len() - self.filled).min(data.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == self.head.len() {
                let [_, a, b, c, d] = self.head;
                self.rest = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.filled = 0;
            }
        }
        begins
    }

    fn within_a_message(&self) -> bool {
        self.filled > 0 || self.rest > 0
    }
}

/// A request's body.
#[derive(Debug)]
pub(super) struct Received {
    inner: Body,
    call: Call,
    metrics: CallMetrics,
    charge: Arc<Charge>,
    framing: Framing,
    /// Further messages may come at any time: only what has begun is waited for so long.
    endless: bool,
    /// When what is awaited must have arrived.
    due: Option<Pin<Box<Sleep>>>,
}

impl Received {
    pub(super) fn new(inner: Body, call: Call, metrics: CallMetrics, guard: &Guard, endless: bool) -> Self {
        let charge = Arc::clone(&guard.request);
        let due = (!endless).then(|| Box::pin(sleep(charge.account().arrival())));
        Self {
            inner,
            call,
            metrics,
            charge,
            framing: Framing::default(),
            endless,
            due,
        }
    }

    /// Counts what has arrived.
    fn count(&mut self, data: &Bytes) -> Result<(), Error> {
        let begins = self.framing.take(data);
        if self.endless {
            if begins {
                // The messages before have been read.
                self.charge.clear();
            }
            if !self.framing.within_a_message() {
                self.due = None;
            }
        }
        self.charge.add(data.len())
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            let counted = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(Ok(()), |data| this.count(data)),
                Some(Err(_)) | None => Ok(()),
            };
            return Poll::Ready(match counted {
                Ok(()) => frame.map(|frame| frame.map_err(Into::into)),
                Err(error) => {
                    if let Error::Limited { limit, .. } = &error {
                        this.metrics.shed(this.call.name(), limit.name());
                    }
                    Some(Err(Status::from(error).into()))
                }
            });
        }
        if this.endless && !this.framing.within_a_message() {
            return Poll::Pending;
        }
        let arrival = this.charge.account().arrival();
        let due = this.due.get_or_insert_with(|| Box::pin(sleep(arrival)));
        ready!(due.as_mut().poll(cx));
        // Polled once more it would panic.
        this.due = None;
        Poll::Ready(Some(Err(Status::from(Error::TooSlow { within: arrival }).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body. The call is over when this is dropped, be it that all is sent or that nobody reads it any more.
#[derive(Debug)]
pub(super) struct Sent {
    inner: Body,
    guard: Guard,
    record: Record,
}

impl Sent {
    pub(super) fn new(inner: Body, guard: Guard, record: Record) -> Self {
        Self { inner, guard, record }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        // What was handed out before is sent: otherwise this would not be asked.
        this.guard.answer.clear();
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    // It is made already; its caller's next call is refused if it is too much.
                    let _ = this.guard.answer.add(data.len());
                }
                if let Some(trailers) = frame.trailers_ref() {
                    let ok = || Status::new(Code::Ok, "");
                    this.record
                        .end(&Status::from_header_map(trailers).unwrap_or_else(ok));
                }
            }
            Some(Err(error)) => this.record.end(&Status::unknown(error.to_string())),
            None => this.record.end(&Status::new(Code::Ok, "")),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
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
            let mut framing = Framing::default();
            let begun = all.chunks(size).filter(|chunk| framing.take(chunk)).count();
            assert!(!framing.within_a_message(), "chunks of {size}");
            assert!((1..=3).contains(&begun), "chunks of {size}: {begun}");
            assert!(size > 1 || begun == 3);
        }
        let mut framing = Framing::default();
        assert!(framing.take(&all[..2]) && framing.within_a_message());
        assert!(!framing.take(&all[2..7]) && framing.within_a_message());
    }
}
