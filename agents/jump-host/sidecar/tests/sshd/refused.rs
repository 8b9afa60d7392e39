//! What nobody gets.

use std::net::TcpListener;

use crate::{
    keys::Key,
    rig::{Desired, Pod, address, possible, result},
};

#[tokio::test]
async fn passwords_strange_keys_and_root_are_refused() {
    if !possible() {
        return;
    }
    let (ana, stranger) = (Key::new("ana"), Key::new("stranger"));
    let pod = Pod::start(&Desired::with_key(&ana)).await;
    let denied = |said: Result<(), String>| {
        let said = said.unwrap_err();
        assert!(said.contains("Permission denied (publickey)"), "{said}");
    };
    denied(pod.lets_in(&stranger));
    let password = ["-o", "PreferredAuthentications=password,keyboard-interactive"];
    denied(result(&pod.ssh(&ana, &password).arg("true").output().unwrap()));
    for user in ["root", "nobody", "sshd"] {
        denied(result(&pod.ssh_as(user, &ana, &[]).arg("true").output().unwrap()));
    }
    pod.lets_in(&ana).unwrap();
}

#[tokio::test]
async fn nothing_is_forwarded_elsewhere() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let pod = Pod::start(&Desired::with_key(&ana)).await;
    let (elsewhere, free) = (address(), address());
    let listener = TcpListener::bind((elsewhere, 22)).unwrap();
    let target = format!("{}", listener.local_addr().unwrap());
    let said = result(&pod.ssh(&ana, &["-W", &target]).output().unwrap()).unwrap_err();
    assert!(said.contains("administratively prohibited"), "{said}");
    let strict = ["-o", "ExitOnForwardFailure=yes"];
    for forward in [
        format!("-R{free}:9000:{target}"),
        "-R/tmp/socket:127.0.0.1:1".to_owned(),
    ] {
        let said = result(&pod.ssh(&ana, &strict).arg(&forward).arg("true").output().unwrap());
        // ssh takes the options behind the destination for its own, too.
        let said = said.unwrap_err();
        assert!(
            said.contains("remote port forwarding failed") || said.contains("administratively"),
            "{said}"
        );
    }
    let agent = pod
        .ssh(&ana, &["-A"])
        .arg("echo agent=$SSH_AUTH_SOCK display=$DISPLAY")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(agent.stdout).unwrap(), "agent= display=\n");
    let tunnel = pod
        .ssh(&ana, &["-w", "0:0", "-o", "ExitOnForwardFailure=yes"])
        .arg("true")
        .output();
    assert!(!tunnel.unwrap().status.success());
}

#[tokio::test]
async fn tenant_files_cannot_keep_sshd_from_starting() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let mut pod = Pod::prepared(&["ubuntu:x:1000:1000::/home/ubuntu:/bin/sh"]);
    pod.write(&Desired::with_key(&ana)).await;
    std::os::unix::fs::symlink("/etc", pod.path("home/.ssh")).unwrap();
    std::os::unix::fs::symlink("/absent/file", pod.path("home/.profile")).unwrap();
    pod.run();
    pod.is_ready();
    let config = pod.prints(&ana, "readlink .ssh/config");
    assert_eq!(config, "/etc/opt/sip/ssh_config");
}
