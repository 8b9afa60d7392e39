//! The figures that the decision is held to, one line each: measured, and the goal.
#![allow(missing_docs, reason = "a program")]
#![allow(
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a bench may stop, and its figures are rounded"
)]

mod goal;
mod sites;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use goal::{Goal, Goals, Took};
use placement::{Decision, Domain, FailReason, Member, MemberState, Request, Site, Take, decide};
use rustix::time::{ClockId, clock_gettime};
use sites::{PLAIN, Shape};

/// How many times as slow a decision may be whose site is not in the caches of the core: there, the memory of the machine
/// is measured, which is about twice as slow. Work for every one of the 100 sites would be seen.
const SLOWER: f64 = 3.0;

/// What this thread has had of a core so far. A goal is what a decision costs one core: time in which the machine ran
/// something else is not counted.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Median and 99th percentile of single calls.
fn percentiles(calls: u32, mut call: impl FnMut() -> Decision) -> Took {
    let mut took: Vec<Duration> = (0..calls)
        .map(|_| {
            let start = cpu();
            black_box(call());
            cpu().saturating_sub(start)
        })
        .collect();
    took.sort_unstable();
    Took {
        median: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
    }
}

fn line(goals: &mut Goals, name: &str, took: Took, goal: Goal) {
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    println!(
        "{name:<64} median {:>9.1} µs   p99 {:>9.1} µs   {}",
        micros(took.median),
        micros(took.p99),
        goals.held(goal, took)
    );
}

/// What a row of the table is held to.
enum Held {
    /// Its 99th percentile is less than so many µs.
    P99(u64),
    /// Its median is less than three times that of the next row.
    ToNext,
    No,
}

fn table(goals: &mut Goals) {
    let cases = [
        ("3 + 20 of 10,000, 16 rooms", PLAIN, (3, 20), Held::P99(200)),
        (
            "3 + 20 of 10,000, 16 rooms, roles share every host",
            Shape {
                shared: true,
                ..PLAIN
            },
            (3, 20),
            Held::P99(200),
        ),
        (
            "3 + 20 of 10,000, 1 room",
            Shape { rooms: 1, ..PLAIN },
            (3, 20),
            Held::P99(200),
        ),
        (
            "3 + 20 of 10,000, 100 rooms",
            Shape { rooms: 100, ..PLAIN },
            (3, 20),
            Held::P99(2_000),
        ),
        (
            "3 + 20 of 100,000, 16 rooms",
            Shape {
                hosts: 100_000,
                ..PLAIN
            },
            (3, 20),
            Held::P99(1_000),
        ),
        (
            "3 + 20 of 100,000, roles share",
            Shape {
                hosts: 100_000,
                shared: true,
                ..PLAIN
            },
            (3, 20),
            Held::P99(1_000),
        ),
        (
            "refusal: 3 + 20 of 10,000 in 16 racks",
            Shape { racks: 16, ..PLAIN },
            (3, 20),
            Held::ToNext,
        ),
        (
            "success: 3 + 12 of 10,000 in 16 racks",
            Shape { racks: 16, ..PLAIN },
            (3, 12),
            Held::No,
        ),
        (
            "refusal: 3 + 600 of 10,000 in 500 racks",
            PLAIN,
            (3, 600),
            Held::ToNext,
        ),
        (
            "success: 3 + 375 of 10,000 in 500 racks",
            PLAIN,
            (3, 375),
            Held::No,
        ),
        (
            "adversarial: 500 racks, 1000 hosts shared, 500 + 500",
            Shape {
                hosts: 1000,
                racks: 500,
                rooms: 1,
                shared: true,
            },
            (500, 500),
            Held::P99(20_000),
        ),
    ];
    let mut rows: Vec<(&str, Took, Held)> = Vec::new();
    for (name, shape, (control_plane, workers), held) in cases {
        let site = if name.starts_with("adversarial") {
            shape.bare_site()
        } else {
            shape.site()
        };
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
        rows.push((name, percentiles(calls, || decide(&site, &request, &[])), held));
    }
    print(goals, &rows);
}

fn print(goals: &mut Goals, rows: &[(&str, Took, Held)]) {
    for (index, (name, took, held)) in rows.iter().enumerate() {
        let goal = match held {
            Held::P99(micros) => Goal::P99(*micros),
            Held::ToNext => Goal::Times(3.0, rows[index + 1].1.median, "the next"),
            Held::No => Goal::None,
        };
        line(goals, name, *took, goal);
    }
}

/// Resident memory of this process in bytes, where /proc says it.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// A region: bytes per host, and whether a decision in one of its sites is slower than in a site alone.
fn region(goals: &mut Goals) {
    let (sites, shape) = (100_u32, PLAIN);
    let before = resident();
    let all: Vec<Site> = (0..sites).map(|_| shape.site()).collect();
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = (after - before) / f64::from(sites * shape.hosts);
        println!(
            "{:<64} {each:>16.0} bytes per host                        {}",
            "1,000,000 hosts in 100 sites",
            goals.met("< 1024", each < 1024.0)
        );
    }
    let request = shape.request(3, 20);
    let alone = percentiles(2_000, || decide(&all[0], &request, &[]));
    line(
        goals,
        "3 + 20 of 10,000, always in the same site",
        alone,
        Goal::None,
    );
    let mut next = all.iter().cycle();
    let took = percentiles(2_000, || {
        next.next()
            .map(|site| decide(site, &request, &[]))
            .unwrap_or_default()
    });
    // What is called no slower: no more than reading a site from memory that the caches no longer hold.
    line(
        goals,
        "3 + 20 of 10,000, each time in another site",
        took,
        Goal::Times(SLOWER, alone.median, "the one before"),
    );
}

/// How the time grows with one dimension: the slope of a straight line through the logarithms, by least squares.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (x, y) = logs
        .iter()
        .fold((0.0, 0.0), |sum, log| (sum.0 + log.0, sum.1 + log.1));
    let (x, y) = (x / count, y / count);
    let over: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    let under: f64 = logs.iter().map(|log| (log.0 - x).powi(2)).sum();
    over / under
}

/// One dimension of a request or a site, and the time for each size of it.
fn grow(dimension: &str, sizes: &[u32], mut case: impl FnMut(u32) -> (Site, Request, Vec<Member>)) {
    let measured: Vec<(u32, Duration)> = sizes
        .iter()
        .map(|size| {
            let (site, request, members) = case(*size);
            (
                *size,
                percentiles(200, || decide(&site, &request, &members)).median,
            )
        })
        .collect();
    let points: Vec<(f64, f64)> = measured
        .iter()
        .map(|(size, took)| (f64::from(*size), took.as_secs_f64()))
        .collect();
    let each: Vec<String> = measured
        .iter()
        .map(|(size, took)| format!("{size}: {:.0}", took.as_secs_f64() * 1e6))
        .collect();
    println!(
        "{dimension:<44} exponent {:>5.2}   µs at {}",
        exponent(&points),
        each.join(", ")
    );
}

fn growth() {
    let wide = Shape {
        racks: 1_000,
        ..PLAIN
    };
    grow(
        "hosts (3 + 20, 500 racks)",
        &[2_000, 8_000, 32_000, 128_000],
        |hosts| {
            let shape = Shape { hosts, ..PLAIN };
            (shape.site(), shape.request(3, 20), Vec::new())
        },
    );
    grow("roles (3 hosts each, all fit all)", &[1, 4, 16, 64], |roles| {
        (wide.site(), wide.roles(roles), Vec::new())
    });
    grow("domains (3 + 20 of 10,000)", &[32, 128, 512, 2_048], |racks| {
        let shape = Shape { racks, ..PLAIN };
        (shape.site(), shape.request(3, 20), Vec::new())
    });
    grow(
        "hosts wanted (one role of 10,000)",
        &[8, 32, 128, 512],
        |wanted| (wide.site(), wide.request(0, wanted), Vec::new()),
    );
    let placed = |site: &Site, members: u32| -> Vec<Member> {
        let placed = decide(site, &wide.request(0, members), &[]);
        placed.take.into_iter().map(member).collect()
    };
    let sizes = [8, 32, 128, 512];
    grow("members there already (one more is wanted)", &sizes, |members| {
        let site = wide.site();
        let placed = placed(&site, members);
        (site, wide.request(0, members + 1), placed)
    });
    grow("members of which half fail, for two reasons", &sizes, |members| {
        let site = wide.site();
        let mut placed = placed(&site, members);
        let reasons = [FailReason::MarkedFailed, FailReason::InError];
        let failing = placed.iter_mut().step_by(2);
        for (member, reason) in failing.zip(reasons.into_iter().cycle()) {
            member.failed = Some(reason);
        }
        (site, wide.request(0, members), placed)
    });
}

fn member(take: Take) -> Member {
    let Take {
        role,
        host,
        domain,
        replaces,
    } = take;
    Member {
        host,
        role,
        state: MemberState::Bound,
        requested: false,
        domain: domain.map(|value| Domain {
            key: sites::key("airshipit.org/rack"),
            value,
        }),
        failed: None,
        replaces,
    }
}

fn main() -> ExitCode {
    let mut goals = Goals::default();
    region(&mut goals);
    table(&mut goals);
    growth();
    goals.end()
}
