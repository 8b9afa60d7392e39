//! How long a decision takes, against the goals. `cargo bench -p sip-placement` prints criterion's figures and, first,
//! the percentiles of single decisions in microseconds.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a bench may stop, and its figures are rounded"
)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use placement::{
    Decision, Holder, Host, HostId, HostName, LabelKey, MemberState, Policy, Request, Requirement, Role,
    Selector, Site, Uid, decide,
};

fn key(text: &str) -> LabelKey {
    text.parse().expect("a label key")
}

/// What a site looks like.
#[derive(Clone, Copy)]
struct Shape {
    hosts: u32,
    racks: u32,
    rooms: u32,
    /// Whether each host fits both roles.
    shared: bool,
}

impl Shape {
    fn host(self, index: u32) -> Host {
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
    fn site(self) -> Site {
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

    fn request(self, control_plane: u32, workers: u32) -> Request {
        let fits = |flavor: &str| {
            let flavor = if self.shared { "any" } else { flavor };
            Selector::of([Requirement::In(
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

/// Median and 99th percentile of single calls.
fn percentiles(calls: u32, mut call: impl FnMut() -> Decision) -> (Duration, Duration) {
    let mut took: Vec<Duration> = (0..calls)
        .map(|_| {
            let start = Instant::now();
            black_box(call());
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

fn line(name: &str, (median, p99): (Duration, Duration), goal: &str) {
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    println!(
        "{name:<64} median {:>9.1} µs   p99 {:>9.1} µs   goal {goal}",
        micros(median),
        micros(p99)
    );
}

const PLAIN: Shape = Shape {
    hosts: 10_000,
    racks: 500,
    rooms: 16,
    shared: false,
};

fn table() {
    let cases = [
        ("3 + 20 of 10,000, 16 rooms", PLAIN, (3, 20), "p99 < 200 µs"),
        (
            "3 + 20 of 10,000, 16 rooms, roles share every host",
            Shape {
                shared: true,
                ..PLAIN
            },
            (3, 20),
            "p99 < 200 µs",
        ),
        (
            "3 + 20 of 10,000, 1 room",
            Shape { rooms: 1, ..PLAIN },
            (3, 20),
            "p99 < 200 µs",
        ),
        (
            "3 + 20 of 10,000, 100 rooms",
            Shape { rooms: 100, ..PLAIN },
            (3, 20),
            "p99 < 2000 µs",
        ),
        (
            "3 + 20 of 100,000, 16 rooms",
            Shape {
                hosts: 100_000,
                ..PLAIN
            },
            (3, 20),
            "p99 < 1000 µs",
        ),
        (
            "3 + 20 of 100,000, roles share",
            Shape {
                hosts: 100_000,
                shared: true,
                ..PLAIN
            },
            (3, 20),
            "p99 < 1000 µs",
        ),
        (
            "refusal: 3 + 20 of 10,000 in 16 racks",
            Shape { racks: 16, ..PLAIN },
            (3, 20),
            "< 3 x the next",
        ),
        (
            "success: 3 + 12 of 10,000 in 16 racks",
            Shape { racks: 16, ..PLAIN },
            (3, 12),
            "-",
        ),
        (
            "refusal: 3 + 600 of 10,000 in 500 racks",
            PLAIN,
            (3, 600),
            "< 3 x the next",
        ),
        ("success: 3 + 375 of 10,000 in 500 racks", PLAIN, (3, 375), "-"),
        (
            "adversarial: 500 racks, 1000 hosts shared, 500 + 500",
            Shape {
                hosts: 1000,
                racks: 500,
                rooms: 1,
                shared: true,
            },
            (500, 500),
            "< 20000 µs",
        ),
    ];
    for (name, shape, (control_plane, workers), goal) in cases {
        let mut site = shape.site();
        if name.starts_with("adversarial") {
            site = Site::new(Policy::default());
            (0..shape.hosts).for_each(|index| site.upsert(shape.host(index)));
        }
        let request = shape.request(control_plane, workers);
        let decision = decide(&site, &request, &[]);
        let fits = decision.take.len() == (control_plane + workers) as usize;
        assert_eq!(
            fits,
            !name.starts_with("refusal"),
            "{name}: {:?}",
            decision.refusal.map(|r| r.message())
        );
        let calls = if workers > 100 { 100 } else { 2_000 };
        line(name, percentiles(calls, || decide(&site, &request, &[])), goal);
    }
}

/// Resident memory of this process in bytes, where /proc says it.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// Bytes per host of many sites, and whether a decision in one of them is slower than in a site alone.
fn memory() {
    let (sites, shape) = (20_u32, PLAIN);
    let before = resident();
    let all: Vec<Site> = (0..sites).map(|_| shape.site()).collect();
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = (after - before) / f64::from(sites * shape.hosts);
        println!(
            "{:<64} {each:>16.0} bytes per host   goal < 1024",
            format!("{sites} sites of 10,000 hosts")
        );
    }
    let request = shape.request(3, 20);
    let mut next = all.iter().cycle();
    let took = percentiles(2_000, || {
        next.next()
            .map(|site| decide(site, &request, &[]))
            .unwrap_or_default()
    });
    line("3 + 20 of 10,000, each time in another site", took, "as alone");
}

fn update(c: &mut Criterion) {
    let shape = Shape {
        hosts: 100_000,
        ..PLAIN
    };
    let mut site = shape.site();
    let mut relabelled = shape.host(50_001);
    relabelled
        .labels
        .insert(key("airshipit.org/flavor"), "gpu".parse().expect("a value"));
    let (before, name) = (shape.host(50_001), shape.host(50_001).id.name);
    let mut group = c.benchmark_group("one host of 100,000");
    let mut turn = false;
    group.bench_function("label change", |b| {
        b.iter_batched(
            || {
                turn = !turn;
                if turn { relabelled.clone() } else { before.clone() }
            },
            |host| site.upsert(host),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("delete and insert", |b| {
        b.iter_batched(
            || before.clone(),
            |host| {
                site.remove(&name);
                site.upsert(host);
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn decisions(c: &mut Criterion) {
    memory();
    table();
    let (site, request) = (PLAIN.site(), PLAIN.request(3, 20));
    c.bench_function("3 + 20 of 10,000, 16 rooms", |b| {
        b.iter(|| decide(&site, &request, &[]));
    });
}

criterion_group!(benches, decisions, update);
criterion_main!(benches);
