//! The audit log, as tests read it.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, OnceLock},
};

/// Every line that this process logs.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged; the same log for all tests of the process.
pub(crate) fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .init();
        log
    });
    log.clone()
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Lines of the audit log with all of these words.
    pub(crate) fn audit(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(" audit: "));
        let found = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        found.map(ToOwned::to_owned).collect()
    }
}
