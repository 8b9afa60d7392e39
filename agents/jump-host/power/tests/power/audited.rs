//! What is recorded of an action, whatever becomes of the process that carries it out.

use std::time::{Duration, Instant};

use proto::power::v1::Action;

use crate::{
    broken_bmcs::{BOUND, Broken},
    fault_server::Fault,
    log::log,
    tenants::{reason, run, set, term},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_audited_before_its_bmc_receives_it() {
    let log = log();
    let broken = Broken::start("power-audited", Fault::SilentToActions).await;
    let (mut client, token) = (broken.stage.grpc(), broken.token.clone());
    let request = set("own", Action::Reboot, "audited", &term(&mut client, &token).await);
    let call = tokio::spawn(async move { run(&mut client, &token, request).await.1 });
    let begun = Instant::now();
    while broken.server.actions().is_empty() {
        assert!(begun.elapsed() < BOUND, "the BMC gets no action: {}", log.text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A process that is killed now writes no other line.
    let words = ["SetPower", "host=\"metal/own\"", &broken.pod, "SHA256:key-of-ana"];
    let lines = log.audit(&words);
    assert_eq!(lines.len(), 1, "{}", log.text());
    for expected in ["outcome=\"SENDING\"", "reboot", "GracefulRestart", "shop/orders"] {
        assert!(lines[0].contains(expected), "{expected}: {lines:?}");
    }
    assert_eq!(reason(&call.await.unwrap().unwrap_err()), "OUTCOME_UNKNOWN");
    assert_eq!(log.audit(&words).len(), 2, "{}", log.text());
}
