//! An etcd cluster for the ledger: real members, each of which can be paused, killed and started again.

use std::{io, net::Ipv4Addr, time::Duration};

use crate::{
    authority::Identity,
    port,
    process::{self, Group, Process, Program},
    readiness, tools,
};

/// How long a cluster may take to elect a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// etcd is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// A member did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A member is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// There is no free port.
    #[error("find a free port on loopback")]
    Port(#[source] io::Error),
}

/// A running cluster. It ends with its group.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
}

/// One member of a cluster.
#[derive(Debug)]
pub struct Member {
    /// Its process.
    pub process: Process,
    scheme: &'static str,
    host: Ipv4Addr,
    port: u16,
    /// Where it says how it is, which takes no certificate.
    health: u16,
}

impl Member {
    /// `http://ADDRESS:PORT` for clients, with TLS `https`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// The same as `ADDRESS:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Waits until it takes part in a cluster that has a leader.
    ///
    /// # Errors
    /// When it does not: with the end of its log.
    pub async fn ready(&mut self) -> Result<(), Error> {
        Ok(readiness::http(&mut self.process, self.health, "/readyz", PATIENCE).await?)
    }
}

impl Etcd {
    /// Starts a cluster of so many members, and waits until it can be written.
    ///
    /// # Errors
    /// When etcd is not built or does not become ready.
    pub async fn start(group: &Group, members: usize) -> Result<Self, Error> {
        Self::start_as(group, members, Ipv4Addr::LOCALHOST, None, &[]).await
    }

    /// The same for clients that reach this machine by another address, such as pods of a real node. Members do not call fsync, since each login
    /// writes several times: data survive a killed process, not a killed machine.
    ///
    /// # Errors
    /// When etcd is not built or does not become ready.
    pub async fn start_at(group: &Group, members: usize, host: Ipv4Addr) -> Result<Self, Error> {
        Self::start_as(group, members, host, None, &[("--unsafe-no-fsync", "true")]).await
    }

    /// One member with these flags too, each a name and a value.
    ///
    /// # Errors
    /// When etcd is not built or does not become ready.
    pub async fn start_with_flags(group: &Group, flags: &[(&str, &str)]) -> Result<Self, Error> {
        Self::start_as(group, 1, Ipv4Addr::LOCALHOST, None, flags).await
    }

    /// The same, for clients only that show a certificate of the authority that has certified the server too.
    ///
    /// # Errors
    /// When etcd is not built or does not become ready.
    pub async fn start_with_tls(group: &Group, members: usize, server: &Identity) -> Result<Self, Error> {
        Self::start_as(group, members, Ipv4Addr::LOCALHOST, Some(server), &[]).await
    }

    async fn start_as(
        group: &Group,
        members: usize,
        host: Ipv4Addr,
        server: Option<&Identity>,
        flags: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let reserve = || port::reserve().map_err(Error::Port);
        let mut ports = Vec::new();
        for index in 0..members {
            ports.push((format!("etcd-{index}"), [reserve()?, reserve()?, reserve()?]));
        }
        let plain = |port: &u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> = ports
            .iter()
            .map(|(name, [_, peer, _])| format!("{name}={}", plain(peer)))
            .collect();
        let scheme = if server.is_some() { "https" } else { "http" };
        let mut started = Vec::new();
        for (name, [port, peer, health]) in &ports {
            let client = format!("{scheme}://{host}:{port}");
            let mut program = Program::new(name, tools::path("etcd")?)
                .flag("--name", name)
                .flag("--data-dir", group.directory().join(name))
                .flag("--listen-client-urls", &client)
                .flag("--advertise-client-urls", &client)
                .flag("--listen-metrics-urls", plain(health))
                .flag("--listen-peer-urls", plain(peer))
                .flag("--initial-advertise-peer-urls", plain(peer))
                .flag("--initial-cluster", cluster.join(","))
                .flag("--log-level", "warn");
            for (flag, value) in flags {
                program = program.flag(flag, value);
            }
            if let Some(server) = server {
                program = program
                    .flag("--cert-file", &server.certificate)
                    .flag("--key-file", &server.key)
                    .flag("--trusted-ca-file", &server.authority)
                    .arg("--client-cert-auth");
            }
            started.push(Member {
                process: group.spawn(program)?,
                scheme,
                host,
                port: *port,
                health: *health,
            });
        }
        for member in &mut started {
            member.ready().await?;
        }
        Ok(Self { members: started })
    }

    /// The members.
    #[must_use]
    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// Where clients reach them.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Member::endpoint).collect()
    }
}
