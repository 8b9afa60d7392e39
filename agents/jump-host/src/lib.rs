//! The jump-host agent: ssh entry to the tenants' nodes. The framework of service agents ([`kit::service`]) does what every agent needs;
//! what only jump hosts have is here.
//!
//! | module | holds |
//! |---|---|
//! | [`run`] | the process |
//! | `service` | the jump host as a service of the framework |
//! | `identity` | what the agent owns |
//! | `host_keys` | the keys by which a jump host is recognised: made once, and kept |
//! | `tenant_secrets` | whether the Secrets that an entry names have what they should |
//! | `api_servers` | where the site's API server is reached |
//! | `balancers` | where the load balancers of the tenant's API server are reached |
//! | `rendering` | an entry's objects, and what is wrong with its keys |
//! | `power_control` | power control of tenants' hosts, served by the Lease holder |
//! | `pod_files` | whether the pods have the newest files |
//! | `removed_keys` | which keys pods no longer accept although their entry is not applied |

mod api_servers;
mod balancers;
mod host_keys;
mod identity;
mod pod_files;
mod power_control;
mod remarks;
mod removed_keys;
mod rendering;
pub mod run;
mod service;
mod tenant_secrets;
