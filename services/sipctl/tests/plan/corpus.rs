//! Replays the fuzzer's seeds, and everything it once found.

use std::path::Path;

#[expect(unreachable_pub, reason = "the fuzzer's binaries are its other users")]
#[path = "../../fuzz/targets.rs"]
mod targets;

fn replay(target: &str, run: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target);
    let mut replayed = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        run(&std::fs::read(seed.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 3, "{target} has seeds");
}

#[test]
fn the_seeds_of_plan_input_break_nothing() {
    replay("plan_input", targets::plan_input);
}

#[test]
fn the_seeds_of_selectors_break_nothing() {
    replay("selectors", targets::selectors);
}
