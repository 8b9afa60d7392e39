//! Cluster API's provider for metal3, played: it looks for hosts by their labels, as it does, and finds exactly ours.
//!
//! What it does, and what of it is played here, is in `docs/assumptions.md`.

use std::{collections::BTreeSet, time::Duration};

use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use sandbox::sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use crate::fixtures::{
    Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back, held, members, on_shared_site, set_consumer,
};

const API_VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// One `Metal3Machine` that wants a host.
struct Machine {
    namespace: String,
    name: String,
    /// `spec.hostSelector.matchLabels`.
    selector: String,
}

impl Machine {
    fn of(cluster: &Cluster, role: Role, index: usize) -> Self {
        let (Cluster { namespace, name, .. }, role) = (cluster, role.name());
        Self {
            namespace: "metal".to_owned(),
            name: format!("{name}-{}-{index}", role.to_lowercase()),
            selector: format!("{CLUSTER_NAMESPACE}={namespace},{CLUSTER_NAME}={name},{NODE_TYPE}={role}"),
        }
    }

    fn reference(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "Metal3Machine", "namespace": self.namespace, "name": self.name})
    }

    /// One look: the host that it has by then.
    async fn look(&self, hosts: &Api<DynamicObject>) -> Option<String> {
        let selected = ListParams::default().labels(&self.selector);
        let found = hosts.list(&selected).await.unwrap().items;
        let consumer = |host: &DynamicObject| host.data["spec"]["consumerRef"].clone();
        if let Some(own) = found.iter().find(|host| consumer(host) == self.reference()) {
            return Some(own.name_any());
        }
        let free: Vec<DynamicObject> = found
            .into_iter()
            .filter(|host| consumer(host).is_null() && host.metadata.deletion_timestamp.is_none())
            .filter(|host| {
                host.data["status"]["errorMessage"]
                    .as_str()
                    .is_none_or(str::is_empty)
            })
            .filter(|host| {
                ["baremetalhost.metal3.io/paused", "capm3.metal3.io/unhealthy"]
                    .iter()
                    .all(|key| !host.annotations().contains_key(*key))
            })
            .filter(|host| {
                let state = host.data["status"]["provisioning"]["state"].as_str();
                state.is_some_and(|state| ["ready", "available"].contains(&state))
            })
            .collect();
        // It takes any of them; two machines that take one host meet at the resourceVersion.
        let mut chosen = free.into_iter().last()?;
        chosen.data["spec"]["consumerRef"] = self.reference();
        let name = chosen.name_any();
        match hosts.replace(&name, &PostParams::default(), &chosen).await {
            Ok(_) => Some(name),
            Err(kube::Error::Api(status)) if status.is_conflict() => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Everybody looks again and again, until as many have a host as there are hosts for them.
async fn all_look(stage: &Stage, machines: &[Machine], wanted: usize) -> Vec<Option<String>> {
    let (hosts, begun) = (stage.hosts(), Instant::now());
    let mut pace = interval(Duration::from_millis(50));
    loop {
        pace.tick().await;
        let looks = machines.iter().map(|machine| machine.look(&hosts));
        let found = futures::future::join_all(looks).await;
        if found.iter().flatten().count() >= wanted {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
    }
}

#[test]
fn machines_that_look_for_their_hosts_from_the_beginning_find_exactly_those_of_their_cluster_and_role() {
    on_shared_site("capm3", async |stage| {
        stage.load(&fleet("capm3", 4, 2, 2)).await;
        let clusters = [("one", 30_630), ("two", 30_635)].map(|(name, port)| {
            cluster("capm3", name)
                .role(Role::ControlPlane, 3)
                .role(Role::Worker, 2)
                .balanced(port)
        });
        // One machine more than there are hosts, in each role: it must not find one.
        let machines: Vec<Machine> = clusters
            .iter()
            .flat_map(|cluster| {
                let of = |role, count| (0..=count).map(move |index| Machine::of(cluster, role, index));
                of(Role::ControlPlane, 3).chain(of(Role::Worker, 2))
            })
            .collect();
        for one in &clusters {
            stage.create(one).await;
        }
        all_look(stage, &machines, 10).await;
        let mut placed = BTreeSet::new();
        for one in &clusters {
            let ready = stage.ready(one).await;
            let labelled = stage.labelled("capm3", one).await;
            assert_eq!(held(&members(&ready)), labelled);
            placed.extend(
                labelled
                    .into_iter()
                    .map(|(host, role)| (host, one.name.clone(), role)),
            );
        }
        let found: Vec<(String, &Machine)> = all_look(stage, &machines, 10)
            .await
            .into_iter()
            .zip(&machines)
            .filter_map(|(host, machine)| Some((host?, machine)))
            .collect();
        assert_eq!(found.len(), 10, "as many as there are hosts, and no more");
        let taken: BTreeSet<&str> = found.iter().map(|(host, _)| &**host).collect();
        assert_eq!(taken, placed.iter().map(|(host, ..)| &**host).collect());
        for (host, machine) in &found {
            let (_, cluster, role) = placed.iter().find(|(placed, ..)| placed == host).unwrap();
            assert!(
                machine
                    .selector
                    .ends_with(&format!("{CLUSTER_NAME}={cluster},{NODE_TYPE}={role}"))
            );
        }
        for host in stage.hosts_of("capm3").await {
            let used = host.data["spec"]
                .get("consumerRef")
                .is_some_and(|consumer| !consumer.is_null());
            assert_eq!(used, taken.contains(&*host.name_any()), "{:?}", host.metadata);
        }

        // The cluster is deleted: its hosts go back one by one, when their machines let them go.
        stage.delete(&clusters[0]).await;
        for (host, machine) in &found {
            if machine.name.starts_with("one-") {
                set_consumer(stage, host, Value::Null).await;
            }
        }
        stage.gone(&clusters[0]).await;
        for host in stage.hosts_of("capm3").await {
            let of_the_other = placed
                .iter()
                .any(|(name, of, _)| *name == host.name_any() && of == "two");
            let of_the_one = placed
                .iter()
                .any(|(name, of, _)| *name == host.name_any() && of == "one");
            assert_eq!(
                given_back(&host),
                of_the_one && !of_the_other,
                "{:?}",
                host.metadata
            );
        }
    });
}
