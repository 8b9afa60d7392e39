//! When sshd has to read its configuration again. A signal requests that. Before sshd handles signals, the signal would end it; while it restarts
//! itself, it misses the signal.

use std::time::{Duration, Instant};

use render::{jump_host::files::file_digest, running::Running};
use rustix::process::Signal;

/// Pause after which sshd is signalled again if it has not answered; it doubles up to [`MAX_SIGNAL_BACKOFF`].
const SIGNAL_BACKOFF: Duration = Duration::from_secs(2);
const MAX_SIGNAL_BACKOFF: Duration = Duration::from_mins(1);
/// Pause after which a configuration that sshd refuses is checked again: a file that it names, such as a host key, may have been corrected.
const REFUSED_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// What sshd logs when it has received the signal; it reads the file after that.
const RELOAD_LOG_LINE: &str = "Received SIGHUP";

/// Content of the configuration file; `None` if there is no file.
pub type Configuration = Option<Vec<u8>>;

/// Which configuration sshd has read, which it was signalled to read, and which it refuses.
#[derive(Clone, Debug)]
pub struct Reload {
    read: Configuration,
    request: Option<Request>,
    refusal: Option<Refusal>,
}

#[derive(Clone, Debug)]
struct Refusal {
    configuration: Configuration,
    why: String,
    due: Instant,
}

#[derive(Clone, Debug)]
struct Request {
    configuration: Configuration,
    due: Instant,
    pause: Duration,
}

impl Reload {
    /// sshd has started with this configuration.
    #[must_use]
    pub fn new(read: Configuration) -> Self {
        Self {
            read,
            request: None,
            refusal: None,
        }
    }

    /// Whether to signal sshd now, when the file has this content.
    #[must_use]
    pub fn is_due(&self, configuration: &Configuration, now: Instant) -> bool {
        if let Some(refusal) = self.refusal_of(configuration) {
            return now >= refusal.due;
        }
        match &self.request {
            Some(request) => request.configuration != *configuration || now >= request.due,
            None => self.read != *configuration,
        }
    }

    /// Records that sshd was signalled to read this configuration.
    pub fn requested(&mut self, configuration: Configuration, now: Instant) {
        self.refusal = None;
        let before = self.request.take();
        let before = before.filter(|request| request.configuration == configuration);
        let pause = before.map_or(SIGNAL_BACKOFF, |request| {
            (request.pause * 2).min(MAX_SIGNAL_BACKOFF)
        });
        self.request = Some(Request {
            configuration,
            due: now + pause,
            pause,
        });
    }

    /// Records that sshd refuses this configuration and would end, so it keeps the one it has. Returns whether that is new.
    pub fn refused(&mut self, configuration: Configuration, why: String, now: Instant) -> bool {
        let before = self.refusal.replace(Refusal {
            configuration,
            why,
            due: now + REFUSED_CHECK_INTERVAL,
        });
        self.request = None;
        let same = |before: &Refusal, refusal: &Refusal| {
            (&before.configuration, &before.why) == (&refusal.configuration, &refusal.why)
        };
        !before
            .zip(self.refusal.as_ref())
            .is_some_and(|(before, refusal)| same(&before, refusal))
    }

    fn refusal_of(&self, configuration: &Configuration) -> Option<&Refusal> {
        let refusal = self.refusal.as_ref();
        refusal.filter(|refusal| refusal.configuration == *configuration)
    }

    /// The configuration that sshd has read, and why it refuses the one in the file.
    #[must_use]
    pub fn running(&self, configuration: &Configuration) -> Running {
        Running {
            running: self.read.as_deref().map(file_digest),
            failed: self.refusal_of(configuration).map(|refusal| refusal.why.clone()),
        }
    }

    /// Takes a line that sshd has written. Returns whether it answers the signal.
    pub fn observe(&mut self, line: &str) -> bool {
        if !line.starts_with(RELOAD_LOG_LINE) {
            return false;
        }
        if let Some(Request { configuration, .. }) = self.request.take() {
            self.read = configuration;
        }
        true
    }
}

/// Whether a process handles a signal, by its `/proc/PID/status`; otherwise the signal ends it or is lost.
#[must_use]
pub fn handles(status: &str, signal: Signal) -> bool {
    let mut lines = status.lines();
    let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal.as_raw() - 1).ok();
    caught
        .zip(bit.and_then(|bit| 1_u64.checked_shl(bit)))
        .is_some_and(|(caught, bit)| caught & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn sshd_is_signalled_until_it_reloads() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut reload = Reload::new(Some(bytes("a")));
        assert!(!reload.is_due(&Some(bytes("a")), begin));
        assert!(reload.is_due(&Some(bytes("b")), begin));
        reload.requested(Some(bytes("b")), begin);
        assert!(!reload.is_due(&Some(bytes("b")), at(1)));
        assert!(reload.is_due(&Some(bytes("b")), at(2)));
        reload.requested(Some(bytes("b")), at(2));
        assert!(!reload.is_due(&Some(bytes("b")), at(5)));
        assert!(reload.is_due(&Some(bytes("b")), at(6)));
        assert!(!reload.observe("Server listening on :: port 2222."));
        assert!(reload.is_due(&Some(bytes("b")), at(6)));
        assert!(reload.observe("Received SIGHUP; restarting."));
        assert!(!reload.is_due(&Some(bytes("b")), at(7)));
        // A change while sshd is asked does not wait.
        reload.requested(Some(bytes("c")), at(8));
        assert!(reload.is_due(&Some(bytes("d")), at(8)));
        let refused = |reload: &mut Reload, why: &str, seconds| {
            reload.refused(Some(bytes("d")), why.to_owned(), at(seconds))
        };
        assert!(refused(&mut reload, "no host key", 80));
        let running = reload.running(&Some(bytes("d")));
        assert_eq!(running.running, Some(file_digest(b"b")));
        assert_eq!(running.failed.as_deref(), Some("no host key"));
        assert_eq!(reload.running(&Some(bytes("b"))).failed, None);
        // What it names may be mended later.
        assert!(!reload.is_due(&Some(bytes("d")), at(89)));
        assert!(reload.is_due(&Some(bytes("d")), at(90)));
        assert!(!refused(&mut reload, "no host key", 90) && refused(&mut reload, "another reason", 90));
        assert!(!reload.is_due(&Some(bytes("d")), at(99)));
        assert!(reload.is_due(&Some(bytes("c")), at(90)));
        assert!(!reload.is_due(&Some(bytes("b")), at(100)));
        reload.requested(Some(bytes("d")), at(100));
        assert_eq!(reload.running(&Some(bytes("d"))).failed, None);
        assert!(reload.observe("Received SIGHUP; restarting."));
        assert_eq!(reload.running(&Some(bytes("d"))).running, Some(file_digest(b"d")));
    }

    #[test]
    fn a_signal_is_handled_when_its_bit_is_set() {
        let status = "Name:\tsshd\nSigIgn:\t0000000000000001\nSigCgt:\t0000000180014002\n";
        assert!(!handles(status, Signal::HUP));
        assert!(handles(&status.replace("4002", "4003"), Signal::HUP));
        assert!(handles(status, Signal::INT));
        assert!(!handles("", Signal::HUP));
    }
}
