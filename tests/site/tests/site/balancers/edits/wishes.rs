//! What is wished of clusters, and edits of that in random order.

use std::{collections::BTreeSet, ops::RangeInclusive};

use rand::{
    Rng as _, SeedableRng as _,
    rngs::StdRng,
    seq::{IndexedRandom as _, SliceRandom as _},
};
use sandbox::inventory::NETWORK;
use serde_json::{Value, json};

use super::NAMESPACES;
use crate::{
    balancers::workers,
    fixtures::{Cluster, Role},
};

/// Kinds of edits.
const KINDS: u8 = 11;

/// A load balancer that a spec names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Option<String>,
    pub(crate) port: u16,
    image: &'static str,
}

impl Entry {
    /// Whether it has the objects of another one, which may differ in what is in them.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.port) == (&other.name, other.port)
    }
}

/// What the spec of one cluster asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) workers: u32,
    pub(crate) entries: Vec<Entry>,
    /// A role of one host behind a load balancer of its own.
    control_plane: Option<Entry>,
    /// Pods of each load balancer.
    replicas: u8,
}

impl Wish {
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.control_plane)
    }

    /// Two named entries of one cluster, of one kind or not, get each other's ports. Returns whether there are two.
    fn exchange_ports(&mut self) -> bool {
        let Wish {
            workers: _,
            entries,
            control_plane,
            replicas: _,
        } = self;
        let all = entries.iter_mut().chain(control_plane);
        let mut named = all.filter(|entry| entry.name.is_some());
        let (Some(first), Some(second)) = (named.next(), named.next_back()) else {
            return false;
        };
        std::mem::swap(&mut first.port, &mut second.port);
        true
    }

    pub(crate) fn members(&self) -> usize {
        self.workers as usize + usize::from(self.control_plane.is_some())
    }

    pub(crate) fn spec(&self, of: &Cluster) -> Value {
        let entries = self.entries.iter();
        let replicas = self.replicas;
        let entries: Vec<Value> = entries
            .map(|Entry { name, port, image }| {
                workers(
                    *port,
                    *port,
                    &json!({"name": name, "image": image, "replicas": replicas}),
                )
            })
            .collect();
        let control_plane = self.control_plane.as_ref().map(|Entry { name, port, image }| {
            json!([{"image": image, "nodeInterfaceId": NETWORK, "nodePort": port, "name": name, "replicas": replicas}])
        });
        let role = of.clone().role(Role::ControlPlane, 1).spec()["nodes"]["ControlPlane"].clone();
        json!({
            "nodes": {
                "Worker": {"count": {"active": self.workers}},
                "ControlPlane": self.control_plane.as_ref().map(|_| role),
            },
            "services": {"loadBalancerWorker": entries, "loadBalancerControlPlane": control_plane},
        })
    }
}

/// How much may be wished of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Most {
    /// Of each cluster.
    pub(crate) workers: [u32; 2],
    pub(crate) entries: usize,
    pub(crate) ports: RangeInclusive<u16>,
    /// Whether there may be a role of one host with a load balancer of its own.
    pub(crate) control_planes: bool,
    /// Images that pods may have.
    pub(crate) images: &'static [&'static str],
    /// Whether a cluster may be deleted and made again.
    pub(crate) made_again: bool,
    /// Pods of each load balancer.
    pub(crate) replicas: u8,
}

/// What is wished of the clusters, and names and ports that no entry has had.
pub(crate) struct Wishes {
    pub(crate) random: StdRng,
    pub(crate) now: [Wish; 2],
    most: Most,
    names: u32,
    /// The kinds of edits that are to come before any comes again.
    kinds: Vec<u8>,
    /// The cluster that the last edit has deleted and made again.
    pub(crate) made_again: Option<usize>,
}

impl Wishes {
    /// Two entries of each cluster.
    pub(crate) fn new(seed: u64, most: Most) -> Self {
        let empty = Wish {
            workers: 1,
            entries: Vec::new(),
            control_plane: None,
            replicas: most.replicas,
        };
        let mut wishes = Self {
            random: StdRng::seed_from_u64(seed),
            now: [empty.clone(), empty],
            most,
            names: 0,
            kinds: Vec::new(),
            made_again: None,
        };
        for index in [0, 0, 1, 1] {
            let entry = wishes.new_entry();
            wishes.now[index].entries.push(entry);
        }
        wishes
    }

    /// A port that no entry has.
    fn port(&mut self) -> u16 {
        let used: BTreeSet<u16> = self
            .now
            .iter()
            .flat_map(Wish::all)
            .map(|entry| entry.port)
            .collect();
        loop {
            let port = self.random.random_range(self.most.ports.clone());
            if !used.contains(&port) {
                return port;
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        self.names += 1;
        self.random.random::<bool>().then(|| format!("n{}", self.names))
    }

    fn new_entry(&mut self) -> Entry {
        Entry {
            port: self.port(),
            name: self.name(),
            image: self.most.images[0],
        }
    }

    /// Changes what is wished by one edit of one cluster, or of both; returns what was done.
    pub(crate) fn edit(&mut self) -> String {
        self.made_again = None;
        loop {
            let one = self.random.random_range(0..2);
            let count = self.now[one].entries.len();
            let at = self.random.random_range(0..count.max(1));
            if self.kinds.is_empty() {
                self.kinds = (0..KINDS).collect();
                self.kinds.shuffle(&mut self.random);
            }
            let done = match self.kinds.pop().unwrap() {
                0 if count < self.most.entries => {
                    let entry = self.new_entry();
                    self.now[one].entries.insert(at.min(count), entry);
                    "adds an entry"
                }
                1 if count > 0 => {
                    self.now[one].entries.remove(at);
                    "drops an entry"
                }
                2 if count > 1 => {
                    self.now[one].entries.swap(at, (at + 1) % count);
                    "swaps two entries"
                }
                3 if count > 0 => {
                    self.names += 1;
                    self.now[one].entries[at].name = Some(format!("n{}", self.names));
                    "renames an entry"
                }
                4 if count > 0 => {
                    let port = self.port();
                    self.now[one].entries[at].port = port;
                    "moves the port of an entry"
                }
                5 => {
                    let most = self.most.workers[one];
                    let more = self.random.random_range(1..=most);
                    self.now[one].workers = (self.now[one].workers + more) % (most + 1);
                    "wants another number of workers"
                }
                6 if self.most.control_planes => {
                    let entry = self.new_entry();
                    let role = &mut self.now[one].control_plane;
                    *role = role.is_none().then_some(entry);
                    "gets or loses a role with its load balancer"
                }
                7 if count > 0 && self.now[1 - one].entries.len() < self.most.entries => {
                    let entry = self.now[one].entries.remove(at);
                    self.now[1 - one].entries.push(entry);
                    "gives an entry to the cluster of the other namespace"
                }
                8 if self.now[one].exchange_ports() => "has two named entries exchange their ports",
                9 if count > 0 && self.most.images.len() > 1 => {
                    let before = self.now[one].entries[at].image;
                    let others: Vec<_> = self
                        .most
                        .images
                        .iter()
                        .filter(|image| **image != before)
                        .collect();
                    self.now[one].entries[at].image = others.choose(&mut self.random).unwrap();
                    "has an entry with another image"
                }
                10 if self.most.made_again => {
                    self.made_again = Some(one);
                    "is deleted and made again"
                }
                _ => continue,
            };
            return format!("{} {done}: {:?}", NAMESPACES[one], self.now);
        }
    }
}
