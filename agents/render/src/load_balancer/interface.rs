//! Names on which agent, sidecar and HAProxy agree: keys, files, ports and paths.

/// Key of the `ConfigMap`, and file in the pod, that holds the configuration.
pub const CONFIG_FILE: &str = "haproxy.cfg";
/// Key of the `ConfigMap` that holds the [`super::server_list::ServerList`] as JSON, where a sidecar reads it and no template has made the
/// configuration.
pub const MEMBERSHIP_FILE: &str = "membership.json";
/// Name of the socket, in the directory of the configuration, on which HAProxy's master takes commands.
pub const MASTER_SOCKET: &str = "master.sock";
/// Port of the tenant's API servers, and of the Service in front of them.
pub const API_SERVER_PORT: u16 = 6443;

/// Name of the pods' port for probes and metrics.
pub const INTERNAL_PORT_NAME: &str = "metrics";
/// Path on that port that answers 200 while HAProxy runs.
pub(super) const HEALTH_PATH: &str = "/healthz";
/// Name of the pods' port on which the sidecar reports what HAProxy runs.
pub const REPORT_PORT_NAME: &str = "config";
/// Path on the internal port that answers 200 while any member answers on any port, and 503 otherwise.
pub const MEMBERS_PATH: &str = "/members";
