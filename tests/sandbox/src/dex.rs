//! A real Dex that runs a configuration as a pod would, but for its ports and the place of its files.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde_json::{Value, json};

use crate::{
    node::Image,
    port,
    process::{self, Group, Process, Program},
    tools,
};

/// Key of the configuration among the files of a pod.
const CONFIG: &str = "dex.json";
/// Where a pod has its files.
const DIRECTORY: &str = "/etc/dex";

/// Why there is no Dex.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Dex is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// It did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Its files could not be written, or there is no free port.
    #[error("prepare Dex")]
    Io(#[from] io::Error),
    /// The configuration is not JSON.
    #[error("read {CONFIG}")]
    Config(#[from] serde_json::Error),
}

/// The image of Dex for a real node, with its pages where the published image has them.
///
/// # Errors
/// When Dex is not built.
pub fn image(name: &str) -> Result<Image, Error> {
    let pages = tools::directory("dex-web")?;
    add(Image::new(name, tools::path("dex")?), &pages, "web")
}

fn add(mut image: Image, directory: &Path, name: &str) -> Result<Image, Error> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().display());
        image = if path.is_dir() {
            add(image, &path, &name)?
        } else {
            image.file(&name, fs::read(&path)?)
        };
    }
    Ok(image)
}

/// A running Dex. It ends with its group.
#[derive(Debug)]
pub struct Dex {
    /// Its process.
    pub process: Process,
}

impl Dex {
    /// Starts Dex with the files and the environment of a pod, on a port of loopback.
    ///
    /// # Errors
    /// When it is not built, or its files cannot be written.
    pub fn start(
        group: &Group,
        name: &str,
        port: u16,
        files: &BTreeMap<String, Vec<u8>>,
        environment: &[(String, String)],
    ) -> Result<Self, Error> {
        let directory = group.directory().join(name);
        fs::create_dir_all(&directory)?;
        let here = directory.display().to_string();
        let mut config: Value =
            serde_json::from_slice(files.get(CONFIG).map(Vec::as_slice).unwrap_or_default())?;
        move_files(&mut config["web"], &here);
        move_files(&mut config["storage"], &here);
        config["web"]["https"] = format!("127.0.0.1:{port}").into();
        config["telemetry"]["http"] = format!("127.0.0.1:{}", port::reserve()?).into();
        // In its image the pages are where it looks for them.
        config["frontend"] = json!({"dir": tools::directory("dex-web")?});
        for (name, content) in files {
            fs::write(directory.join(name), content)?;
        }
        // As it was rendered, with every escape: only what was changed above is written anew.
        fs::write(directory.join(CONFIG), ascii(&config.to_string()))?;
        let mut program = Program::new(name, tools::path("dex")?)
            .arg("serve")
            .arg(directory.join(CONFIG));
        for (variable, value) in environment {
            program = program.env(variable, value);
        }
        Ok(Self {
            process: group.spawn(program)?,
        })
    }
}

/// The files of a pod are in a directory of the test.
fn move_files(value: &mut Value, here: &str) {
    match value {
        Value::String(text) => {
            if let Some(file) = text.strip_prefix(DIRECTORY) {
                *text = format!("{here}{file}");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| move_files(value, here)),
        Value::Object(fields) => fields.values_mut().for_each(|value| move_files(value, here)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The same JSON without characters that YAML would change.
fn ascii(json: &str) -> String {
    json.chars()
        .map(|character| match u32::from(character) {
            0x20..0x7f => character.to_string(),
            code if code > 0xffff => character.to_string(),
            code => format!("\\u{code:04x}"),
        })
        .collect()
}
