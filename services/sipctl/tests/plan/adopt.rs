//! `sipctl adopt --dry-run`, on files.

use placement::{Namespace, Policy};
use sipctl::cli::Output;
use sipctl::input::{Input, documents};
use sipctl::region::adopt::{Adoption, adoption, print};
use sipctl::region::sip_templates::Templates;

fn host(name: &str, rack: &str, labels: &str) -> String {
    format!(
        "---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {{name: {name}, labels: {{rack: {rack}{labels}}}}}
status: {{provisioning: {{state: provisioned}}, operationalStatus: OK}}
"
    )
}

fn labels(cluster: &str, role: &str) -> String {
    format!(
        ", sip.airshipit.org/cluster-namespace: default, sip.airshipit.org/cluster-name: {cluster}, \
         sip.airshipit.org/node-type: {role}"
    )
}

fn cluster(workers: i64) -> String {
    format!(
        "---
apiVersion: airship.airshipit.org/v1
kind: SIPCluster
metadata: {{name: shop}}
spec: {{nodes: {{Worker: {{labelSelector: {{}}, topologyKey: rack, count: {{active: {workers}}}}}}}}}
"
    )
}

fn check(text: &[String]) -> Adoption {
    let namespace = Namespace::new("default").unwrap();
    let documents = documents("input", &text.concat()).unwrap();
    let templates = Templates::read(&documents, &namespace);
    let input = Input::new(documents, &namespace, Policy::default()).unwrap();
    let agents = Namespace::new("sip-system").unwrap();
    let templates = templates.customised(&input, &agents);
    adoption(&input, templates)
}

#[test]
fn adoption_keeps_what_fits_and_reports_the_rest() {
    let found = check(&[
        cluster(2),
        host("a", "r1", &labels("shop", "Worker")),
        host("b", "r1", &labels("shop", "Worker")),
    ]);
    assert!(found.is_clean(), "{found:?}");
    assert_eq!(
        found.clusters[0].keeps,
        ["default/a (Worker)", "default/b (Worker)"]
    );
    let kinds: Vec<&str> = found.clusters[0]
        .reported
        .iter()
        .map(|remark| &*remark.kind)
        .collect();
    assert!(kinds.contains(&"topology-shared"), "{kinds:?}");
}

#[test]
fn relabelling_and_partial_labels_are_conflicts() {
    let own = |name: &str, rack: &str| host(name, rack, &labels("shop", "Worker"));
    let cases = [
        (
            vec![cluster(1), own("a", "r1"), own("b", "r2")],
            "would be released (Worker): surplus",
        ),
        (vec![cluster(2), own("a", "r1")], "refused"),
        (
            vec![
                cluster(2),
                own("a", "r1"),
                host("c", "r3", "").replace("provisioned", "available"),
            ],
            "default/c would be taken (Worker)",
        ),
        (vec![cluster(-1), own("a", "r1")], "invalid"),
        (
            vec![cluster(1), host("a", "r1", &labels("shop", "ControlPlane"))],
            "would be released (ControlPlane): surplus",
        ),
    ];
    for (text, expected) in cases {
        let found = check(&text);
        assert!(!found.is_clean(), "{expected}: {found:?}");
        let conflicts = &found.clusters[0].conflicts;
        assert!(
            conflicts.iter().any(|said| said.contains(expected)),
            "{expected}: {conflicts:?}"
        );
    }
}

#[test]
fn a_host_with_partial_labels_is_a_conflict_without_cluster() {
    for (labels, kind) in [
        (labels("never", "Worker"), "orphaned"),
        (
            ", sip.airshipit.org/cluster-name: shop".to_owned(),
            "labels-partial",
        ),
    ] {
        let found = check(&[host("a", "r1", &labels)]);
        assert_eq!(found.strays[0].kind, kind);
        assert!(!found.is_clean());
    }
}

/// A template for workers in a namespace.
fn template(namespace: &str, text: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: loadbalancerworker{namespace}}}
data: {{loadBalancerWorker.cfg: \"{text}\"}}
"
    )
}

#[test]
fn a_changed_template_is_a_conflict_until_it_is_translated() {
    const AGENTS: &str = ", namespace: sip-system";
    const ELSEWHERE: &str = ", namespace: elsewhere";
    let own = template("", "{{ .Servers }}");
    let translated = template(AGENTS, "{{ servers }}");
    for (what, maps, conflicts, line) in [
        ("no template", vec![], 0, "nothing is in conflict"),
        ("empty", vec![template("", " ")], 0, "nothing is in conflict"),
        ("only ours", vec![translated.clone()], 0, "nothing is in conflict"),
        (
            "Airship SIP reads none there",
            vec![template(ELSEWHERE, "{{ .Servers }}")],
            0,
            "nothing is in conflict",
        ),
        (
            "changed",
            vec![own.clone()],
            1,
            "  CONFLICT  ConfigMap default/loadbalancerworker, key loadBalancerWorker.cfg: differs from the template that \
             Airship SIP comes with; the agents do not read it: translate it into ConfigMap sip-system/loadbalancerworker",
        ),
        (
            "translated",
            vec![own.clone(), translated],
            0,
            "  reported  ConfigMap default/loadbalancerworker, key loadBalancerWorker.cfg: differs from the template that \
             Airship SIP comes with; the agents use ConfigMap sip-system/loadbalancerworker in its place",
        ),
        (
            "copied",
            vec![own, template(AGENTS, "{{ .Servers }}")],
            1,
            "1 in conflict: resolve these first",
        ),
    ] {
        let objects = [cluster(1), host("a", "r1", &labels("shop", "Worker"))];
        let found = check(&[&objects[..], &maps[..]].concat());
        assert_eq!(found.is_clean(), conflicts == 0, "{what}: {found:?}");
        let printed = print(&found, Output::Table).unwrap();
        assert!(printed.contains(line), "{what}: {printed}");
    }
}
