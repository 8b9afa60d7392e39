//! sshd of another release than this machine's.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Names another sshd than this machine's, such as that of an older release.
const OTHER_SSHD: &str = "SIP_SSHD";
/// Plays sshd of OpenSSH 7.6 as Ubuntu 18.04 has it, by this machine's. Its test of a configuration succeeds when it can load no host key,
/// though it does not start then.
const OLD_SSHD: &str = r#"#!/bin/sh
unknown='PerSourcePenalties|PermitListen|SetEnv'
if echo "$*" | cat - /etc/opt/sip/sshd_config | grep -qE "$unknown"; then
  echo 'Bad configuration option' >&2
  exit 255
fi
if [ "$1" = -t ]; then
  said=$(/opt/sshd "$@" 2>&1)
  status=$?
  echo "$said" | sed 's/^Unable to load/Could not load/; /no hostkeys available/d' >&2
  case $said in *"no hostkeys available"*) exit 0 ;; esac
  exit $status
fi
exec /opt/sshd "$@"
"#;

/// The command that puts another sshd in the place of this machine's, if there is to be one. `is_old`: the one that plays OpenSSH 7.6, which
/// is written to `program`.
pub(crate) fn replaced(program: &Path, is_old: bool) -> String {
    if is_old {
        fs::write(program, OLD_SSHD).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        format!(
            "cp /usr/sbin/sshd /opt/sshd; mount --bind {} /usr/sbin/sshd",
            program.display()
        )
    } else {
        env::var(OTHER_SSHD).map_or_else(
            |_| ":".to_owned(),
            |path| format!("mount --bind {path} /usr/sbin/sshd"),
        )
    }
}
