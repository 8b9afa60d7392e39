//! `BareMetalHost`s become what the decision reads.

use std::collections::BTreeMap;

use api::{BareMetalHost, NetworkData, NetworkSecrets, SecretName};
use placement::{
    Consumer, Host, HostId, HostName, LabelKey, LabelValue, NameError, Namespace, OperationalStatus,
    ProvisioningState, SipLabels, Uid,
};
use serde_json::Value;

use super::Error;
use super::document::{Document, Location};
use super::object::{NO_UID, fields, metadata, name};
use crate::line::one_line;

const KIND: &str = "BareMetalHost";

/// A host whose addresses are not known yet.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) location: Location,
    pub(super) name: HostName,
    /// The Secrets that hold its networkData.
    pub(super) secrets: NetworkSecrets,
    object: BareMetalHost,
    labels: BTreeMap<LabelKey, LabelValue>,
}

/// A host as the decision reads it, and what could not be read of it.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) host: Host,
    /// Whether the input states its uid.
    pub(crate) has_uid: bool,
    /// Revision of the placement that wrote its labels last; 0 without one.
    #[cfg_attr(
        not(feature = "region"),
        expect(dead_code, reason = "a rehearsal compares it")
    )]
    pub(crate) release_mark: u64,
    pub(crate) faults: Vec<String>,
}

pub(super) fn read(mut document: Document, default: &Namespace) -> Result<Read, Error> {
    let metadata = metadata(&mut document, KIND, default)?;
    let name = name(&document, KIND, &metadata, |namespace, name| {
        HostName::new(namespace, name)
    })?;
    let Document { location, mut object } = document;
    let wrong = |path: String, rule: String| Error::Field {
        location: location.clone(),
        kind: format!("{KIND} {name}"),
        path,
        rule,
    };
    object.remove("metadata");
    let mut object: BareMetalHost =
        fields(Value::Object(object)).map_err(|(path, rule)| wrong(path, rule))?;
    let labels = metadata.labels.iter().flatten();
    let labels = labels
        .map(|(key, value)| Ok((LabelKey::new(key)?, LabelValue::new(value)?)))
        .collect::<Result<_, NameError>>()
        .map_err(|NameError { what, value, rule }| {
            let rule = format!("{what} {:?} is not valid: {rule}", one_line(&value, 80));
            wrong("metadata.labels".to_owned(), rule)
        })?;
    object.metadata = metadata;
    Ok(Read {
        location,
        secrets: NetworkSecrets::named_by(&object),
        name,
        object,
        labels,
    })
}

impl Read {
    /// Adds what is known of its addresses. `networks` are the Secrets that were found.
    pub(super) fn observe(self, networks: &BTreeMap<SecretName, NetworkData>) -> Result<Observed, Error> {
        let Self {
            location,
            name,
            secrets,
            object,
            labels,
        } = self;
        let fallbacks = secrets.fallbacks().iter();
        let fallbacks = fallbacks.filter(|_| object.spec.consumer_ref.is_none());
        let data = secrets
            .named()
            .into_iter()
            .chain(fallbacks)
            .filter_map(|secret| networks.get(secret))
            .cloned()
            .reduce(|data, fallback| data.with_fallback(&fallback))
            .or_else(|| secrets.named().map(NetworkData::missing));
        let wrong = |path: &str, rule: String| Error::Field {
            location: location.clone(),
            kind: format!("{KIND} {name}"),
            path: path.to_owned(),
            rule,
        };
        let parsed =
            api::Host::parse(&object, data.as_ref()).map_err(|error| wrong("metadata", error.to_string()))?;
        let uid = Uid::new(parsed.uid()).map_err(|error| wrong("metadata.uid", error.rule.to_owned()))?;
        let state_is_known = object
            .status
            .as_ref()
            .is_some_and(|status| status.provisioning.is_some());
        let faults = parsed.reports().iter();
        // Without any Secret nothing is said about addresses, so nothing is said about missing Secrets either.
        let faults = faults.filter(|fault| !networks.is_empty() || !fault.object().starts_with("Secret "));
        Ok(Observed {
            has_uid: parsed.uid() != NO_UID,
            release_mark: parsed.placement_revision().unwrap_or_default(),
            faults: faults.map(ToString::to_string).collect(),
            host: Host {
                id: HostId { name, uid },
                sip_labels: SipLabels::read(|key| labels.get(key).map(LabelValue::as_str)),
                labels,
                provisioning: if state_is_known {
                    ProvisioningState::parse(&sanitize(parsed.provisioning_state().as_str()))
                } else {
                    ProvisioningState::NotReported
                },
                operational: OperationalStatus::parse(&sanitize(parsed.operational_status().as_str())),
                paused: parsed.is_paused(),
                detached: parsed.is_detached(),
                deleting: parsed.is_deleting(),
                powered_on: parsed.is_powered_on(),
                unhealthy: parsed.fault().is_some(),
                inspected: parsed.is_inspected(),
                cordoned: parsed.is_cordoned(),
                marked_failed: parsed.is_failed() || parsed.is_unhealthy(),
                replace_requested: parsed.is_to_be_replaced(),
                // Only the API server knows.
                write_refused: false,
                consumer: parsed.consumer().map(consumer),
                networks: parsed.addresses().keys().cloned().collect(),
                // What could not be read is absent already, and so is a reason of its own.
                problem: None,
            },
        })
    }
}

/// A text of which nobody has checked a character, as it may be shown.
fn sanitize(text: &str) -> String {
    one_line(text, 253)
}

fn consumer(reference: &api::ConsumerReference) -> Consumer {
    let text = |text: &Option<String>| sanitize(text.as_deref().unwrap_or_default()).into();
    Consumer {
        kind: text(&reference.kind),
        namespace: text(&reference.namespace),
        name: text(&reference.name),
    }
}
