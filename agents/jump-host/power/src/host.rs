//! A host as its objects describe it: its BMC, who may log in, and whether baremetal-operator is at work on it.

use std::collections::BTreeSet;

use api::{BareMetalHost, Bmc, OperationalStatus, ProvisioningState, annotations, labels};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kit::{
    apply,
    placement::{ClusterId, HostId},
};
use kube::{Api, Client, Resource as _, ResourceExt as _};

use crate::{
    bmc::{Address, Credentials},
    error::Error,
    redfish::{Power, Route},
};

/// A member's BareMetalHost, as read a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    id: HostId,
    object: BareMetalHost,
}

impl Host {
    /// Reads the host of this uid.
    ///
    /// # Errors
    /// [`Error::BmcUnusable`] when there is no such host, or it is in a namespace that the site does not list; [`Error::ApiServer`].
    pub(crate) async fn read(
        client: &Client,
        namespaces: &BTreeSet<String>,
        id: &HostId,
    ) -> Result<Self, Error> {
        let key = id.key();
        let unusable = |why: &str| Error::BmcUnusable {
            host: id.to_string(),
            why: why.to_owned(),
        };
        if !namespaces.contains(&key.namespace) {
            return Err(unusable("hostNamespaces of the site does not list its namespace"));
        }
        let hosts = Api::<BareMetalHost>::namespaced(client.clone(), &key.namespace);
        let found = match hosts.get_opt(&key.name).await {
            Err(error) if apply::code(&error) == Some(403) => {
                return Err(unusable(
                    "the jump-host agent may not read hosts in its namespace",
                ));
            }
            found => found.map_err(Error::api_server("read BareMetalHosts"))?,
        };
        let object = found
            .filter(|found| found.uid().as_deref() == Some(id.uid()))
            .ok_or_else(|| unusable("there is no BareMetalHost of its uid"))?;
        Ok(Self {
            id: id.clone(),
            object,
        })
    }

    /// Which host it is.
    pub(crate) fn id(&self) -> &HostId {
        &self.id
    }

    /// Namespace and name, for messages.
    pub(crate) fn name(&self) -> String {
        self.id.to_string()
    }

    /// For Events.
    pub(crate) fn reference(&self) -> ObjectReference {
        self.object.object_ref(&())
    }

    /// State of its provisioning, as baremetal-operator spells it.
    pub(crate) fn provisioning_state(&self) -> String {
        let status = self.object.status.as_ref();
        let provisioning = status.and_then(|status| status.provisioning.as_ref());
        provisioning
            .and_then(|provisioning| provisioning.state.clone())
            .unwrap_or_default()
    }

    /// Power state as baremetal-operator last saw it.
    pub(crate) fn last_power(&self) -> Power {
        match self.object.status.as_ref().and_then(|status| status.powered_on) {
            Some(true) => Power::On,
            Some(false) => Power::Off,
            None => Power::Unknown,
        }
    }

    /// Why its power state must not be changed now; `None` when it may be.
    pub(crate) fn blocked(&self) -> Option<String> {
        if self.object.meta().deletion_timestamp.is_some() {
            return Some("its BareMetalHost is being deleted".to_owned());
        }
        if self
            .object
            .annotations()
            .contains_key(annotations::POWER_WHILE_BUSY)
        {
            return None;
        }
        let state = ProvisioningState::parse(&self.provisioning_state());
        let status = self.object.status.as_ref();
        let operational = status.and_then(|status| status.operational_status.as_deref());
        let operational = OperationalStatus::parse(operational.unwrap_or_default());
        let what = match (&state, &operational) {
            (_, OperationalStatus::Servicing) => "servicing".to_owned(),
            (state, _) if is_busy(state) => state.to_string(),
            _ => return None,
        };
        Some(format!(
            "baremetal-operator reports it as {what}; a site administrator can allow changes with the annotation {}",
            annotations::POWER_WHILE_BUSY
        ))
    }

    /// A warning for users before its power state becomes `on` or off.
    pub(crate) fn notes(&self, on: bool) -> Vec<String> {
        let annotated = |key: &str| self.object.annotations().contains_key(key);
        let unmanaged = annotated(annotations::PAUSED) || annotated(annotations::DETACHED);
        match self.object.spec.online {
            Some(online) if online != on && !unmanaged => vec![format!(
                "spec.online of BareMetalHost {} is {online}, so baremetal-operator will turn the host {} again",
                self.id,
                if online { "on" } else { "off" }
            )],
            Some(_) | None => Vec::new(),
        }
    }

    /// Whether two reads of the host name the same BMC, with the same scheme and settings.
    pub(crate) fn has_bmc_of(&self, other: &Self) -> bool {
        self.object.spec.bmc == other.object.spec.bmc
    }

    /// Whether its labels name another cluster than this one. A host that was claimed a moment ago may have none.
    pub(crate) fn is_labelled_for_another(&self, cluster: &ClusterId) -> bool {
        let named = self.object.labels();
        let differs = |key: &str, own: &str| named.get(key).is_some_and(|named| named != own);
        differs(labels::CLUSTER_NAME, cluster.name())
            || differs(labels::CLUSTER_NAMESPACE, cluster.namespace())
    }

    /// Where its BMC is, and how it is reached.
    ///
    /// # Errors
    /// [`Error::BmcUnusable`].
    pub(crate) fn bmc(&self, proxy: bool) -> Result<(Address, Route), Error> {
        let Bmc {
            address,
            credentials_name: _,
            disable_certificate_verification,
        } = self.object.spec.bmc.clone().unwrap_or_default();
        let address =
            Address::parse(address.as_deref()).map_err(|refused| self.unusable(refused.to_string()))?;
        let route = Route {
            verify: disable_certificate_verification != Some(true),
            proxy,
        };
        Ok((address, route))
    }

    /// Reads who may log in to its BMC: the one Secret that it names, in its own namespace.
    ///
    /// # Errors
    /// [`Error::BmcUnusable`], [`Error::ApiServer`].
    pub(crate) async fn credentials(&self, client: &Client) -> Result<Credentials, Error> {
        let name = self
            .object
            .spec
            .bmc
            .as_ref()
            .and_then(|bmc| bmc.credentials_name.clone());
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.unusable("spec.bmc.credentialsName is absent".to_owned()))?;
        let secrets = Api::<Secret>::namespaced(client.clone(), &self.id.key().namespace);
        let secret = match secrets.get_opt(&name).await {
            Ok(secret) => secret,
            // A name that no object can have never reaches the API server.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return Err(self.unusable(format!("the agent may not read Secret {name}")));
            }
            Err(error) => return Err(Error::api_server("read the Secret of a BMC")(error)),
        };
        let secret = secret.ok_or_else(|| self.unusable(format!("Secret {name} does not exist")))?;
        Credentials::parse(&secret).map_err(|incomplete| self.unusable(incomplete.to_string()))
    }

    fn unusable(&self, why: String) -> Error {
        Error::BmcUnusable {
            host: self.name(),
            why,
        }
    }
}

/// Whether baremetal-operator itself powers the host on and off in this state. One that is not known may be such a state.
fn is_busy(state: &ProvisioningState) -> bool {
    match state {
        ProvisioningState::Registering
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Provisioning
        | ProvisioningState::Deprovisioning
        | ProvisioningState::Inspecting
        | ProvisioningState::Deleting
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Unknown(_) => true,
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::NotReported => false,
    }
}

#[cfg(test)]
mod tests {
    use kit::placement::ObjectKey;
    use serde_json::{Value, json};

    use super::*;

    fn host(changes: &Value) -> Host {
        let mut object = json!({"metadata": {"name": "a", "namespace": "metal", "uid": "u"}});
        for (key, value) in changes.as_object().unwrap() {
            if key == "annotation" {
                object["metadata"]["annotations"] = json!({value.as_str().unwrap(): ""});
            } else {
                object[key] = value.clone();
            }
        }
        let key = ObjectKey {
            namespace: "metal".to_owned(),
            name: "a".to_owned(),
        };
        Host {
            id: HostId::new(key, "u"),
            object: serde_json::from_value(object).unwrap(),
        }
    }

    fn in_state(state: &str) -> Value {
        json!({"status": {"provisioning": {"state": state}}})
    }

    #[test]
    fn a_provisioning_host_is_blocked_unless_an_operator_allows() {
        for (state, blocked) in [
            ("", false),
            ("available", false),
            ("provisioned", false),
            ("externally provisioned", false),
            ("registering", true),
            ("inspecting", true),
            ("preparing", true),
            ("provisioning", true),
            ("deprovisioning", true),
            ("deleting", true),
            ("powering off before delete", true),
            ("something new", true),
        ] {
            let mut changes = in_state(state);
            assert_eq!(host(&changes).blocked().is_some(), blocked, "{state}");
            changes["annotation"] = annotations::POWER_WHILE_BUSY.into();
            assert_eq!(host(&changes).blocked(), None, "{state}");
        }
        let servicing =
            json!({"status": {"operationalStatus": "servicing", "provisioning": {"state": "provisioned"}}});
        assert!(host(&servicing).blocked().unwrap().contains("servicing"));
    }

    #[test]
    fn a_note_warns_when_baremetal_operator_reverts_a_change() {
        let online = json!({"spec": {"online": true}});
        assert_eq!(host(&online).notes(true).len(), 0);
        let notes = host(&online).notes(false);
        assert!(notes[0].contains("turn the host on again"), "{notes:?}");
        let mut paused = online;
        paused["annotation"] = annotations::PAUSED.into();
        assert_eq!(host(&paused).notes(false).len(), 0);
    }

    #[test]
    fn a_host_whose_bmc_was_changed_has_another_one() {
        let of = |address: &str, secret: &str| {
            host(&json!({"spec": {"bmc": {"address": address, "credentialsName": secret}}}))
        };
        let address = "redfish://192.0.2.1/redfish/v1/Systems/1";
        assert!(of(address, "s").has_bmc_of(&of(address, "s")));
        assert!(!of(address, "s").has_bmc_of(&of("redfish://192.0.2.2/redfish/v1/Systems/1", "s")));
        assert!(!of(address, "s").has_bmc_of(&of(address, "t")));
    }

    #[test]
    fn certificates_are_verified_unless_the_host_says_otherwise() {
        let address = "redfish://192.0.2.1/redfish/v1/Systems/1";
        for (given, verify) in [(Value::Null, true), (json!(false), true), (json!(true), false)] {
            let bmc = json!({"spec": {"bmc": {"address": address, "disableCertificateVerification": given}}});
            let (_, route) = host(&bmc).bmc(false).unwrap();
            assert_eq!(route, Route { verify, proxy: false });
        }
        let error = host(&json!({})).bmc(true).unwrap_err();
        assert!(
            error.to_string().contains("spec.bmc.address is absent"),
            "{error}"
        );
    }
}
