//! How long a caller waits, by its `grpc-timeout`: no value of it fails the call or the server.

use std::time::Duration;

use proto::inventory::v1::{ListSitesRequest, inventory_service_client::InventoryServiceClient};
use tonic::Code;

use crate::fixtures::{Served, operator};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn every_timeout_that_a_caller_names_is_answered() {
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let mut inventory = InventoryServiceClient::new(served.channel(&operator("ana")));
    let mut ask = async |timeout: &str| {
        let mut request = tonic::Request::new(ListSitesRequest::default());
        request
            .metadata_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        let answered = tokio::time::timeout(PATIENCE, inventory.list_sites(request)).await;
        let answered = answered.unwrap_or_else(|_| panic!("{timeout} is not answered"));
        answered.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    for past in ["0n", "1n", "0S", "0H"] {
        let code = ask(past).await;
        assert!(
            matches!(code, Code::DeadlineExceeded | Code::Cancelled),
            "{past}: {code:?}"
        );
    }
    for enough in ["99999999u", "10S", "99999999S", "99999999M", "99999999H"] {
        assert_eq!(ask(enough).await, Code::Ok, "{enough}");
    }
    // What is none by the protocol counts as none.
    for none in [
        "",
        "S",
        "5",
        "5s",
        "1.5S",
        "-1S",
        "100000000n",
        "18446744073709551616H",
    ] {
        assert_eq!(ask(none).await, Code::Ok, "{none:?}");
    }
}
