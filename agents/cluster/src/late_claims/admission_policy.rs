//! Whether the policy on consumers is in force in this site: policy and binding are there, and are those that are shipped.

use std::{collections::BTreeSet, convert::Infallible, pin::pin, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kit::retries::watch_pauses;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        utils::{Backoff, ResetTimerBackoff},
        watcher::{self, Event},
    },
};
use serde_json::{Value, json};

use super::confirmation::LateClaims;

/// As it is shipped.
const SHIPPED: &str = include_str!("../../../../deploy/policies/host-consumers.yaml");
/// Name of the policy and of its binding.
const NAME: &str = "sip-host-consumers";
/// The match condition that a site changes.
const EXEMPT: &str = "user-is-not-exempt";
/// The label by which the API server names a namespace.
const NAMESPACE: &str = "kubernetes.io/metadata.name";
/// Time without a failure of a watch after which its pauses are short again.
const RECOVERY_DURATION: Duration = Duration::from_mins(1);

/// Why the policy is not in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Gap {
    #[error("there is no ValidatingAdmissionPolicy {NAME}")]
    NoPolicy,
    #[error("there is no ValidatingAdmissionPolicyBinding {NAME}")]
    NoBinding,
    #[error(
        "field {0} of ValidatingAdmissionPolicy {NAME} differs from that of this version: apply deploy/policies"
    )]
    OtherPolicy(&'static str),
    #[error("ValidatingAdmissionPolicyBinding {NAME}: {0}")]
    OtherBinding(String),
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// An object as its watch shows it, `None` where there is none; or why it cannot be read.
type Observation<K> = Result<Option<Box<K>>, String>;

enum Observed {
    Policy(Observation<ValidatingAdmissionPolicy>),
    Binding(Observation<ValidatingAdmissionPolicyBinding>),
}

/// What each watch has shown last.
struct Both {
    policy: Observation<ValidatingAdmissionPolicy>,
    binding: Observation<ValidatingAdmissionPolicyBinding>,
}

impl Both {
    fn new() -> Self {
        Self {
            policy: Ok(None),
            binding: Ok(None),
        }
    }

    fn take(&mut self, observed: Observed) {
        match observed {
            Observed::Policy(now) => self.policy = now,
            Observed::Binding(now) => self.binding = now,
        }
    }

    /// Why the policy is not in force. An object that cannot be read may have changed since it was read, whatever the other watch shows.
    fn gap(&self, namespaces: &BTreeSet<String>) -> Option<Gap> {
        match (&self.policy, &self.binding) {
            (Err(why), _) | (_, Err(why)) => Some(Gap::Unreadable(why.clone())),
            (Ok(policy), Ok(binding)) => gap(policy.as_deref(), binding.as_deref(), namespaces),
        }
    }
}

/// Reports to `LateClaims` whether the policy is in force, as long as it runs.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn watch(
    client: Client,
    namespaces: BTreeSet<String>,
    late_claims: LateClaims,
) -> Result<(), Infallible> {
    let policies = observe(Api::all(client.clone()), Observed::Policy);
    let bindings = observe(Api::all(client), Observed::Binding);
    let mut changes = pin!(stream::select(policies, bindings));
    let (mut both, mut last) = (Both::new(), None);
    while let Some(observed) = changes.next().await {
        both.take(observed);
        let gap = both.gap(&namespaces);
        late_claims.policy_is(gap.is_none());
        if last.as_ref() != Some(&gap) {
            match &gap {
                None => tracing::info!("ValidatingAdmissionPolicy sip-host-consumers is in force"),
                Some(gap) => tracing::warn!(
                    %gap,
                    "ValidatingAdmissionPolicy sip-host-consumers is not in force: each release waits claimsInFlightSeconds"
                ),
            }
            last = Some(gap);
        }
    }
    Ok(())
}

/// Pauses before an object is listed and watched again. That it could be listed does not end their growth: where every watch fails, each list would be
/// followed by the shortest pause, and by a line of the log that the object can be read.
struct Pauses(ResetTimerBackoff<watcher::ExponentialBackoff>);

impl Pauses {
    fn new() -> Self {
        Self(ResetTimerBackoff::new(watch_pauses(), RECOVERY_DURATION))
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {}
}

/// The one object of the name, whenever it changes.
fn observe<K>(
    api: Api<K>,
    wrap: fn(Observation<K>) -> Observed,
) -> impl futures::Stream<Item = Observed> + Send
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    // A watch that has failed resumes without an event: the object would count as unreadable until somebody changes it. A new watch lists it first.
    let events = stream::unfold(None, move |watch| {
        let mut watch = watch.unwrap_or_else(|| Box::pin(watcher::watcher(api.clone(), config.clone())));
        async move {
            let event = watch.next().await?;
            let watch = event.is_ok().then_some(watch);
            Some((event, watch))
        }
    });
    let mut listed = None;
    events.backoff(Pauses::new()).filter_map(move |event| {
        let observed = match event {
            Ok(Event::Init) => {
                listed = None;
                None
            }
            Ok(Event::InitApply(object)) => {
                listed = Some(Box::new(object));
                None
            }
            Ok(Event::InitDone) => Some(wrap(Ok(listed.take()))),
            Ok(Event::Apply(object)) => Some(wrap(Ok(Some(Box::new(object))))),
            Ok(Event::Delete(_)) => Some(wrap(Ok(None))),
            Err(error) => Some(wrap(Err(error.to_string()))),
        };
        std::future::ready(observed)
    })
}

/// Why the policy is not in force for all hosts in these namespaces.
fn gap(
    policy: Option<&ValidatingAdmissionPolicy>,
    binding: Option<&ValidatingAdmissionPolicyBinding>,
    namespaces: &BTreeSet<String>,
) -> Option<Gap> {
    let Some(policy) = policy else {
        return Some(Gap::NoPolicy);
    };
    let Some(binding) = binding else {
        return Some(Gap::NoBinding);
    };
    let deleted =
        policy.metadata.deletion_timestamp.is_some() || binding.metadata.deletion_timestamp.is_some();
    if deleted {
        return Some(Gap::NoPolicy);
    }
    other_policy(policy)
        .map(Gap::OtherPolicy)
        .or_else(|| other_binding(binding, namespaces).map(Gap::OtherBinding))
}

/// The part in which a policy differs from the shipped one, its exceptions aside.
fn other_policy(policy: &ValidatingAdmissionPolicy) -> Option<&'static str> {
    let live = normal(&serde_json::to_value(policy).unwrap_or_default());
    let shipped = shipped();
    [
        "failurePolicy",
        "matchConstraints",
        "matchConditions",
        "paramKind",
        "variables",
        "validations",
    ]
    .into_iter()
    .find(|part| live[part] != shipped[part])
}

/// The spec of the shipped policy.
fn shipped() -> Value {
    let text = SHIPPED.split("\n---\n").next().unwrap_or_default();
    normal(&serde_saphyr::from_str::<Value>(text).unwrap_or_default())
}

/// A policy's spec with what the API server fills in, and without its exceptions.
fn normal(policy: &Value) -> Value {
    let mut spec = policy["spec"].clone();
    let constraints = &mut spec["matchConstraints"];
    for (field, value) in [
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
    ] {
        if constraints[field].is_null() {
            constraints[field] = value;
        }
    }
    for rule in constraints["resourceRules"].as_array_mut().into_iter().flatten() {
        if rule["scope"].is_null() {
            rule["scope"] = json!("*");
        }
    }
    if let Some(conditions) = spec["matchConditions"].as_array_mut() {
        conditions.retain(|condition| condition["name"] != EXEMPT);
    }
    with_single_spaces(&mut spec);
    spec
}

/// Parsers of YAML fold the lines of an expression in different ways.
fn with_single_spaces(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(all) => all.iter_mut().for_each(with_single_spaces),
        Value::Object(all) => all.values_mut().for_each(with_single_spaces),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Why a binding does not bind the policy to all hosts in these namespaces.
fn other_binding(
    binding: &ValidatingAdmissionPolicyBinding,
    namespaces: &BTreeSet<String>,
) -> Option<String> {
    let spec = &binding.spec;
    if spec.policy_name != NAME {
        return Some(format!("spec.policyName must be {NAME}"));
    }
    if !spec.validation_actions.iter().any(|action| action == "Deny") {
        return Some("spec.validationActions must contain Deny".to_owned());
    }
    let Some(resources) = &spec.match_resources else {
        return None;
    };
    let narrowed = resources
        .exclude_resource_rules
        .as_ref()
        .is_some_and(|rules| !rules.is_empty())
        || resources
            .resource_rules
            .as_ref()
            .is_some_and(|rules| !rules.is_empty())
        || resources
            .object_selector
            .as_ref()
            .is_some_and(|selector| *selector != LabelSelector::default());
    if narrowed {
        return Some("spec.matchResources must select hosts by namespaceSelector alone".to_owned());
    }
    let selector = resources.namespace_selector.clone().unwrap_or_default();
    if selector.match_labels.is_some_and(|labels| !labels.is_empty()) {
        return Some(format!(
            "spec.matchResources.namespaceSelector must use {NAMESPACE} In alone"
        ));
    }
    for requirement in selector.match_expressions.unwrap_or_default() {
        if requirement.key != NAMESPACE || requirement.operator != "In" {
            return Some(format!(
                "spec.matchResources.namespaceSelector must use {NAMESPACE} In alone"
            ));
        }
        let bound: BTreeSet<String> = requirement.values.unwrap_or_default().into_iter().collect();
        if let Some(missing) = namespaces.iter().find(|namespace| !bound.contains(*namespace)) {
            return Some(format!(
                "spec.matchResources.namespaceSelector leaves out the host namespace {missing}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
