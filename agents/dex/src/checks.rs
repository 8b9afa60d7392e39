//! Whether providers answer as their issuers, and directories take the account that searches. Each is checked for itself, beside the
//! reconciles and the other checks: one that does not answer delays none.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{
    HttpsUrl, SIPCluster,
    conditions::{
        Reason,
        auth::{CERTIFICATE_INVALID, DIRECTORY_REFUSES_BIND, DIRECTORY_UNREACHABLE, ISSUER_UNREACHABLE},
    },
};
use futures::{SinkExt as _, channel::mpsc, future::join_all};
use kube::runtime::reflector::ObjectRef;
use tokio::{
    sync::Notify,
    task::{Id, JoinSet},
    time,
};

use crate::{
    directory::{self, Bind},
    discovery, https,
};

/// Pause between two checks of a provider.
const PAUSE: Duration = Duration::from_secs(10);
/// Within this time a check is done.
const CHECK: Duration = Duration::from_secs(10);
/// How often is determined which providers are due.
const PACE: Duration = Duration::from_secs(1);
/// Providers that are checked concurrently.
const AT_ONCE: usize = 32;
/// Providers of one namespace that are checked concurrently.
const OF_NAMESPACE: usize = 4;
/// A provider that no pass names for this time is not checked any longer.
const LASTING: Duration = Duration::from_mins(2);

/// A provider: there may be another of its name later, of another cluster.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// The uid of its cluster.
    pub uid: String,
    /// Its name.
    pub name: String,
}

/// What is checked of a provider.
#[derive(Clone, Eq, PartialEq)]
pub struct Target {
    /// Who it is.
    pub issuer: HttpsUrl,
    /// Where it is, if its name is not to be resolved.
    pub at: Option<SocketAddr>,
    /// CA certificates (PEM) that its certificate must chain to.
    pub bundle: String,
    /// Its directories.
    pub binds: Vec<Bind>,
}

/// What a check has found: nothing, or why the provider does not work.
pub type Found = Result<(), (Reason, String)>;

/// What a pass would have checked, once the provider is applied.
struct Proposed {
    cluster: ObjectRef<SIPCluster>,
    target: Arc<Target>,
    at: Instant,
}

/// A provider, and what the last check of it has found.
struct Checked {
    cluster: ObjectRef<SIPCluster>,
    target: Arc<Target>,
    found: Option<Found>,
    /// When a pass named it last.
    named: Instant,
    /// When it is checked next.
    due: Instant,
}

#[derive(Default)]
struct Providers {
    proposed: BTreeMap<Key, Proposed>,
    checked: BTreeMap<Key, Checked>,
}

/// What is known of all providers. Cheap to clone.
#[derive(Clone, Default)]
pub struct Checks {
    providers: Arc<Mutex<Providers>>,
    changed: Arc<Notify>,
}

type Running = HashMap<Id, (Key, Arc<Target>)>;

impl Checks {
    /// A pass is about to apply a provider. Nothing is checked before [`Self::confirm`].
    pub fn propose(&self, key: Key, cluster: ObjectRef<SIPCluster>, target: Target) {
        let proposed = Proposed {
            cluster,
            target: Arc::new(target),
            at: Instant::now(),
        };
        self.providers().proposed.insert(key, proposed);
    }

    /// A provider is applied: from now on what was proposed last is checked, at once if it is not what was checked before.
    pub fn confirm(&self, key: &Key) {
        let mut providers = self.providers();
        let Some(Proposed {
            cluster,
            target,
            at: _,
        }) = providers.proposed.remove(key)
        else {
            return;
        };
        let now = Instant::now();
        let before = providers.checked.remove(key);
        let same = before.as_ref().is_some_and(|before| before.target == target);
        // What was found of the issuer stays until the next result, so that a renewed certificate is no outage.
        let kept = before.filter(|before| before.target.issuer == target.issuer);
        let due = kept.as_ref().filter(|_| same).map_or(now, |before| before.due);
        let checked = Checked {
            cluster,
            target,
            found: kept.and_then(|before| before.found),
            named: now,
            due,
        };
        providers.checked.insert(key.clone(), checked);
        if !same {
            self.changed.notify_one();
        }
    }

    /// What the last check of a provider has found; `None`: it was not checked yet.
    #[must_use]
    pub fn found(&self, key: &Key) -> Option<Found> {
        self.providers().checked.get(key)?.found.clone()
    }

    /// A provider is deleted.
    pub fn forget(&self, namespace: &str, name: &str) {
        let other = |key: &Key| key.namespace != namespace || key.name != name;
        let mut providers = self.providers();
        providers.proposed.retain(|key, _| other(key));
        providers.checked.retain(|key, _| other(key));
    }

    /// Checks all without end, and triggers a pass over a cluster as soon as something has changed. Ends with the receiver.
    ///
    /// # Errors
    /// None.
    pub async fn run(self, triggers: mpsc::Sender<ObjectRef<SIPCluster>>) -> Result<(), Infallible> {
        self.run_by(
            triggers,
            |target: Arc<Target>| async move { check(&target).await },
        )
        .await
    }

    async fn run_by<F, Checking>(
        self,
        mut triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
        check: F,
    ) -> Result<(), Infallible>
    where
        F: Fn(Arc<Target>) -> Checking,
        Checking: Future<Output = Found> + Send + 'static,
    {
        let mut tasks: JoinSet<Found> = JoinSet::new();
        let mut running = Running::new();
        loop {
            for (key, target) in self.due(Instant::now(), &running) {
                let checking = time::timeout(CHECK, check(Arc::clone(&target)));
                let task = tasks.spawn(async move {
                    checking.await.unwrap_or_else(|_| {
                        let why = format!("the check was not done within {} s", CHECK.as_secs());
                        Err((ISSUER_UNREACHABLE, why))
                    })
                });
                running.insert(task.id(), (key, target));
            }
            let (id, found) = tokio::select! {
                Some(done) = tasks.join_next_with_id() => match done {
                    Ok(done) => done,
                    Err(error) => {
                        tracing::error!(%error, "the check of an identity provider failed");
                        (error.id(), Err((ISSUER_UNREACHABLE, "the check failed in the agent".to_owned())))
                    }
                },
                () = time::sleep(PACE) => continue,
                () = self.changed.notified() => continue,
            };
            let Some((key, target)) = running.remove(&id) else {
                continue;
            };
            if let Some(cluster) = self.store(&key, &target, found)
                // A full queue is emptied by the controller; a closed one ends with the process.
                && triggers.send(cluster).await.is_err()
            {
                return Ok(());
            }
        }
    }

    /// The providers whose check can begin now, those first that wait longest.
    fn due(&self, now: Instant, running: &Running) -> Vec<(Key, Arc<Target>)> {
        let mut providers = self.providers();
        let lasts = |since: Instant| now.saturating_duration_since(since) < LASTING;
        providers.proposed.retain(|_, proposed| lasts(proposed.at));
        providers.checked.retain(|_, checked| lasts(checked.named));
        let waits = |key: &Key| !running.values().any(|(other, _)| other == key);
        let mut due: Vec<_> = providers.checked.iter().collect();
        due.retain(|(key, checked)| checked.due <= now && waits(key));
        due.sort_by_key(|(_, checked)| checked.due);
        let mut of_namespace: BTreeMap<String, usize> = BTreeMap::new();
        for (key, _) in running.values() {
            *of_namespace.entry(key.namespace.clone()).or_default() += 1;
        }
        due.into_iter()
            .filter(|(key, _)| {
                let count = of_namespace.entry(key.namespace.clone()).or_default();
                *count += 1;
                *count <= OF_NAMESPACE
            })
            .take(AT_ONCE.saturating_sub(running.len()))
            .map(|(key, checked)| (key.clone(), Arc::clone(&checked.target)))
            .collect()
    }

    /// Keeps the result of a check; returns the cluster if it differs from the last one.
    fn store(&self, key: &Key, target: &Arc<Target>, found: Found) -> Option<ObjectRef<SIPCluster>> {
        let mut providers = self.providers();
        let checked = providers.checked.get_mut(key)?;
        // Of another target the result tells nothing; that one is due already.
        if checked.target != *target {
            return None;
        }
        checked.due = Instant::now() + PAUSE;
        let found = Some(found);
        if checked.found == found {
            return None;
        }
        checked.found = found;
        Some(checked.cluster.clone())
    }

    fn providers(&self) -> MutexGuard<'_, Providers> {
        self.providers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks one provider and its directories concurrently. A directory's fault comes first, since nobody can log in without it.
///
/// # Errors
/// Why it does not work.
pub async fn check(target: &Target) -> Found {
    let Target {
        issuer,
        at,
        bundle,
        binds,
    } = target;
    let answers = async {
        let tls = https::trusting(bundle).map_err(|error| (CERTIFICATE_INVALID, error.to_string()))?;
        discovery::check(issuer, &tls, *at)
            .await
            .map_err(|error| (ISSUER_UNREACHABLE, format!("{issuer}: {error}")))
    };
    let (bound, answers) = tokio::join!(join_all(binds.iter().map(Bind::check)), answers);
    for bound in bound {
        bound.map_err(|error| {
            let reason = match &error {
                directory::Error::Unreachable { .. } => DIRECTORY_UNREACHABLE,
                directory::Error::Refused { .. } => DIRECTORY_REFUSES_BIND,
            };
            (reason, error.to_string())
        })?;
    }
    answers
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key {
            namespace: namespace.to_owned(),
            uid: format!("uid-{name}"),
            name: name.to_owned(),
        }
    }

    fn target(host: &str, bundle: &str) -> Target {
        Target {
            issuer: HttpsUrl::of(host, 443, "/dex").unwrap(),
            at: None,
            bundle: bundle.to_owned(),
            binds: Vec::new(),
        }
    }

    fn applied(checks: &Checks, key: &Key, target: Target) {
        let cluster = ObjectRef::new(&key.name).within(&key.namespace);
        checks.propose(key.clone(), cluster, target);
        checks.confirm(key);
    }

    #[tokio::test]
    async fn one_that_hangs_or_panics_delays_no_other() {
        let checks = Checks::default();
        for host in ["hangs", "panics", "works"] {
            applied(&checks, &key("tenants", host), target(host, "CA"));
        }
        let (sender, mut receiver) = mpsc::channel(8);
        let check = |target: Arc<Target>| async move {
            match target.issuer.host() {
                "hangs" => std::future::pending().await,
                "panics" => panic!("by a hostile answer"),
                _ => Ok(()),
            }
        };
        let running = tokio::spawn(checks.clone().run_by(sender, check));
        for _ in 0..2 {
            receiver.next().await.unwrap();
        }
        assert_eq!(checks.found(&key("tenants", "works")), Some(Ok(())));
        let failed = checks.found(&key("tenants", "panics")).unwrap().unwrap_err();
        assert_eq!(failed.0, ISSUER_UNREACHABLE);
        assert_eq!(checks.found(&key("tenants", "hangs")), None);
        assert!(!running.is_finished());
        running.abort();
    }

    #[test]
    fn a_namespace_has_a_share_of_the_checks() {
        let checks = Checks::default();
        for number in 0..10 {
            applied(&checks, &key("greedy", &format!("a{number}")), target("a", "CA"));
        }
        applied(&checks, &key("modest", "b"), target("b", "CA"));
        let due = checks.due(Instant::now(), &Running::new());
        let of = |namespace: &str| due.iter().filter(|(key, _)| key.namespace == namespace).count();
        assert_eq!((of("greedy"), of("modest")), (OF_NAMESPACE, 1));
    }

    #[test]
    fn what_was_found_stays_while_the_issuer_does() {
        let checks = Checks::default();
        let key = key("tenants", "shop");
        applied(&checks, &key, target("sso", "CA"));
        assert_eq!(checks.found(&key), None);
        let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
        assert!(checks.store(&key, &first, Ok(())).is_some());
        assert!(checks.due(Instant::now(), &Running::new()).is_empty());

        applied(&checks, &key, target("sso", "next CA"));
        assert_eq!(checks.found(&key), Some(Ok(())));
        assert_eq!(checks.due(Instant::now(), &Running::new()).len(), 1);
        // A late result of what was checked before tells nothing.
        let late = Err((ISSUER_UNREACHABLE, "late".to_owned()));
        assert!(checks.store(&key, &first, late).is_none());
        assert_eq!(checks.found(&key), Some(Ok(())));

        applied(&checks, &key, target("other", "next CA"));
        assert_eq!(checks.found(&key), None);
    }

    #[test]
    fn only_what_is_applied_and_named_again_is_checked() {
        let checks = Checks::default();
        let (shop, heir) = (
            key("tenants", "shop"),
            Key {
                uid: "heir".to_owned(),
                ..key("tenants", "shop")
            },
        );
        let cluster = ObjectRef::new("shop").within("tenants");
        checks.propose(shop.clone(), cluster, target("sso", "CA"));
        assert!(checks.due(Instant::now(), &Running::new()).is_empty());
        checks.confirm(&shop);
        let (_, first) = checks.due(Instant::now(), &Running::new()).remove(0);
        checks.store(&shop, &first, Ok(()));
        assert_eq!(checks.found(&heir), None);
        checks.due(Instant::now() + LASTING, &Running::new());
        assert_eq!(checks.found(&shop), None);
        applied(&checks, &heir, target("sso", "CA"));
        checks.forget("tenants", "shop");
        assert!(checks.due(Instant::now(), &Running::new()).is_empty());
    }
}
