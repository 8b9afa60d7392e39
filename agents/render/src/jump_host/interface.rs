//! Names on which agent, sidecar and sshd agree: the account, ports, paths and keys.

/// The account that people log in to, which the image has. sshd runs as this user too, since only root could change to another.
pub const USER: &str = "ubuntu";
/// Its number, and that of its group.
pub const USER_ID: i64 = 1_000;
/// Its directory. Empty in each new pod.
pub const HOME: &str = "/home/ubuntu";

/// Port of the Service.
pub const SSH_PORT: u16 = 22;
/// Port on which sshd listens: others than root can use it.
pub const LISTEN_PORT: u16 = 2_222;
/// Name of that port, SIP's.
pub const SSH_PORT_NAME: &str = "ssh";
/// Port on which the sidecar reports which files are written.
pub const REPORT_PORT: u16 = 8_405;
/// Name of that port.
pub const REPORT_PORT_NAME: &str = "config";
/// Port on which the program that runs sshd reports sessions.
pub const SESSIONS_PORT: u16 = 8_406;
/// Name of that port.
pub const SESSIONS_PORT_NAME: &str = "sessions";

/// Port of a node's sshd.
pub const NODE_PORT: u16 = 22;
/// Port of the API server on a node of the control plane.
pub const API_SERVER_PORT: u16 = 6_443;

/// Directory of everything that sshd and ssh read, SIP's. The sidecar alone writes there.
pub const DIRECTORY: &str = "/etc/opt/sip";
/// Directory in it with the private keys for the nodes, SIP's.
pub const PRIVATE_KEYS: &str = "ssh-private-keys";
/// File in it with a line for each private key.
pub const IDENTITIES: &str = "identities";
/// File in it with host keys of the nodes, and the key under which a Secret of private keys has it.
pub const KNOWN_HOSTS: &str = "known_hosts";
/// Directory of the programs that every jump host gets, SIP's. It is in the `PATH` of sessions.
pub const TOOLS: &str = "/opt/sip/bin";
/// The program that keeps the files current, and runs sshd.
pub const PROGRAM: &str = "sip-jump-host-sidecar";
/// Directory of the jump host's own keys.
pub const HOST_KEYS: &str = "/run/sip/host-keys";

/// Directory of the token for `PowerService`.
pub const POWER_TOKEN: &str = "/var/run/secrets/sip/power";
/// For whom that token is: no API server accepts it.
pub const POWER_AUDIENCE: &str = "sip-power";
/// Directory of `ca.crt`, by which `PowerService`'s certificate is checked.
pub const POWER_CA: &str = "/etc/sip/power";
/// Key of the `ConfigMap` with that certificate.
pub const POWER_CA_KEY: &str = "power-ca.crt";
/// Variable with the address of `PowerService`.
pub const POWER_ADDRESS_VARIABLE: &str = "SIP_POWER_ADDRESS";
/// Variable with namespace and name of the SIPCluster.
pub const CLUSTER_VARIABLE: &str = "SIP_CLUSTER";

/// Key of the Secret with a kubeconfig, as Cluster API writes it.
pub const KUBECONFIG_KEY: &str = "value";
