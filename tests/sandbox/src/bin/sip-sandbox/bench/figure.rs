//! What was measured, beside its goal.

use std::time::Duration;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

/// A line of the table.
pub(super) struct Figure {
    name: String,
    goal: String,
    measured: String,
    ok: bool,
}

impl Figure {
    pub(super) fn duration(name: String, goal: Duration, measured: Duration) -> Self {
        Self {
            name,
            goal: format!("< {}", time(goal)),
            measured: time(measured),
            ok: measured < goal,
        }
    }

    /// The goal is one of the median. `sorted` is not empty.
    pub(super) fn median(name: String, goal: Duration, sorted: &[Duration]) -> Self {
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let median = at(sorted.len() / 2);
        Self {
            measured: format!(
                "median {} (fastest {}, slowest {})",
                time(median),
                time(at(0)),
                time(at(sorted.len().saturating_sub(1)))
            ),
            ..Self::duration(name, goal, median)
        }
    }

    pub(super) fn ratio(name: String, goal: f64, measured: f64) -> Self {
        Self {
            name,
            goal: format!("<= {goal}"),
            measured: format!("{measured:.2}"),
            ok: measured <= goal,
        }
    }

    pub(super) fn count(name: String, goal: usize, measured: usize) -> Self {
        Self {
            name,
            goal: format!("<= {goal}"),
            measured: measured.to_string(),
            ok: measured <= goal,
        }
    }

    pub(super) fn mebibytes(name: String, goal: u64, measured: u64) -> Self {
        Self {
            name,
            goal: format!("< {goal} MiB"),
            measured: format!("{measured} MiB"),
            ok: measured < goal,
        }
    }
}

fn time(time: Duration) -> String {
    if time < Duration::from_secs(2) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

pub(super) fn table(figures: Vec<Figure>) -> Table {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(["figure", "goal", "measured", "ok"]);
    for Figure {
        name,
        goal,
        measured,
        ok,
    } in figures
    {
        table.add_row([name, goal, measured, if ok { "yes" } else { "NO" }.to_owned()]);
    }
    table
}
