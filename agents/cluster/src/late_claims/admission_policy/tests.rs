use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use kube::client::Body;

use super::*;

fn applied() -> (Value, Value) {
    let documents: Vec<Value> = SHIPPED
        .split("\n---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect();
    let [policy, binding] = &documents[..] else {
        panic!("{documents:?}")
    };
    let mut policy = policy.clone();
    policy["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
    policy["spec"]["matchConstraints"]["namespaceSelector"] = json!({});
    policy["spec"]["matchConstraints"]["objectSelector"] = json!({});
    policy["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = json!("*");
    (policy, binding.clone())
}

fn found(change: impl FnOnce(&mut Value, &mut Value)) -> String {
    let (mut policy, mut binding) = applied();
    change(&mut policy, &mut binding);
    let policy = serde_json::from_value(policy).unwrap();
    let binding = serde_json::from_value(binding).unwrap();
    let namespaces = BTreeSet::from(["metal".to_owned()]);
    gap(Some(&policy), Some(&binding), &namespaces).map_or_else(String::new, |gap| gap.to_string())
}

#[test]
fn the_shipped_policy_is_in_force() {
    assert_eq!(found(|_, _| {}), "");
    assert_eq!(
        found(|policy, binding| {
            policy["spec"]["matchConditions"][0]["expression"] =
                json!("!(request.userInfo.username in ['root'])");
            binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"] =
                json!(["metal", "more"]);
        }),
        "",
        "exceptions and more namespaces are the site's own"
    );
    assert_eq!(
        found(|policy, _| {
            let expression = &mut policy["spec"]["matchConditions"][1]["expression"];
            *expression = json!(expression.as_str().unwrap().replace(' ', "\n  "));
        }),
        "",
        "another parser folds its lines otherwise"
    );
}

#[test]
fn anything_weaker_is_a_gap() {
    let selector = "/spec/matchResources/namespaceSelector/matchExpressions/0/values";
    for (of_policy, pointer, value, part) in [
        (true, "/spec/failurePolicy", json!("Ignore"), "failurePolicy"),
        (
            true,
            "/spec/validations/1/expression",
            json!("true"),
            "validations",
        ),
        (
            true,
            "/spec/matchConditions/1/expression",
            json!("false"),
            "matchConditions",
        ),
        (
            true,
            "/spec/matchConstraints/objectSelector",
            json!({"matchLabels": {"a": "b"}}),
            "matchConstraints",
        ),
        (false, "/spec/validationActions", json!(["Warn"]), "Deny"),
        (false, "/spec/policyName", json!("other"), "policyName"),
        (
            false,
            selector,
            json!(["other"]),
            "leaves out the host namespace metal",
        ),
    ] {
        let gap = found(|policy, binding| {
            let object = if of_policy { policy } else { binding };
            *object.pointer_mut(pointer).unwrap() = value.clone();
        });
        assert!(gap.contains(part), "{pointer} {value}: {gap:?}");
    }
}

#[test]
fn an_object_that_cannot_be_read_is_a_gap() {
    let (policy, binding) = applied();
    let policy = || {
        Observed::Policy(Ok(Some(Box::new(
            serde_json::from_value(policy.clone()).unwrap(),
        ))))
    };
    let binding = || {
        Observed::Binding(Ok(Some(Box::new(
            serde_json::from_value(binding.clone()).unwrap(),
        ))))
    };
    let mut both = Both::new();
    for (step, (observed, is_in_force)) in [
        (policy(), false),
        (binding(), true),
        (Observed::Policy(Err("away".to_owned())), false),
        // The other one is read: the policy may have changed meanwhile.
        (binding(), false),
        (policy(), true),
    ]
    .into_iter()
    .enumerate()
    {
        both.take(observed);
        assert_eq!(both.gap(&BTreeSet::new()).is_none(), is_in_force, "{step}");
    }
}

/// An API server without the policy, at which the first of so many watches fail.
fn failing_watches(number: usize) -> Client {
    let watches = AtomicUsize::new(0);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let fails = is_watch && watches.fetch_add(1, Ordering::Relaxed) < number;
        let (code, body): (u16, Value) = if fails {
            let failure = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "reason": "", "message": "",
            });
            (503, failure)
        } else {
            let list = json!({
                "kind": "ValidatingAdmissionPolicyList", "apiVersion": "admissionregistration.k8s.io/v1",
                "metadata": {"resourceVersion": "7"}, "items": [],
            });
            (200, list)
        };
        async move {
            if is_watch && !fails {
                std::future::pending::<()>().await;
            }
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_failed_reads_the_object_again() {
    let policies = Api::all(failing_watches(1));
    let mut observed = pin!(observe(policies, Observed::Policy));
    for is_read in [true, false, true] {
        let next = tokio::time::timeout(Duration::from_mins(1), observed.next()).await;
        let Ok(Some(Observed::Policy(found))) = next else {
            panic!("it stays unreadable")
        };
        assert_eq!(found.is_ok(), is_read);
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_only_lists_succeed() {
    let policies = Api::all(failing_watches(usize::MAX));
    let mut observed = pin!(observe(policies, Observed::Policy));
    let mut failures = 0;
    let counted = async {
        while let Some(Observed::Policy(found)) = observed.next().await {
            failures += usize::from(found.is_err());
        }
    };
    let ended = tokio::time::timeout(Duration::from_mins(1), counted).await;
    ended.unwrap_err();
    // From 0.1 s to 2 s, each up to twice as long by its jitter.
    assert!((10..60).contains(&failures), "{failures}");
}

#[test]
fn a_missing_object_is_a_gap() {
    let (policy, binding) = applied();
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(policy).unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(binding).unwrap();
    let none = BTreeSet::new();
    assert_eq!(gap(None, Some(&binding), &none), Some(Gap::NoPolicy));
    assert_eq!(gap(Some(&policy), None, &none), Some(Gap::NoBinding));
}
