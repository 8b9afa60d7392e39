//! The audit log, as tests read it.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, OnceLock},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sandbox::redfish_emulator::{PASSWORD, USER};

/// Every line that this process logs, at any level.
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
            .with_max_level(tracing::Level::TRACE)
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

    /// Whether the emulator's password is in it: as it is, or as HTTP's basic authentication sends it.
    pub(crate) fn has_the_password(&self) -> bool {
        let basic = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let text = self.text();
        text.contains(PASSWORD) || text.contains(basic.trim_end_matches('='))
    }

    /// Lines of the audit log with all of these words.
    pub(crate) fn audit(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(" audit: "));
        let found = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        found.map(ToOwned::to_owned).collect()
    }
}
