//! Bodies of requests as they arrive and of answers as they are sent. Both count their bytes and hold the call's permit until they end; requests
//! must also arrive in time.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{BoxError, body::Body};
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status};

use super::{
    accounts::Charge,
    audit::Record,
    call_metrics::CallMetrics,
    framing::{Framing, Taken},
    unread::Guard,
};
use crate::{call_rules::Call, error::Error, load};

/// A request's body.
#[derive(Debug)]
pub(super) struct Received {
    inner: Body,
    call: Call,
    metrics: CallMetrics,
    charge: Arc<Charge>,
    framing: Framing,
    /// The client may send further messages at any time: the time limit applies only to a message that has begun.
    endless: bool,
    /// Deadline for the arrival of the message that is awaited.
    due: Option<Pin<Box<Sleep>>>,
}

impl Received {
    pub(super) fn new(inner: Body, call: Call, metrics: CallMetrics, guard: &Guard, endless: bool) -> Self {
        let charge = Arc::clone(guard.request());
        let due = (!endless).then(|| Box::pin(sleep(charge.account().arrival())));
        Self {
            inner,
            call,
            metrics,
            charge,
            framing: Framing::new(call),
            endless,
            due,
        }
    }

    /// Counts what has arrived.
    fn count(&mut self, data: &Bytes) -> Result<(), Error> {
        let Taken {
            begins,
            specs,
            others,
        } = self.framing.take(data)?;
        // A message within a stream counts as a call does.
        if matches!(self.call, Call::Reflection | Call::ReflectionAlpha) {
            self.charge.account().require_rate(begins)?;
        }
        if self.endless {
            if begins > 0 {
                // The handler has read the earlier messages, and the time of this one begins with its first byte.
                self.charge.clear();
                self.due = None;
            }
            if !self.framing.is_inside_message() {
                self.due = None;
            }
        }
        // Each kind has room of its own: bytes of one are not refused because there is too much of the other.
        if specs > 0 {
            self.charge.add_spec(specs)?;
        }
        if others > 0 {
            self.charge.add(others)?;
        }
        Ok(())
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
        if this.endless && !this.framing.is_inside_message() {
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

/// An answer's body. The call ends when this body and all frames that it returned are dropped, whether or not the client has read them.
#[derive(Debug)]
pub(super) struct Sent {
    inner: Body,
    guard: Guard,
    record: Record,
    /// The rest of the answer was refused.
    withheld: bool,
}

impl Sent {
    pub(super) fn new(inner: Body, guard: Guard, record: Record) -> Self {
        Self {
            inner,
            guard,
            record,
            withheld: false,
        }
    }

    /// The data as a frame whose bytes count until it is written; trailers with an error instead if the caller has left too much unread.
    fn counted(&mut self, data: Bytes) -> Frame<Bytes> {
        match self.guard.part(data) {
            Ok(part) => Frame::data(part),
            Err(error) => {
                self.withheld = true;
                Frame::trailers(self.record.withheld(error))
            }
        }
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
        if this.withheld {
            return Poll::Ready(None);
        }
        let polled = load::counting(this.record.changes(), || Pin::new(&mut this.inner).poll_frame(cx));
        let frame = match ready!(polled) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                this.record.end(&Status::unknown(error.to_string()));
                return Poll::Ready(Some(Err(error)));
            }
            None => {
                this.record.end(&Status::new(Code::Ok, ""));
                return Poll::Ready(None);
            }
        };
        let mut frame = match frame.into_data() {
            Ok(data) => this.counted(data),
            Err(frame) => frame,
        };
        if let Some(trailers) = frame.trailers_mut() {
            let ok = || Status::new(Code::Ok, "");
            this.record
                .end(&Status::from_header_map(trailers).unwrap_or_else(ok));
            // They are written after all data.
            this.record.hold(trailers, Some(this.guard.clone()));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.withheld || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn, time::Duration};

    use futures::StreamExt as _;
    use runtime::tls::PeerIdentity;

    use super::*;
    use crate::{
        admission::{accounts::Accounts, identity_limits::Limits},
        call_rules::CallKind,
    };

    #[tokio::test(start_paused = true)]
    async fn each_message_of_a_stream_has_its_own_time() {
        const PARTS: usize = 40;
        let accounts = Accounts::new(Limits::default());
        let account = accounts.account(&PeerIdentity::PlaintextLoopback).unwrap();
        let permit = account.enter(CallKind::Reports).unwrap();
        let guard = Guard::new(permit, CallKind::Reports, &account);
        // Each part has the end of one message, and the beginning of the next: the sequence number of a report.
        let parts = futures::stream::iter(0..PARTS).then(|part| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let all: &'static [u8] = &[1, 0, 0, 0, 0, 2, 8];
            Ok::<_, Infallible>(Bytes::from_static(if part == 0 { &all[1..] } else { all }))
        });
        let body = Body::from_stream(parts);
        let mut received = Received::new(body, Call::ReportHosts, CallMetrics::default(), &guard, true);
        let mut taken = 0;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut received).poll_frame(cx)).await {
            frame.unwrap();
            taken += 1;
        }
        assert_eq!(taken, PARTS);
    }
}
