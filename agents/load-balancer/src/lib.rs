//! The load-balancer agent: HAProxy for the tenants' API servers and workers. The framework of service agents ([`kit::service`]) does what
//! every agent needs; what only load balancers have is here.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the process |
//! | `service` | the load balancer as a service of the framework |
//! | `identity` | what the agent owns |
//! | `balancers` | the entries of both sections, and the members behind each |
//! | `rendering` | an entry's objects, by the template that was chosen |
//! | `templates`, `template_check`, `template_store` | templates of the site's operators: which one is used, whether haproxy accepts it, where accepted ones are stored |
//! | `pod_config`, `texts` | which configuration a pod runs |
//! | `drain`, `routing`, `configurations`, `sip_deployments`, `release_wait_times` | whether any pod routes to hosts that leave, or may start to, and for how long they wait |
//! | `preference` | which members get connections only where no other answers |
//! | `reachability` | whether any member answers |

mod balancers;
mod cluster_routing;
mod configurations;
mod identity;
mod pod_config;
mod pod_routing;
mod preference;
mod reachability;
mod release_wait_times;
mod rendering;
pub mod run;
mod service;
mod sip_deployments;
mod template_check;
mod template_store;
mod templates;
mod texts;
