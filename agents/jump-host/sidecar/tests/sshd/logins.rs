//! Who is let in, and what they find.

use crate::{
    keys::Key,
    rig::{Desired, Pod, possible},
};

#[tokio::test]
async fn a_listed_key_logs_in_to_the_account_of_the_image() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let pod = Pod::start(&Desired::with_key(&ana)).await;
    assert_eq!(
        pod.prints(&ana, "id -un; id -u; pwd"),
        "ubuntu\n1000\n/home/ubuntu"
    );
    let environment = pod.prints(&ana, "env");
    for expected in [
        "PATH=/opt/sip/bin:",
        "SIP_CLUSTER=shop/orders",
        "SIP_POWER_ADDRESS=power.example:8443",
    ] {
        assert!(environment.contains(expected), "{expected}: {environment}");
    }
    // By which key, for the audit log of power control.
    let told = pod.prints(&ana, "cat \"$SSH_USER_AUTH\"");
    let key: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(key[0], "publickey", "{told}");
    assert!(ana.public().contains(&key[1..].join(" ")), "{told}");
    // A login shell reads files of the image first.
    let shell = pod
        .ssh(&ana, &["-tt"])
        .arg("sh -lc 'command -v sip-jump-host-sidecar; tty'")
        .output();
    let shell = format!("{:?}", shell.unwrap());
    assert!(shell.contains("/opt/sip/bin/sip-jump-host-sidecar"), "{shell}");
    assert!(shell.contains("/dev/pts/"), "{shell}");
    // Nobody can change what sshd reads.
    assert_eq!(
        pod.prints(&ana, "echo x >> /etc/opt/sip/authorized_keys || echo no"),
        "no"
    );
}

#[tokio::test]
async fn sessions_of_openssh_7_6_have_the_same_environment() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let pod = Pod::start_old(&Desired::with_key(&ana)).await;
    let environment = pod.prints(&ana, "env");
    for expected in [
        "PATH=/opt/sip/bin:",
        "SIP_CLUSTER=shop/orders",
        "SIP_POWER_ADDRESS=power.example:8443",
    ] {
        assert!(environment.contains(expected), "{expected}: {environment}");
    }
    assert_eq!(
        pod.prints(&ana, "command -v sip-jump-host-sidecar"),
        "/opt/sip/bin/sip-jump-host-sidecar"
    );
    // sshd reads a changed configuration as newer ones do.
    let ben = Key::new("ben");
    pod.write(&Desired {
        nodes: vec![("a".to_owned(), [192, 0, 2, 1].into())],
        ..Desired::with_key(&ben)
    })
    .await;
    pod.logs("sshd reads its configuration again");
    pod.is_ready();
    assert_eq!(pod.prints(&ben, "id -un"), "ubuntu");
}

#[tokio::test]
async fn options_restrict_a_key() {
    if !possible() {
        return;
    }
    let (ana, ben) = (Key::new("ana"), Key::new("ben"));
    let desired = Desired {
        keys: vec![
            format!("from=\"192.0.2.0/24\" {}", ana.public()),
            format!("no-pty,expiry-time=\"20990101\" {}", ben.public()),
        ],
        ..Desired::with_key(&ana)
    };
    let pod = Pod::start(&desired).await;
    let refused = pod.lets_in(&ana).unwrap_err();
    assert!(refused.contains("Permission denied (publickey)"), "{refused}");
    pod.lets_in(&ben).unwrap();
    let no_pty = pod.ssh(&ben, &["-tt"]).arg("tty").output().unwrap();
    let said = format!("{no_pty:?}");
    assert!(said.contains("PTY allocation request failed"), "{said}");
}

#[test]
fn an_image_without_the_account_says_so() {
    if !possible() {
        return;
    }
    let mut pod = Pod::prepared(&["debian:x:1000:1000::/home/debian:/bin/sh"]);
    pod.run();
    let log = pod.ended();
    assert!(
        log.contains("the image has no user ubuntu with the UID 1000"),
        "{log}"
    );
}
