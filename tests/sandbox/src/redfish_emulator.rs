//! A BMC: the Redfish emulator of `OpenStack` with several systems behind one port, as `ViNO` serves virtual machines.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use rcgen::SanType;

use crate::{
    pki::{self, CertificateAuthority, Subject, Validity},
    port,
    process::{self, Group, Process, Program},
    readiness, tools,
};

/// Who may log in to every emulator. Nothing else has this name, so that it is found wherever it is.
pub const USER: &str = "bmc-operator";
/// With which password.
pub const PASSWORD: &str = "calvin-hobbes-7391";
/// bcrypt of [`PASSWORD`], of the lowest cost.
const HASH: &str = "$2b$04$kQKkfRTH/qFMhmIGFxHKZ.YbZB03pl5WfaAQO4HOF4IYecKyxbDDO";

/// How long Python may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Why there is no emulator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not installed.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// It did not start, or ended.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// It is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// Its certificate.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// There is no free port.
    #[error("find a free port on loopback")]
    Port(#[source] io::Error),
    /// A file of its configuration.
    #[error("use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No client to ask it with.
    #[error("make a client of the emulator")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A running emulator. It ends with its group.
#[derive(Debug)]
pub struct RedfishEmulator {
    /// Its process, to crash and pause it.
    pub process: Process,
    listens: SocketAddr,
    authority: PathBuf,
    systems: Vec<String>,
}

impl RedfishEmulator {
    /// Starts an emulator with systems of these names, all on, and waits until it answers. It listens on loopback.
    ///
    /// # Errors
    /// When it is not installed or does not become ready.
    pub async fn start(group: &Group, name: &str, systems: &[&str]) -> Result<Self, Error> {
        Self::start_at(group, name, Ipv4Addr::LOCALHOST, systems).await
    }

    /// The same at another address of this machine: agents connect to no BMC on loopback.
    ///
    /// # Errors
    /// As [`RedfishEmulator::start`].
    pub async fn start_at(
        group: &Group,
        name: &str,
        address: Ipv4Addr,
        systems: &[&str],
    ) -> Result<Self, Error> {
        let directory = group.directory().join(name);
        let file = |path: PathBuf| move |source| Error::File { path, source };
        fs::create_dir_all(&directory).map_err(file(directory.clone()))?;
        let ca = CertificateAuthority::new(&directory.join("pki"), name)?;
        let serving = ca.issue(
            "serving",
            Subject {
                common_name: name,
                organization: None,
                names: vec![SanType::IpAddress(IpAddr::V4(address))],
            },
            Validity::DAY,
        )?;
        let port = port::reserve_on(address).map_err(Error::Port)?;
        let users = directory.join("users");
        fs::write(&users, format!("{USER}:{HASH}\n")).map_err(file(users.clone()))?;
        let described: Vec<String> = systems
            .iter()
            .enumerate()
            .map(|(index, name)| {
                format!(
                    "{{'uuid': '{}', 'name': '{name}', 'power_state': 'On', 'nics': [{{'mac': '52:54:00:00:00:{index:02x}', 'ip': '192.0.2.1'}}]}}",
                    uuid(index)
                )
            })
            .collect();
        let settings = [
            ("LISTEN_IP", format!("'{address}'")),
            ("LISTEN_PORT", port.to_string()),
            ("SSL_CERT", format!("'{}'", serving.certificate.display())),
            ("SSL_KEY", format!("'{}'", serving.key.display())),
            ("AUTH_FILE", format!("'{}'", users.display())),
            ("STATE_DIR", format!("'{}'", directory.display())),
            ("FAKE_DRIVER", "True".to_owned()),
            ("FAKE_SYSTEMS", format!("[{}]", described.join(", "))),
        ];
        let config = directory.join("emulator.conf");
        let lines = settings.map(|(key, value)| format!("SUSHY_EMULATOR_{key} = {value}\n"));
        fs::write(&config, lines.concat()).map_err(file(config.clone()))?;
        let program = Program::new(name, tools::path("sushy-emulator")?)
            .arg("--config")
            .arg(config);
        let mut process = group.spawn(program)?;
        let listens = SocketAddr::from((address, port));
        answers(&mut process, listens).await?;
        Ok(Self {
            process,
            listens,
            authority: ca.certificate().to_owned(),
            systems: systems.iter().map(|&name| name.to_owned()).collect(),
        })
    }

    /// Starts it again at the same address, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started or does not become ready.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.process.restart().await?;
        answers(&mut self.process, self.listens).await
    }

    /// The CA certificate (PEM) that its certificate chains to.
    #[must_use]
    pub fn authority(&self) -> &std::path::Path {
        &self.authority
    }

    /// `ADDRESS:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.listens.to_string()
    }

    /// The address of a system, as a BareMetalHost has it.
    #[must_use]
    pub fn bmc_address(&self, system: &str) -> String {
        format!("redfish+https://{}/redfish/v1/Systems/{system}", self.address())
    }

    /// The reset actions that it has accepted, by the names of systems, in the order of time.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn resets(&self) -> Result<Vec<String>, Error> {
        let path = self.process.log_path();
        let log = fs::read_to_string(path).map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        let accepted = log.lines().filter(|line| {
            // On its way to a terminal or not, it colours its lines.
            line.contains("POST /redfish/v1/Systems/")
                && line.contains("/Actions/ComputerSystem.Reset ")
                && line.contains("\" 204 ")
        });
        Ok(accepted.filter_map(|line| self.system_in(line)).collect())
    }

    fn system_in(&self, line: &str) -> Option<String> {
        let mut systems = self.systems.iter().enumerate();
        let found = systems.find(|(index, name)| {
            line.contains(&format!("/Systems/{}/", uuid(*index)))
                || line.contains(&format!("/Systems/{name}/"))
        });
        found.map(|(_, name)| name.clone())
    }
}

/// Waits until it answers.
async fn answers(process: &mut Process, listens: SocketAddr) -> Result<(), Error> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Client(error);
    let url = format!("https://{listens}").parse::<http::Uri>();
    let mut client = kube::Config::new(url.map_err(|error| failed(error.into()))?);
    client.proxy_url = None;
    // Whether it answers is the question, not who it is.
    client.accept_invalid_certs = true;
    let client = kube::Client::try_from(client).map_err(|error| failed(error.into()))?;
    readiness::serving(process, &client, "/redfish/v1/", PATIENCE).await?;
    Ok(())
}

fn uuid(index: usize) -> String {
    format!("00000000-0000-4000-8000-{index:012}")
}
