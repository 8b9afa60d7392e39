//! The example of a region with two sites, as far as one cluster can show it: three schedulers on an etcd cluster with certificates on
//! both sides, and the agents of `site-a`, all as pods. The one that leads is killed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use sandbox::{
    authority::{Authority, Caller, Identity},
    installation::{Names, Target, describe_pods},
    node,
    process::{Process, Program},
    repository,
    site::Site,
    tools,
};

use super::{
    desk::{Desk, furnished},
    manifests::FOREIGN,
};
use crate::fixtures::PATIENCE;

/// As `SIP_LEDGER_ETCD` of the example names them.
pub(super) const MEMBERS: [&str; 3] = [
    "etcd-0.etcd.example",
    "etcd-1.etcd.example",
    "etcd-2.etcd.example",
];

/// An etcd cluster beside the node, one member on each of three machines.
pub(super) struct Etcd {
    _members: Vec<Process>,
    client: Identity,
}

impl Etcd {
    pub(super) fn start(site: &Site) -> Self {
        let authority = Authority::new(&site.directory().join("etcd-pki"), "etcd").unwrap();
        let machines = site.node().unwrap().machines();
        let peers = MEMBERS
            .iter()
            .zip(machines)
            .map(|(name, address)| format!("{name}=http://{address}:2380"));
        let peers = peers.collect::<Vec<_>>().join(",");
        let members = MEMBERS.iter().zip(machines).map(|(name, address)| {
            let identity = authority.issue_server(&Caller::Operator(name), &[name]).unwrap();
            let program = Program::new(name, tools::path("etcd").unwrap())
                .flag("--name", name)
                .flag("--data-dir", site.directory().join(name))
                .flag("--listen-client-urls", format!("https://{address}:2379"))
                .flag("--advertise-client-urls", format!("https://{name}:2379"))
                .flag("--listen-peer-urls", format!("http://{address}:2380"))
                .flag("--initial-advertise-peer-urls", format!("http://{address}:2380"))
                .flag("--initial-cluster", &peers)
                .flag("--cert-file", &identity.certificate)
                .flag("--key-file", &identity.key)
                .flag("--trusted-ca-file", &identity.authority)
                .arg("--client-cert-auth")
                .arg("--unsafe-no-fsync")
                .flag("--log-level", "warn");
            site.spawn(program).unwrap()
        });
        Self {
            _members: members.collect(),
            client: authority.issue(&Caller::Scheduler).unwrap(),
        }
    }

    /// The Secret that schedulers reach it by.
    pub(super) fn secret(&self) -> String {
        let Identity {
            uri: _,
            certificate,
            key,
            authority,
        } = &self.client;
        format!(
            "kubectl -n sip-system create secret generic sip-etcd-tls --from-file=ca.crt={} \\
               --from-file=tls.crt={} --from-file=tls.key={}",
            authority.display(),
            certificate.display(),
            key.display()
        )
    }
}

/// What comes before the scheduler and the agents of `site-a`.
pub(super) const PREPARATIONS: &str = "
for archive in target/images/*.tar; do ctr --namespace k8s.io images import \"$archive\"; done
kubectl apply -k deploy/crd
kubectl apply -k deploy/namespace
sipctl certs init pki --trust-domain sip.example --region north
sipctl certs site pki site-a
kubectl -n sip-system create configmap sip-region-authority --from-file=pki/region.crt
kubectl -n sip-system create configmap sip-site-authorities --from-file=pki/sites
kubectl -n sip-system create configmap sip-denied --from-file=pki/denied
issue() {
  sipctl certs issue pki \"$1\"
  file=pki/issued/$(printf %s \"$1\" | tr / _)
  kubectl -n sip-system create secret tls \"$2\" --cert=\"$file.crt\" --key=\"$file.key\"
}
issue scheduler sip-scheduler-tls
issue site/site-a/agent/cluster sip-cluster-agent-tls
issue site/site-a/agent/load-balancer sip-load-balancer-agent-tls
sipctl certs issue pki site/site-a/agent/jump-host --dns sip-jump-host-agent-power.sip-system.svc
kubectl -n sip-system create secret generic sip-jump-host-agent-tls --from-file=ca.crt=pki/sites/site-a.crt \\
  --from-file=tls.crt=pki/issued/site_site-a_agent_jump-host.crt \\
  --from-file=tls.key=pki/issued/site_site-a_agent_jump-host.key";

const SITE: &str = "
kubectl apply -k deploy/examples/region-with-two-sites/site-a
kubectl -n sip-system rollout status deployment/sip-cluster-agent --timeout=3m
kubectl -n sip-system rollout status deployment/sip-load-balancer-agent --timeout=3m
kubectl -n sip-system rollout status deployment/sip-jump-host-agent --timeout=3m
kubectl apply -k deploy/examples/tenant
kubectl -n shop wait sipcluster/orders --for=condition=Ready --timeout=3m";

/// Runs commands that must succeed. Returns what they print.
pub(super) async fn run(desk: &Desk, site: &Site, script: &str) -> String {
    match tokio::task::block_in_place(|| desk.run(script, site)) {
        Ok(printed) => printed,
        Err(printed) => panic!("{script}\n{printed}\n{}", describe_pods(site).await.unwrap()),
    }
}

/// Waits until three schedulers run and one of them, that is none of these, is ready.
pub(super) async fn leader(site: &Site, but: &BTreeSet<String>) -> Pod {
    let api: Api<Pod> = Api::namespaced(site.client(), "sip-system");
    let selected = ListParams::default().labels("app.kubernetes.io/name=sip-scheduler");
    let started = Instant::now();
    loop {
        let all = api.list(&selected).await.unwrap().items;
        let ready: Vec<&Pod> = all.iter().filter(|pod| is(pod, "Ready")).collect();
        if let ([leader], 3) = (&ready[..], all.len())
            && !but.contains(&leader.uid().unwrap())
        {
            return (*leader).clone();
        }
        assert!(
            ready.len() < 2 || started.elapsed() < PATIENCE,
            "several are ready"
        );
        assert!(
            started.elapsed() < PATIENCE,
            "no leader\n{}",
            describe_pods(site).await.unwrap()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn is(pod: &Pod, condition: &str) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one.type_ == condition && one.status == "True")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn three_schedulers_on_etcd_survive_their_leader() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let desk = Desk::new();
    let site = furnished(
        "install-region",
        vec![repository::root().join(FOREIGN)],
        Vec::new(),
    )
    .await;
    let machines = site.node().unwrap().machines();
    let outside = MEMBERS.into_iter().zip(machines.map(Target::Address));
    let scheduler = (
        "scheduler.north.example",
        Target::Service("sip-scheduler", "sip-system"),
    );
    let _names = Names::serve(&site, outside.chain([scheduler]).collect())
        .await
        .unwrap();
    let etcd = Etcd::start(&site);
    run(&desk, &site, PREPARATIONS).await;
    run(&desk, &site, &etcd.secret()).await;

    run(
        &desk,
        &site,
        "kubectl apply -k deploy/examples/region-with-two-sites/region",
    )
    .await;
    let first = leader(&site, &BTreeSet::new()).await;
    run(&desk, &site, SITE).await;

    let api: Api<Pod> = Api::namespaced(site.client(), "sip-system");
    let killed = Instant::now();
    api.delete(&first.name_any(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let second = leader(&site, &BTreeSet::from([first.uid().unwrap()])).await;
    println!(
        "another scheduler leads after {:.1} s",
        killed.elapsed().as_secs_f64()
    );
    assert_ne!(first.uid(), second.uid());
    run(
        &desk,
        &site,
        "kubectl -n shop delete sipcluster orders --timeout=3m",
    )
    .await;
}
