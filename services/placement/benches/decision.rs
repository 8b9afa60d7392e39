//! Criterion's figures: a decision, a refusal, and one change of the indexes.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a bench may stop")]

mod sites;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use placement::decide;
use sites::{PLAIN, Shape, key};

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
    let (site, request) = (PLAIN.site(), PLAIN.request(3, 20));
    c.bench_function("3 + 20 of 10,000, 16 rooms", |b| {
        b.iter(|| decide(&site, &request, &[]));
    });
}

criterion_group!(benches, decisions, update);
criterion_main!(benches);
