//! The figures' program fails when a goal is missed.

#[path = "../benches/goal/mod.rs"]
mod goal;

use std::process::ExitCode;
use std::time::Duration;

use goal::{Goal, Goals, Took};

const TOOK: Took = Took {
    median: Duration::from_micros(60),
    p99: Duration::from_micros(100),
};

/// How a program with this one figure ends.
fn end(goal: Goal) -> ExitCode {
    let mut goals = Goals::default();
    goals.held(goal, TOOK);
    goals.end()
}

#[test]
fn a_met_goal_passes() {
    let other = Duration::from_micros(21);
    for goal in [Goal::P99(101), Goal::Times(3.0, other, "the next"), Goal::None] {
        assert_eq!(end(goal), ExitCode::SUCCESS);
    }
}

#[test]
fn a_missed_goal_fails() {
    let other = Duration::from_micros(20);
    for goal in [Goal::P99(100), Goal::Times(3.0, other, "the next")] {
        assert_eq!(end(goal), ExitCode::FAILURE);
    }
}

#[test]
fn a_missed_goal_fails_though_later_ones_are_met() {
    let mut goals = Goals::default();

    assert_eq!(goals.met("< 1024", false), "goal < 1024   NO");
    assert_eq!(goals.met("< 1024", true), "goal < 1024   yes");

    assert_eq!(goals.end(), ExitCode::FAILURE);
}
