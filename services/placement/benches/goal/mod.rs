//! Goals of figures, and how many of them are missed.

use std::process::ExitCode;
use std::time::Duration;

/// Median and 99th percentile of the time of single calls.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

/// What a figure is held to.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// The 99th percentile is less than so many µs.
    P99(u64),
    /// The median is less than this many times that of another figure.
    Times(f64, Duration, &'static str),
    /// There is none.
    None,
}

/// Counts the goals that were missed.
#[derive(Default)]
pub(crate) struct Goals {
    missed: u32,
}

impl Goals {
    /// What a row says of its goal.
    pub(crate) fn held(&mut self, goal: Goal, took: Took) -> String {
        match goal {
            Goal::P99(micros) => {
                let met = took.p99 < Duration::from_micros(micros);
                self.met(&format!("p99 < {micros} µs"), met)
            }
            Goal::Times(most, other, which) => {
                let met = took.median < other.mul_f64(most);
                self.met(&format!("< {most} x {which}"), met)
            }
            Goal::None => "goal -".to_owned(),
        }
    }

    /// The same of a goal that the caller has compared.
    pub(crate) fn met(&mut self, goal: &str, met: bool) -> String {
        self.missed += u32::from(!met);
        format!("goal {goal}   {}", if met { "yes" } else { "NO" })
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
