//! The framework of service agents. A service agent serves one section of `SIPCluster`s, such as the load balancers: it implements [`Service`],
//! and [`run`] does the rest.
//!
//! One pass over a cluster (`reconcile`): observe the cluster and its instances → validate the spec → ask for the members → prune what is
//! no longer desired → prepare what needs a client → render (pure, infallible) → expose (Service, then what pods read) → report what is applied → run
//! (Deployment and what guards its pods, when the labels of hosts are written) → probe the pods → report. Objects carry the step that
//! they have passed in their type: [`Objects<Prepared>`] → [`Objects<Exposed>`] → [`Objects<Applied>`].
//!
//! A [`Problem`] is a refusal or something incomplete, and goes into the condition; an [`Error`] is a failure: the other instances are
//! served and reported, and the pass is tried again.
//!
//! | module | holds |
//! |---|---|
//! | `definition`, `identity` | what one service agent defines |
//! | `kinds`, `objects` | the objects of an instance |
//! | `watches`, `stores`, `versions`, `watch_progress`, `kept_metadata` | what is watched, and what is kept of it |
//! | `tenants`, `tenant_kinds`, `tenant_watches`, `by_namespace` | what is watched in the namespaces with clusters only |
//! | `observed`, `members`, `last_members`, `existing_ports` | a cluster as it was observed |
//! | `ownership`, `made_for`, `vacancy`, `claims`, `network_attachments`, `overrides` | what must not be applied |
//! | `node_port_conflicts`, `parsed_ports` | which node ports must not be applied |
//! | `apply`, `last_applied`, `port_cycles`, `pruning`, `ownerless` | what is written to the API server |
//! | `pods`, `readiness` | whether pods work |
//! | `outcome`, `endpoints`, `report`, `reported`, `remarks`, `status` | what is reported |
//! | `label_priority` | when pods may be started |
//! | `unserved` | what an entry that is not served takes away |
//! | `reconcile`, `instances` | the pass, and its steps over all instances of a cluster |
//! | `pass` | how a pass ends, and the status that it writes |
//! | `without_scheduler` | what a pass does as long as the scheduler does not answer |
//! | `controller`, `process` | the run loop, and the process around it |

mod apply;
mod by_namespace;
mod claims;
mod context;
pub mod controller;
mod definition;
mod desired;
mod endpoints;
mod error;
mod existing_ports;
mod identity;
mod instances;
mod kept_metadata;
mod kinds;
mod label_priority;
mod last_applied;
mod last_members;
mod made_for;
mod members;
mod network_attachments;
mod node_port_conflicts;
mod node_ports;
mod objects;
mod observed;
mod outcome;
mod overrides;
mod ownerless;
mod ownership;
mod parsed_ports;
mod pass;
pub mod pods;
mod port_cycles;
mod predecessors;
mod problem;
mod process;
mod pruning;
pub mod readiness;
mod reconcile;
mod remarks;
mod report;
mod reported;
mod served;
mod site;
mod status;
mod stores;
mod tenant_kinds;
mod tenant_watches;
mod tenants;
mod unserved;
mod vacancy;
mod versions;
mod watch_progress;
mod watches;
mod without_scheduler;

pub use by_namespace::{ByNamespace, TenantStore};
pub use definition::{Scope, Service};
pub use error::Error;
pub use existing_ports::{made_ports, trimmed_service};
pub use identity::Identity;
pub use kinds::{Child, Children, Kind};
pub use made_for::cluster as made_for;
pub use members::{Members, revision};
pub use objects::{Applied, Exposed, Objects, Prepared};
pub use observed::Observed;
pub use outcome::{Drain, Findings, Probe, Remark, Rendered};
pub use ownership::{SIP_MANAGER, foreign_owner, former_owner};
pub use problem::Problem;
pub use process::{run, run_started};
pub use reported::is_reported;
pub use stores::Stores;
pub use watches::Watches;
pub use without_scheduler::WAITING_RESYNC;
