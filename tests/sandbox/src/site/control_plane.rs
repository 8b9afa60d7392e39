//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and the certificates between them.

use std::{fs, net::IpAddr, net::Ipv4Addr, path::Path};

use rcgen::SanType;

use super::{Error, PATIENCE, access::Access, store};
use crate::{
    node::{Block, Subnet},
    pki::{CertificateAuthority, Subject, Validity},
    port,
    process::{Group, Process, Program},
    readiness, tools,
};

pub(super) const AUDIT_LOG: &str = "audit.log";

/// The processes of a control plane.
#[derive(Debug)]
#[non_exhaustive]
pub struct ControlPlane {
    /// Fake kubelets for all nodes, where the site has such nodes.
    pub kwok: Option<Process>,
    /// Places pods; only where there are nodes.
    pub scheduler: Option<Process>,
    /// Makes pods of Deployments, collects garbage, signs in `ServiceAccounts`.
    pub controller_manager: Process,
    /// The API server.
    pub apiserver: Process,
    /// Its store, which never calls fsync: it survives a killed process, not a killed machine.
    pub etcd: Process,
}

/// Go's collector runs when the heap has grown ninefold, not twofold: tests start some two hundred API servers. A start took 3.2 s of processor
/// and 304 MB with the default, 2.7 s and 388 MB with 400, 2.3 s and 413 MB with 1,000.
const GARBAGE: (&str, &str) = ("GOGC", "800");

/// Where the API server listens, and which addresses Services get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    api_server: Ipv4Addr,
    services: Subnet,
    /// Whether there is a kubelet to talk to, and pods that look for the API server.
    real_node: bool,
}

impl Addresses {
    /// Of a site that nobody but this machine's processes reaches.
    pub(super) const LOOPBACK: Self = Self {
        api_server: Ipv4Addr::LOCALHOST,
        // Enough for hundreds of clusters with two load balancers each.
        services: Subnet::new([10, 96, 0], 16),
        real_node: false,
    };

    /// Of a site with a real node, which has a network of its own.
    pub(super) fn beside(node: Block) -> Self {
        Self {
            api_server: node.host(),
            services: node.services(),
            real_node: true,
        }
    }
}

impl ControlPlane {
    /// Starts everything but nodes; returns when the API server is ready and the rest has started.
    pub(super) async fn start(
        group: &Group,
        addresses: Addresses,
        with_scheduler: bool,
        (api_server_flags, hosts): (&[String], Option<&Path>),
        say: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(Self, Access), Error> {
        let directory = group.directory();
        let ca = CertificateAuthority::new(&directory.join("pki"), "kubernetes")?;
        let apiserver_port = port::reserve_on(addresses.api_server).map_err(Error::Port)?;
        let (etcd_port, etcd_peer_port) = (
            port::reserve().map_err(Error::Port)?,
            port::reserve().map_err(Error::Port)?,
        );

        say("etcd and kube-apiserver start");
        let mut etcd = group.spawn(etcd(directory, etcd_port, etcd_peer_port)?)?;
        let program = apiserver(directory, &ca, addresses, apiserver_port, etcd_port)?;
        let program = program.args(api_server_flags);
        let mut apiserver = group.spawn(match hosts {
            Some(file) => program.hosts(file),
            None => program,
        })?;
        let access = Access::new(directory, ca, (addresses.api_server, apiserver_port)).await?;
        let ready = readiness::serving(&mut apiserver, &access.client(), "/readyz", PATIENCE).await;
        // The API server ends when etcd does; the first failure is the one to show.
        etcd.check()?;
        ready?;

        say("kube-controller-manager starts");
        let controller_manager = group.spawn(controller_manager(directory, &access)?)?;
        let scheduler = if with_scheduler {
            Some(group.spawn(scheduler(&access)?)?)
        } else {
            None
        };
        Ok((
            Self {
                kwok: None,
                scheduler,
                controller_manager,
                apiserver,
                etcd,
            },
            access,
        ))
    }
}

fn etcd(directory: &Path, client_port: u16, peer_port: u16) -> Result<Program, Error> {
    let client = format!("http://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    Ok(Program::new("etcd", tools::path("etcd")?)
        .flag("--data-dir", directory.join(store::ETCD))
        .flag("--listen-client-urls", &client)
        .flag("--advertise-client-urls", &client)
        .flag("--listen-peer-urls", &peer)
        .flag("--initial-advertise-peer-urls", &peer)
        .flag("--initial-cluster", format!("default={peer}"))
        .arg("--unsafe-no-fsync")
        .flag("--log-level", "warn"))
}

fn apiserver(
    directory: &Path,
    ca: &CertificateAuthority,
    addresses: Addresses,
    port: u16,
    etcd_port: u16,
) -> Result<Program, Error> {
    let Addresses {
        api_server,
        services,
        real_node,
    } = addresses;
    let mut names: Vec<SanType> = [api_server, services.address(1)]
        .map(|ip| SanType::IpAddress(IpAddr::V4(ip)))
        .into();
    for name in [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ] {
        names.push(SanType::DnsName(name.try_into().map_err(|source| {
            crate::pki::Error::Certificate {
                subject: name.to_owned(),
                source,
            }
        })?));
    }
    let serving = ca.issue(
        "kube-apiserver",
        Subject {
            common_name: "kube-apiserver",
            organization: None,
            names,
        },
        Validity::DAY,
    )?;
    let (service_account_key, service_account_public) = ca.key_pair("service-accounts")?;
    let policy = directory.join("audit-policy.yaml");
    fs::write(&policy, include_str!("audit-policy.yaml")).map_err(|source| Error::File {
        path: policy.clone(),
        source,
    })?;
    let program = Program::new("kube-apiserver", tools::path("kube-apiserver")?)
        .flag("--etcd-servers", format!("http://127.0.0.1:{etcd_port}"))
        .flag("--bind-address", api_server.to_string())
        .flag("--advertise-address", api_server.to_string())
        .flag("--secure-port", port.to_string())
        .flag("--client-ca-file", ca.certificate())
        .flag("--tls-cert-file", &serving.certificate)
        .flag("--tls-private-key-file", &serving.key)
        .flag("--authorization-mode", "Node,RBAC")
        .flag("--service-cluster-ip-range", services.to_string())
        .flag("--service-account-issuer", "https://kubernetes.default.svc")
        .flag("--service-account-key-file", service_account_public)
        .flag("--service-account-signing-key-file", service_account_key)
        .flag("--audit-policy-file", policy)
        .flag("--audit-log-path", directory.join(AUDIT_LOG))
        .flag("--allow-privileged", "true")
        .flag("--profiling", "false")
        .env(GARBAGE.0, GARBAGE.1);
    if !real_node {
        // Nobody looks for it by the Service `kubernetes`, whose Endpoint may not be on loopback.
        return Ok(program.flag("--endpoint-reconciler-type", "none"));
    }
    let subject = Subject {
        common_name: "kube-apiserver-kubelet-client",
        organization: Some("system:masters"),
        names: Vec::new(),
    };
    let kubelet_client = ca.issue("kubelet-client", subject, Validity::DAY)?;
    Ok(program
        .flag("--enable-admission-plugins", "NodeRestriction")
        .flag("--kubelet-client-certificate", kubelet_client.certificate)
        .flag("--kubelet-client-key", kubelet_client.key)
        .flag("--kubelet-certificate-authority", ca.certificate())
        .flag("--kubelet-preferred-address-types", "InternalIP"))
}

/// Every controller that fits into one test's patience: the stock limits are for clusters that share their API server.
const CLIENT_RATE: [&str; 2] = ["--kube-api-qps=500", "--kube-api-burst=1000"];

fn controller_manager(directory: &Path, access: &Access) -> Result<Program, Error> {
    let kubeconfig = access.component_kubeconfig("kube-controller-manager")?;
    Ok(
        Program::new("kube-controller-manager", tools::path("kube-controller-manager")?)
            .flag("--kubeconfig", kubeconfig)
            // Nobody asks it anything; so it needs no port that could be taken.
            .flag("--secure-port", "0")
            .flag("--leader-elect", "false")
            .flag("--use-service-account-credentials", "true")
            .flag(
                "--service-account-private-key-file",
                directory.join("pki/service-accounts.key"),
            )
            .flag("--root-ca-file", directory.join("pki/ca.crt"))
            .flag("--concurrent-replicaset-syncs", "20")
            // A quota on a kind that is newer than half a minute is counted by the next sync: in place of five minutes.
            .flag("--resource-quota-sync-period", "10s")
            .env(GARBAGE.0, GARBAGE.1)
            .args(CLIENT_RATE),
    )
}

fn scheduler(access: &Access) -> Result<Program, Error> {
    let kubeconfig = access.component_kubeconfig("kube-scheduler")?;
    Ok(Program::new("kube-scheduler", tools::path("kube-scheduler")?)
        .flag("--kubeconfig", kubeconfig)
        .flag("--secure-port", "0")
        .flag("--leader-elect", "false")
        .args(CLIENT_RATE))
}
