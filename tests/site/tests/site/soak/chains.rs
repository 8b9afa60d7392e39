//! Members that are moved one after the other, while programs are killed and the ledger is lost: none is given up before another host
//! has its labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, ResourceExt as _,
    api::DynamicObject,
    runtime::watcher::{self, Event},
};
use sandbox::sip_clusters::{NODE_TYPE, holder};
use tokio::{sync::oneshot, task::JoinSet, time::sleep};

use crate::fixtures::sip_labels;

/// A cluster as `NAMESPACE/NAME`, and a role.
pub(super) type Nodes = (String, String);

/// How many hosts each role of each cluster has to have.
pub(super) type Wanted = BTreeMap<Nodes, usize>;

/// What an API server's watch shows of members from one moment on. It watches until it is dropped.
pub(super) struct Members {
    seen: Arc<Mutex<Seen>>,
    _watching: JoinSet<()>,
}

struct Seen {
    wanted: Wanted,
    /// The hosts that have labels now, by name.
    labelled: BTreeMap<String, Nodes>,
    /// Hosts whose labels went, in order.
    left: Vec<String>,
    broken: Vec<String>,
}

impl Members {
    /// From when the hosts that there are have been read.
    pub(super) async fn watch(hosts: Api<DynamicObject>, wanted: Wanted) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            wanted,
            labelled: BTreeMap::new(),
            left: Vec::new(),
            broken: Vec::new(),
        }));
        let (read, is_read) = oneshot::channel();
        let mut watching = JoinSet::new();
        watching.spawn(follow(hosts, Arc::clone(&seen), read));
        is_read.await.unwrap();
        Self {
            seen,
            _watching: watching,
        }
    }

    /// Which hosts have labels now.
    pub(super) fn labelled(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().labelled.keys().cloned().collect()
    }

    /// Which hosts gave their labels up, and where a role had fewer hosts than wanted.
    pub(super) fn found(&self) -> (Vec<String>, Vec<String>) {
        let seen = self.seen.lock().unwrap();
        (seen.left.clone(), seen.broken.clone())
    }
}

async fn follow(hosts: Api<DynamicObject>, seen: Arc<Mutex<Seen>>, read: oneshot::Sender<()>) {
    let mut read = Some(read);
    let mut events = pin!(watcher::watcher(hosts, watcher::Config::default()));
    let mut listed: BTreeMap<String, Nodes> = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(host)) => {
                listed.extend(nodes(&host).map(|of| (host.name_any(), of)));
            }
            Ok(Event::InitDone) => {
                seen.lock().unwrap().labelled = std::mem::take(&mut listed);
                if let Some(read) = read.take() {
                    let _ = read.send(());
                }
            }
            Ok(Event::Apply(host)) => seen.lock().unwrap().host(&host.name_any(), nodes(&host)),
            Ok(Event::Delete(host)) => seen.lock().unwrap().host(&host.name_any(), None),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

fn nodes(host: &DynamicObject) -> Option<Nodes> {
    let (cluster, _) = holder(host).filter(|_| sip_labels(host).len() == 3)?;
    Some((cluster, host.labels()[NODE_TYPE].clone()))
}

impl Seen {
    fn host(&mut self, name: &str, of: Option<Nodes>) {
        let before = match of {
            Some(of) => self.labelled.insert(name.to_owned(), of),
            None => self.labelled.remove(name),
        };
        let Some(before) = before.filter(|before| self.labelled.get(name) != Some(before)) else {
            return;
        };
        self.left.push(name.to_owned());
        let has = self.labelled.values().filter(|of| **of == before).count();
        if self.wanted.get(&before).is_some_and(|wanted| has < *wanted) {
            let (cluster, role) = before;
            self.broken.push(format!(
                "{cluster} has {has} hosts as {role} once {name} is released"
            ));
        }
    }
}
