//! Metrics of every agent, in one table. `docs/metrics.md` is held to it.

use std::{
    task::{Context, Poll},
    time::Instant,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use prometheus_client::metrics::{
    counter::Counter,
    family::Family,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};
use runtime::metrics::{Definition, Kind, Metrics};
use tower::{Layer, Service};

const OUTCOME: &str = "outcome";
const METHOD: &str = "method";
const CODE: &str = "code";

/// 1 while this replica holds the Lease.
pub const LEADER: Definition = Definition {
    name: "sip_agent_is_leader",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while this replica holds the Lease, otherwise 0",
};
/// Reconciles that have ended.
pub const RECONCILES: Definition = Definition {
    name: "sip_agent_reconciles_total",
    kind: Kind::Counter,
    labels: &[OUTCOME],
    help: "Reconciles of SIPClusters that have ended, by outcome",
};
/// Duration of reconciles.
pub const RECONCILE_DURATION: Definition = Definition {
    name: "sip_agent_reconcile_duration_seconds",
    kind: Kind::Histogram,
    labels: &[],
    help: "Time that one reconcile of a SIPCluster takes",
};
/// Reconciles in progress.
pub const IN_PROGRESS: Definition = Definition {
    name: "sip_agent_reconciles_in_progress",
    kind: Kind::Gauge,
    labels: &[],
    help: "Reconciles in progress",
};
/// Reconciles that wait for a place.
pub const WAITING: Definition = Definition {
    name: "sip_agent_reconciles_waiting",
    kind: Kind::Gauge,
    labels: &[],
    help: "SIPClusters that are due to be reconciled and wait for a free slot",
};
/// Requests to the API server.
pub const API_REQUESTS: Definition = Definition {
    name: "sip_agent_api_requests_total",
    kind: Kind::Counter,
    labels: &[METHOD, CODE],
    help: "Requests to the API server by HTTP method and status code; no_answer: the connection failed",
};

/// Observations of clusters that could not be read.
pub const UNREADABLE: Definition = Definition {
    name: "sip_agent_unreadable_sipclusters_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Observations of SIPClusters whose spec or status could not be read; each such cluster is refused",
};

/// Every metric that each agent has besides those of each process, in the order of the documentation.
pub const DEFINITIONS: [&Definition; 7] = [
    &LEADER,
    &RECONCILES,
    &RECONCILE_DURATION,
    &IN_PROGRESS,
    &WAITING,
    &API_REQUESTS,
    &UNREADABLE,
];

/// The code of a request without a response.
const NO_ANSWER: &str = "no_answer";

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// What can be done now is done.
    Succeeded,
    /// The API server failed or refused; requeued.
    ApiServerFailed,
    /// The scheduler failed, or its answer was stale; requeued.
    SchedulerFailed,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::ApiServerFailed => "api_server_failed",
            Self::SchedulerFailed => "scheduler_failed",
        }
    }
}

/// An agent's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    leader: Gauge,
    reconciles: Family<[(&'static str, &'static str); 1], Counter>,
    reconcile_duration: Histogram,
    in_progress: Gauge,
    waiting: Gauge,
    api_requests: Family<[(&'static str, String); 2], Counter>,
    unreadable: Counter,
}

impl AgentMetrics {
    /// The metrics, registered with the process's.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self {
            leader: Gauge::default(),
            reconciles: Family::default(),
            // From a millisecond to 16 seconds.
            reconcile_duration: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            in_progress: Gauge::default(),
            waiting: Gauge::default(),
            api_requests: Family::default(),
            unreadable: Counter::default(),
        };
        metrics.add(&LEADER, this.leader.clone());
        metrics.add(&RECONCILES, this.reconciles.clone());
        metrics.add(&RECONCILE_DURATION, this.reconcile_duration.clone());
        metrics.add(&IN_PROGRESS, this.in_progress.clone());
        metrics.add(&WAITING, this.waiting.clone());
        metrics.add(&API_REQUESTS, this.api_requests.clone());
        metrics.add(&UNREADABLE, this.unreadable.clone());
        this
    }

    pub(crate) fn set_leader(&self) {
        self.leader.set(1);
    }

    pub(crate) fn waiting(&self) -> Gauge {
        self.waiting.clone()
    }

    pub(crate) fn unreadable(&self) {
        self.unreadable.inc();
    }

    /// A reconcile begins. One that is dropped is not counted as ended.
    #[must_use]
    pub fn begin(&self) -> Reconcile<'_> {
        self.in_progress.inc();
        Reconcile {
            metrics: self,
            began: Instant::now(),
        }
    }
}

/// A reconcile in progress.
#[derive(Debug)]
pub struct Reconcile<'a> {
    metrics: &'a AgentMetrics,
    began: Instant,
}

impl Reconcile<'_> {
    /// It has ended.
    pub fn end(self, outcome: Outcome) {
        let Self { metrics, began } = &self;
        metrics.reconcile_duration.observe(began.elapsed().as_secs_f64());
        let outcome = [(OUTCOME, outcome.label())];
        metrics.reconciles.get_or_create(&outcome).inc();
    }
}

impl Drop for Reconcile<'_> {
    fn drop(&mut self) {
        self.metrics.in_progress.dec();
    }
}

/// Counts the requests of a client. A request of a watch counts when its response begins.
impl<S> Layer<S> for AgentMetrics {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            metrics: self.clone(),
        }
    }
}

/// A client's service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    metrics: AgentMetrics,
}

impl<S, Body, Answer> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().as_str().to_ascii_lowercase();
        let requests = self.metrics.api_requests.clone();
        let answered = self.inner.call(request).inspect(move |answer| {
            let code = answer.as_ref().map_or_else(
                |_| NO_ANSWER.to_owned(),
                |answer| answer.status().as_str().to_owned(),
            );
            let labels = [(METHOD, method), (CODE, code)];
            requests.get_or_create(&labels).inc();
        });
        answered.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[test]
    fn the_reference_lists_every_agent_metric() {
        let table = runtime::metrics::reference_table(&DEFINITIONS);
        assert!(
            include_str!("../../../docs/metrics.md").contains(&table),
            "{table}"
        );
    }

    #[test]
    fn a_dropped_reconcile_is_neither_in_progress_nor_ended() {
        let process = Metrics::default();
        let metrics = AgentMetrics::registered(&process);
        drop(metrics.begin());
        metrics.begin().end(Outcome::SchedulerFailed);
        let text = process.encode().unwrap();
        for line in [
            "sip_agent_reconciles_in_progress 0",
            "sip_agent_reconciles_total{outcome=\"scheduler_failed\"} 1",
            "sip_agent_reconcile_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn requests_are_counted_by_method_and_code() {
        let process = Metrics::default();
        let metrics = AgentMetrics::registered(&process);
        let answer = async |request: Request<u16>| {
            let mut answer = Response::new(());
            *answer.status_mut() = http::StatusCode::from_u16(*request.body()).unwrap();
            Ok::<_, Infallible>(answer)
        };
        let fails = async |_: Request<u16>| Err::<Response<()>, _>("refused");
        let request = |method: &str, code: u16| Request::builder().method(method).body(code).unwrap();
        for (method, code) in [("GET", 200), ("PATCH", 409), ("PATCH", 409)] {
            let client = metrics.layer(service_fn(answer));
            client.oneshot(request(method, code)).await.unwrap();
        }
        let client = metrics.layer(service_fn(fails));
        client.oneshot(request("DELETE", 200)).await.unwrap_err();

        let text = process.encode().unwrap();
        for labels in [
            "{method=\"get\",code=\"200\"} 1",
            "{method=\"patch\",code=\"409\"} 2",
            "{method=\"delete\",code=\"no_answer\"} 1",
        ] {
            let line = format!("sip_agent_api_requests_total{labels}");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
