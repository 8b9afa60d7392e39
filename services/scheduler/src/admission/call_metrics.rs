//! Records the metrics of calls, by method and status code; [`crate::metrics`] defines them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use runtime::metrics::Metrics;
use tonic::Code;

use crate::{call_rules::Call, metrics as table};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMethod {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLimit {
    method: &'static str,
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

/// Metrics of calls. Cheap to clone. Identities are no labels: a caller could make any number of them.
#[derive(Clone, Debug, Default)]
pub struct CallMetrics {
    ended: Family<ByCode, Counter>,
    in_progress: Family<ByMethod, Gauge>,
    denied: Family<ByMethod, Counter>,
    shed: Family<ByLimit, Counter>,
    disconnected: Family<ByCause, Counter>,
}

impl CallMetrics {
    /// The metrics, registered in `metrics`.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let this = Self::default();
        let Self {
            ended,
            in_progress,
            denied,
            shed,
            disconnected,
        } = &this;
        metrics.add(&table::CALLS, ended.clone());
        metrics.add(&table::CALLS_IN_PROGRESS, in_progress.clone());
        metrics.add(&table::CALLS_DENIED, denied.clone());
        metrics.add(&table::CALLS_SHED, shed.clone());
        metrics.add(&table::DISCONNECTIONS, disconnected.clone());
        this
    }

    pub(super) fn begun(&self, call: Call) {
        let by = ByMethod { method: call.name() };
        self.in_progress.get_or_create(&by).inc();
    }

    pub(super) fn ended(&self, call: Call, code: Code) {
        let code = label(code);
        let method = call.name();
        self.in_progress.get_or_create(&ByMethod { method }).dec();
        self.ended.get_or_create(&ByCode { method, code }).inc();
    }

    pub(super) fn denied(&self, method: &'static str) {
        self.denied.get_or_create(&ByMethod { method }).inc();
    }

    pub(super) fn disconnected(&self, cause: &'static str) {
        self.disconnected.get_or_create(&ByCause { cause }).inc();
    }

    pub(super) fn shed(&self, method: &'static str, limit: &'static str) {
        self.shed.get_or_create(&ByLimit { method, limit }).inc();
    }
}

/// A status code as the value of a label.
fn label(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// A status code as gRPC spells it.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
