//! The configuration of sshd. It has only words that OpenSSH 7.6 knows, since the image is the user's. The program that runs sshd adds
//! newer ones, and the environment of sessions.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::destinations::forwarded;
use super::files::{AUTHORITIES, AUTHORIZED_KEYS, PRINCIPALS};
use super::host_keys::GENERATED_KEY;
use super::interface::{DIRECTORY, HOST_KEYS, LISTEN_PORT, USER};
use super::plan::Plan;

/// What every jump host has alike.
const FIXED_KEYWORDS: &str = "\
# Only root can change to another user: everybody logs in to the account that sshd runs as.
PidFile none
UsePAM no
# The files are the sidecar's, in a directory that nobody else can write to; of its owner and mode the kubelet decides.
StrictModes no
PermitRootLogin no
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
PermitUserEnvironment no
PermitUserRC no
X11Forwarding no
AllowAgentForwarding no
AllowStreamLocalForwarding no
PermitTunnel no
GatewayPorts no
AllowTcpForwarding local
LoginGraceTime 20
# With sshd's own 10:30:100 a few silent connections keep users out.
MaxStartups 100:30:200
MaxAuthTries 10
ClientAliveInterval 60
ClientAliveCountMax 3
PrintMotd no
# Says when a session begins and ends, and by which key.
LogLevel VERBOSE
# Tells the session too, so that the command `host` can name the key in the audit log of power control.
ExposeAuthInfo yes
Subsystem sftp internal-sftp
";

pub(super) fn text(plan: &Plan<'_>) -> String {
    let mut text =
        format!("# The jump-host agent writes this file.\nPort {LISTEN_PORT}\nAllowUsers {USER}\n");
    for name in plan.host_keys.names() {
        line(&mut text, format_args!("HostKey {HOST_KEYS}/{name}"));
    }
    if plan.host_keys.names().next().is_none() {
        // Without a `HostKey` line sshd would use the host keys of its image, which are known to everybody with the image. With it, sshd does not
        // start without this file.
        line(&mut text, format_args!("HostKey {HOST_KEYS}/{GENERATED_KEY}"));
    }
    text.push_str(FIXED_KEYWORDS);
    line(
        &mut text,
        format_args!("AuthorizedKeysFile {DIRECTORY}/{AUTHORIZED_KEYS}"),
    );
    if !plan.authorities.is_empty() {
        line(
            &mut text,
            format_args!("TrustedUserCAKeys {DIRECTORY}/{AUTHORITIES}"),
        );
        line(
            &mut text,
            format_args!("AuthorizedPrincipalsFile {DIRECTORY}/{PRINCIPALS}"),
        );
    }
    line(&mut text, format_args!("PermitOpen {}", destinations(plan)));
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

/// In one line, since only the first one counts.
fn destinations(plan: &Plan<'_>) -> String {
    let forwarded = forwarded(plan);
    if forwarded.is_empty() {
        return "none".to_owned();
    }
    let forwarded: Vec<String> = forwarded.iter().map(SocketAddr::to_string).collect();
    forwarded.join(" ")
}
