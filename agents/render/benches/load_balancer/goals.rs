//! Goals of figures, and how many of them are missed.

use std::process::ExitCode;

/// Counts the goals that were missed.
#[derive(Default)]
pub(crate) struct Goals {
    missed: u32,
}

impl Goals {
    /// What a row says of a goal that is an upper bound.
    pub(crate) fn below(&mut self, measured: f64, goal: f64, unit: &str) -> String {
        self.row(measured < goal, &format!("< {goal} {unit}"))
    }

    /// What a row says of a goal that is a lower bound.
    pub(crate) fn at_least(&mut self, measured: f64, goal: f64, unit: &str) -> String {
        self.row(measured >= goal, &format!("≥ {goal} {unit}"))
    }

    fn row(&mut self, met: bool, goal: &str) -> String {
        self.missed += u32::from(!met);
        format!("goal {goal:<10} {:<3}", if met { "yes" } else { "NO" })
    }

    /// How the program ends after its last row.
    pub(crate) fn end(self) -> ExitCode {
        if self.missed == 0 {
            return ExitCode::SUCCESS;
        }
        eprintln!("{} figures miss their goals", self.missed);
        ExitCode::FAILURE
    }
}
