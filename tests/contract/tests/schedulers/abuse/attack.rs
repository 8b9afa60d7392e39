//! What all attackers share: whom they attack, until when, and what they were answered.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::{SeedableRng as _, rngs::StdRng};
use sandbox::authority::Caller;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::pki::Pki;

/// How long an attacker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an attacker keeps a connection at least. Together they connect more slowly than an identity, a site and an address may: the clients that
/// are measured have the same address.
pub(crate) const CONNECTED: Duration = Duration::from_secs(3);

/// The attack on one scheduler.
pub(crate) struct Attack {
    /// Host and port of the gRPC port, and of the health port.
    pub(crate) address: String,
    pub(crate) health: String,
    pub(crate) pki: Arc<Pki>,
    /// Sites that must not notice.
    pub(crate) victims: Vec<String>,
    pub(crate) stop: CancellationToken,
    pub(crate) seed: u64,
    answers: Mutex<Answers>,
}

/// How often each answer came, and how often each identity was denied.
#[derive(Default)]
struct Answers {
    codes: BTreeMap<(&'static str, String), u64>,
    denied: BTreeMap<String, u64>,
}

impl Attack {
    pub(crate) fn new(
        address: String,
        health: String,
        pki: Arc<Pki>,
        victims: Vec<String>,
        seed: u64,
    ) -> Self {
        Self {
            address,
            health,
            pki,
            victims,
            stop: CancellationToken::new(),
            seed,
            answers: Mutex::default(),
        }
    }

    /// What is random of one attacker.
    pub(crate) fn rng(&self, who: &str, number: usize) -> StdRng {
        let salt = who
            .bytes()
            .fold(self.seed, |salt, byte| salt.wrapping_mul(31) ^ u64::from(byte));
        StdRng::seed_from_u64(salt.wrapping_mul(1009) ^ u64::try_from(number).unwrap())
    }

    /// A connection of its own.
    pub(crate) fn channel(&self, caller: &Caller<'_>) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect_with_connector_lazy(self.pki.connector(caller))
    }

    /// Makes a call, and keeps how it was answered.
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        who: &Caller<'_>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let (code, answer) = match answer {
            Ok(Ok(answer)) => (Code::Ok, Some(answer)),
            Ok(Err(status)) => (status.code(), None),
            Err(_) => (Code::DeadlineExceeded, None),
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.codes.entry((what, format!("{code:?}"))).or_default() += 1;
        if code == Code::PermissionDenied {
            *answers.denied.entry(who.to_string()).or_default() += 1;
        }
        answer
    }

    /// Counts something that is not a call.
    pub(crate) fn count(&self, what: &'static str, outcome: &str) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.codes.entry((what, outcome.to_owned())).or_default() += 1;
    }

    /// How often something had that outcome.
    pub(crate) fn counted(&self, what: &'static str, outcome: &str) -> u64 {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = answers.codes.get(&(what, outcome.to_owned()));
        count.copied().unwrap_or_default()
    }

    /// How often each identity was denied.
    pub(crate) fn denied(&self) -> BTreeMap<String, u64> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.denied.clone()
    }

    /// What came of it all, for people.
    pub(crate) fn summary(&self) -> String {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let mut last = "";
        for ((what, outcome), count) in &answers.codes {
            let separator = if *what == last { ", " } else { "\n  " };
            let title = if *what == last {
                String::new()
            } else {
                format!("{what}: ")
            };
            write!(text, "{separator}{title}{outcome} {count}").unwrap();
            last = what;
        }
        text
    }
}
