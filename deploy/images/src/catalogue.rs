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
pub const IMAGES: [Row; 4] = [
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
