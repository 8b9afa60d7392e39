//! The commands of `docs/install.md` that move a ledger from a volume to etcd and back, with a cluster in place: its hosts stay, and each
//! scheduler serves it.

use std::{collections::BTreeSet, fs};

use sandbox::{
    installation::{Names, Target},
    node, repository,
    site::Site,
};

use super::{
    commands::blocks,
    desk::{Desk, furnished, nothing_was_refused},
    page::PAGE,
    region::{Etcd, MEMBERS, PREPARATIONS, leader, run},
};

const SECTION: &str = "## Move the ledger from a volume to etcd";
const KUSTOMIZATION: &str = "deploy/examples/one-site/kustomization.yaml";

const INSTALLATION: &str = "
kubectl apply -k deploy/examples/one-site
kubectl -n sip-system rollout status statefulset/sip-scheduler --timeout=3m
kubectl -n sip-system rollout status deployment/sip-cluster-agent --timeout=3m
kubectl -n sip-system rollout status deployment/sip-load-balancer-agent --timeout=3m
kubectl apply -k deploy/examples/tenant
kubectl -n shop wait sipcluster/orders --for=condition=Ready --timeout=3m";

/// A cluster for which there are no hosts: only a scheduler refuses it.
const REFUSAL: &str = "
sed 's/name: orders/name: invoices/' deploy/examples/tenant/orders.yaml | kubectl apply -f -
kubectl -n shop wait sipcluster/invoices --timeout=3m \\
  --for='jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=Unschedulable'
kubectl -n shop delete sipcluster invoices --timeout=3m";

/// The hosts with their labels.
async fn labels(desk: &Desk, site: &Site) -> String {
    let printed = "jsonpath={range .items[*]}{.metadata.name} {.metadata.labels}{\"\\n\"}{end}";
    run(
        desk,
        site,
        &format!("kubectl -n metal get baremetalhosts -o '{printed}'"),
    )
    .await
}

/// What the page tells people to change in their kustomization.
fn on_etcd(kustomization: &str, job: &str) -> String {
    let settings: Vec<&str> = job
        .lines()
        .filter(|line| line.trim().starts_with("- SIP_"))
        .collect();
    assert_eq!(settings.len(), 2, "{settings:?}");
    let last = "      - SIP_TRUST_DOMAIN=sip.example\n";
    let scheduler = "  - ../../scheduler\n";
    assert!(kustomization.contains(last) && kustomization.contains(scheduler));
    kustomization
        .replace(last, &format!("{last}{}\n", settings.join("\n")))
        .replace(scheduler, "  - ../../scheduler/ha\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_move_a_ledger_there_and_back() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    let commands = blocks(&page, SECTION, "bash");
    let [copy, switch, back] = &commands[..] else {
        panic!("{commands:?}");
    };
    let desk = Desk::new();
    let site = furnished("install-move", Vec::new(), Vec::new()).await;
    let machines = site.node().unwrap().machines();
    let outside = MEMBERS.into_iter().zip(machines.map(Target::Address));
    let _names = Names::serve(&site, outside.collect()).await;
    let etcd = Etcd::start(&site);
    run(&desk, &site, PREPARATIONS).await;
    run(&desk, &site, &etcd.secret()).await;
    run(&desk, &site, INSTALLATION).await;
    let before = labels(&desk, &site).await;
    assert!(before.contains("orders"), "{before}");

    let printed = run(&desk, &site, copy).await;
    let copied = printed.lines().any(|line| {
        line.starts_with("/sip/north in https://etcd-0.etcd.example:2379,") && line.contains(": 1 records, ")
    });
    assert!(copied, "{printed}");
    let file = desk.file(KUSTOMIZATION);
    let on_volume = fs::read_to_string(&file).unwrap();
    let job = fs::read_to_string(desk.file("deploy/ledger-to-etcd/kustomization.yaml")).unwrap();
    fs::write(&file, on_etcd(&on_volume, &job)).unwrap();
    run(&desk, &site, switch).await;
    leader(&site, &BTreeSet::new()).await;

    assert_eq!(labels(&desk, &site).await, before);
    run(&desk, &site, REFUSAL).await;

    fs::write(&file, on_volume).unwrap();
    run(&desk, &site, back).await;

    assert_eq!(labels(&desk, &site).await, before);
    run(&desk, &site, REFUSAL).await;
    run(
        &desk,
        &site,
        "kubectl -n shop delete sipcluster orders --timeout=3m",
    )
    .await;
    nothing_was_refused(&site);
}
