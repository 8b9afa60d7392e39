//! Faults of the network between agents and a real API server: every call of a placement and of a release fails once.

mod call;
mod cells;
mod kills;
mod lists;
mod matrix;
mod proxy;
mod rules;

use call::Call;
use proxy::ApiProxy;
use rules::{Fault, Injected};
