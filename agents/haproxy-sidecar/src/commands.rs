//! Commands to HAProxy: those of each step, and the reload that replaces the current worker.

use std::collections::BTreeSet;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};

use crate::cli::{self, Master, Pid};
use crate::members::{Members, Server};
use crate::observe::{Fingerprint, Process};
use crate::steps::{Entry, Step};
use crate::tables;

/// Pause between attempts to connect to the master, which does not listen while it reads its configuration: ten thousand servers take half a second.
const RELOAD_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Attempts to connect, at most: the limit is 30 s.
const MAX_RELOAD_POLLS: usize = 3_000;
/// Characters of HAProxy's output in a message, at most.
const MAX_OUTPUT_CHARACTERS: usize = 1_000;

/// Runs steps in a worker, all of them on one connection. Returns what HAProxy printed besides success, for messages: only the next
/// observation shows whether the steps took effect.
///
/// # Errors
/// When the master does not answer.
pub async fn run(
    master: &Master,
    worker: Pid,
    steps: &[Step],
    members: &Members,
) -> Result<String, cli::Error> {
    let output = master
        .command_worker(worker, steps.iter().flat_map(|step| commands(step, members)))
        .await?;
    Ok(unusual_output(&output))
}

/// The commands of one step.
fn commands(step: &Step, members: &Members) -> Vec<String> {
    let keywords = members.keywords();
    match step {
        // `default-server` does not apply to servers that are added later: hence the keywords.
        Step::Add(server, address, entry) => {
            let add = format!("add server {server} {address} {keywords}");
            let mut commands = vec![add];
            commands.extend(ready(server, members));
            match entry {
                // HAProxy considers a server healthy until a check fails.
                Entry::Checked => commands.push(format!("set server {server} health down")),
                Entry::AtOnce => {}
            }
            commands
        }
        Step::Ready(server) => ready(server, members),
        Step::Trust(server) => vec![format!("set server {server} health up")],
        Step::Drain(server) => vec![format!("set server {server} state drain")],
        Step::Cut(server) => vec![format!("shutdown sessions server {server}")],
        Step::Delete(server) => vec![
            format!("set server {server} state maint"),
            format!("del server {server}"),
        ],
    }
}

fn ready(server: &Server, members: &Members) -> Vec<String> {
    let checks = members.are_checked().then(|| format!("enable health {server}"));
    checks
        .into_iter()
        .chain([format!("set server {server} state ready")])
        .collect()
}

/// Lines other than those of success, each once.
fn unusual_output(output: &str) -> String {
    let unusual = output
        .lines()
        .map(str::trim)
        .filter(|line| !["", "New server registered.", "Server deleted."].contains(line));
    let mut lines: Vec<&str> = Vec::new();
    for line in unusual {
        if !lines.contains(&line) {
            lines.push(line);
        }
        if lines.len() > 5 {
            break;
        }
    }
    lines.join(" ").chars().take(MAX_OUTPUT_CHARACTERS).collect()
}

/// Ends an old worker's sessions with these servers. An old worker takes no commands about servers, only about sessions.
///
/// # Errors
/// When the master does not answer.
pub async fn cut(master: &Master, worker: Pid, servers: &BTreeSet<Server>) -> Result<(), cli::Error> {
    let sessions = master.command_worker(worker, ["show sess"]).await?;
    let over = tables::sessions_of(&sessions, |server| servers.contains(server));
    tracing::info!(
        worker,
        sessions = over.len(),
        "ending sessions with members that left, in an old worker"
    );
    let commands = over.iter().map(|number| format!("shutdown session {number}"));
    master.command_worker(worker, commands).await?;
    Ok(())
}

/// How a reload ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reloaded {
    /// HAProxy's processes after it.
    pub fingerprint: Fingerprint,
    /// Why HAProxy still runs the previous configuration, for messages; `None` when a new worker runs.
    pub refused: Option<String>,
}

/// Replaces the current worker with a new one, and waits until that runs or HAProxy has refused.
///
/// The master executes itself again for a reload, and listens again once the result is known: so its first answer is final.
///
/// # Errors
/// When the master does not answer.
pub async fn reload(master: &Master, before: &Fingerprint) -> Result<Reloaded, cli::Error> {
    let output = match master.query("reload").await {
        Ok(output) => output,
        // Executing itself again closes the connection.
        Err(cli::Error::Closed(_)) => String::new(),
        Err(error) => return Err(error),
    };
    let pauses = ConstantBuilder::new()
        .with_delay(RELOAD_POLL_INTERVAL)
        .with_max_times(MAX_RELOAD_POLLS);
    let fingerprint = (|| Fingerprint::read(master)).retry(pauses).await?;
    let is_new = |process: &Process| {
        let known = before.processes.iter().any(|earlier| earlier.pid == process.pid);
        !process.old && !known
    };
    let refused = (!fingerprint.processes.iter().any(is_new)).then(|| reasons(&output));
    Ok(Reloaded { fingerprint, refused })
}

/// HAProxy prints reasons since 2.7 only.
fn reasons(output: &str) -> String {
    let alerts: Vec<&str> = output.lines().filter(|line| line.contains("[ALERT]")).collect();
    if alerts.is_empty() {
        return "HAProxy refuses the configuration; see the log of its container".to_owned();
    }
    let all = alerts.join(" ");
    format!(
        "HAProxy refuses the configuration: {}",
        all.chars().take(MAX_OUTPUT_CHARACTERS).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{members, server};

    #[test]
    fn each_step_has_its_commands() {
        let members = members("check inter 2s", &["a"]);
        let a = server("api", "lab.a");
        let of = |step: Step| commands(&step, &members).join("; ");
        assert_eq!(
            of(Step::Add(
                a.clone(),
                "[2001:db8::1]:6443".parse().unwrap(),
                Entry::Checked
            )),
            "add server api/lab.a [2001:db8::1]:6443 check inter 2s; enable health api/lab.a; \
             set server api/lab.a state ready; set server api/lab.a health down"
        );
        assert_eq!(of(Step::Trust(a.clone())), "set server api/lab.a health up");
        assert_eq!(
            of(Step::Ready(a.clone())),
            "enable health api/lab.a; set server api/lab.a state ready"
        );
        assert_eq!(of(Step::Drain(a.clone())), "set server api/lab.a state drain");
        assert_eq!(of(Step::Cut(a.clone())), "shutdown sessions server api/lab.a");
        assert_eq!(
            of(Step::Delete(a)),
            "set server api/lab.a state maint; del server api/lab.a"
        );
    }

    #[test]
    fn without_checks_no_command_is_about_health() {
        let members = members("weight 10", &["a"]);
        let step = Step::Add(
            server("api", "a"),
            "192.0.2.1:6443".parse().unwrap(),
            Entry::AtOnce,
        );
        assert_eq!(
            commands(&step, &members),
            [
                "add server api/a 192.0.2.1:6443 weight 10",
                "set server api/a state ready"
            ]
        );
    }

    #[test]
    fn only_unusual_output_is_kept_and_once() {
        let output = "New server registered.\n\n\n\nNo such server.\n\nNo such server.\n\nServer deleted.\n";
        assert_eq!(unusual_output(output), "No such server.");
        assert_eq!(unusual_output("\n\n\n"), "");
    }

    #[test]
    fn reasons_that_haproxy_prints_are_in_the_message() {
        let output =
            "Success=0\n--\n[NOTICE]   (1) : Reloading\n[ALERT]    (1) : config : parsing [h.cfg:3]\n";
        assert_eq!(
            reasons(output),
            "HAProxy refuses the configuration: [ALERT]    (1) : config : parsing [h.cfg:3]"
        );
        assert!(reasons("").contains("the log of its container"));
    }
}
