//! Which hosts are found, and which domains they use up.

use kube::ResourceExt as _;
use sandbox::inventory::{FLAVOR, Host, RACK};
use serde_json::{Value, json};

use crate::fixtures::{Cluster, Role, cluster, host, in_role, on_shared_site, sip_labels};

#[test]
fn defect_12_a_missing_label_does_not_bypass_anti_affinity() {
    on_shared_site("no-domain", async |stage| {
        let mut without = host("no-domain", "cp", "", "a-without");
        without.labels.remove(RACK);
        stage
            .load(&[
                without,
                host("no-domain", "cp", "", "b-empty"),
                host("no-domain", "cp", "r1", "c-first"),
                host("no-domain", "cp", "r1", "d-second"),
            ])
            .await;
        let shop = cluster("no-domain", "shop").role(Role::ControlPlane, 2);
        stage.create(&shop).await;
        // The first decision may be made before the scheduler knows all hosts.
        stage
            .condition_mentions(
                &shop,
                "Ready",
                "False",
                "Unschedulable",
                "ControlPlane: 2 wanted, 1 can be placed",
            )
            .await;

        stage.load(&[host("no-domain", "cp", "r2", "e-other")]).await;
        stage.ready(&shop).await;
        let held = stage.labelled("no-domain", &shop).await;
        assert!(held.contains_key("no-domain-e-other"), "{held:?}");
        assert_eq!(
            held.keys()
                .filter(|name| name.ends_with("-first") || name.ends_with("-second"))
                .count(),
            1
        );
    });
}

#[test]
fn defect_13_a_host_that_is_rejected_does_not_use_up_its_domain() {
    on_shared_site("rejected", async |stage| {
        // In each rack a host that sorts first and has no address, and one that has.
        let hosts = ["r1", "r2"].into_iter().flat_map(|rack| {
            let mut bare = host("rejected", "cp", rack, &format!("{rack}-a-bare"));
            bare.addresses.clear();
            [bare, host("rejected", "cp", rack, &format!("{rack}-b-good"))]
        });
        stage.load(&hosts.collect::<Vec<_>>()).await;
        let shop = cluster("rejected", "shop")
            .role(Role::ControlPlane, 2)
            .balanced(30_600);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("rejected", &shop).await;
        assert_eq!(
            in_role(&held, "ControlPlane"),
            ["rejected-r1-b-good", "rejected-r2-b-good"]
        );
    });
}

/// A cluster with one host in each of two roles, where a label says which hosts fit both.
fn overlapping(name: &str, picky: &str, easy: &str) -> Cluster {
    let role = |selector: Value| json!({"labelSelector": selector, "count": {"active": 1, "standby": 0}});
    let one = json!({"matchLabels": {FLAVOR: "overlap-cp", "overlap.example/of": name}});
    let any = json!({"matchLabels": {"overlap.example/of": name}});
    cluster("overlap", name)
        .with(&format!("/nodes/{picky}"), role(one))
        .with(&format!("/nodes/{easy}"), role(any))
}

fn pair(name: &str) -> [Host; 2] {
    // Whoever serves the easy role first takes the host that sorts first, and the picky one has none.
    ["cp", "worker"].map(|flavor| {
        host("overlap", flavor, "r1", &format!("{name}-{flavor}")).label("overlap.example/of", name)
    })
}

#[test]
fn defect_18_the_order_of_roles_does_not_matter() {
    on_shared_site("overlap", async |stage| {
        let clusters = [
            overlapping("picky-first", "A", "B"),
            overlapping("picky-last", "B", "A"),
        ];
        for one in &clusters {
            stage.load(&pair(&one.name)).await;
            stage.create(one).await;
        }
        for (one, (picky, easy)) in clusters.iter().zip([("A", "B"), ("B", "A")]) {
            stage.ready(one).await;
            let held = stage.labelled("overlap", one).await;
            assert_eq!(in_role(&held, picky), [format!("overlap-{}-cp", one.name)]);
            assert_eq!(in_role(&held, easy), [format!("overlap-{}-worker", one.name)]);
        }
        for host in stage.hosts_of("overlap").await {
            assert_eq!(sip_labels(&host).len(), 3, "{}", host.name_any());
        }
    });
}
