//! The images of this project, one row each.

/// An image: what it is called, what is in it, and from which packages that is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the image, without registry and version.
    pub name: &'static str,
    /// What people read about it.
    pub title: &'static str,
    /// Its programs; the first one is what it runs.
    pub programs: &'static [&'static str],
    /// The workspace's packages that build them.
    pub packages: &'static [&'static str],
}

/// All of them.
pub const IMAGES: [Row; 7] = [
    Row {
        name: "sip-scheduler",
        title: "The placement scheduler of a region, and sipctl",
        programs: &["sip-scheduler", "sipctl"],
        packages: &["sip-scheduler", "sipctl"],
    },
    Row {
        name: "sip-cluster-agent",
        title: "The cluster agent of a site",
        programs: &["sip-cluster-agent"],
        packages: &["sip-cluster-agent"],
    },
    Row {
        name: "sip-dex-agent",
        title: "The Dex agent of a site",
        programs: &["sip-dex-agent"],
        packages: &["sip-dex-agent"],
    },
    Row {
        name: "sip-load-balancer-agent",
        title: "The load-balancer agent of a site",
        programs: &["sip-load-balancer-agent"],
        packages: &["sip-load-balancer-agent"],
    },
    Row {
        name: "sip-haproxy-sidecar",
        title: "Makes a running HAProxy follow its configuration",
        programs: &["sip-haproxy-sidecar"],
        packages: &["sip-haproxy-sidecar"],
    },
    Row {
        name: "sip-jump-host-agent",
        title: "The jump-host agent of a site",
        programs: &["sip-jump-host-agent"],
        packages: &["sip-jump-host-agent"],
    },
    Row {
        name: "sip-jump-host-sidecar",
        title: "What every jump host gets besides its image",
        programs: &["sip-jump-host-sidecar", "host"],
        packages: &["sip-jump-host-sidecar", "sip-host"],
    },
];

/// The registry of images that no registry has: nodes get them by import, and never ask anybody else for them.
pub const LOCAL: &str = "localhost";

impl Row {
    /// Its whole name in a registry, such as `localhost` or `registry.example/sip`.
    #[must_use]
    pub fn reference(&self, registry: &str, version: &str) -> String {
        format!("{}/{}:{version}", registry.trim_end_matches('/'), self.name)
    }
}

#[cfg(test)]
mod tests {
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
                let programs =
                    programs.filter(|target| target.name.starts_with("sip") || target.name == "host");
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
        let agents = makefile
            .lines()
            .find_map(|line| line.strip_prefix("AGENTS := "))
            .unwrap();
        let written: BTreeSet<&str> = agents.split(' ').chain(["sip-scheduler"]).collect();

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
}
