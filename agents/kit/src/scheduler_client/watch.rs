//! The watch over a site's placements: a lost connection is made again, and resumes where it was.

use futures::{Stream, StreamExt as _};
use proto::{
    inventory::v1::Revision,
    placement::v1::{WatchPlacementsRequest, WatchPlacementsResponse, watch_placements_response::Event},
};
use tonic::Status;

use super::{Scheduler, encoding, pauses};
use crate::placement::ObjectKey;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The watch is connected and every change up to now has been delivered.
    Synced,
    /// The watch is not connected; it is being tried again.
    Disconnected(Status),
    /// A cluster's placement is new or has changed, or is gone.
    Changed(ObjectKey),
    /// Anything may have changed.
    Reset,
}

/// The events of a site, without end.
pub(super) fn events(scheduler: Scheduler) -> impl Stream<Item = WatchEvent> + Send + use<> {
    let watch = Watch {
        scheduler,
        resume: None,
        events: None,
        pauses: pauses(),
    };
    futures::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await;
        Some((event, watch))
    })
}

struct Watch {
    scheduler: Scheduler,
    resume: Option<Revision>,
    events: Option<tonic::Streaming<WatchPlacementsResponse>>,
    pauses: backon::ExponentialBackoff,
}

impl Watch {
    async fn next(&mut self) -> WatchEvent {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                None => match self.connect().await {
                    Ok(events) => self.events.insert(events),
                    Err(status) => {
                        tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
                        return WatchEvent::Disconnected(status);
                    }
                },
            };
            let lost = match events.next().await {
                Some(Ok(WatchPlacementsResponse { revision, event })) => {
                    self.resume = revision;
                    match event.map(parse) {
                        Some(event) => {
                            if matches!(event, WatchEvent::Synced) {
                                self.pauses = pauses();
                            }
                            return event;
                        }
                        None => continue,
                    }
                }
                Some(Err(status)) => status,
                None => Status::unavailable("the scheduler has ended the watch"),
            };
            self.events = None;
            tokio::time::sleep(self.pauses.next().unwrap_or_default()).await;
            return WatchEvent::Disconnected(lost);
        }
    }

    async fn connect(&self) -> Result<tonic::Streaming<WatchPlacementsResponse>, Status> {
        let request = WatchPlacementsRequest {
            site: self.scheduler.site.clone(),
            resume: self.resume,
        };
        Ok(self
            .scheduler
            .placements
            .clone()
            .watch_placements(request)
            .await?
            .into_inner())
    }
}

/// An event that does not name its cluster may be about any.
fn parse(event: Event) -> WatchEvent {
    let cluster = match event {
        Event::Changed(placement) => placement.cluster,
        Event::Removed(removed) => removed.cluster,
        Event::Reset(_) => return WatchEvent::Reset,
        Event::Synced(_) => return WatchEvent::Synced,
    };
    encoding::cluster_id(cluster).map_or(WatchEvent::Reset, |cluster| {
        WatchEvent::Changed(cluster.key().clone())
    })
}
