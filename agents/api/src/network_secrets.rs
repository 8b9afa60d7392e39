//! Which Secrets hold the addresses of a host, and in which order they count.
//!
//! CAPM3 with a `Metal3DataTemplate` replaces `spec.networkData`, and deletes the Secret that it names together with the Machine. So a
//! host falls back on Secrets that are the site's own.

use crate::annotations;
use crate::bare_metal_host::BareMetalHost;
use crate::network_data::SecretName;

/// The Secrets that may hold the addresses of a host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetworkSecrets {
    named: Option<SecretName>,
    fallbacks: Box<[SecretName]>,
    is_remembered: bool,
}

impl NetworkSecrets {
    /// Those that a host names, in its namespace unless `spec.networkData` names another.
    #[must_use]
    pub fn named_by(object: &BareMetalHost) -> Self {
        let own = object.metadata.namespace.as_deref().unwrap_or_default();
        let given = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        let in_own = |name: String| SecretName {
            namespace: own.to_owned(),
            name,
        };
        let network_data = object.spec.network_data.as_ref().and_then(|reference| {
            Some(SecretName {
                namespace: given(reference.namespace.as_ref()).unwrap_or_else(|| own.to_owned()),
                name: given(reference.name.as_ref())?,
            })
        });
        let preprovisioning = given(object.spec.preprovisioning_network_data_name.as_ref()).map(in_own);
        let annotations = object.metadata.annotations.as_ref();
        let remembered = given(annotations.and_then(|all| all.get(annotations::NETWORK_DATA))).map(in_own);
        // A Secret of another namespace is not recorded. Neither is `preprovisioningNetworkDataName`, which metal3 does not change.
        let is_remembered = network_data
            .as_ref()
            .is_none_or(|secret| secret.namespace != own || Some(secret) == remembered.as_ref());
        // The baremetal-operator, too, uses the second where the first is absent.
        let named = network_data.or_else(|| preprovisioning.clone());
        let mut fallbacks = Vec::new();
        for secret in preprovisioning.into_iter().chain(remembered) {
            if named.as_ref() != Some(&secret) && !fallbacks.contains(&secret) {
                fallbacks.push(secret);
            }
        }
        Self {
            named,
            fallbacks: fallbacks.into(),
            is_remembered,
        }
    }

    /// The one that holds what is on the host, or will be when it is provisioned: of `spec.networkData`, else of
    /// `spec.preprovisioningNetworkDataName`.
    #[must_use]
    pub fn named(&self) -> Option<&SecretName> {
        self.named.as_ref()
    }

    /// Those that hold its addresses in networks that [`NetworkSecrets::named`] lacks, the first before the second. Not while the
    /// host is in use: its addresses are those that it was provisioned with.
    #[must_use]
    pub fn fallbacks(&self) -> &[SecretName] {
        &self.fallbacks
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &SecretName> {
        self.named.iter().chain(&self.fallbacks)
    }

    /// The Secret that annotation [`annotations::NETWORK_DATA`] is to name and does not name yet, provided that it is the site's own.
    #[must_use]
    pub fn unremembered(&self) -> Option<&SecretName> {
        self.named.as_ref().filter(|_| !self.is_remembered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::host;

    /// Annotations and spec of a host; and the Secret that it names, its fallbacks, and the one that is not remembered.
    type Case = (
        &'static str,
        &'static str,
        Option<&'static str>,
        &'static [&'static str],
        Option<&'static str>,
    );

    #[test]
    fn secrets_count_in_a_fixed_order() {
        let secret = |text: &str| {
            let (namespace, name) = text.split_once('/').unwrap();
            SecretName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }
        };
        let cases: [Case; 8] = [
            ("{}", "{}", None, &[], None),
            (
                "{}",
                "{networkData: {name: a}}",
                Some("lab/a"),
                &[],
                Some("lab/a"),
            ),
            (
                "{}",
                "{networkData: {name: a, namespace: far}}",
                Some("far/a"),
                &[],
                None,
            ),
            (
                "{}",
                "{preprovisioningNetworkDataName: b}",
                Some("lab/b"),
                &[],
                None,
            ),
            (
                "{sip.airshipit.org/network-data: a}",
                "{networkData: {name: a, namespace: ''}, preprovisioningNetworkDataName: b}",
                Some("lab/a"),
                &["lab/b"],
                None,
            ),
            (
                "{sip.airshipit.org/network-data: a}",
                "{networkData: {name: rendered}, preprovisioningNetworkDataName: b}",
                Some("lab/rendered"),
                &["lab/b", "lab/a"],
                Some("lab/rendered"),
            ),
            (
                "{sip.airshipit.org/network-data: a}",
                "{}",
                None,
                &["lab/a"],
                None,
            ),
            (
                "{sip.airshipit.org/network-data: ''}",
                "{networkData: {name: ''}, preprovisioningNetworkDataName: ''}",
                None,
                &[],
                None,
            ),
        ];
        for (annotations, spec, named, fallbacks, unremembered) in cases {
            let object = host(&format!(
                "{{metadata: {{namespace: lab, name: h, uid: u, annotations: {annotations}}}, spec: {spec}}}"
            ));
            let secrets = NetworkSecrets::named_by(&object);
            assert_eq!(
                secrets.named(),
                named.map(secret).as_ref(),
                "{annotations} {spec}"
            );
            let expected: Vec<SecretName> = fallbacks.iter().map(|text| secret(text)).collect();
            assert_eq!(secrets.fallbacks(), expected, "{annotations} {spec}");
            assert_eq!(
                secrets.unremembered(),
                unremembered.map(secret).as_ref(),
                "{annotations} {spec}"
            );
        }
    }
}
