//! A controller over the site's `SIPCluster`s.

use api::SIPCluster;
use futures::TryStreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};

use crate::retries::watch_pauses;

/// Over all of them. Its store has them without `managedFields`, which of clusters with many members are as large as all else.
#[must_use]
pub fn controller(client: &Client) -> Controller<SIPCluster> {
    observed_controller(client, |_| {})
}

/// The same; `observe` gets every event of the watch before the store has it.
pub(crate) fn observed_controller(
    client: &Client,
    observe: impl FnMut(&Event<SIPCluster>) + Send + 'static,
) -> Controller<SIPCluster> {
    let writer = Writer::default();
    let store = writer.as_reader();
    let applied = watcher(Api::<SIPCluster>::all(client.clone()), watcher::Config::default())
        .backoff(watch_pauses())
        .modify(|cluster| cluster.managed_fields_mut().clear())
        .inspect_ok(observe)
        .reflect(writer)
        .applied_objects();
    Controller::for_stream(applied, store)
}
