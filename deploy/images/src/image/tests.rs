use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

fn entries(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    tar::Archive::new(archive)
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, content)
        })
        .collect()
}

/// An archive that was written, as a registry would read it.
struct Opened(BTreeMap<String, Vec<u8>>);

impl Opened {
    fn written(image: &Image) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("archive");
        image.write(&archive).unwrap();
        Self(entries(&fs::read(&archive).unwrap()))
    }

    fn blob(&self, descriptor: &Value) -> &[u8] {
        let digest = descriptor["digest"].as_str().unwrap();
        let bytes = &self.0[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(digest, format!("sha256:{}", hex::encode(Sha256::digest(bytes))));
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn document(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(self.blob(descriptor)).unwrap()
    }

    fn index(&self) -> Value {
        serde_json::from_slice(&self.0["index.json"]).unwrap()
    }

    fn manifest(&self) -> Value {
        self.document(&self.index()["manifests"][0])
    }

    fn config(&self) -> Value {
        self.document(&self.manifest()["config"])
    }
}

#[test]
fn an_image_holds_its_programs_with_their_libraries() {
    let image = Image::new("example/shell:1", "/bin/sh")
        .program("/bin/true")
        .arg("-x");

    let opened = Opened::written(&image);

    let index = opened.index();
    assert_eq!(
        index["manifests"][0]["annotations"]["io.containerd.image.name"],
        "docker.io/example/shell:1"
    );
    let (manifest, config) = (opened.manifest(), opened.config());
    assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/sh", "-x"]));
    let layers: Vec<&[u8]> = manifest["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| opened.blob(one))
        .collect();
    let diffs: Vec<String> = layers
        .iter()
        .map(|layer| format!("sha256:{}", hex::encode(Sha256::digest(layer))))
        .collect();
    assert_eq!(config["rootfs"]["diff_ids"], json!(diffs));
    let [shared, own] = [entries(layers[0]), entries(layers[1])];
    for program in ["usr/local/bin/sh", "usr/local/bin/true"] {
        assert!(own[program].starts_with(b"\x7fELF"), "{program}");
    }
    for library in libraries::libraries(Path::new("/bin/sh")).unwrap() {
        assert!(shared.contains_key(library.to_str().unwrap().trim_start_matches('/')));
    }
}

#[test]
fn the_same_input_makes_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    // Several labels: the documents keep them in hash maps.
    let image = ["a", "b", "c", "d"]
        .into_iter()
        .fold(Image::new("example/true:1", "/bin/true"), |image, label| {
            image.label(label, label)
        })
        .compressed(Compression::Gzip);
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));

    let written = [image.write(&first).unwrap(), image.write(&second).unwrap()];

    assert_eq!(written[0], written[1]);
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
}

#[test]
fn an_image_for_sites_has_a_user_labels_and_no_shell() {
    let image = Image::new("localhost/true:1", "/bin/true")
        .user(NONROOT)
        .label("org.opencontainers.image.version", "1")
        .shared_file("etc/ssl/certs/ca-certificates.crt", "certificates")
        .file("usr/share/doc/x", "text")
        .stripped("strip")
        .compressed(Compression::Gzip);

    let opened = Opened::written(&image);

    let (manifest, config) = (opened.manifest(), opened.config());
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Env"], json!([format!("PATH={PATH}")]));
    assert_eq!(config["config"]["Labels"], manifest["annotations"]);
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    let names: Vec<String> = manifest["layers"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|layer| {
            assert_eq!(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");
            let mut tar = Vec::new();
            GzDecoder::new(opened.blob(layer)).read_to_end(&mut tar).unwrap();
            entries(&tar).into_keys()
        })
        .collect();
    assert!(
        names.contains(&"etc/ssl/certs/ca-certificates.crt".to_owned()),
        "{names:?}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name.ends_with("/sh") || name.ends_with("/bash")),
        "{names:?}"
    );
}

#[test]
fn what_cannot_become_an_image_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("archive");
    let refused = |image: Image| image.write(&archive).unwrap_err().to_string();

    assert_eq!(
        refused(Image::new("none:1", "/nowhere/none")),
        "list the libraries of /nowhere/none: ldd: /nowhere/none: No such file or directory"
    );
    assert_eq!(
        refused(Image::new("No Name", "/bin/true")),
        "\"No Name\" is not the name of an image"
    );
}
