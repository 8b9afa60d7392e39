//! The policy on specs of `SIPCluster`s: it warns of faults, and refuses nothing.

use serde_json::{Value, json};

use sandbox::site::Site;

use super::{PATIENCE, site};

/// What kubectl prints besides its answer when a spec is created without being stored.
async fn created(site: &Site, name: &str, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
        "metadata": {"namespace": "other", "name": name}, "spec": spec,
    });
    let arguments = ["create", "--dry-run=server", "--filename", "-"];
    let answer = site.kubectl_with(&arguments, &object.to_string()).await.unwrap();
    assert!(answer.success, "{name}: {}", answer.stderr);
    answer.stderr
}

fn role(change: &Value) -> Value {
    let mut role = json!({"labelSelector": {}, "count": {"active": 1, "standby": 0}});
    for (field, value) in change.as_object().unwrap() {
        role[field] = value.clone();
        if value.is_null() {
            role.as_object_mut().unwrap().remove(field);
        }
    }
    json!({"nodes": {"Worker": role}})
}

fn entry(section: &str, change: &Value) -> Value {
    let mut entry = json!({"image": "example.org/image:1", "nodeInterfaceId": "oam-ipv4"});
    if section == "loadBalancerWorker" {
        entry["nodePortRange"] = json!({"start": 30_000, "end": 30_001});
    }
    for (field, value) in change.as_object().unwrap() {
        entry[field] = value.clone();
        if value.is_null() {
            entry.as_object_mut().unwrap().remove(field);
        }
    }
    let mut spec = role(&json!({}));
    spec["services"] = json!({section: [entry]});
    spec
}

/// Two entries of one name.
fn twice(section: &str) -> Value {
    let mut spec = entry(section, &json!({"name": "web"}));
    let first = spec["services"][section][0].clone();
    spec["services"][section] = json!([first, first]);
    spec
}

#[expect(clippy::too_many_lines, reason = "a table of specs")]
#[tokio::test]
async fn faults_of_specs_are_warnings_only() {
    let site = site().await;
    let balancer = |change: &Value| entry("loadBalancerControlPlane", change);
    let ports = |start, end| {
        entry(
            "loadBalancerWorker",
            &json!({"nodePortRange": {"start": start, "end": end}}),
        )
    };
    let unset = entry("loadBalancerWorker", &json!({"nodePortRange": null}));
    let expressions = |one| role(&json!({"labelSelector": {"matchExpressions": [one]}}));
    let replicas = |object: Value| {
        let mut spec = role(&json!({}));
        spec["clusterAPI"] = json!({"replicas": {"Worker": object}});
        spec
    };
    let rows = [
        (
            replicas(json!({})),
            "spec.clusterAPI.replicas[Worker]: must name exactly one of",
        ),
        (
            replicas(json!({"machineDeployment": "a", "kubeadmControlPlane": "b"})),
            "spec.clusterAPI.replicas[Worker]: must name exactly one of",
        ),
        (
            role(&json!({"count": null})),
            "spec.nodes[Worker].count: must be set",
        ),
        (
            role(&json!({"count": {"active": -1, "standby": 0}})),
            "spec.nodes[Worker].count: active and standby",
        ),
        (
            role(&json!({"labelSelector": null})),
            "spec.nodes[Worker].labelSelector: must be set",
        ),
        (
            expressions(json!({"key": "a", "operator": "Is"})),
            "matchExpressions need",
        ),
        (
            expressions(json!({"key": "a", "operator": "In"})),
            "matchExpressions need",
        ),
        (
            expressions(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            "matchExpressions need",
        ),
        (
            balancer(&json!({"image": null})),
            "spec.services.loadBalancerControlPlane: image",
        ),
        (
            entry("jumpHost", &json!({"image": "a b"})),
            "spec.services.jumpHost: image",
        ),
        (
            entry("auth", &json!({"replicas": 33})),
            "spec.services.auth: replicas",
        ),
        (
            balancer(&json!({"nodePort": 65_536})),
            "spec.services.loadBalancerControlPlane: nodePort",
        ),
        (balancer(&json!({"clusterIP": "vip.example.org"})), "clusterIP"),
        (balancer(&json!({"balance": "source"})), "balance"),
        (twice("loadBalancerControlPlane"), "must be unique"),
        (twice("auth"), "must be unique"),
        (unset, "nodePortRange"),
        (ports(30_002, 30_001), "nodePortRange"),
        (ports(1, 1_001), "nodePortRange"),
        (
            json!({"nodes": {"-a": role(&json!({}))["nodes"]["Worker"]}}),
            "the name of a role",
        ),
    ];
    let enforced = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(200));
        while created(&site, "probe", &rows[0].0).await.is_empty() {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, enforced).await.unwrap();
    let mut wrong = Vec::new();
    for (spec, expected) in &rows {
        let warnings = created(&site, "faulty", spec).await;
        println!("{warnings}");
        if warnings.matches("sip-cluster-specs").count() != 2 || !warnings.contains(expected) {
            wrong.push(format!("{spec}: {expected}: {warnings}"));
        }
    }
    let long = created(&site, &"a".repeat(64), &role(&json!({}))).await;
    assert!(long.contains("metadata.name: must be at most 63"), "{long}");
    for good in [
        role(&json!({})),
        balancer(&json!({})),
        ports(30_000, 30_009),
        entry("jumpHost", &json!({})),
    ] {
        let warnings = created(&site, "good", &good).await;
        if !warnings.is_empty() {
            wrong.push(format!("{good}: {warnings}"));
        }
    }
    // More entries than the API server's budget for policies lets it evaluate.
    let mut many = balancer(&json!({}));
    let one = many["services"]["loadBalancerControlPlane"][0].clone();
    many["services"]["loadBalancerControlPlane"] = json!(vec![one; 5_000]);
    created(&site, "many", &many).await;
    assert_eq!(wrong, [""; 0]);
}
