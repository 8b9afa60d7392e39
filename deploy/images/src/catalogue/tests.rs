use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::MetadataCommand;

use super::*;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_program_of_sites_is_in_an_image_of_its_package() {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .unwrap();
    let mut built = BTreeMap::new();
    for package in &metadata.packages {
        let folder = package.manifest_path.as_str();
        if ["/services/", "/agents/"]
            .iter()
            .any(|layer| folder.contains(layer))
        {
            let programs = package.targets.iter().filter(|target| target.is_bin());
            let programs = programs.filter(|target| target.name.starts_with("sip") || target.name == "host");
            built.extend(programs.map(|target| (target.name.clone(), package.name.to_string())));
        }
    }
    let packed: BTreeMap<String, String> = IMAGES
        .iter()
        .flat_map(|row| row.programs.iter().zip(row.packages))
        .map(|(program, package)| ((*program).to_owned(), (*package).to_owned()))
        .collect();

    assert_eq!(packed, built);
}

#[test]
fn make_writes_every_image() {
    let makefile = fs::read_to_string(workspace().join("Makefile")).unwrap();
    let listed = |variable: &str| {
        let begin = format!("{variable} := ");
        let words = makefile.lines().find_map(|line| line.strip_prefix(&*begin));
        words.unwrap().split(' ')
    };
    let written: BTreeSet<&str> = listed("AGENTS")
        .chain(listed("DISTRIBUTION_IMAGES"))
        .chain(["sip-scheduler"])
        .collect();

    assert_eq!(written, IMAGES.iter().map(|row| row.name).collect());
}

#[test]
fn a_reference_has_registry_name_and_version() {
    assert_eq!(
        IMAGES[0].reference(LOCAL, "1.2.3"),
        "localhost/sip-scheduler:1.2.3"
    );
    assert_eq!(
        IMAGES[1].reference("registry.example/sip/", "1"),
        "registry.example/sip/sip-cluster-agent:1"
    );
}

#[test]
fn optional_programs_are_in_an_image_where_there_are_any() {
    let row = Row {
        system_programs: &["/bin/sh"],
        optional_programs: &["/bin/cat", "/usr/lib/absent/program"],
        ..own("example", "An example", &[], &[])
    };
    let (_, contents) = row.image("example", |name| Err(name.to_owned())).unwrap();

    assert_eq!(
        contents.system_programs,
        ["/bin/sh", "/bin/cat"].map(PathBuf::from)
    );
}
