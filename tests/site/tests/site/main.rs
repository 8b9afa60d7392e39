//! What a site promises, shown on real sites: etcd, kube-apiserver, the scheduler and the agents as real processes.
//!
//! Needs the project's programs: `cargo build --workspace --bins`, which `make test` does first.
//!
//! Scenarios that only need hosts and a namespace of their own share one site; those that kill, start late or count what
//! is written have their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod adoption;
mod attacks;
mod balancers;
mod capm3;
mod conventions;
mod deletion;
mod edited_by_hand;
mod example_service_agent;
mod faults;
mod fixtures;
mod grants;
mod growth;
mod host_namespaces;
mod host_policy;
mod hostile_clusters;
mod identity_providers;
mod install;
mod invalid_specs;
mod inventory_forms;
mod jump_host;
mod killed_scheduler;
mod labels_last;
mod large_status;
mod lost_ledger;
mod machines;
mod made_again;
mod operators;
mod orphans;
mod outages;
mod providers;
mod races;
mod real_node;
mod real_tenant;
mod refused_writes;
mod replacement;
mod replacement_limits;
mod replicas;
mod rights;
mod samples;
mod scaled_machines;
mod scheduler_api;
mod scraped;
mod selectors;
mod services;
mod silent_agents;
mod sip_defects;
mod sipctl_maintenance;
mod soak;
mod specs;
mod steady_state;
mod tables;
mod tenant_nodes;
mod two_sites;
mod upgrade;
