//! The images of this project, one row each.

use std::path::PathBuf;

use crate::{
    bill::Contents,
    image::{Account, Image, NONROOT, Program},
};

/// An image: what it is called, what is in it, and from which packages that is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the image, without registry and version.
    pub name: &'static str,
    /// What people read about it.
    pub title: &'static str,
    /// Its programs of this project; the first one is what it runs.
    pub programs: &'static [&'static str],
    /// The workspace's packages that build them.
    pub packages: &'static [&'static str],
    /// Programs of others, built from pinned Go modules.
    pub go_programs: &'static [&'static str],
    /// Programs of the distribution, by their paths on the machine that makes the image; the image has them there too.
    pub system_programs: &'static [&'static str],
    /// Further ones, which that machine may not have.
    pub optional_programs: &'static [&'static str],
    /// Other files of the distribution, by their paths.
    pub system_files: &'static [&'static str],
    /// Arguments of what it runs.
    pub arguments: &'static [&'static str],
    /// The account that it runs as, where that is not [`NONROOT`].
    pub account: Option<Account>,
}

/// An image of programs of this project alone.
const fn own(
    name: &'static str,
    title: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
) -> Row {
    Row {
        name,
        title,
        programs,
        packages,
        go_programs: &[],
        system_programs: &[],
        optional_programs: &[],
        system_files: &[],
        arguments: &[],
        account: None,
    }
}

/// All of them.
pub const IMAGES: [Row; 8] = [
    own(
        "sip-scheduler",
        "The placement scheduler of a region, and sipctl",
        &["sip-scheduler", "sipctl"],
        &["sip-scheduler", "sipctl"],
    ),
    own(
        "sip-cluster-agent",
        "The cluster agent of a site",
        &["sip-cluster-agent"],
        &["sip-cluster-agent"],
    ),
    own(
        "sip-dex-agent",
        "The Dex agent of a site",
        &["sip-dex-agent"],
        &["sip-dex-agent"],
    ),
    own(
        "sip-load-balancer-agent",
        "The load-balancer agent of a site",
        &["sip-load-balancer-agent"],
        &["sip-load-balancer-agent"],
    ),
    own(
        "sip-haproxy-sidecar",
        "Makes a running HAProxy follow its configuration",
        &["sip-haproxy-sidecar"],
        &["sip-haproxy-sidecar"],
    ),
    own(
        "sip-jump-host-agent",
        "The jump-host agent of a site",
        &["sip-jump-host-agent"],
        &["sip-jump-host-agent"],
    ),
    JUMP_HOST_TOOLS,
    JUMP_HOST,
];

/// What every jump host gets besides its image. Its containers hold a token for the API server: it has no shell.
pub const JUMP_HOST_TOOLS: Row = Row {
    go_programs: &["kubectl"],
    ..own(
        "sip-jump-host-sidecar",
        "What every jump host gets besides its image",
        &["sip-jump-host-sidecar", "host"],
        &["sip-jump-host-sidecar", "sip-host"],
    )
};

/// An image for `spec.services.jumpHost`: sshd, ssh, and what people use in a shell. What the machine that makes it has of them.
pub const JUMP_HOST: Row = Row {
    system_programs: &[
        "/usr/sbin/sshd",
        "/usr/bin/ssh",
        "/usr/bin/ssh-keygen",
        "/usr/bin/scp",
        "/usr/bin/sftp",
        "/bin/bash",
        "/bin/sh",
        "/usr/bin/base64",
        "/usr/bin/basename",
        "/usr/bin/cat",
        "/usr/bin/chmod",
        "/usr/bin/cp",
        "/usr/bin/cut",
        "/usr/bin/date",
        "/usr/bin/df",
        "/usr/bin/dirname",
        "/usr/bin/du",
        "/usr/bin/env",
        "/usr/bin/find",
        "/usr/bin/grep",
        "/usr/bin/gzip",
        "/usr/bin/head",
        "/usr/bin/id",
        "/usr/bin/ln",
        "/usr/bin/ls",
        "/usr/bin/mkdir",
        "/usr/bin/mktemp",
        "/usr/bin/mv",
        "/usr/bin/readlink",
        "/usr/bin/rm",
        "/usr/bin/rmdir",
        "/usr/bin/sed",
        "/usr/bin/seq",
        "/usr/bin/sha256sum",
        "/usr/bin/sleep",
        "/usr/bin/sort",
        "/usr/bin/stat",
        "/usr/bin/tail",
        "/usr/bin/tar",
        "/usr/bin/tee",
        "/usr/bin/timeout",
        "/usr/bin/touch",
        "/usr/bin/tr",
        "/usr/bin/uname",
        "/usr/bin/uniq",
        "/usr/bin/wc",
        "/usr/bin/xargs",
    ],
    // Into these sshd is divided from OpenSSH 9.8 and 9.9 on.
    optional_programs: &["/usr/lib/openssh/sshd-session", "/usr/lib/openssh/sshd-auth"],
    // What terminals can do, and under which terms the programs are passed on.
    system_files: &[
        "/lib/terminfo/d/dumb",
        "/lib/terminfo/l/linux",
        "/lib/terminfo/s/screen",
        "/lib/terminfo/s/screen-256color",
        "/lib/terminfo/t/tmux",
        "/lib/terminfo/t/tmux-256color",
        "/lib/terminfo/v/vt100",
        "/lib/terminfo/x/xterm",
        "/lib/terminfo/x/xterm-256color",
        "/usr/share/doc/bash/copyright",
        "/usr/share/doc/coreutils/copyright",
        "/usr/share/doc/dash/copyright",
        "/usr/share/doc/findutils/copyright",
        "/usr/share/doc/grep/copyright",
        "/usr/share/doc/gzip/copyright",
        "/usr/share/doc/ncurses-base/copyright",
        "/usr/share/doc/openssh-client/copyright",
        "/usr/share/doc/openssh-server/copyright",
        "/usr/share/doc/sed/copyright",
        "/usr/share/doc/tar/copyright",
    ],
    arguments: &["-D", "-e"],
    account: Some(Account {
        name: "ubuntu",
        id: 1_000,
        home: "/home/ubuntu",
        shell: "/bin/bash",
    }),
    ..own("sip-jump-host", "sshd and a shell for a jump host", &[], &[])
};

/// The registry of images that no registry has: nodes get them by import, and never ask anybody else for them.
pub const LOCAL: &str = "localhost";

impl Row {
    /// Its whole name in a registry, such as `localhost` or `registry.example/sip`.
    #[must_use]
    pub fn reference(&self, registry: &str, version: &str) -> String {
        format!("{}/{}:{version}", registry.trim_end_matches('/'), self.name)
    }

    /// The image under a name, and what it consists of. `find` returns where a program of [`Row::programs`] or [`Row::go_programs`] is.
    ///
    /// # Errors
    /// That of `find`.
    pub fn image<E>(
        &self,
        name: &str,
        find: impl Fn(&str) -> Result<PathBuf, E>,
    ) -> Result<(Image, Contents), E> {
        let found = |names: &[&str]| names.iter().map(|name| find(name)).collect::<Result<Vec<_>, E>>();
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let optional = paths(self.optional_programs);
        let optional = optional.into_iter().filter(|path| path.exists());
        let contents = Contents {
            packages: self.packages,
            programs: found(self.programs)?,
            go_programs: found(self.go_programs)?,
            system_programs: paths(self.system_programs).into_iter().chain(optional).collect(),
            system_files: paths(self.system_files),
        };
        let own = contents.programs.iter().map(Program::own);
        let others = contents.go_programs.iter().map(Program::others);
        let system = contents.system_programs.iter().map(Program::system);
        let image = Image::with_programs(name, own.chain(others).chain(system))
            .system_files(&contents.system_files)
            .user(self.account.map_or(NONROOT, |account| account.id));
        let image = self
            .arguments
            .iter()
            .fold(image, |image, argument| image.arg(argument));
        let image = match self.account {
            Some(account) => image.account(account),
            None => image,
        };
        Ok((image, contents))
    }
}

#[cfg(test)]
mod tests;
