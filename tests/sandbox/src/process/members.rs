//! Which processes of a group still run.

use std::fs;

use rustix::process::Pid;

/// Whether a process of the group runs. One that has ended and that nobody has waited for holds nothing any more, once its last thread has ended: until
/// then it has its ports.
pub(super) fn run(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    let group = group.as_raw_nonzero().get();
    processes
        .filter_map(|process| fs::read_to_string(process.ok()?.path().join("stat")).ok())
        .any(|stat| runs_in(&stat, group))
}

/// By `/proc/PID/stat`: after the name, which may have any character, come the state (that of the first thread), the parent and the group, and
/// later the number of threads.
fn runs_in(stat: &str, group: i32) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    let is_member = fields.nth(1).and_then(|text| text.parse().ok()) == Some(group);
    let threads = fields.nth(14).and_then(|text| text.parse().ok()).unwrap_or(1);
    is_member && (threads > 1 || !matches!(state, Some("Z" | "X")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_have_ended_do_not_count() {
        for (stat, expected) in [
            ("12 (kubelet) S 1 7 7 0 -1", true),
            ("12 (a) b) R 7 7 7 0 -1", true),
            ("12 (kubelet) Z 1 7 7 0 -1", false),
            ("12 (kubelet) Z 1 7 7 0 -1 4 0 0 0 0 9 9 0 0 20 0 1 0 5", false),
            // Its other threads have not ended.
            ("12 (kubelet) Z 1 7 7 0 -1 4 0 0 0 0 9 9 0 0 20 0 2 0 5", true),
            ("12 (kubelet) Z 1 8 7 0 -1 4 0 0 0 0 9 9 0 0 20 0 2 0 5", false),
            ("12 (kubelet) S 7 8 7 0 -1", false),
            ("", false),
        ] {
            assert_eq!(runs_in(stat, 7), expected, "{stat}");
        }
    }
}
