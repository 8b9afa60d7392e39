//! `PowerService` (`sip.power.v1`): power control of a tenant's own hosts, with the credentials of their BMCs kept out of the tenant's pods.
//!
//! The jump-host agent serves it ([`Server`]); the replica that is the Lease holder answers ([`Replica::lead`]). One call goes through
//! these steps:
//!
//! | module | step |
//! |---|---|
//! | `accept`, `connections` | connections, and which of them end for others |
//! | [`token`] | whose token it is, by the API server |
//! | [`tenant`] | which cluster's jump host that is |
//! | [`members`] | whether the cluster holds the host at this moment, by the scheduler |
//! | `host`, [`bmc`] | where the host's BMC is, and who may log in |
//! | [`action`] | what to send. Pure |
//! | [`redfish`] | the BMC |
//! | [`observation`] | whether the effect shows. Pure |
//! | `execution`, `effects` | a read, and an action until its effect shows |
//! | `idempotency` | each action once, by its idempotency key |
//! | `limits`, `rates`, `reads`, `bmc_locks`, `semaphores` | how many calls, reads and actions, and how many at once |
//! | [`audit`] | who did what |
//! | [`metrics`] | how many calls and actions there were, and how they ended |
//! | `certificate`, `served_certificate` | the certificate of the port, and what clients find wrong with it |
//! | `answers` | which BMCs failed last, for the condition of the jump host |
//! | [`error`] | what went wrong, as a gRPC status |

mod accept;
pub mod action;
mod answers;
pub mod audit;
pub mod bmc;
mod bmc_locks;
mod certificate;
mod connections;
mod convert;
mod effects;
pub mod error;
mod execution;
mod host;
mod idempotency;
mod limits;
pub mod members;
pub mod metrics;
pub mod observation;
mod rates;
mod reads;
pub mod redfish;
mod semaphores;
mod served_certificate;
mod server;
mod service;
pub mod tenant;
pub mod token;

pub use answers::{Answers, Changes, Unanswered};
pub use certificate::Error as CertificateError;
pub use execution::EffectPolling;
pub use members::Membership;
pub use metrics::PowerMetrics;
pub use served_certificate::{Flaw, ServedCertificate};
pub use server::{ServeArgs, ServeError, Server};
pub use service::{Config, Power, Replica};
