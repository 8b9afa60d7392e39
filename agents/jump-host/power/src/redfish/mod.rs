//! A small client of the Redfish standard: one system's power state, its reset action, its consoles.
//!
//! It guarantees what no examined client library guarantees together
//! (`docs/decisions/2026-11-23-a-small-redfish-client-of-our-own.md`): every answer is bounded in time and size; requests go to the host's
//! own BMC alone, whatever the BMC answers; an action is sent once, over a connection of its own, and the caller learns whether the BMC
//! may have received it; no error repeats a credential.
//!
//! Source: DSP0266 (the protocol) and DSP0268 (the schema) of DMTF.

mod client;
mod connect;
mod exchange;
mod failure;
mod model;
mod network;
mod reference;
mod session;

pub use client::{ActionConnection, Client, Unsent};
pub use failure::Failure;
pub use model::{Console, Power, Reading, System};
pub use network::{Network, NetworkArgs, NetworkError, Proxy, Route, Timeouts};
