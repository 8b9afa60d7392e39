//! What an image consists of.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use oci_spec::{
    OciSpecError,
    distribution::{ParseError, Reference},
    image::ConfigBuilder,
};

use crate::{
    archive::{self, Layout, Written},
    layer::{Compression, Layer},
    libraries,
};

/// Where programs are in an image; the `PATH` of common images has it too.
const BIN: &str = "usr/local/bin";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The account of programs that need no rights on their node.
pub const NONROOT: u32 = 65_532;

/// The accounts that images of distributions have, too.
const ACCOUNTS: [(&str, &str); 3] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
         nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"),
    // The kubelet writes /etc/hosts.
    ("etc/nsswitch.conf", "hosts: files dns\n"),
];

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is none of an image.
    #[error("{name:?} is not the name of an image")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        source: ParseError,
    },
    /// A program's libraries, or the program without its symbols.
    #[error(transparent)]
    Libraries(#[from] libraries::Error),
    /// A file that goes into it cannot be read.
    #[error("put into an image {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Its configuration.
    #[error("make the configuration of the image {name}")]
    Configuration {
        /// The image.
        name: String,
        /// What is missing.
        source: OciSpecError,
    },
    /// The archive.
    #[error("write the image {name} to {path}")]
    Archive {
        /// The image.
        name: String,
        /// The archive.
        path: PathBuf,
        /// Why.
        source: archive::Error,
    },
}

/// A program of this machine, and where an image has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    source: PathBuf,
    /// Without a leading `/`.
    target: String,
    /// Whether it may be packed without its symbols.
    strip: bool,
}

impl Program {
    /// One of this project, which is in [`BIN`] of the image.
    #[must_use]
    pub fn own(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self {
            target: format!(
                "{BIN}/{}",
                source.file_name().unwrap_or_default().to_string_lossy()
            ),
            source,
            strip: true,
        }
    }

    /// The same of another project: its bytes stay as they were built.
    #[must_use]
    pub fn others(path: impl Into<PathBuf>) -> Self {
        Self {
            strip: false,
            ..Self::own(path)
        }
    }

    /// One of the distribution, at the same path in the image. Its bytes stay as the distribution has them.
    #[must_use]
    pub fn system(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self {
            target: source.display().to_string().trim_start_matches('/').to_owned(),
            source,
            strip: false,
        }
    }
}

/// An account of an image besides those that every image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name, and that of its group.
    pub name: &'static str,
    /// Its number, and that of its group.
    pub id: u32,
    /// Its directory.
    pub home: &'static str,
    /// What it gets when it logs in.
    pub shell: &'static str,
}

/// An image: a name, and programs of this machine. The first one is what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    name: String,
    programs: Vec<Program>,
    /// Those of them whose libraries it has without them.
    linked_like: Vec<PathBuf>,
    arguments: Vec<String>,
    user: Option<u32>,
    account: Option<Account>,
    system_files: Vec<PathBuf>,
    labels: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    /// Below the programs, and above them.
    files: [BTreeMap<String, Vec<u8>>; 2],
    strip: Option<String>,
    compression: Compression,
}

impl Image {
    /// An image under the name by which pods ask for it, such as `haproxy:2.8`. Its layers are not compressed, and it runs
    /// as root unless a pod or [`Image::user`] says otherwise.
    #[must_use]
    pub fn new(name: &str, program: impl Into<PathBuf>) -> Self {
        Self::with_programs(name, [Program::own(program)])
    }

    /// The same with several programs, each at its own place.
    #[must_use]
    pub fn with_programs(name: &str, programs: impl IntoIterator<Item = Program>) -> Self {
        Self {
            name: name.to_owned(),
            programs: programs.into_iter().collect(),
            linked_like: Vec::new(),
            arguments: Vec::new(),
            user: None,
            account: None,
            system_files: Vec::new(),
            labels: BTreeMap::new(),
            environment: BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]),
            files: [BTreeMap::new(), BTreeMap::new()],
            strip: None,
            compression: Compression::None,
        }
    }

    /// One more program.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(Program::own(path));
        self
    }

    /// The libraries of a program that comes into containers of the image by a volume.
    #[must_use]
    pub fn libraries_of(mut self, program: impl Into<PathBuf>) -> Self {
        self.linked_like.push(program.into());
        self
    }

    /// An argument of what it runs.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The user and group that it runs as.
    #[must_use]
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// An account that people log in to. Its directory is empty.
    #[must_use]
    pub fn account(mut self, account: Account) -> Self {
        self.account = Some(account);
        self
    }

    /// Files of the distribution, which everybody may read, at the same paths in the image.
    #[must_use]
    pub fn system_files(mut self, paths: &[PathBuf]) -> Self {
        self.system_files.extend_from_slice(paths);
        self
    }

    /// A label, which is an annotation of its manifest too.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// An environment variable of what it runs.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A file that many images share: it goes into their common layer.
    #[must_use]
    pub fn shared_file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files[0].insert(path.to_owned(), content.into());
        self
    }

    /// A file that comes with the programs.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files[1].insert(path.to_owned(), content.into());
        self
    }

    /// Without the symbols of its programs, as this tool (such as `strip`) removes them.
    #[must_use]
    pub fn stripped(mut self, tool: &str) -> Self {
        self.strip = Some(tool.to_owned());
        self
    }

    /// With layers that are compressed so.
    #[must_use]
    pub fn compressed(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as an OCI layout in a tar archive.
    ///
    /// # Errors
    /// When the name is not one of an image, a program or library cannot be read, or the archive not be written.
    pub fn write(&self, archive: &Path) -> Result<Written, Error> {
        let name: Reference = self.name.parse().map_err(|source| Error::Name {
            name: self.name.clone(),
            source,
        })?;
        let labels: HashMap<String, String> = self.labels.clone().into_iter().collect();
        let mut config = ConfigBuilder::default()
            .entrypoint(self.entrypoint())
            .env(
                self.environment
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>(),
            )
            .working_dir("/")
            .labels(labels);
        if let Some(user) = self.user {
            config = config.user(format!("{user}:{user}"));
        }
        let config = config.build().map_err(|source| Error::Configuration {
            name: self.name.clone(),
            source,
        })?;
        let failed = |source| Error::Archive {
            name: self.name.clone(),
            path: archive.to_owned(),
            source,
        };
        let layers = [self.shared()?, self.own()?]
            .iter()
            .map(Layer::tar)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| failed(source.into()))?;
        let layout = Layout {
            name: &name.whole(),
            config,
            annotations: &self.labels,
            layers,
            compression: self.compression,
        };
        layout.write(archive).map_err(failed)
    }

    fn entrypoint(&self) -> Vec<String> {
        let program = self
            .programs
            .first()
            .map(|program| format!("/{}", program.target));
        program
            .into_iter()
            .chain(self.arguments.iter().cloned())
            .collect()
    }

    /// Accounts, libraries and shared files: the same for all programs that are linked with the same libraries.
    fn shared(&self) -> Result<Layer, Error> {
        let mut layer = Layer::default();
        layer.directory("tmp", 0o1777);
        layer.directory("run", 0o755);
        for (path, content) in ACCOUNTS {
            layer.file(path, content);
        }
        for (path, content) in &self.files[0] {
            layer.file(path, content.clone());
        }
        let programs = self.programs.iter().map(|program| &program.source);
        for program in programs.chain(&self.linked_like) {
            for library in libraries::libraries(program)? {
                layer.program(&library.display().to_string(), read(&library)?);
            }
        }
        Ok(layer)
    }

    fn own(&self) -> Result<Layer, Error> {
        let mut layer = Layer::default();
        for Program {
            source,
            target,
            strip,
        } in &self.programs
        {
            let content = match self.strip.as_ref().filter(|_| *strip) {
                Some(tool) => libraries::stripped(source, tool)?,
                None => read(source)?,
            };
            layer.program(target, content);
        }
        for path in &self.system_files {
            layer.file(&path.display().to_string(), read(path)?);
        }
        if let Some(account) = &self.account {
            add_account(&mut layer, account);
        }
        for (path, content) in &self.files[1] {
            layer.file(path, content.clone());
        }
        Ok(layer)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

/// Over the files of the layer below, which other images share.
fn add_account(layer: &mut Layer, account: &Account) {
    let Account {
        name,
        id,
        home,
        shell,
    } = account;
    let lines = [
        format!("{name}:x:{id}:{id}:{name}:{home}:{shell}\n"),
        // sshd gives terminals to this group.
        format!("tty:x:5:\n{name}:x:{id}:\n"),
    ];
    for ((path, common), own) in ACCOUNTS.into_iter().zip(lines) {
        layer.file(path, format!("{common}{own}"));
    }
    layer.directory(home, 0o755);
}

#[cfg(test)]
mod tests;
