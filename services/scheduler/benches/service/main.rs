//! The figures that the service is held to, by gRPC over loopback: measured, and the goal. Ratios are of figures of the
//! same run, and of time that this process had a core where the machine may run something else.
#![allow(missing_docs, reason = "a program")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench may stop, and its figures are rounded"
)]

mod durable;
mod echo;
mod plan;
mod restart;
mod snapshot;
mod storage;
mod watchers;
mod world;

use std::process::ExitCode;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

/// As in the scheduler's own program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A line of the table.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) goal: &'static str,
    pub(crate) measured: String,
    /// `None`: there is no goal.
    pub(crate) ok: Option<bool>,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let figures = runtime.block_on(async {
        // Those that are named, or all.
        let named: Vec<String> = std::env::args()
            .skip(1)
            .filter(|name| name != "--bench")
            .collect();
        let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
        let mut figures = Vec::new();
        if wanted("snapshot") {
            figures.extend(snapshot::figures().await);
        }
        if wanted("plan") {
            figures.extend(plan::figures().await);
        }
        if wanted("durable") {
            figures.extend(durable::figures().await);
        }
        if wanted("watchers") {
            figures.extend(watchers::figures().await);
        }
        if wanted("restart") {
            figures.extend(restart::figures().await);
        }
        figures
    });
    let missed = figures.iter().filter(|figure| figure.ok == Some(false)).count();
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
        let ok = match ok {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        table.add_row([&*name, goal, &*measured, ok]);
    }
    println!("{table}");
    if missed > 0 {
        eprintln!("{missed} figures miss their goals");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
