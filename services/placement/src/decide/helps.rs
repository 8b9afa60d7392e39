//! What would make a request fit, each verified by deciding again with it.

use super::solve::{Inputs, Solution};
use crate::decision::Help;

pub(crate) fn find(inputs: &Inputs<'_>, solution: &Solution) -> Vec<Help> {
    let short = inputs
        .accounts
        .roles
        .iter()
        .zip(&solution.found)
        .filter(|(account, found)| found.grown < account.growth);
    let roles: Vec<_> = short
        .map(|(account, found)| {
            (
                account.role.name.clone(),
                account.role.want - (account.growth - found.grown),
            )
        })
        .collect();
    if roles.is_empty() {
        Vec::new()
    } else {
        vec![Help::WantLess { roles }]
    }
}
