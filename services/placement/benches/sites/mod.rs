//! Sites and requests to measure on.
#![allow(dead_code, reason = "each bench uses its own part")]
#![allow(clippy::expect_used, reason = "a bench may stop")]

use std::collections::BTreeSet;

use placement::{
    Holder, Host, HostId, HostName, LabelKey, MemberState, Policy, Request, Requirement, Role, Selector,
    Site, Uid,
};

pub(crate) fn key(text: &str) -> LabelKey {
    text.parse().expect("a label key")
}

/// What a site looks like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) hosts: u32,
    pub(crate) racks: u32,
    pub(crate) rooms: u32,
    /// Whether each host fits both roles.
    pub(crate) shared: bool,
}

impl Shape {
    pub(crate) fn host(self, index: u32) -> Host {
        let Self {
            hosts: _,
            racks,
            rooms,
            shared,
        } = self;
        let name = HostName::new("metal", format!("node-{index:07}")).expect("a name");
        let mut host = Host::available(HostId {
            uid: Uid::new(format!("uid-{index:032}")).expect("a uid"),
            name,
        });
        let rack = index % racks;
        let flavor = if index.is_multiple_of(4) {
            "control-plane"
        } else {
            "worker"
        };
        let labels = [
            ("airshipit.org/rack", format!("r{rack:04}")),
            ("airshipit.org/room", format!("m{:03}", rack % rooms)),
            ("airshipit.org/server", format!("s{index:07}")),
            (
                "airshipit.org/flavor",
                if shared {
                    "any".to_owned()
                } else {
                    flavor.to_owned()
                },
            ),
            (
                "vino.airshipit.org/disk",
                ["ssd", "hdd"][usize::from(index.is_multiple_of(3))].to_owned(),
            ),
            ("kubernetes.io/arch", "amd64".to_owned()),
        ];
        host.labels = labels
            .into_iter()
            .map(|(k, v)| (key(k), v.parse().expect("a value")))
            .collect();
        host.networks = ["management", "oam"]
            .into_iter()
            .map(|n| n.parse().expect("a network"))
            .collect();
        host.powered_on = !index.is_multiple_of(7);
        host
    }

    /// A third of the hosts is held.
    pub(crate) fn site(self) -> Site {
        let hierarchy = if self.rooms > 1 {
            vec![key("airshipit.org/room")]
        } else {
            Vec::new()
        };
        let mut site = Site::new(Policy {
            hierarchy,
            ..Policy::default()
        });
        for index in 0..self.hosts {
            site.upsert(self.host(index));
            if (index / self.racks).is_multiple_of(3) && self.hosts > self.racks {
                let (cluster, role) = (
                    "tenant/other".parse().expect("a name"),
                    "Worker".parse().expect("a role"),
                );
                site.hold(
                    &self.host(index).id,
                    Holder::Cluster {
                        cluster,
                        role,
                        state: MemberState::Bound,
                    },
                );
            }
        }
        site
    }

    pub(crate) fn request(self, control_plane: u32, workers: u32) -> Request {
        let fits = |flavor: &str| {
            let flavor = if self.shared { "any" } else { flavor };
            Selector::all([Requirement::In(
                key("airshipit.org/flavor"),
                [flavor.parse().expect("a value")].into(),
            )])
        };
        let role = |name: &str, flavor: &str, want: u32| Role {
            name: name.parse().expect("a role"),
            selector: fits(flavor),
            topology_key: Some(key("airshipit.org/rack")),
            want,
            replace_after_error: None,
        };
        Request {
            cluster: "tenant/bench".parse().expect("a name"),
            roles: vec![
                role("ControlPlane", "control-plane", control_plane),
                role("Worker", "worker", workers),
            ],
            networks: BTreeSet::from(["management".parse().expect("a network")]),
        }
    }
}

/// 10,000 hosts in 500 racks and 16 rooms; a quarter fits the control plane, the others are workers.
pub(crate) const PLAIN: Shape = Shape {
    hosts: 10_000,
    racks: 500,
    rooms: 16,
    shared: false,
};

impl Shape {
    /// A site in which nothing is held and no hierarchy is known.
    pub(crate) fn bare_site(self) -> Site {
        let mut site = Site::new(Policy::default());
        (0..self.hosts).for_each(|index| site.upsert(self.host(index)));
        site
    }

    /// So many roles of three hosts each, all of which fit every host.
    pub(crate) fn roles(self, roles: u32) -> Request {
        let worker = &self.request(0, 3).roles[1];
        let role = |index| Role {
            name: format!("role{index:02}").parse().expect("a role"),
            ..worker.clone()
        };
        Request {
            roles: (0..roles).map(role).collect(),
            ..self.request(0, 0)
        }
    }
}
