//! Who was elected stays so while it is busy.

use std::{sync::Arc, thread, time::Duration};

use scheduler::{
    ledger::etcd::EtcdArgs,
    term::{Backend as _, Elected},
};
use tokio::runtime::Builder;

use crate::backends::{Cluster, arguments};

#[test]
fn a_decision_longer_than_the_lease_keeps_the_lease() {
    let cluster = Cluster::start(1);
    let lease = Duration::from_secs(2);
    let arguments = EtcdArgs {
        etcd_lease_seconds: 2,
        ..arguments("/busy")
    };
    // One thread, which the decision below has for itself.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let elected = Elected::new(cluster.endpoints.clone(), arguments, "one:1".to_owned());
    let tenure = runtime.block_on(elected.begin(&|_, _| ())).unwrap();
    let right = Arc::clone(tenure.right.as_ref().unwrap());

    runtime.block_on(async { thread::sleep(lease * 2) });

    assert!(right.holds(), "it has lapsed");
    assert!(!tenure.lost.is_cancelled());
    runtime.block_on(elected.end());
    assert!(
        tenure.lost.is_cancelled(),
        "who has given the right up has lost it"
    );
}
