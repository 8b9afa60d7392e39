//! The part of metal3's `BareMetalHost` that a scheduler reads. Tolerant: everything is optional, enumerations are
//! text, and what metal3 adds is passed over.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const GROUP: &str = "metal3.io";
const VERSION: &str = "v1alpha1";
const API_VERSION: &str = "metal3.io/v1alpha1";
const KIND: &str = "BareMetalHost";
const PLURAL: &str = "baremetalhosts";

/// A bare-metal host, `metal3.io/v1alpha1`. Written out rather than derived because metal3 does not require `spec`:
/// one host without it must not make a whole list unreadable.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHost {
    /// Always `metal3.io/v1alpha1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Always `BareMetalHost`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Name, namespace, uid, labels, annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The desired state of the host.
    #[serde(default)]
    pub spec: BareMetalHostSpec,
    /// The observed state of the host, as metal3 writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BareMetalHostStatus>,
}

fn api_version() -> String {
    API_VERSION.to_owned()
}

fn kind() -> String {
    KIND.to_owned()
}

impl BareMetalHost {
    /// A host with this name and spec, and without status. The request that creates it has the namespace; the API server sets the uid.
    #[must_use]
    pub fn new(name: &str, spec: BareMetalHostSpec) -> Self {
        Self {
            api_version: api_version(),
            kind: kind(),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        }
    }
}

impl kube::Resource for BareMetalHost {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn api_version((): &()) -> Cow<'_, str> {
        API_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The desired state of a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// Whether the host should be powered on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// How the host's BMC is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// Secret with the host's networkData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Secret, in the host's namespace, with the network data that the host uses before it is provisioned, and afterwards too if
    /// `networkData` is absent. No provider of Cluster API changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprovisioning_network_data_name: Option<String>,
    /// What uses the host, for example Cluster API's `Metal3Machine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ConsumerReference>,
}

/// How a host's BMC is reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// URL, for example `redfish+https://192.0.2.12/redfish/v1/Systems/System.Embedded.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Secret, in the host's namespace, with `username` and `password`. Never read by placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_name: Option<String>,
    /// Whether the BMC's certificate is not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
}

/// Names a Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace. Absent or empty: that of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What uses a host.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerReference {
    /// API version of the consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace of the consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The observed state of a host, as metal3 writes it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostStatus {
    /// State of provisioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
    /// `OK`, `discovered`, `error`, `delayed`, `detached`, `servicing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operational_status: Option<String>,
    /// Last error; empty if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Whether the host is powered on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powered_on: Option<bool>,
    /// What inspection found. Only whether it is there matters here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::crd::any_object")]
    pub hardware: Option<serde_json::Map<String, serde_json::Value>>,
    /// Conditions of the baremetal-operator 0.13 or later; only `Healthy` is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<HostCondition>>,
}

/// A condition of a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCondition {
    /// Type, such as `Healthy`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `True`, `False` or `Unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Reason of the condition, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of provisioning.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    /// `available`, `ready`, `provisioned`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}
