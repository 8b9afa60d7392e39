//! Container images without a registry: programs of this machine with the libraries that they are linked with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that goes into it, or the archive.
    #[error("{action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A program is linked with a library that this machine does not have.
    #[error("{program} needs {library}, which this machine does not have")]
    NoLibrary {
        /// The program.
        program: PathBuf,
        /// The library.
        library: String,
    },
}

/// Where programs are in an image; the `PATH` of common images has it too.
const BIN: &str = "usr/local/bin";

/// The accounts that images of distributions have, too.
const ACCOUNTS: [(&str, &str); 2] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
];

/// An image: a name, and programs of this machine. The first one is what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    name: String,
    programs: Vec<PathBuf>,
    arguments: Vec<String>,
}

impl Image {
    /// An image under the name by which pods ask for it, such as `haproxy:2.8`.
    #[must_use]
    pub fn new(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            programs: vec![program.into()],
            arguments: Vec::new(),
        }
    }

    /// One more program.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// An argument of what it runs.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as `docker save` would.
    ///
    /// # Errors
    /// When a program or library cannot be read, or the archive not be written.
    pub fn write(&self, archive: &Path) -> Result<(), Error> {
        let layer = self.layer()?;
        let layer_digest = digest(&layer);
        let mut entrypoint: Vec<String> = self
            .programs
            .first()
            .map(|path| installed(path))
            .into_iter()
            .collect();
        entrypoint.extend(self.arguments.iter().cloned());
        let config = json!({
            "architecture": match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            },
            "os": "linux",
            "config": {
                "Entrypoint": entrypoint,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        })
        .to_string();
        let config_file = format!("{}.json", digest(config.as_bytes()));
        let layer_file = format!("{layer_digest}/layer.tar");
        let manifest =
            json!([{"Config": config_file, "RepoTags": [self.name], "Layers": [layer_file]}]).to_string();
        let failed = |source| Error::File {
            action: "write",
            path: archive.to_owned(),
            source,
        };
        let mut tar = tar::Builder::new(fs::File::create(archive).map_err(failed)?);
        for (name, content) in [
            (config_file.as_str(), config.as_bytes()),
            (&layer_file, &layer),
            ("manifest.json", manifest.as_bytes()),
        ] {
            append(&mut tar, name, 0o644, content).map_err(failed)?;
        }
        tar.into_inner().and_then(|mut file| file.flush()).map_err(failed)
    }

    /// The files, as one layer. Times and owners are left out, so that the same programs make the same image.
    fn layer(&self) -> Result<Vec<u8>, Error> {
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        for program in &self.programs {
            files.insert(installed(program), program.clone());
            for library in libraries(program)? {
                files.insert(library.display().to_string(), library);
            }
        }
        let mut tar = tar::Builder::new(Vec::new());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File {
                action: "put into an image",
                path,
                source,
            }
        };
        for (name, mode) in [("tmp/", 0o1777), ("run/", 0o755)] {
            directory(&mut tar, name, mode).map_err(failed(Path::new(name)))?;
        }
        for (name, content) in ACCOUNTS {
            append(&mut tar, name, 0o644, content.as_bytes()).map_err(failed(Path::new(name)))?;
        }
        for (name, path) in &files {
            let content = fs::read(path).map_err(failed(path))?;
            append(&mut tar, name.trim_start_matches('/'), 0o755, &content).map_err(failed(path))?;
        }
        tar.into_inner().map_err(failed(Path::new("/")))
    }
}

fn installed(program: &Path) -> String {
    format!(
        "/{BIN}/{}",
        program.file_name().unwrap_or_default().to_string_lossy()
    )
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn header(mode: u32, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
    let size = u64::try_from(content.len()).map_err(io::Error::other)?;
    tar.append_data(&mut header(mode, tar::EntryType::Regular, size), name, content)
}

fn directory(tar: &mut tar::Builder<impl Write>, name: &str, mode: u32) -> io::Result<()> {
    tar.append_data(&mut header(mode, tar::EntryType::Directory, 0), name, io::empty())
}

/// What the dynamic linker itself would load, the linker included. Nothing for a program that is linked statically.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|source| Error::File {
            action: "list the libraries of",
            path: program.to_owned(),
            source,
        })?;
    parse(&String::from_utf8_lossy(&output.stdout)).map_err(|library| Error::NoLibrary {
        program: program.to_owned(),
        library,
    })
}

/// Lines are `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)`, or a NAME that the kernel brings along. The error is a library
/// that was not found.
fn parse(listing: &str) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for line in listing.lines() {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        let place = place.trim();
        if place == "not found" {
            return Err(name.trim().to_owned());
        }
        if let Some((path, _)) = place.split_once(" (").filter(|(path, _)| path.starts_with('/')) {
            found.insert(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_the_dynamic_linker_lists() {
        let listing = "\tlinux-vdso.so.1 (0x00007fcd91406000)\n\
                       \tlibssl.so.3 => /lib/x86_64-linux-gnu/libssl.so.3 (0x00007fcd90f57000)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007fcd91408000)\n";
        let missing = "\tlibnone.so.1 => not found\n";

        assert_eq!(
            parse(listing).unwrap().into_iter().collect::<Vec<_>>(),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libssl.so.3"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert_eq!(parse(missing), Err("libnone.so.1".to_owned()));
        assert_eq!(parse("\tstatically linked\n"), Ok(BTreeSet::new()));
    }

    #[test]
    fn an_image_holds_its_programs_with_their_libraries_and_is_the_same_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let image = Image::new("example/shell:1", "/bin/sh")
            .program("/bin/true")
            .arg("-x");
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));

        image.write(&first).unwrap();
        image.write(&second).unwrap();

        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
        let outer = entries(&fs::read(&first).unwrap());
        let manifest: serde_json::Value = serde_json::from_slice(&outer["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example/shell:1");
        let config: serde_json::Value =
            serde_json::from_slice(&outer[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/sh", "-x"]));
        let layer = &outer[manifest[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{}", digest(layer))
        );
        let inner = entries(layer);
        for program in ["usr/local/bin/sh", "usr/local/bin/true"] {
            assert!(inner[program].starts_with(b"\x7fELF"), "{program}");
        }
        for library in libraries(Path::new("/bin/sh")).unwrap() {
            assert!(inner.contains_key(library.to_str().unwrap().trim_start_matches('/')));
        }
    }

    fn entries(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        tar::Archive::new(archive)
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let name = entry.path().unwrap().display().to_string();
                let mut content = Vec::new();
                io::Read::read_to_end(&mut entry, &mut content).unwrap();
                (name, content)
            })
            .collect()
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let directory = tempfile::tempdir().unwrap();

        let error = Image::new("none:1", "/nowhere/none")
            .write(&directory.path().join("archive"))
            .unwrap_err()
            .to_string();

        assert_eq!(error, "put into an image /nowhere/none");
    }
}
