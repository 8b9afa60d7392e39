//! A controller over the site's `SIPCluster`s.

use api::{EmptySpec, SIPCluster, TolerantCluster};
use futures::TryStreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};

use crate::{metrics::AgentMetrics, pages, retries::watch_pauses};

/// A controller over all `SIPCluster`s of the site. Its store keeps the parts that agents read: see [`TolerantCluster`].
#[must_use]
pub fn controller(client: &Client, metrics: &AgentMetrics) -> Controller<SIPCluster> {
    observed_controller(client, metrics, |_| {})
}

/// Lists every `SIPCluster` of the site, whatever its tenant has written; page by page, all from one moment.
///
/// # Errors
/// When the API server does not answer with them, or no longer has that moment (410).
pub async fn list(client: &Client) -> kube::Result<Vec<SIPCluster>> {
    let api = Api::<TolerantCluster>::all(client.clone());
    let listed = pages::objects(api, ListParams::default());
    listed.map_ok(TolerantCluster::into_inner).try_collect().await
}

/// The same as [`controller`]; calls `observe` with every event of the watch before the store has it.
pub(crate) fn observed_controller(
    client: &Client,
    metrics: &AgentMetrics,
    observe: impl FnMut(&Event<SIPCluster>) + Send + 'static,
) -> Controller<SIPCluster> {
    let writer = Writer::default();
    let store = writer.as_reader();
    let metrics = metrics.clone();
    let all = Api::<TolerantCluster>::all(client.clone());
    let applied = watcher(all, pages::in_pages(watcher::Config::default()))
        .backoff(watch_pauses())
        .map_ok(read)
        .inspect_ok(move |event| report_unreadable(event, &metrics))
        .inspect_ok(observe)
        .reflect(writer)
        .applied_objects();
    Controller::for_stream(applied, store)
}

/// The event with the parts of its object that could be read.
fn read(event: Event<TolerantCluster>) -> Event<SIPCluster> {
    match event {
        Event::Apply(object) => Event::Apply(object.into_inner()),
        Event::Delete(object) => Event::Delete(object.into_inner()),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.into_inner()),
        Event::InitDone => Event::InitDone,
    }
}

fn report_unreadable(event: &Event<SIPCluster>, metrics: &AgentMetrics) {
    let (Event::Apply(object) | Event::InitApply(object)) = event else {
        return;
    };
    if let Some(EmptySpec::Unreadable(faults)) = &object.spec.left_out.spec {
        metrics.unreadable();
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let error = faults as &dyn std::error::Error;
        tracing::warn!(
            namespace,
            name,
            error,
            "a SIPCluster cannot be read; it is refused"
        );
    }
}
