//! A snapshot until clusters can be placed.

use std::time::Instant;

use crate::{
    Figure,
    storage::Sync,
    world::{SITE, World},
};

pub(crate) async fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (hosts, goal, limit) in [(10_000, "< 0.5 s", 0.5), (100_000, "< 5 s", 5.0)] {
        let mut world = World::empty(Sync::Nothing).await;
        let start = Instant::now();
        world.report(SITE, hosts).await;
        let took = start.elapsed().as_secs_f64();
        figures.push(Figure {
            name: format!("snapshot of {hosts} hosts until placeable"),
            goal,
            measured: format!("{took:.2} s"),
            ok: Some(took < limit),
        });
    }
    figures
}
