//! Instructions counted by callgrind: the same on a busy machine as on an idle one, so that no noise hides a change. The
//! runner prints the difference to the run before.
#![allow(missing_docs, reason = "gungraun's macros make public items")]

mod sites;

use std::hint::black_box;

use gungraun::prelude::*;
use placement::{Decision, Host, Request, Site, decide};
use sites::{PLAIN, Shape};

const SHARED: Shape = Shape {
    shared: true,
    ..PLAIN
};

const CROWDED: Shape = Shape { racks: 16, ..PLAIN };

fn sample(shape: Shape, control_plane: u32, workers: u32) -> (Site, Request) {
    (shape.site(), shape.request(control_plane, workers))
}

#[library_benchmark]
#[bench::success(sample(PLAIN, 3, 20))]
#[bench::roles_share(sample(SHARED, 3, 20))]
#[bench::refusal(sample(CROWDED, 3, 20))]
fn decision((site, request): (Site, Request)) -> (Decision, Site) {
    (decide(black_box(&site), black_box(&request), &[]), site)
}

fn relabelled() -> (Site, Host) {
    let mut host = PLAIN.host(5_001);
    host.labels.retain(|key, _| !key.as_str().ends_with("flavor"));
    (PLAIN.site(), host)
}

#[library_benchmark]
#[bench::label_change(relabelled())]
fn upsert((mut site, host): (Site, Host)) -> Site {
    site.upsert(black_box(host));
    site
}

library_benchmark_group!(name = decisions, benchmarks = [decision, upsert]);
main!(library_benchmark_groups = decisions);
