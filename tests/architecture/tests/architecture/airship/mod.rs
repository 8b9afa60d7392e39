//! The function for airshipctl builds, has the objects of the example, and its replacements find what they name.

mod reference;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use regex::Regex;
use sandbox::{repository::deploy, tools};
use serde_json::{Map, Value, json};

use self::reference::Reference;
use crate::{
    markdown,
    repository::{assert_none, root, text},
};

const FUNCTION: &str = "airship/function/sip";
const REPLACEMENTS: &str = "airship/function/sip/replacements";
const CATALOGUES: &str = "airship/function/sip-base-catalogues";
const README: &str = "deploy/airship/function/sip/README.md";

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// The objects of a kustomization, under the names that a transformer sees: kustomize appends hashes of contents last.
fn built(folder: &str) -> Objects {
    let output = Command::new(tools::path("kubectl").unwrap())
        .arg("kustomize")
        .arg(deploy().join(folder))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{folder}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let hashed = Regex::new(r"\b(sip-site|sip-scheduler)-[a-z0-9]{10}\b").unwrap();
    let written = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&hashed.replace_all(&written, "$1")).unwrap();
    by_identity(objects)
}

fn by_identity(objects: impl IntoIterator<Item = Value>) -> Objects {
    let identity = |object: &Value| {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let (namespace, name) = (word(&metadata["namespace"]), word(&metadata["name"]));
        format!("{} {namespace}/{name}", word(&object["kind"]))
    };
    objects
        .into_iter()
        .map(|object| (identity(&object), object))
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What README.md states about the objects: those of the example, with ViNO's namespace of hosts and other files, and the definition.
fn expected() -> Objects {
    let moved = built("examples/one-site").into_values().map(|object| -> Value {
        let written = object.to_string().replace("\"metal\"", "\"vino-system\"");
        serde_json::from_str(&written).unwrap()
    });
    by_identity(moved.chain(built("crd").into_values()))
}

#[test]
fn function_has_the_objects_of_the_example_and_the_crd() {
    let (expected, built) = (expected(), built(FUNCTION));
    let names = |objects: &Objects| objects.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&built), names(&expected));

    // The files of the site and its policy are the function's own.
    let own = ["sip-site", "sip-policies"].map(|name| format!("ConfigMap sip-system/{name}"));
    let differs = built
        .into_iter()
        .filter(|(name, object)| object != &expected[name] && !own.contains(name));
    assert_none(
        &differs
            .map(|(name, object)| format!("{name} is {object}, in the example {}", expected[&name]))
            .collect::<Vec<_>>(),
    );
}

fn selected<'a>(objects: &'a Objects, reference: &Value) -> Vec<&'a Value> {
    let has = |object: &Value| {
        object["kind"] == reference["kind"] && object["metadata"]["name"] == reference["name"]
    };
    objects.values().filter(|object| has(object)).collect()
}

/// The value that a replacement writes.
fn source<'a>(replacement: &Value, catalogues: &'a Objects) -> Result<&'a Value, String> {
    let source = &replacement["source"];
    let path = Reference::parse(source["fieldref"].as_str().unwrap_or_default())?;
    let [catalogue] = selected(catalogues, &source["objref"])[..] else {
        return Err(format!("no one catalogue is {}", source["objref"]));
    };
    let [value] = path.values(catalogue)[..] else {
        return Err(format!("{path} is no one value of {}", source["objref"]));
    };
    Ok(value)
}

/// Whether a replacement finds its value and all its fields, and both agree.
fn check(replacement: &Value, catalogues: &Objects, objects: &Objects) -> Result<(), String> {
    let value = source(replacement, catalogues)?;
    let target = &replacement["target"];
    let found = selected(objects, &target["objref"]);
    if found.is_empty() || list(&target["fieldrefs"]).next().is_none() {
        return Err(format!("no field or object is named by {target}"));
    }
    for written in list(&target["fieldrefs"]) {
        let path = Reference::parse(written.as_str().unwrap_or_default())?;
        for object in &found {
            path.keeps(object, value)
                .map_err(|fault| format!("{}: {fault}", target["objref"]))?;
        }
    }
    Ok(())
}

fn faults(transformers: &Objects, catalogues: &Objects, objects: &Objects) -> Vec<String> {
    transformers
        .values()
        .flat_map(|transformer| list(&transformer["replacements"]))
        .filter_map(|replacement| check(replacement, catalogues, objects).err())
        .collect()
}

#[test]
fn replacements_find_fields_with_the_values_of_catalogues() {
    let (transformers, catalogues) = (built(REPLACEMENTS), built(CATALOGUES));
    assert_eq!((transformers.len(), catalogues.len()), (2, 2));

    assert_none(&faults(&transformers, &catalogues, &built(FUNCTION)));
}

#[test]
fn replacements_of_missing_fields_and_other_values_are_found() {
    let one = |object: Value| by_identity([object]);
    let catalogues = one(json!({"kind": "C", "metadata": {"name": "c"}, "spec": {"image": "it"}}));
    let spec = json!({"image": "it", "other": "another"});
    let built = one(json!({"kind": "D", "metadata": {"name": "d"}, "spec": spec}));
    let faults = |fieldref: &str, name: &str, target: &str| {
        let replacement = json!({
            "source": {"objref": {"kind": "C", "name": "c"}, "fieldref": fieldref},
            "target": {"objref": {"kind": "D", "name": name}, "fieldrefs": [target]},
        });
        let transformers = one(json!({"kind": "T", "replacements": [replacement]}));
        faults(&transformers, &catalogues, &built).len()
    };

    assert_eq!(faults("{.spec.image}", "d", "{.spec.image}"), 0);
    assert_eq!(faults("{.spec.picture}", "d", "{.spec.image}"), 1);
    assert_eq!(faults("{.spec.image}", "e", "{.spec.image}"), 1);
    assert_eq!(faults("{.spec.image}", "d", "{.spec.other}"), 1);
    assert_eq!(faults("{.spec.image}", "d", "{.spec.picture}"), 1);
}

/// All images that the objects name: those of their pods, and those that agents give to other pods.
fn images(objects: &Objects) -> Vec<String> {
    let mut images = Vec::new();
    for object in objects.values() {
        let pod = &object["spec"]["template"]["spec"];
        for container in list(&pod["initContainers"]).chain(list(&pod["containers"])) {
            images.extend(container["image"].as_str().map(str::to_owned));
        }
        let Some(file) = object["data"]["site.yaml"].as_str() else {
            continue;
        };
        let site: BTreeMap<String, Value> = serde_saphyr::from_str(file).unwrap();
        let named = site.into_iter().filter(|(key, _)| key.ends_with("Image"));
        images.extend(named.filter_map(|(_, image)| image.as_str().map(str::to_owned)));
    }
    images.sort();
    images
}

#[test]
fn every_image_comes_from_the_catalogue_of_versions() {
    let catalogues = built(CATALOGUES);
    let transformers = built(REPLACEMENTS);
    let replacements = transformers
        .values()
        .flat_map(|transformer| list(&transformer["replacements"]))
        .filter(|replacement| replacement["source"]["objref"]["kind"] == "VersionsCatalogue");
    // Each names one field, which has the catalogue's value: so there are as many as fields with images.
    let mut replaced: Vec<&str> = replacements
        .map(|replacement| {
            assert_eq!(
                list(&replacement["target"]["fieldrefs"]).count(),
                1,
                "{replacement}"
            );
            source(replacement, &catalogues).unwrap().as_str().unwrap()
        })
        .collect();
    replaced.sort_unstable();
    let versions = catalogues
        .values()
        .filter(|catalogue| catalogue["kind"] == "VersionsCatalogue")
        .filter_map(|catalogue| catalogue["spec"]["images"]["sip"].as_object())
        .flat_map(Map::values)
        .filter_map(Value::as_object)
        .flat_map(Map::values);
    let mut versions: Vec<&str> = versions.filter_map(|one| one["image"].as_str()).collect();
    versions.sort_unstable();

    let images = images(&built(FUNCTION));

    assert!(images.len() > 4, "{images:?}");
    assert_eq!(images, replaced);
    assert_eq!(images, versions);
}

#[test]
fn airshipctl_keeps_its_own_documents_from_clusters() {
    for catalogue in built(CATALOGUES).values() {
        let labels = &catalogue["metadata"]["labels"];
        assert_eq!(labels["airshipit.org/deploy-k8s"], "false", "{catalogue}");
    }
    // What a kustomization lists under `transformers` is not in its output; airshipctl finds the program by this annotation.
    for transformer in built(REPLACEMENTS).values() {
        let function = transformer["metadata"]["annotations"]["config.kubernetes.io/function"]
            .as_str()
            .unwrap_or_default();
        let function: Value = serde_saphyr::from_str(function).unwrap();
        assert_eq!(
            function["container"]["image"], "localhost/replacement-transformer",
            "{transformer}"
        );
    }
}

#[test]
fn folders_that_the_readme_adds_to_a_type_exist() {
    let readme = markdown::parse(README, &text(README).unwrap());
    let named = Regex::new(r"/placement/(deploy/[a-z/-]+)").unwrap();
    let blocks: String = readme.blocks.into_iter().map(|block| block.text).collect();
    let folders: BTreeSet<&str> = named
        .captures_iter(&blocks)
        .map(|found| found.extract::<1>().1[0])
        .collect();

    assert_eq!(folders.len(), 4, "{folders:?}");
    let missing = folders
        .into_iter()
        .filter(|folder| !root().join(folder).join("kustomization.yaml").is_file());
    assert_none(
        &missing
            .map(|folder| format!("{README}: there is no kustomization in {folder}"))
            .collect::<Vec<_>>(),
    );
}
