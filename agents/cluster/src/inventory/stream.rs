//! The stream of reports: a snapshot, then deltas, without end. After a stream was lost, a new one begins with a new snapshot.

use std::convert::Infallible;

use futures::StreamExt as _;
use kit::{
    election::Election,
    scheduler_client::{Scheduler, pauses},
};
use proto::inventory::v1::{
    Hello, HostChanges, ReportHostsRequest, SnapshotEnd, report_hosts_request::Message,
};
use runtime::readiness::Gate;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{changes::Changes, first_list::FirstList, store::Inventory};
use crate::answered::Answered;

/// Hosts or clusters in one message, at most.
const MAX_MESSAGE_ITEMS: usize = 500;
/// Messages that wait to be sent, at most: when the scheduler is slow, reporting waits for it.
const MAX_QUEUED_MESSAGES: usize = 4;

/// Reports the inventory, as the process that has won this election, once every watch in `listed` is complete. `gate` is ready while the
/// scheduler has the whole inventory; each time that becomes true, `complete` is called, since clusters can be placed from then on.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn report(
    scheduler: Scheduler,
    election: Election,
    inventory: Inventory,
    answered: Answered,
    listed: Vec<FirstList>,
    gate: Gate,
    complete: impl Fn() + Send + Sync,
) -> Result<(), Infallible> {
    for watch in listed {
        watch.wait().await;
    }
    let mut pause = pauses();
    loop {
        let mut session = Session {
            election: &election,
            inventory: &inventory,
            answered: &answered,
            sequence: 0,
            snapshot_end: None,
        };
        let ended = session.run(&scheduler, &gate, &complete).await;
        if session.is_complete() {
            pause = pauses();
        }
        gate.not_ready(format!("reports are interrupted: {}", ended.message()));
        tracing::warn!(code = ?ended.code(), message = ended.message(), "the report stream was interrupted; starting a new one");
        tokio::time::sleep(pause.next().unwrap_or_default()).await;
    }
}

/// One stream.
struct Session<'a> {
    /// The election that entitles this process to report.
    election: &'a Election,
    inventory: &'a Inventory,
    /// Has the position above which the scheduler must continue.
    answered: &'a Answered,
    /// Number of the last message.
    sequence: u64,
    /// Number of the snapshot's end, once it was sent.
    snapshot_end: Option<u64>,
}

impl Session<'_> {
    fn is_complete(&self) -> bool {
        self.snapshot_end.is_some()
    }

    /// Reports until the stream ends. Returns why it did.
    async fn run(
        &mut self,
        scheduler: &Scheduler,
        gate: &Gate,
        complete: &(impl Fn() + Send + Sync),
    ) -> Status {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let hello = Hello {
            site: scheduler.site().to_owned(),
            lease_uid: self.election.lease_uid.clone(),
            lease_transitions: self.election.transitions,
            highest_seen: self.answered.highest_seen(self.inventory.highest_seen()),
        };
        // There is room: nothing has been sent yet.
        let _ = sender.try_send(self.message(Message::Hello(hello)));
        let answers = match scheduler
            .inventory()
            .report_hosts(ReceiverStream::new(receiver))
            .await
        {
            Ok(answers) => answers.into_inner(),
            Err(status) => return status,
        };
        let snapshot_end = tokio::sync::watch::Sender::new(None);
        let faults = self.inventory.host_faults();
        let acknowledged = async {
            let mut answers = answers;
            loop {
                match answers.next().await {
                    Some(Ok(answer)) => {
                        for fault in answer.faults {
                            faults.record_found(fault);
                        }
                        let end = *snapshot_end.borrow();
                        if let Some(end) = end.filter(|end| answer.acknowledged >= *end) {
                            gate.ready();
                            if answer.acknowledged == end {
                                complete();
                            }
                        }
                    }
                    Some(Err(status)) => return status,
                    None => return Status::unavailable("the scheduler has ended the stream"),
                }
            }
        };
        tokio::select! {
            status = acknowledged => status,
            () = self.send(sender, &snapshot_end) => Status::unavailable("the stream is closed"),
        }
    }

    async fn send(
        &mut self,
        sender: mpsc::Sender<ReportHostsRequest>,
        end: &tokio::sync::watch::Sender<Option<u64>>,
    ) {
        let mut changed = self.inventory.watch();
        self.inventory.report_all();
        loop {
            changed.mark_unchanged();
            loop {
                let changes = self.inventory.take(MAX_MESSAGE_ITEMS);
                if changes.is_empty() {
                    break;
                }
                let message = self.message(Message::Changes(encode(changes)));
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            if self.snapshot_end.is_none() {
                let message = self.message(Message::SnapshotEnd(SnapshotEnd {}));
                self.snapshot_end = Some(self.sequence);
                end.send_replace(self.snapshot_end);
                if sender.send(message).await.is_err() {
                    return;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn message(&mut self, message: Message) -> ReportHostsRequest {
        self.sequence += 1;
        ReportHostsRequest {
            sequence: self.sequence,
            message: Some(message),
        }
    }
}

fn encode(
    Changes {
        hosts,
        deleted_hosts,
        clusters,
        deleted_clusters,
    }: Changes,
) -> HostChanges {
    HostChanges {
        hosts,
        deleted_hosts,
        clusters,
        deleted_clusters,
    }
}
