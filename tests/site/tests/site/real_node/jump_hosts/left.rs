//! A host that left the cluster a moment ago: nobody there has power over it any more.

use serde_json::json;

use super::{client::Key, on_site, shop};
use crate::fixtures::Role;

#[test]
fn a_host_that_left_a_moment_ago_is_refused() {
    on_site("jump-left", async |scene| {
        let (ana, stage) = (Key::new("ana"), &scene.stage);
        let hosts = ["a", "b"].map(|name| scene.host("jump-left", name, "worker"));
        stage.load(&hosts).await;
        let wanted = shop("jump-left", &ana, &json!({"nodePort": 31_529})).role(Role::Worker, 2);
        let login = scene.jump_host(&wanted, &ana).await.open().await;
        let list = login.prints("host list").await;
        assert!(
            list.contains("jump-left-a") && list.contains("jump-left-b"),
            "{list}"
        );

        stage
            .edit(&wanted, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
            .await;
        let after = stage
            .until(&wanted, "hold one host", |object| {
                let members = object.data["status"]["placement"]["members"].as_array();
                members.is_some_and(|members| members.len() == 1)
            })
            .await;
        let stays = after.data["status"]["placement"]["members"][0]["name"]
            .as_str()
            .unwrap();
        let left = ["jump-left-a", "jump-left-b"]
            .into_iter()
            .find(|name| *name != stays);
        let left = left.unwrap();
        for command in ["reboot", "off", "on", "status"] {
            let refused = login.run(&format!("host {command} {left}")).await;
            let sentence = format!("holds no host {left:?}");
            assert!(
                !refused.success && refused.stderr.contains(&sentence),
                "{command}: {refused:?}"
            );
        }
        let list = login.prints("host list").await;
        assert!(list.contains(stays) && !list.contains(left), "{list}");
        assert!(login.run(&format!("host reboot {stays}")).await.success);
        let resets = scene.emulator.resets().unwrap();
        let resets: Vec<&String> = resets
            .iter()
            .filter(|name| name.starts_with("jump-left"))
            .collect();
        assert_eq!(resets, [stays], "only the member was restarted");
        // The audit log has the first of a quick series; the next line counts those that it withholds.
        let log = stage.site.log_tails(2_000);
        let mut audited = log
            .lines()
            .filter(|line| line.contains(left) && line.contains("holds no host"));
        assert!(audited.next().is_some(), "{log}");
    });
}
