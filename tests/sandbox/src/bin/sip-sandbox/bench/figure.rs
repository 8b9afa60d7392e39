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

/// Fails when a figure misses its goal.
pub(super) fn require(figures: &[Figure]) -> anyhow::Result<()> {
    let missed = figures.iter().filter(|figure| !figure.ok).count();
    anyhow::ensure!(
        missed == 0,
        "{missed} of {} figures miss their goals",
        figures.len()
    );
    Ok(())
}

pub(super) fn table(figures: &[Figure]) -> Table {
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
        table.add_row([&**name, goal, measured, if *ok { "yes" } else { "NO" }]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{Figure, require, table};

    fn writes(measured: usize) -> Figure {
        Figure::count("writes".to_owned(), 0, measured)
    }

    #[test]
    fn a_missed_goal_fails_after_all_rows() {
        let figures = [writes(0), writes(2), writes(0)];

        assert_eq!(table(&figures).row_iter().count(), 3);
        let error = require(&figures).map_err(|error| error.to_string());
        assert_eq!(error, Err("1 of 3 figures miss their goals".to_owned()));
    }

    #[test]
    fn met_goals_pass() {
        assert!(require(&[writes(0), writes(0)]).is_ok());
    }
}
