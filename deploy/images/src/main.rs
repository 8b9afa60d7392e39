//! Writes the project's images to a directory, each as an archive with its bill of materials beside it.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use comfy_table::{Table, presets::UTF8_FULL};
use images::{
    archive::Written,
    bill,
    catalogue::{IMAGES, LOCAL, Row},
    certificates,
    layer::Compression,
    source,
};
use oci_spec::image::{
    ANNOTATION_DESCRIPTION, ANNOTATION_LICENSES, ANNOTATION_REVISION, ANNOTATION_SOURCE, ANNOTATION_TITLE,
    ANNOTATION_VERSION,
};

/// Where a program finds the description of what its image consists of.
const BILLS: &str = "usr/share/sbom";
/// That of our programs. What images have of the distribution brings files with its own.
const LICENCE: &str = "Apache-2.0";

/// Writes container images of this project's programs, without a daemon and without a registry.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-images", version)]
struct Args {
    /// Directory to write NAME.tar and NAME.cdx.json of each image to
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Directory with built programs. Can be repeated: the first directory that has a program is used for it
    #[arg(long, value_name = "DIR", required = true)]
    programs: Vec<PathBuf>,
    /// Directory of the workspace's Cargo.toml
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Registry and path with which image names begin
    #[arg(long, value_name = "NAME", default_value = LOCAL)]
    registry: String,
    /// Commit that the programs were built from
    #[arg(long, value_name = "COMMIT")]
    revision: Option<String>,
    /// URL of the source; user names and passwords in it are left out. A value that is not a URL, such as a path, is ignored
    #[arg(long, value_name = "URL", env = "SOURCE_URL", hide_env_values = true)]
    source: Option<String>,
    /// CA certificates that programs trust (PEM)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    ca_certificates: PathBuf,
    /// Further CA certificates that programs trust, such as those of a proxy (PEM). Can be repeated
    #[arg(long = "extra-ca-certificates", value_name = "FILE")]
    extra: Vec<PathBuf>,
    /// Program that strips symbols
    #[arg(long, value_name = "PROGRAM", default_value = "strip")]
    strip: String,
    /// Do not compress layers: for images that this machine imports at once
    #[arg(long)]
    uncompressed: bool,
    /// Fail if more than this many megabytes have to be pulled for an image
    #[arg(long, value_name = "MB")]
    largest: Option<u64>,
    /// Images to write [default: all]
    #[arg(value_name = "IMAGE")]
    images: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let rows = chosen(&args.images)?;
    fs::create_dir_all(&args.output).with_context(|| format!("make {}", args.output.display()))?;
    let files = [&args.ca_certificates].into_iter().chain(&args.extra);
    let certificates = certificates::bundle(files.map(PathBuf::as_path))?;
    let mut table = Table::new();
    table.load_style(UTF8_FULL);
    table.set_header(["image", "digest", "MB to pull", "MB on a node"]);
    for row in rows {
        let Written {
            digest,
            size,
            unpacked,
        } = write(row, &args, &certificates)?;
        if let Some(largest) = args.largest.filter(|largest| size > largest * 1_000_000) {
            bail!(
                "{} has {} MB to pull, more than {largest}",
                name(row, &args),
                megabytes(size)
            );
        }
        table.add_row([name(row, &args), digest, megabytes(size), megabytes(unpacked)]);
    }
    println!("{table}");
    Ok(())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(IMAGES.iter().collect());
    }
    let row = |name: &String| match IMAGES.iter().find(|row| row.name == name) {
        Some(row) => Ok(row),
        None => bail!(
            "there is no image {name:?}: known are {}",
            IMAGES.map(|row| row.name).join(", ")
        ),
    };
    names.iter().map(row).collect()
}

fn name(row: &Row, args: &Args) -> String {
    row.reference(&args.registry, env!("CARGO_PKG_VERSION"))
}

fn write(row: &Row, args: &Args, certificates: &str) -> anyhow::Result<Written> {
    let (image, contents) = row.image(&name(row, args), |program| find(program, &args.programs))?;
    let version = env!("CARGO_PKG_VERSION");
    let bill = bill::bill(row.name, version, &args.workspace, &contents)?;
    let mut image = image
        .env("SSL_CERT_FILE", &format!("/{}", certificates::BUNDLE))
        .shared_file(certificates::BUNDLE, certificates)
        .file(&format!("{BILLS}/{}.cdx.json", row.name), bill.as_str())
        .label(ANNOTATION_TITLE, row.name)
        .label(ANNOTATION_DESCRIPTION, row.title)
        .label(ANNOTATION_VERSION, version)
        .stripped(&args.strip)
        .compressed(if args.uncompressed {
            Compression::None
        } else {
            Compression::Gzip
        });
    if row.system_programs.is_empty() {
        image = image.label(ANNOTATION_LICENSES, LICENCE);
    }
    let revision = args.revision.clone().filter(|revision| !revision.is_empty());
    let source = args.source.as_deref().and_then(source::public_url);
    for (label, value) in [(ANNOTATION_REVISION, revision), (ANNOTATION_SOURCE, source)] {
        if let Some(value) = value {
            image = image.label(label, &value);
        }
    }
    let beside = args.output.join(format!("{}.cdx.json", row.name));
    fs::write(&beside, bill).with_context(|| format!("write {}", beside.display()))?;
    Ok(image.write(&args.output.join(format!("{}.tar", row.name)))?)
}

fn find(program: &str, directories: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let found = directories
        .iter()
        .map(|directory| directory.join(program))
        .find(|path| path.is_file());
    found.with_context(|| {
        let searched: Vec<String> = directories
            .iter()
            .map(|path: &PathBuf| path.display().to_string())
            .collect();
        format!("{program} is in none of {}", searched.join(", "))
    })
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}
