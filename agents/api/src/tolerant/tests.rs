use kube::core::ObjectList;
use serde_json::json;

use super::*;
use crate::{SIPClusterStatus, fixtures};

fn list(objects: &[String]) -> Vec<SIPCluster> {
    let text = format!(
        r#"{{"apiVersion": "v1", "kind": "List", "metadata": {{}}, "items": [{}]}}"#,
        objects.join(",")
    );
    let list: ObjectList<TolerantCluster> = serde_json::from_str(&text).unwrap();
    list.items.into_iter().map(TolerantCluster::into_inner).collect()
}

#[test]
fn one_object_makes_no_other_unreadable() {
    let good = fixtures::sample();
    let mut large = good.clone();
    large["spec"]["services"]["jumpHost"][0]["resources"] = json!({"limits": {"memory": 4_294_967_296_i64}});
    let mut wrong = good.clone();
    wrong["spec"]["nodes"] = json!("none");
    wrong["status"] = json!({"placement": {
        "epoch": 1, "revision": 7, "generation": 1,
        "members": [{"namespace": "hosts", "name": "a", "uid": "u", "role": "Worker", "state": "Bound", "revision": 7}],
    }});
    let mut forged = good.clone();
    forged["status"] = json!({"placement": 7});
    let mut deep = good.clone();
    deep["spec"]["services"]["jumpHost"][0]["override"] = json!("DEEP");
    let nested = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    let deep = deep.to_string().replace("\"DEEP\"", &nested);
    let texts = [
        good.to_string(),
        large.to_string(),
        wrong.to_string(),
        forged.to_string(),
        deep,
    ];

    let read = list(&texts);
    let faults: Vec<_> = read.iter().map(|object| Cluster::parse(object).err()).collect();
    assert_eq!((&faults[0], &faults[1]), (&None, &None));
    let messages: Vec<_> = faults.iter().flatten().map(ToString::to_string).collect();
    assert!(
        messages[0].contains("spec is \"invalid type: string"),
        "{messages:?}"
    );
    assert!(
        messages[1].contains("status.placement is \"invalid type: integer"),
        "{messages:?}"
    );
    assert!(
        messages[2].contains("override.a is \"{\\\"a\\\":"),
        "{messages:?}"
    );
    let status = read[2]
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    assert_eq!(
        status.map(|placement| placement.members.len()),
        Some(1),
        "what it holds is known"
    );
    assert_eq!(read[3].status, Some(SIPClusterStatus::default()));
    assert_eq!(read[3].spec.left_out.placement, Some(json!(7)), "it is kept");
    assert!(read.iter().all(|object| object.metadata.uid.is_some()));
}

#[test]
fn a_placement_that_cannot_be_read_is_kept_as_it_is() {
    let mut object = fixtures::sample();
    let placement = json!({
        "epoch": 1, "revision": 7, "generation": 1, "new": {"a": [1]},
        "members": [{"namespace": "hosts", "name": "a", "uid": "u", "role": "Worker", "state": "Moving", "revision": 7}],
    });
    object["status"] = json!({"observedGeneration": 1, "placement": placement});
    let read = list(&[object.to_string()]).remove(0);
    assert_eq!(read.spec.left_out.placement, Some(placement));
    let status = read.status.clone().unwrap();
    assert_eq!((status.observed_generation, status.placement), (Some(1), None));
    let refused = Cluster::parse(&read).unwrap_err().to_string();
    assert!(
        refused.contains("status.placement is \"unknown variant `Moving`"),
        "{refused}"
    );
}

#[test]
fn a_field_of_the_status_that_cannot_be_read_refuses_no_spec() {
    let mut object = fixtures::sample();
    object["status"] =
        json!({"state": "Unheard of", "placement": {"epoch": 1, "revision": 7, "generation": 1}});
    let read = list(&[object.to_string()]).remove(0);
    Cluster::parse(&read).unwrap();
    assert_eq!(read.spec.left_out.placement, None);
    let status = read.status.unwrap();
    assert_eq!(
        (status.state, status.placement.map(|held| held.revision)),
        (None, Some(7))
    );
}

#[test]
fn too_much_is_refused_and_not_kept() {
    let mut object = fixtures::sample();
    object["spec"]["services"]["jumpHost"] = json!(vec![json!({}); 5_000]);
    object["spec"]["nodes"]["Worker"]["labelSelector"] = json!({"matchLabels": (0..5_000).map(|n| (n.to_string(), json!(""))).collect::<serde_json::Map<_, _>>()});
    let read = list(&[object.to_string()]).remove(0);
    assert_eq!(read.spec.services, None);
    let faults = Cluster::parse(&read).unwrap_err();
    let fields: Vec<_> = faults.faults().iter().map(crate::Fault::path).collect();
    assert_eq!(
        fields,
        ["spec.nodes[Worker].labelSelector", "spec.services.jumpHost"]
    );
}

/// Bytes that the object takes when it is written.
fn written_bytes(object: &SIPCluster) -> usize {
    stored(object)
}

#[test]
fn a_large_text_is_refused_wherever_it_is_and_not_kept() {
    let text = "x".repeat(1_400 << 10);
    for (pointer, value, fault) in [
        (
            "/nodes/Worker/topologyKey",
            json!(text),
            "spec.nodes[Worker].topologyKey is \"xxx",
        ),
        (
            "/nodes/Worker/replaceAfterError",
            json!(text),
            "spec.nodes[Worker].replaceAfterError is \"xxx",
        ),
        (
            "/nodes/Worker/labelSelector",
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [text]}]}),
            "spec.nodes[Worker].labelSelector",
        ),
        (
            "/services/jumpHost/0/image",
            json!(text),
            "spec.services.jumpHost[0].image is \"xxx",
        ),
        (
            "/services/jumpHost/0/clusterIP",
            json!(text),
            "spec.services.jumpHost[0].clusterIP is \"xxx",
        ),
        (
            "/services/jumpHost/0/sshAuthorizedKeys",
            json!([text]),
            "spec.services.jumpHost[0].sshAuthorizedKeys is 1433604 bytes: the whole object",
        ),
        (
            "/services/jumpHost/0/override",
            json!({"service": {"metadata": {"annotations": {"a": text}}}}),
            "bytes: the whole object",
        ),
        (
            "/services/auth/0/issuer",
            json!(text),
            "spec.services.auth[0].issuer is \"xxx",
        ),
        (
            "/nodes/Worker/count",
            json!(text),
            "spec is \"invalid type: string",
        ),
    ] {
        let object = fixtures::sample_with(pointer, value);
        let whole: Option<SIPCluster> = serde_json::from_value(object.clone()).ok();
        let read = list(&[object.to_string()]).remove(0);
        assert!(
            written_bytes(&read) < 1_000,
            "{pointer}: {}",
            written_bytes(&read)
        );
        let refused = Cluster::parse(&read).unwrap_err();
        assert!(refused.to_string().contains(fault), "{pointer}: {refused}");
        if let Some(whole) = whole {
            assert_eq!(Cluster::parse(&whole), Err(refused), "{pointer}: the same words");
        }
    }
}

#[test]
fn topology_keys_of_a_refused_spec_are_kept() {
    let object = fixtures::sample_with("/services/jumpHost/0/image", json!("x".repeat(100_000)));
    let read = list(&[object.to_string()]).remove(0);
    let key = |role: &str| {
        read.spec
            .nodes
            .get(role)
            .and_then(|set| set.topology_key.as_deref())
    };
    assert_eq!(key("Worker"), Some("example.org/server"));
    assert!(read.spec.nodes.values().all(|set| set.label_selector.is_none()));
}

#[test]
fn a_large_spec_that_is_accepted_is_kept() {
    let keys = vec![format!("ssh-rsa {}", "x".repeat(700)); 1_000];
    let object = fixtures::sample_with("/services/jumpHost/0/sshAuthorizedKeys", json!(keys));
    let read = list(&[object.to_string()]).remove(0);
    assert_eq!(Cluster::parse(&read), fixtures::parse(object));
    assert!(written_bytes(&read) > 700_000);
}

#[test]
fn faults_of_a_refused_spec_are_few_and_its_text_is_the_same() {
    let values: Vec<String> = (0..256).map(|n| format!("-{n}-")).collect();
    let expression = json!({"key": "a", "operator": "In", "values": values});
    let selector = json!({"matchExpressions": vec![expression; 32]});
    let object = fixtures::sample_with("/nodes/Worker/labelSelector", selector);
    let whole = fixtures::parse(object.clone()).unwrap_err();
    assert!(whole.faults().len() > 20);
    let read = list(&[object.to_string()]).remove(0);
    let refused = Cluster::parse(&read).unwrap_err();
    assert_eq!(refused.to_string(), whole.to_string());
    assert_eq!(refused.faults().len(), 20);
}

#[test]
fn the_values_of_all_selectors_are_bounded_together() {
    let expression = |values: usize| json!({"key": "a", "operator": "In", "values": vec!["b"; values]});
    let with = |expressions: Vec<Value>| {
        fixtures::sample_with("/nodes/Worker/labelSelector/matchExpressions", json!(expressions))
    };
    let most = vec![expression(256); 32];
    assert_eq!(fixtures::faults(with(most.clone())), [""; 0]);
    let mut more = most;
    more.push(expression(1));
    let refused = "spec.nodes is 8193 values: must be at most 8192 in the selectors of all roles together";
    assert_eq!(fixtures::faults(with(more)), [refused]);
}

#[test]
fn metadata_that_no_agent_reads_counts_and_is_not_kept() {
    let mut object = fixtures::sample();
    let metadata = &mut object["metadata"];
    metadata["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:a": {}}}]);
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]);
    metadata["annotations"] = json!({"note": "x".repeat(200 << 10), CLUSTER_API_CLUSTER: "capi/shop"});
    metadata["labels"] = json!({"label": "x".repeat(100 << 10)});
    let read = list(&[object.to_string()]).remove(0);
    let parsed = Cluster::parse(&read).unwrap();
    assert_eq!(parsed.cluster_api_name(), "shop");
    assert_eq!(
        parsed.other_bytes(),
        fixtures::parse(object.clone()).unwrap().other_bytes()
    );
    assert!(parsed.other_bytes() > 0);
    let expected = serde_json::from_value::<ObjectMeta>(json!({
        "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "generation": 7, "annotations": {CLUSTER_API_CLUSTER: "capi/shop"}, "finalizers": object["metadata"]["finalizers"],
    }));
    assert_eq!(read.metadata, expected.unwrap());

    object["metadata"]["annotations"] = json!({CLUSTER_API_CLUSTER: "x".repeat(200 << 10)});
    let read = list(&[object.to_string()]).remove(0);
    assert!(written_bytes(&read) < 20_000);
    let refused = Cluster::parse(&read).unwrap_err();
    assert_eq!(Err(refused), fixtures::parse(object));
}

#[test]
fn of_many_finalizers_ours_is_kept() {
    let mut object = fixtures::sample();
    let mut finalizers: Vec<String> = (0..4_000).map(|n| format!("example.com/{n}")).collect();
    finalizers.push(FINALIZER.to_owned());
    object["metadata"]["finalizers"] = json!(finalizers);
    let read = list(&[object.to_string()]).remove(0);
    let names = read.metadata.finalizers.unwrap();
    assert_eq!((names.len(), &*names[16]), (17, FINALIZER));
    assert!(read.spec.left_out.finalizers);
    object["metadata"]["finalizers"] = json!(finalizers[..16]);
    let read = list(&[object.to_string()]).remove(0);
    assert_eq!(read.metadata.finalizers.map(|names| names.len()), Some(16));
    assert!(!read.spec.left_out.finalizers);
}

#[test]
fn amounts_may_be_larger_than_32_bits() {
    let mut object = fixtures::sample();
    object["spec"]["services"]["jumpHost"][0]["resources"] = json!({"limits": {"memory": 4_294_967_296_i64}});
    serde_json::from_value::<SIPCluster>(object).unwrap();
}
