//! A BMC that stops answering is named in the condition of the jump host, until it answers again.

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{process::Group, redfish_emulator::RedfishEmulator};
use serde_json::json;

use super::{CREDENTIALS, client::Key, on_site, shop};
use crate::fixtures::Role;

const CONDITION: &str = "JumpHostReady";
const SYSTEM: &str = "jump-bmc-a";

#[test]
fn a_bmc_that_stops_is_named_until_it_answers_again() {
    on_site("jump-bmc", async |scene| {
        let (ana, stage) = (Key::new("ana"), &scene.stage);
        // One of its own: other scenarios use the shared one meanwhile.
        let group = Group::new("jump-bmc").unwrap();
        let here = stage.site.node().unwrap().host_address();
        let mut emulator = RedfishEmulator::start_at(&group, "bmc", here, &[SYSTEM])
            .await
            .unwrap();
        let host = scene.host("jump-bmc", "a", "worker");
        stage
            .load(&[host.behind(&emulator.bmc_address(SYSTEM), CREDENTIALS)])
            .await;
        let unverified = json!({"spec": {"bmc": {"disableCertificateVerification": true}}});
        stage
            .hosts()
            .patch(SYSTEM, &PatchParams::default(), &Patch::Merge(unverified))
            .await
            .unwrap();
        let wanted = shop("jump-bmc", &ana, &json!({"nodePort": 31_525})).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;
        let pod = scene.pod("jump-bmc").await;
        let agent = stage.jump_host_agent();
        login.prints("host status worker-0").await;
        stage.condition_is(&wanted, CONDITION, "True", "Available").await;

        emulator.process.kill9().await.unwrap();
        let failed = login.run("host status worker-0").await;
        assert!(!failed.success && failed.stderr.contains(SYSTEM), "{failed:?}");
        let why = stage
            .condition_is(&wanted, CONDITION, "True", "BmcUnreachable")
            .await;
        assert_eq!(
            why,
            format!(
                "jumphost-shop: the last call to these BMCs failed: metal/{SYSTEM} (unreachable); `host` may not work for these hosts"
            )
        );

        emulator.restart().await.unwrap();
        login.prints("host status worker-0").await;
        stage.condition_is(&wanted, CONDITION, "True", "Available").await;
        assert_eq!(scene.pod("jump-bmc").await.uid(), pod.uid());
        assert_eq!(stage.jump_host_agent(), agent);
    });
}
