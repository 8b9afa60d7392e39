//! Where the site's API server is reached: pods may connect to few addresses, and this is one that they need.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kit::service::Error;
use kube::{Api, Client, api::ListParams};

const API_SERVER_NAMESPACE: &str = "default";
const API_SERVER_SERVICE: &str = "kubernetes";

/// The address of its Service, and those of the servers behind it: what a network policy compares depends on the network.
pub(crate) async fn addresses(client: &Client) -> Result<Vec<SocketAddr>, Error> {
    let service = Api::<Service>::namespaced(client.clone(), API_SERVER_NAMESPACE)
        .get_opt(API_SERVER_SERVICE)
        .await
        .map_err(Error::kubernetes("read the Service of the API server"))?;
    let listed = ListParams::default().labels(&format!("kubernetes.io/service-name={API_SERVER_SERVICE}"));
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), API_SERVER_NAMESPACE)
        .list(&listed)
        .await
        .map_err(Error::kubernetes("list the addresses of the API server"))?;
    let mut all: Vec<SocketAddr> = service.iter().flat_map(of_service).collect();
    all.extend(slices.items.iter().flat_map(of_slice));
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn of_service(service: &Service) -> Vec<SocketAddr> {
    let spec = service.spec.as_ref();
    let addresses = spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    let ports = spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports: Vec<i32> = ports.map(|port| port.port).collect();
    socket_addresses(addresses, &ports)
}

fn of_slice(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let addresses = slice
        .endpoints
        .iter()
        .flatten()
        .flat_map(|endpoint| &endpoint.addresses);
    let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    socket_addresses(addresses, &ports.collect::<Vec<_>>())
}

fn socket_addresses<'a>(addresses: impl Iterator<Item = &'a String>, ports: &[i32]) -> Vec<SocketAddr> {
    let addresses = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
    let ports = ports.iter().filter_map(|port| u16::try_from(*port).ok());
    addresses
        .flat_map(|address| ports.clone().map(move |port| SocketAddr::new(address, port)))
        .collect()
}
