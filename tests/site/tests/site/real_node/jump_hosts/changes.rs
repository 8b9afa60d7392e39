//! Who may log in to a pod, and keys that come and go in the spec and in Secrets while people work there.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::{sleep, timeout},
};

use super::{
    Scene,
    client::{Key, Login, Printed},
    create_secret, on_site, shop,
};
use crate::fixtures::{Cluster, PATIENCE, Role};

/// Sessions that are open.
const SESSIONS: usize = 50;
/// Logins at once.
const AT_ONCE: usize = 5;
/// Keys that are added, and then removed.
const KEYS: usize = 200;
/// A change is effective within this time.
const WITHIN: Duration = Duration::from_secs(10);

fn denied(what: &str, printed: &Printed) {
    let denied = printed.stderr.contains("Permission denied (publickey)");
    assert!(!printed.success && denied, "{what}: {printed:?}");
}

#[test]
fn certificates_log_in_to_the_pod_and_others_are_refused() {
    on_site("jump-logins", async |scene| {
        let (ana, authority, stranger) = (Key::new("ana"), Key::new("authority"), Key::new("stranger"));
        let host = scene.host("jump-logins", "a", "worker");
        scene.stage.load(&[host]).await;
        let entry = json!({"nodePort": 31_526, "sshUserCA": [format!("{}\n", authority.public())]});
        let wanted = shop("jump-logins", &ana, &entry).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;

        for (principals, validity) in [("ubuntu", "+1h"), ("nobody,shop", "+1h")] {
            let ben = authority.issues("ben", principals, validity);
            let name = login.as_holder_of(&ben).prints("id -un").await;
            assert_eq!(name, "ubuntu", "{principals}");
        }
        for (what, certificate) in [
            (
                "an expired certificate",
                authority.issues("ben", "ubuntu", "20200101:20200102"),
            ),
            (
                "a certificate with another principal",
                authority.issues("ben", "root,bank", "+1h"),
            ),
            (
                "a certificate of a strange authority",
                stranger.issues("ben", "ubuntu", "+1h"),
            ),
            ("a strange key", stranger.clone()),
        ] {
            denied(what, &login.as_holder_of(&certificate).run("true").await);
        }
        denied("root", &login.to("root").run("true").await);
        let by_password = ["-o", "PreferredAuthentications=password,keyboard-interactive"];
        denied("a password", &login.run_with(&by_password, "true").await);
        let elsewhere = format!("{}:22", scene.stage.site.node().unwrap().host_address());
        let forwarded = login.run_with(&["-W", &elsewhere], "").await;
        assert!(
            !forwarded.success && forwarded.stderr.contains("administratively prohibited"),
            "{forwarded:?}"
        );
        login.prints("true").await;
    });
}

/// A session whose user waits for what it sends to come back.
struct Session {
    sent: ChildStdin,
    received: Lines<BufReader<ChildStdout>>,
    _ssh: Child,
}

impl Session {
    async fn open(login: &Login) -> Self {
        let mut ssh = login.ssh();
        let ssh = ssh.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = ssh.spawn().unwrap();
        let mut session = Self {
            sent: ssh.stdin.take().unwrap(),
            received: BufReader::new(ssh.stdout.take().unwrap()).lines(),
            _ssh: ssh,
        };
        assert!(session.echoes("opened").await);
        session
    }

    async fn echoes(&mut self, text: &str) -> bool {
        let line = format!("{text}\n");
        if self.sent.write_all(line.as_bytes()).await.is_err() {
            return false;
        }
        let line = timeout(PATIENCE, self.received.next_line()).await;
        line.is_ok_and(|line| line.ok().flatten().as_deref() == Some(text))
    }
}

/// Changes the keys of the jump host's entry.
async fn admit(scene: &Scene, wanted: &Cluster, keys: &[String]) {
    let mut entry: Value = wanted.spec()["services"]["jumpHost"][0].clone();
    entry["sshAuthorizedKeys"] = json!(keys);
    let services = json!({"services": {"jumpHost": [entry]}});
    scene.stage.edit(wanted, services).await;
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < WITHIN, "{what} takes more than {WITHIN:?}");
        sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: effective after {:?}", began.elapsed());
}

#[test]
fn two_hundred_keys_and_a_secret_change_under_sessions() {
    on_site("jump-changes", async |scene| {
        let (ana, last) = (Key::new("ana"), Key::new("last"));
        let host = scene.host("jump-changes", "a", "worker");
        scene.stage.load(&[host]).await;
        let secret =
            json!({"metadata": {"name": "node-keys"}, "stringData": {"id_first": Key::new("n").private()}});
        create_secret(&scene.stage, "jump-changes", secret).await;
        let entry = json!({"nodePort": 31_527, "nodeSSHPrivateKeys": "node-keys"});
        let wanted = shop("jump-changes", &ana, &entry).role(Role::Worker, 1);
        let login = scene.jump_host(&wanted, &ana).await;
        let pod = scene.pod("jump-changes").await.uid();
        let opening = stream::iter(0..SESSIONS).map(async |_| Session::open(&login).await);
        let mut sessions: Vec<Session> = opening.buffer_unordered(AT_ONCE).collect().await;
        let mut keys = vec![ana.public()];
        keys.extend((1..KEYS).map(|index| Key::new(&format!("k{index}")).public()));
        keys.push(last.public());
        let as_last = login.as_holder_of(&last);

        admit(scene, &wanted, &keys).await;
        until("the last of 200 new keys", async || {
            as_last.run("true").await.success
        })
        .await;
        admit(scene, &wanted, &keys[..1]).await;
        until("their end", async || !as_last.run("true").await.success).await;
        denied("the removed key", &as_last.run("true").await);
        login.prints("true").await;

        let secrets: Api<Secret> = Api::namespaced(scene.stage.site.client(), "jump-changes");
        let added = Patch::Merge(json!({"stringData": {"id_second": Key::new("n").private()}}));
        secrets
            .patch("node-keys", &PatchParams::default(), &added)
            .await
            .unwrap();
        until("a new key for nodes", async || {
            let mode = login
                .run("stat -L -c %a /etc/opt/sip/ssh-private-keys/id_second")
                .await;
            mode.success && mode.stdout.trim_end() == "400"
        })
        .await;

        let mut cut = 0;
        for session in &mut sessions {
            cut += usize::from(!session.echoes("still here").await);
        }
        println!("{cut} of {} sessions were cut", sessions.len());
        assert_eq!((cut, sessions.len()), (0, SESSIONS));
        assert_eq!(scene.pod("jump-changes").await.uid(), pod);
    });
}
