//! A machine that could become a node: namespaces, addresses, containerd with its images. It knows no Kubernetes yet.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::net::UnixStream;

use super::{
    Error, Image, PATIENCE,
    block::Block,
    cgroups, config,
    files::{create, failed, write},
    isolation::Isolation,
    link,
    obstacle::Programs,
};
use crate::{
    process::{Group, Process, Program},
    site,
};

const INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) containerd: Process,
    // Dropped after everything that runs in it.
    pub(super) isolation: Isolation,
    pub(super) programs: Programs,
    pub(super) block: Block,
    pub(super) directory: PathBuf,
    pub(super) cgroup: String,
}

impl Machine {
    /// Namespaces, addresses and containerd: some tenths of a second.
    pub(crate) async fn start(group: &Group) -> Result<Self, Error> {
        let programs = Programs::find()?;
        let directory = group.directory().join("node");
        for folder in ["", "log", "cni", "images"] {
            create(&directory.join(folder))?;
        }
        let isolation = Isolation::start(group, &programs, &directory).await?;
        let block = link::connect(&programs, &isolation).await?;
        let cgroup = name_of(group);
        cgroups::create(group, &cgroup)?;
        write(
            &directory.join("containerd.toml"),
            include_str!("containerd.toml"),
        )?;
        write(
            &directory.join("cni/node.conflist"),
            &config::cni(block).to_string(),
        )?;
        write(&directory.join("resolv.conf"), "")?;
        let containerd = isolation
            .inside("containerd", &programs.containerd)
            .args(["--config", "/run/node/containerd.toml"]);
        Ok(Self {
            containerd: group.spawn(containerd)?,
            isolation,
            programs,
            block,
            directory,
            cgroup,
        })
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.block.node()
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    /// Waits for containerd, and gives it the images.
    pub(crate) async fn stock(&mut self, images: &[Image]) -> Result<(), Error> {
        let pause = Image::new("localhost/pause:1", &self.programs.catatonit).arg("-P");
        let socket = self.socket();
        let started = Instant::now();
        while UnixStream::connect(&socket).await.is_err() {
            self.isolation.check()?;
            self.containerd.check()?;
            if started.elapsed() > PATIENCE {
                return Err(Error::Late {
                    what: "containerd",
                    log: self.containerd.log_tail(25),
                });
            }
            tokio::time::sleep(INTERVAL).await;
        }
        for image in [&pause].into_iter().chain(images) {
            self.import(image).await?;
        }
        Ok(())
    }

    pub(super) async fn import(&self, image: &Image) -> Result<(), Error> {
        let archive = tempfile::Builder::new()
            .suffix(".tar")
            .tempfile_in(self.directory.join("images"))
            .map_err(failed("make an archive in", &self.directory))?
            .into_temp_path();
        let (writing, path) = (image.clone(), archive.to_path_buf());
        tokio::task::spawn_blocking(move || writing.write(&path))
            .await
            .map_err(|source| failed("write", &archive)(source.into()))??;
        self.import_archive(&archive).await
    }

    /// Gives it an image that is written already.
    pub(super) async fn import_archive(&self, archive: &Path) -> Result<(), Error> {
        run(&self.ctr(&["images", "import"]).arg(archive)).await
    }

    /// Kills the processes of a container.
    pub(super) async fn kill(&self, container: &str) -> Result<(), Error> {
        run(&self.ctr(&["tasks", "kill", "--all", "--signal", "SIGKILL", container])).await
    }

    /// A command for containerd.
    fn ctr(&self, arguments: &[&str]) -> Program {
        Program::new("ctr", &self.programs.ctr)
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io"])
            .args(arguments)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }
}

async fn run(command: &Program) -> Result<(), Error> {
    let answer = site::run(command, "").await?;
    if answer.success {
        return Ok(());
    }
    Err(Error::Command {
        command: command.line(),
        stderr: answer.stderr.trim().to_owned(),
    })
}

/// The group's directory has a name that nobody else has.
fn name_of(group: &Group) -> String {
    group
        .directory()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
