//! A real node runs pods as a site's node does, disturbs nobody, and leaves nothing behind.
//!
//! Where there can be none, these tests say why and show nothing; that root on Linux has one is a test of its own.

mod pods;
mod traces;

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use sandbox::{
    node::{self, Image, Obstacle},
    site::{Builder, Nodes, Site},
};

use self::traces::Traces;

/// Debian's HAProxy under a name of its own.
const HAPROXY: &str = "example/haproxy:1";

/// Whether there is a real node here. If not, says why.
fn there_is_one() -> bool {
    match node::obstacle() {
        None => true,
        Some(why) => {
            println!("not shown here: {why}");
            false
        }
    }
}

fn with_haproxy(name: &str) -> Builder {
    Site::builder(name)
        .nodes(Nodes::Real)
        .image(Image::new(HAPROXY, node::system_program("haproxy").unwrap()))
}

#[test]
fn a_real_node_needs_root_on_linux_and_says_so() {
    match Nodes::real_or_kwok(3) {
        (Nodes::Real, None) => {}
        (Nodes::Kwok(3), Some(Obstacle::NotLinux(_) | Obstacle::NotRoot | Obstacle::NotPermitted(_))) => {
            assert!(!(cfg!(target_os = "linux") && rustix::process::geteuid().is_root() && may_mount()));
        }
        other => panic!("{other:?}: `make setup` has to install what is missing"),
    }
}

#[test]
fn a_node_is_gone_after_its_owner_was_killed() {
    if !there_is_one() {
        return;
    }
    let mut owner = Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
        .args(["up", "--real-node"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let first_line = lines.next().unwrap().unwrap();
    let kubeconfig = first_line.strip_prefix("export KUBECONFIG=").unwrap();
    let traces = Traces::of_site(Path::new(kubeconfig).parent().unwrap());
    traces.are_all_there();

    owner.kill().unwrap();

    assert!(!owner.wait().unwrap().success());
    traces.are_gone();
}

/// Whether this root has `CAP_SYS_ADMIN`.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 21) != 0
}

#[tokio::test]
async fn two_sites_have_separate_nodes_and_leave_nothing() {
    if !there_is_one() {
        return;
    }
    let (first, second) = tokio::join!(with_haproxy("one").start(), with_haproxy("two").start());
    let (first, second) = (first.unwrap(), second.unwrap());
    let (first_traces, second_traces) = (
        Traces::of_site(first.directory()),
        Traces::of_site(second.directory()),
    );
    assert_ne!(first.node().unwrap().address(), second.node().unwrap().address());
    tokio::join!(pods::run(&first), pods::run(&second));
    let (port, cluster_ip) = (pods::at_node(&first), pods::at_cluster_ip(&first).await);
    pods::until_answers(port).await;
    pods::until_answers(cluster_ip).await;
    first_traces.are_all_there();
    // Master and worker of each pod.
    assert_eq!(first_traces.running("haproxy -W"), 4);

    drop(first);

    first_traces.are_gone();
    second_traces.are_all_there();
    pods::until_answers(pods::at_node(&second)).await;
}
