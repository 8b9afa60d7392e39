//! Faults of the network between agents and a real API server: every call of a placement and of a release fails once.

mod aborted;
mod call;
mod cells;
mod kills;
mod lists;
mod matrix;
mod proxied;
mod proxy;
mod rules;
mod shares;

pub(crate) use call::Call;
pub(crate) use cells::{Faulty, double_labels};
pub(crate) use proxy::ApiProxy;
pub(crate) use rules::{Fault, Injected};
