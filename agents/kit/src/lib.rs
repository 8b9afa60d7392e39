//! What every agent shares: the site's configuration, the scheduler client, server-side apply, conditions, events.
//!
//! | module | gives |
//! |---|---|
//! | [`config`] | [`config::SiteConfig`], the one file that states where an agent works |
//! | [`scheduler_client`] | [`scheduler_client::Scheduler`]: calls with deadlines, and a watch that reconnects |
//! | [`apply`] | server-side apply and conditional patches, one field manager per agent |
//! | [`clusters`] | a controller over the site's SIPClusters |
//! | [`conditions`] | conditions that change only when something changed |
//! | [`election`] | a Lease, so that of several replicas one acts |
//! | [`events`] | Kubernetes Events, for what users should know |
//! | [`pages`] | lists page by page, of what tenants write |
//! | [`message`] | texts of messages, without control characters and bounded |
//! | [`metrics`] | what every agent counts |
//! | [`followed`] | one object that a program follows |
//! | [`whole_file`] | files that are replaced as a whole |
//! | [`service`] | the framework of service agents: watches, ownership, apply, status, the reconcile pipeline |
//! | [`pod_http`] | HTTP requests to pods |
//! | [`load_balancers`] | which load balancers' objects belong to a cluster |
//! | [`placement`] | what the scheduler decides, as types: placements, members, positions |
//! | [`shares`] | which reconciles run at once: tenants share the places |
//! | [`retries`] | backoff per object whose reconcile keeps failing |
//! | [`tenant`] | a tenant's own API server: by its kubeconfig, within bounds |
//! | [`takeover`] | fields that another program wrote, made an applier's own |
//! | [`start`] | a process with both clients, ready to run controllers |

pub mod apply;
pub mod clusters;
pub mod conditions;
pub mod config;
pub mod election;
pub mod events;
pub mod followed;
pub mod load_balancers;
pub mod message;
pub mod metrics;
pub mod pages;
pub mod placement;
pub mod pod_http;
pub mod retries;
pub mod scheduler_client;
pub mod service;
pub mod shares;
pub mod start;
pub mod takeover;
pub mod tenant;
pub mod whole_file;
