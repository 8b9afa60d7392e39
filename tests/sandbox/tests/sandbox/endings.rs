//! Whatever happens to the process that brought a site up, nothing of the site is left behind.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{
    process::{Group, Program},
    site::{Nodes, Site},
};

/// The processes whose command line names the directory: all of a site's, its watchdog included.
fn processes_of(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let command = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            command.contains(directory).then_some(command)
        })
        .collect()
}

fn assert_nothing_is_left(directory: &Path) {
    let started = Instant::now();
    while directory.exists() || !processes_of(directory).is_empty() {
        let left = (directory.exists(), processes_of(directory));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{}: {left:?}",
            directory.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `sip-sandbox up`, once it has printed how to reach its site; with the rest of what it prints.
fn up() -> (Child, BufReader<ChildStdout>, PathBuf) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
        .args(["up", "--nodes=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first_line = String::new();
    output.read_line(&mut first_line).unwrap();
    let kubeconfig = first_line
        .trim()
        .strip_prefix("export KUBECONFIG=")
        .expect("the first line exports KUBECONFIG");
    let directory = Path::new(kubeconfig).parent().unwrap().to_owned();
    (child, output, directory)
}

#[test]
fn a_site_ends_with_its_owner() {
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let (mut owner, _output, directory) = up();
        let running = processes_of(&directory);
        for part in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kwok",
        ] {
            assert!(
                running.iter().any(|command| command.contains(part)),
                "{part} is not among {running:#?}"
            );
        }

        kill_process(Pid::from_child(&owner), signal).unwrap();

        let status = owner.wait().unwrap();
        assert_eq!(status.success(), signal != Signal::KILL, "{signal:?}: {status}");
        assert_nothing_is_left(&directory);
    }
}

#[tokio::test]
async fn a_dropped_site_is_gone_at_once() {
    let site = Site::builder("dropped").nodes(Nodes::None).start().await.unwrap();
    let directory = site.directory().to_owned();
    assert!(processes_of(&directory).len() >= 3);

    drop(site);

    assert!(!directory.exists());
    assert_nothing_is_left(&directory);
}

#[test]
fn a_panic_takes_the_processes_along() {
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _guard = runtime.enter();
        let group = Group::new("panic").unwrap();
        let directory = group.directory().to_owned();
        let _sleeper = group.spawn(sleeper(&directory)).unwrap();
        tell.send(directory).unwrap();
        panic!("on purpose");
    });

    let directory = told.recv().unwrap();

    assert!(panicked.join().is_err());
    assert_nothing_is_left(&directory);
}

/// A program that lives for an hour, has a child that does so too, and heeds no polite request.
fn sleeper(directory: &Path) -> Program {
    let script = "trap '' TERM INT HUP; sleep 3600 & while :; do wait; done";
    Program::new("sleeper", "/bin/sh")
        .args(["-c", script])
        .arg(directory.join("sleeper"))
}

#[tokio::test]
async fn stop_kills_what_does_not_heed_it_and_its_children() {
    let group = Group::new("stubborn").unwrap();
    let mut process = group.spawn(sleeper(group.directory())).unwrap();
    let pid = process.pid().unwrap();
    wait_for_child(pid);

    let ended_by_itself = process.stop(Duration::from_millis(100)).await.unwrap();

    assert_eq!(ended_by_itself, None);
    assert_eq!(process.pid(), None);
    wait_for_no_child(pid);
}

#[tokio::test]
async fn a_killed_process_restarts_and_continues_its_log() {
    let group = Group::new("restart").unwrap();
    let script = "echo started; sleep 3600";
    let mut process = group
        .spawn(Program::new("talker", "/bin/sh").args(["-c", script]))
        .unwrap();
    let first = process.pid().unwrap();
    wait_for_child(first);

    process.restart().await.unwrap();

    let second = process.pid().unwrap();
    assert_ne!(first, second);
    wait_for_no_child(first);
    wait_for_child(second);
    assert_eq!(process.log_tail(10), "started\nstarted");
}

#[tokio::test]
async fn a_paused_process_does_nothing_until_it_is_resumed() {
    let group = Group::new("pause").unwrap();
    let process = group.spawn(sleeper(group.directory())).unwrap();
    let pid = process.pid().unwrap();
    wait_for_child(pid);

    process.pause().unwrap();
    wait_for_state(pid, |state| state == "T");

    process.resume().unwrap();
    wait_for_state(pid, |state| state != "T");
}

#[tokio::test]
async fn an_early_end_is_reported_with_the_end_of_the_log() {
    let group = Group::new("early").unwrap();
    let program = Program::new("early", "/bin/sh").args(["-c", "echo no such flag; exit 3"]);
    let mut process = group.spawn(program).unwrap();
    process.ended().await.unwrap();

    let error = process.check().unwrap_err().to_string();

    assert_eq!(
        error,
        "early has ended: exit status: 3. The end of its log:\nno such flag"
    );
}

#[tokio::test]
async fn the_environment_of_the_tester_does_not_reach_the_program() {
    let group = Group::new("environment").unwrap();
    let program = Program::new("env", "/usr/bin/env").env("KUBECONFIG", "/a/kubeconfig");
    let mut process = group.spawn(program).unwrap();
    process.ended().await.unwrap();

    let variables = process.log_tail(100);

    assert!(variables.contains("KUBECONFIG=/a/kubeconfig"), "{variables}");
    assert!(!variables.contains("CARGO_MANIFEST_DIR"), "{variables}");
}

fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, _parent, group) = (fields.next()?, fields.next()?, fields.next()?);
    Some((state.to_owned(), group.parse().ok()?))
}

/// Processes of a process group that are not merely waiting to be reaped.
fn group_members(group: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(state, of)| of == group && state != "Z"))
        .collect()
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_child(pid: u32) {
    wait_for("the process has no child", || group_members(pid).len() > 1);
}

/// The signal has been sent to all of the group; that the process itself has ended says nothing of its children.
fn wait_for_no_child(pid: u32) {
    wait_for("the process has left a child behind", || {
        group_members(pid).is_empty()
    });
}

fn wait_for_state(pid: u32, expected: impl Fn(&str) -> bool) {
    wait_for("the process is in the wrong state", || {
        stat(pid).is_some_and(|(state, _)| expected(&state))
    });
}
