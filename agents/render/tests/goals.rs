//! The figures' program fails when a goal is missed.

#[path = "../benches/load_balancer/goals.rs"]
mod goals;

use std::process::ExitCode;

use goals::Goals;

#[test]
fn a_met_goal_passes() {
    let mut goals = Goals::default();

    assert!(goals.below(9.9, 10.0, "ms").contains("yes"));
    assert!(goals.at_least(95.0, 95.0, "%").contains("yes"));

    assert_eq!(goals.end(), ExitCode::SUCCESS);
}

#[test]
fn a_missed_goal_fails_though_later_ones_are_met() {
    let mut goals = Goals::default();

    assert!(goals.below(10.0, 10.0, "ms").contains("NO"));
    assert!(goals.at_least(95.0, 95.0, "%").contains("yes"));

    assert_eq!(goals.end(), ExitCode::FAILURE);
}

#[test]
fn less_than_a_lower_bound_fails() {
    let mut goals = Goals::default();

    assert!(goals.at_least(94.9, 95.0, "%").contains("NO"));

    assert_eq!(goals.end(), ExitCode::FAILURE);
}
