//! People who log in all the time, each over connections of their own.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sandbox::{
    login::{Login, Provider, REDIRECT},
    slapd::Person,
};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{self, MissedTickBehavior},
};

use super::CLIENT;
use crate::fixtures::PATIENCE;

/// A login that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(30);

/// People of a directory, by their numbers: all of them administrators.
#[derive(Clone)]
pub(super) struct People(Arc<Vec<(String, String)>>);

impl People {
    pub(super) fn new(count: usize) -> Self {
        let named = |number: usize| (format!("person-{number}"), format!("password of {number}"));
        Self(Arc::new((0..count).map(named).collect()))
    }

    /// Name and password of one.
    pub(super) fn names(&self, number: usize) -> (String, String) {
        self.0[number].clone()
    }

    /// As the directory is to have them.
    pub(super) fn all(&self) -> Vec<Person<'_>> {
        let people = self.0.iter();
        people
            .map(|(uid, password)| Person {
                uid,
                password,
                groups: &["admins"],
            })
            .collect()
    }
}

/// A login that failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// When it failed, since the load began.
    pub(super) at: Duration,
    pub(super) why: String,
}

#[derive(Default)]
struct Seen {
    logins: AtomicU64,
    slowest: Mutex<Duration>,
    failed: Mutex<Vec<Failed>>,
}

/// Logins that go on until they are ended.
pub(super) struct Load {
    began: Instant,
    /// Logins a second with fewer of which nothing is shown.
    least: f64,
    seen: Arc<Seen>,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Load {
    /// Begins with so many logins a second, by all people but the first. Nobody logs in twice at a time, since Dex keeps one session of a
    /// person with a client. `least`: with fewer a second the test shows nothing.
    pub(super) fn start(provider: &Provider, people: &People, per_second: u32, least: f64) -> Self {
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(run(
            provider.clone(),
            people.clone(),
            per_second,
            (Arc::clone(&seen), stopped),
        ));
        Self {
            began: Instant::now(),
            least,
            seen,
            stop,
            running,
        }
    }

    /// Prints what there was until now.
    pub(super) fn report(&self, what: &str) {
        let (logins, elapsed) = (self.seen.logins.load(Ordering::Relaxed), self.began.elapsed());
        println!(
            "{what}: {logins} logins in {:.0} s, {:.1} a second, {} failed, the slowest {:?}",
            elapsed.as_secs_f64(),
            f64::from(u32::try_from(logins).unwrap()) / elapsed.as_secs_f64(),
            self.seen.failed.lock().unwrap().len(),
            self.seen.slowest.lock().unwrap(),
        );
    }

    /// How long it has gone on.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until so many more have logged in.
    pub(super) async fn go_on(&self, logins: u64) {
        let enough = self.seen.logins.load(Ordering::Relaxed) + logins;
        let more = async {
            let mut pace = time::interval(Duration::from_millis(50));
            while self.seen.logins.load(Ordering::Relaxed) < enough {
                pace.tick().await;
            }
        };
        time::timeout(PATIENCE, more).await.unwrap();
    }

    /// Ends, and returns the logins that failed.
    pub(super) async fn end(self) -> Vec<Failed> {
        self.stop.send(true).unwrap();
        self.running.await.unwrap();
        let logins = u32::try_from(self.seen.logins.load(Ordering::Relaxed)).unwrap();
        let per_second = f64::from(logins) / self.began.elapsed().as_secs_f64();
        assert!(
            per_second >= self.least,
            "{per_second:.1} logins a second: fewer than {:.1} show nothing",
            self.least
        );
        std::mem::take(&mut *self.seen.failed.lock().unwrap())
    }
}

async fn run(
    provider: Provider,
    people: People,
    per_second: u32,
    (seen, mut stopped): (Arc<Seen>, watch::Receiver<bool>),
) {
    let count = people.0.len();
    let (free, mut waiting) = mpsc::channel(count);
    for number in 1..count {
        free.try_send(number).unwrap();
    }
    let began = Instant::now();
    // Logins that are late start at once, so that the average rate is kept.
    let mut pace = time::interval(Duration::from_secs(1) / per_second);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = tokio::task::JoinSet::new();
    loop {
        let number = tokio::select! {
            _ = stopped.changed() => break,
            number = async { pace.tick().await; waiting.recv().await } => number.unwrap(),
        };
        let (provider, people) = (provider.clone(), people.clone());
        let (seen, free) = (Arc::clone(&seen), free.clone());
        running.spawn(async move {
            let (name, password) = people.names(number);
            let since = Instant::now();
            let outcome = time::timeout(LONGEST, log_in(&provider, &name, &password)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(format!("not done after {LONGEST:?}")));
            match outcome {
                Ok(()) => {
                    seen.logins.fetch_add(1, Ordering::Relaxed);
                    let mut slowest = seen.slowest.lock().unwrap();
                    *slowest = since.elapsed().max(*slowest);
                }
                Err(why) => {
                    let failed = Failed {
                        at: began.elapsed(),
                        why: format!("after {:?}: {why}", since.elapsed()),
                    };
                    seen.failed.lock().unwrap().push(failed);
                }
            }
            // The receiver is gone once the load ends.
            let _ = free.send(number).await;
        });
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}

async fn log_in(provider: &Provider, name: &str, password: &str) -> Result<(), String> {
    let provider = provider.anew().map_err(|error| error.to_string())?;
    let login = provider.log_in(CLIENT, (REDIRECT, &[]), (name, password)).await;
    let code = match login.map_err(|error| error.to_string())? {
        Login::Code(code) => code,
        other => return Err(format!("{other:?}")),
    };
    let token = provider.redeem(CLIENT, REDIRECT, &code, &[]).await;
    let token = token.map_err(|error| error.to_string())??;
    let email = format!("{name}@example.org");
    if token.claims["email"] != email || token.claims["groups"] != json!(["admins"]) {
        return Err(format!("a token of another: {}", token.claims));
    }
    Ok(())
}
