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
//! | `templates` | which template of the site's operators is used |
//! | `known_templates` | what is known for each load balancer of accepted and refused ones |
//! | `template_check`, `template_store` | whether haproxy accepts a template; where accepted ones are stored |
//! | `pod_config`, `texts` | which configuration a pod runs |
//! | `routing_evidence` | why hosts that leave cannot be released yet: whether any pod routes to them |
//! | `pod_routing` | whether one pod routes to them, by its object |
//! | `configurations`, `sip_deployments` | whether a pod that starts may route to them |
//! | `handover` | how clients are handed over from the pods that the Airship SIP operator made |
//! | `release_wait_times` | for how long these hosts wait |
//! | `preference` | which members get connections only where no other answers |
//! | `reachability` | whether any member answers |

mod balancers;
mod configurations;
mod handover;
mod identity;
mod known_templates;
mod pod_config;
mod pod_routing;
mod preference;
mod reachability;
mod release_wait_times;
mod rendering;
mod routing_evidence;
pub mod run;
mod service;
mod sip_deployments;
mod template_check;
mod template_store;
mod templates;
mod texts;

pub use configurations::has_no_released;
pub use routing_evidence::open_goal;
