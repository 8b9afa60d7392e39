//! Layers as an OCI layout, in one tar archive.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::Path,
};

use oci_spec::{
    OciSpecError,
    image::{
        ANNOTATION_REF_NAME, Arch, Config, Descriptor, Digest, DigestAlgorithm, ImageConfiguration,
        ImageConfigurationBuilder, ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os,
        PlatformBuilder, RootFsBuilder, SCHEMA_VERSION,
    },
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::layer::{self, Compression};

/// By which containerd names an image that it imports.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The beginning of Unix time: an image says nothing of when it was built.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// What an archive is for a registry and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Digest of the manifest, as registries name the image.
    pub digest: String,
    /// Bytes of all blobs: what a registry stores and a node pulls.
    pub size: u64,
    /// Bytes of the layers' files before compression: what a node stores.
    pub unpacked: u64,
}

/// Why an archive could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A document of the layout.
    #[error("make the documents of the image")]
    Document(#[from] OciSpecError),
    /// A document cannot be written as JSON.
    #[error("write the documents of the image as JSON")]
    Json(#[from] serde_json::Error),
    /// A layer or the archive.
    #[error("write the archive")]
    Write(#[from] io::Error),
}

/// An OCI layout with one image.
pub(crate) struct Layout<'a> {
    /// The whole reference, with registry and tag.
    pub(crate) name: &'a str,
    pub(crate) config: Config,
    pub(crate) annotations: &'a BTreeMap<String, String>,
    /// Tar archives, the lowest first.
    pub(crate) layers: Vec<Vec<u8>>,
    pub(crate) compression: Compression,
}

impl Layout<'_> {
    pub(crate) fn write(self, path: &Path) -> Result<Written, Error> {
        let Self {
            name,
            config,
            annotations,
            layers,
            compression,
        } = self;
        let annotations: HashMap<String, String> = annotations.clone().into_iter().collect();
        let mut blobs = Blobs::default();
        let (mut diffs, mut descriptors, mut unpacked) = (Vec::new(), Vec::new(), 0);
        for layer in layers {
            diffs.push(digest(&layer)?.to_string());
            unpacked += u64::try_from(layer.len()).map_err(io::Error::other)?;
            let (bytes, kind) = match compression {
                Compression::Gzip => (layer::gzip(&layer)?, MediaType::ImageLayerGzip),
                Compression::None => (layer, MediaType::ImageLayer),
            };
            descriptors.push(blobs.add(kind, bytes)?);
        }
        let configuration: ImageConfiguration = ImageConfigurationBuilder::default()
            .created(CREATED)
            .architecture(architecture())
            .os(Os::Linux)
            .config(config)
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids(diffs).build()?)
            .build()?;
        let config = blobs.document(MediaType::ImageConfig, &configuration)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers(descriptors)
            .annotations(annotations)
            .build()?;
        let mut manifest = blobs.document(MediaType::ImageManifest, &manifest)?;
        let digest = manifest.digest().to_string();
        manifest.set_annotations(Some(HashMap::from([
            (CONTAINERD_NAME.to_owned(), name.to_owned()),
            (ANNOTATION_REF_NAME.to_owned(), name.to_owned()),
        ])));
        let platform = PlatformBuilder::default()
            .architecture(architecture())
            .os(Os::Linux);
        manifest.set_platform(Some(platform.build()?));
        let index = ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .manifests([manifest])
            .build()?;
        let layout = OciLayoutBuilder::default()
            .image_layout_version("1.0.0")
            .build()?;
        let size = blobs.size()?;
        let mut files = blobs.0;
        files.insert("index.json".to_owned(), json(&index)?);
        files.insert("oci-layout".to_owned(), json(&layout)?);
        let mut tar = tar::Builder::new(io::BufWriter::new(fs::File::create(path)?));
        for (name, content) in &files {
            layer::append(&mut tar, name, 0o644, content)?;
        }
        io::Write::flush(&mut tar.into_inner()?)?;
        Ok(Written {
            digest,
            size,
            unpacked,
        })
    }
}

/// What is stored by its digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    fn add(&mut self, kind: MediaType, bytes: Vec<u8>) -> Result<Descriptor, Error> {
        let digest = digest(&bytes)?;
        let size = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        self.0.insert(format!("blobs/sha256/{}", digest.digest()), bytes);
        Ok(Descriptor::new(kind, size, digest))
    }

    fn document(&mut self, kind: MediaType, document: &impl Serialize) -> Result<Descriptor, Error> {
        self.add(kind, json(document)?)
    }

    fn size(&self) -> io::Result<u64> {
        let bytes: usize = self.0.values().map(Vec::len).sum();
        u64::try_from(bytes).map_err(io::Error::other)
    }
}

/// Documents hold hash maps, whose order differs from run to run.
fn json(document: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut value = serde_json::to_value(document)?;
    value.sort_all_objects();
    serde_json::to_vec(&value)
}

fn digest(bytes: &[u8]) -> Result<Digest, OciSpecError> {
    Digest::try_from(format!(
        "{}:{}",
        DigestAlgorithm::Sha256,
        hex::encode(Sha256::digest(bytes))
    ))
}

/// Programs run where they were linked.
fn architecture() -> Arch {
    match std::env::consts::ARCH {
        "x86_64" => Arch::Amd64,
        "aarch64" => Arch::ARM64,
        other => Arch::Other(other.to_owned()),
    }
}
