//! Sample hosts: `BareMetalHosts` with their network data, labelled as ViNO labels them.

use std::{collections::BTreeMap, net::Ipv4Addr};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// The label that says what a host is good for: `control-plane` or `worker`.
pub const FLAVOR: &str = "vino.airshipit.org/flavor";
/// The label that names a host's rack.
pub const RACK: &str = "vino.airshipit.org/rack";
/// The label that names the physical server.
pub const SERVER: &str = "vino.airshipit.org/host";
/// The id of the network in every sample host's network data, which the sample clusters' services use.
pub const NETWORK: &str = "oam-ipv4";

/// The one Secret with BMC credentials that all sample hosts share, as ViNO's virtual machines do.
const CREDENTIALS: &str = "sample-bmc-credentials";

/// Enough to keep the API server busy; more only makes single requests slower.
const CONCURRENT: usize = 32;

/// Why hosts could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{action} {object}")]
pub struct Error {
    action: &'static str,
    object: String,
    source: Box<kube::Error>,
}

/// One host to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses by the id of their network.
    pub addresses: BTreeMap<String, Ipv4Addr>,
    /// `status.provisioning.state`.
    pub state: String,
    /// The system behind the BMC, as the last part of its Redfish path.
    pub system: String,
    /// The whole address of a BMC that is there, and the Secret with its credentials.
    pub bmc: Option<(String, String)>,
}

impl Host {
    /// An available host with one address.
    #[must_use]
    pub fn new(name: &str, flavor: &str, rack: &str, address: Ipv4Addr) -> Self {
        let labels = [(FLAVOR, flavor), (RACK, rack), (SERVER, name)];
        Self {
            name: name.to_owned(),
            labels: labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            addresses: BTreeMap::from([(NETWORK.to_owned(), address)]),
            state: "available".to_owned(),
            system: name.to_owned(),
            bmc: None,
        }
    }

    /// Behind a BMC that is there, with the Secret that has its credentials.
    #[must_use]
    pub fn behind(mut self, address: &str, credentials: &str) -> Self {
        self.bmc = Some((address.to_owned(), credentials.to_owned()));
        self
    }

    /// With another label, or another value of one.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// In another state of provisioning.
    #[must_use]
    pub fn state(mut self, state: &str) -> Self {
        state.clone_into(&mut self.state);
        self
    }

    /// OpenStack `network_data`, as the text in the host's Secret.
    fn network_data(&self) -> Value {
        let networks: Vec<Value> = self
            .addresses
            .iter()
            .map(|(id, address)| {
                json!({
                    "id": id, "type": "ipv4", "link": "eno1",
                    "ip_address": address, "netmask": "255.0.0.0",
                    "dns_nameservers": [], "routes": [],
                })
            })
            .collect();
        json!({
            "links": [{"id": "eno1", "name": "eno1", "type": "phy", "mtu": 1500}],
            "networks": networks,
        })
    }

    fn network_data_secret(&self) -> String {
        format!("{}-network-data", self.name)
    }

    /// A MAC address made of its first address, so that no two hosts share one.
    fn mac(&self) -> String {
        let address = self.addresses.values().next().copied();
        let [a, b, c, d] = address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
        // Locally administered.
        format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
    }

    fn object(&self, namespace: &str) -> DynamicObject {
        let nobody = || {
            (
                format!("redfish+http://127.0.0.1:8000/redfish/v1/Systems/{}", self.system),
                CREDENTIALS.to_owned(),
            )
        };
        let (address, credentials) = self.bmc.clone().unwrap_or_else(nobody);
        let mut object = DynamicObject::new(&self.name, &resource())
            .within(namespace)
            .data(json!({
                "spec": {
                    "online": true,
                    // The baremetal-operator's webhook refuses every write to a host that it reaches by Redfish without it.
                    "bootMACAddress": self.mac(),
                    "bmc": {
                        "address": address,
                        "credentialsName": credentials,
                    },
                    "networkData": {"name": self.network_data_secret(), "namespace": namespace},
                },
            }));
        object.metadata.labels = Some(self.labels.clone());
        object
    }

    /// What the baremetal-operator reports of a host in this state.
    fn status(&self) -> Value {
        json!({"status": {
            "operationalStatus": "OK",
            "errorCount": 0,
            "errorMessage": "",
            "hardwareProfile": "unknown",
            "poweredOn": true,
            "provisioning": {"ID": "", "state": self.state, "image": {"url": ""}},
        }})
    }
}

/// `count` hosts spread over `racks` racks in turn; in each rack every fourth host is of flavor control-plane.
///
/// Names sort in the order of the list: `r001-h0001` is the first host of the first rack.
#[must_use]
pub fn fleet(count: u32, racks: u32) -> Vec<Host> {
    (0..count)
        .map(|index| {
            let (rack, place) = (index % racks + 1, index / racks + 1);
            let flavor = if place % 4 == 1 { "control-plane" } else { "worker" };
            // One address each in 10/8, counting from 10.1.0.1.
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + index);
            Host::new(
                &format!("r{rack:03}-h{place:04}"),
                flavor,
                &format!("r{rack:03}"),
                address,
            )
        })
        .collect()
}

/// The hosts of the demonstration, which `samples/hosts.yaml` has as a file.
#[must_use]
pub fn demonstration() -> Vec<Host> {
    fleet(24, 4)
}

/// The API of `BareMetalHosts`.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost"),
        "baremetalhosts",
    )
}

/// All `BareMetalHosts` of a namespace.
#[must_use]
pub fn api(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource())
}

/// Creates the hosts with their Secrets in a namespace, which must exist, and reports their state as the
/// baremetal-operator would. A thousand take about four seconds.
///
/// # Errors
/// When the API server refuses one of them.
pub async fn load(client: &Client, namespace: &str, hosts: &[Host]) -> Result<(), Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let credentials = secret(CREDENTIALS, [("username", "root"), ("password", "sample")]);
    let params = PatchParams::apply("sip-sandbox").force();
    secrets
        .patch(CREDENTIALS, &params, &Patch::Apply(credentials))
        .await
        .map_err(|source| Error {
            action: "apply the Secret",
            object: format!("{namespace}/{CREDENTIALS}"),
            source: Box::new(source),
        })?;
    stream::iter(hosts)
        .map(|host| create(client, namespace, host))
        .buffer_unordered(CONCURRENT)
        .try_for_each(|()| async { Ok(()) })
        .await
}

async fn create(client: &Client, namespace: &str, host: &Host) -> Result<(), Error> {
    let failed = |action| {
        let object = format!("{namespace}/{}", host.name);
        move |source| Error {
            action,
            object,
            source: Box::new(source),
        }
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let hosts = api(client.clone(), namespace);
    let network_data = secret(
        &host.network_data_secret(),
        [("networkData", &host.network_data().to_string())],
    );
    // The Secret first: a host whose network data is missing is a case of its own.
    secrets
        .create(&PostParams::default(), &network_data)
        .await
        .map_err(failed("create the network data of"))?;
    hosts
        .create(&PostParams::default(), &host.object(namespace))
        .await
        .map_err(failed("create the BareMetalHost"))?;
    hosts
        .patch_status(&host.name, &PatchParams::default(), &Patch::Merge(host.status()))
        .await
        .map_err(failed("report the state of the BareMetalHost"))?;
    Ok(())
}

fn secret<const N: usize>(name: &str, data: [(&str, &str); N]) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        string_data: Some(
            data.into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        ),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_sample_file_has_the_hosts_of_the_demonstration() {
        let file = include_str!("../samples/hosts.yaml");
        let documents: Vec<Value> = serde_saphyr::from_multiple(file).unwrap();
        let mut hosts = demonstration();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(documents.len(), hosts.len());
        for (document, host) in documents.iter().zip(&hosts) {
            let mut expected = serde_json::to_value(host.object("metal")).unwrap();
            expected["status"] = host.status()["status"].take();
            assert_eq!(*document, expected, "{}", host.name);
        }
    }

    #[test]
    fn a_fleet_is_spread_over_racks_with_unique_addresses() {
        let hosts = fleet(18, 4);

        let in_rack = |rack: &str| hosts.iter().filter(|host| host.labels[RACK] == rack).count();
        assert_eq!(["r001", "r002", "r003", "r004"].map(in_rack), [5, 5, 4, 4]);
        assert_eq!(
            hosts
                .iter()
                .map(|host| host.addresses[NETWORK])
                .collect::<BTreeSet<_>>()
                .len(),
            18
        );
        assert_eq!(
            hosts.iter().map(|host| &host.name).collect::<BTreeSet<_>>().len(),
            18
        );
        let racks_with_control_plane: BTreeSet<_> = hosts
            .iter()
            .filter(|host| host.labels[FLAVOR] == "control-plane")
            .map(|host| &host.labels[RACK])
            .collect();
        assert_eq!(racks_with_control_plane.len(), 4);
    }
}
