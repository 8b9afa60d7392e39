//! Processes whose parent has ended become children of a container's first process, and stay as zombies until it has waited for them.
//! Users leave such processes behind when they log out.

use std::fs;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

/// Waits for every child that has ended, except those that this program has started and waits for elsewhere.
pub fn reap(own: &[u32]) {
    let me = getpid().as_raw_pid();
    for (pid, state, parent) in processes() {
        let is_own = u32::try_from(pid).is_ok_and(|pid| own.contains(&pid));
        if state == 'Z' && parent == me && !is_own {
            // Fails only if another call has waited for it first.
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
        }
    }
}

/// Number, state and parent of every process of the container.
fn processes() -> impl Iterator<Item = (i32, char, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let (state, parent) = parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((pid, state, parent))
    })
}

/// `PID (NAME) STATE PARENT …`; the name is the program's, and may have spaces and parentheses.
fn parse(stat: &str) -> Option<(char, i32)> {
    let (_, behind) = stat.rsplit_once(") ")?;
    let mut fields = behind.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Tests that start programs hold it: [`reap`] in another test of their process would wait for these programs.
#[cfg(test)]
pub(crate) static CHILD_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_cannot_hide_its_state() {
        assert_eq!(parse("7 (sh) S 1 7 7 0"), Some(('S', 1)));
        assert_eq!(parse("7 (a) R 1) Z 12 7 7 0"), Some(('Z', 12)));
        assert_eq!(parse("7"), None);
    }
}
