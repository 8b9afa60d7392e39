//! What every process needs once: telemetry, TLS identity, health, supervision, shutdown.
//!
//! A binary's `main` stays a list of its parts:
//!
//! ```no_run
//! # struct Args { process: runtime::ProcessArgs, realm: runtime::identity::RealmArgs, tls: runtime::tls::ServerTlsArgs, listen: std::net::SocketAddr }
//! # async fn example(args: Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let mut process = runtime::Process::start("sip-scheduler", env!("CARGO_PKG_VERSION"), &args.process).await?;
//! let serving = process.readiness.gate("grpc");
//! let listener = process.bind(args.listen, &args.tls, &args.realm.realm()).await?;
//! let routes = tonic::service::Routes::default();
//! process.serve("grpc", listener, routes, futures::stream::pending());
//! serving.ready();
//! process.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | gives |
//! |---|---|
//! | [`process`] | [`Process`]: the parts below, started and stopped in the right order |
//! | [`identity`] | who a peer is: [`identity::Realm`], [`identity::Caller`] |
//! | [`tls`] | TLS 1.3 both ways, certificates reloaded while running |
//! | [`serving`] | how long clients stay connected, and how they are told to go |
//! | [`telemetry`] | logs, spans, trace context over gRPC |
//! | [`readiness`], [`health`], [`metrics`] | what the process says about itself |
//! | [`sidecar`] | what a sidecar reports of the program beside it |
//! | [`resolver`] | addresses of host names |
//! | [`connection_slots`] | connections of peers that are not authenticated yet, bounded fairly |
//! | [`quiet`] | log lines that others can cause, so many a second |
//! | [`error_chain`], [`exit`] | errors with their causes, on one line; how a program ends |
//! | [`tasks`], [`shutdown`] | nothing runs unsupervised |

pub mod connection_slots;
pub mod error_chain;
pub mod exit;
pub mod health;
pub mod identity;
pub mod metrics;
pub mod process;
pub mod quiet;
pub mod readiness;
pub mod resolver;
pub mod serving;
pub mod shutdown;
pub mod sidecar;
pub mod tasks;
pub mod telemetry;
pub mod tls;

#[cfg(test)]
mod fixtures;

pub use process::{Process, ProcessArgs};
