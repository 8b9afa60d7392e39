//! Shows what is going on: a spinner on a terminal, a line per finished step everywhere.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

#[derive(Clone)]
pub(crate) struct Steps {
    spinner: ProgressBar,
}

impl Steps {
    pub(crate) fn new() -> Self {
        let spinner = ProgressBar::new_spinner();
        // The template is a constant; without it the stock style would do.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg}") {
            spinner.set_style(style);
        }
        Self { spinner }
    }

    /// Says what the present step is doing.
    pub(crate) fn say(&self, detail: &str) {
        self.spinner.set_message(detail.to_owned());
    }

    /// Does a step, and says that and how fast it was done.
    pub(crate) async fn step<T, E>(
        &self,
        title: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T>
    where
        E: Into<anyhow::Error>,
    {
        let started = Instant::now();
        self.spinner.set_prefix(title.to_owned());
        self.spinner.set_message("");
        self.spinner.enable_steady_tick(Duration::from_millis(100));
        let outcome = work.await;
        self.spinner.disable_steady_tick();
        let (mark, seconds) = (
            if outcome.is_ok() { "ok    " } else { "failed" },
            started.elapsed().as_secs_f64(),
        );
        self.print(&format!("{mark} {title} ({seconds:.1} s)"));
        outcome.map_err(Into::into)
    }

    /// Says something that stays.
    pub(crate) fn print(&self, line: &str) {
        if self.spinner.is_hidden() {
            eprintln!("{line}");
        } else {
            self.spinner.println(line);
        }
    }

    pub(crate) fn finish(&self) {
        self.spinner.finish_and_clear();
    }
}
