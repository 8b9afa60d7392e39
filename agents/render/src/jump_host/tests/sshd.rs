//! Real sshd and ssh read what is rendered.

use super::fixtures::{Scene, ssh_reads, sshd_reads, value};
use crate::jump_host::files::{SSH_CONFIG, SSHD_CONFIG};

#[test]
fn sshd_reads_the_configuration_as_it_is_meant() {
    let files = Scene::new().plan().files();
    let read = sshd_reads(&files[SSHD_CONFIG]);
    for (key, expected) in [
        ("port", "2222"),
        ("permitrootlogin", "no"),
        ("passwordauthentication", "no"),
        ("kbdinteractiveauthentication", "no"),
        ("hostbasedauthentication", "no"),
        ("pubkeyauthentication", "yes"),
        ("authenticationmethods", "publickey"),
        ("allowusers", "ubuntu"),
        ("x11forwarding", "no"),
        ("allowagentforwarding", "no"),
        ("allowtcpforwarding", "local"),
        ("allowstreamlocalforwarding", "no"),
        ("permittunnel", "no"),
        ("gatewayports", "no"),
        ("permituserenvironment", "no"),
        ("permituserrc", "no"),
        ("authorizedkeysfile", "/etc/opt/sip/authorized_keys"),
        ("trustedusercakeys", "/etc/opt/sip/user_ca"),
        ("authorizedprincipalsfile", "/etc/opt/sip/principals"),
        (
            "permitopen",
            "192.0.2.11:22 192.0.2.11:6443 192.0.2.13:22 203.0.113.5:30100 [2001:db8::12]:22",
        ),
    ] {
        assert_eq!(value(&read, key), expected, "{key}");
    }
}

/// Keywords of `sshd_config(5)` of OpenSSH 7.6, the release of Ubuntu 18.04.
const SSHD_7_6: &str = "
AcceptEnv AddressFamily AllowAgentForwarding AllowGroups AllowStreamLocalForwarding AllowTcpForwarding AllowUsers AuthenticationMethods
AuthorizedKeysCommand AuthorizedKeysCommandUser AuthorizedKeysFile AuthorizedPrincipalsCommand AuthorizedPrincipalsCommandUser
AuthorizedPrincipalsFile Banner ChallengeResponseAuthentication ChrootDirectory Ciphers ClientAliveCountMax ClientAliveInterval Compression
DenyGroups DenyUsers DisableForwarding ExposeAuthInfo FingerprintHash ForceCommand GatewayPorts GSSAPIAuthentication
GSSAPICleanupCredentials GSSAPIStrictAcceptorCheck HostbasedAcceptedKeyTypes HostbasedAuthentication HostbasedUsesNameFromPacketOnly
HostCertificate HostKey HostKeyAgent HostKeyAlgorithms IgnoreRhosts IgnoreUserKnownHosts IPQoS KbdInteractiveAuthentication
KerberosAuthentication KerberosGetAFSToken KerberosOrLocalPasswd KerberosTicketCleanup KexAlgorithms ListenAddress LoginGraceTime LogLevel
MACs Match MaxAuthTries MaxSessions MaxStartups PasswordAuthentication PermitEmptyPasswords PermitOpen PermitRootLogin PermitTTY
PermitTunnel PermitUserEnvironment PermitUserRC PidFile Port PrintLastLog PrintMotd PubkeyAcceptedKeyTypes PubkeyAuthentication RekeyLimit
RevokedKeys StreamLocalBindMask StreamLocalBindUnlink StrictModes Subsystem SyslogFacility TCPKeepAlive TrustedUserCAKeys UseDNS UsePAM
VersionAddendum X11DisplayOffset X11Forwarding X11UseLocalhost XAuthLocation
";
/// The same of `ssh_config(5)`, as far as a jump host can need them.
const SSH_7_6: &str = "
AddKeysToAgent AddressFamily BatchMode BindAddress CheckHostIP Ciphers Compression ConnectionAttempts ConnectTimeout ControlMaster
ControlPath ControlPersist EscapeChar ForwardAgent GlobalKnownHostsFile HashKnownHosts Host HostKeyAlgorithms HostKeyAlias HostName
IdentitiesOnly IdentityAgent IdentityFile IgnoreUnknown Include IPQoS KexAlgorithms LogLevel MACs Match NumberOfPasswordPrompts Port
PreferredAuthentications ProxyCommand ProxyJump PubkeyAuthentication RemoteCommand RequestTTY ServerAliveCountMax ServerAliveInterval
StrictHostKeyChecking UpdateHostKeys User UserKnownHostsFile VerifyHostKeyDNS
";

#[test]
fn openssh_7_6_knows_every_word_of_both_files() {
    let files = Scene::new().plan().files();
    for (file, known) in [(SSHD_CONFIG, SSHD_7_6), (SSH_CONFIG, SSH_7_6)] {
        let lines = files[file].lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let word = line.split(' ').next().unwrap();
            assert!(
                known.split_whitespace().any(|known| known == word),
                "{file}: {line}"
            );
        }
    }
    assert!(files[SSHD_CONFIG].lines().count() > 30 && files[SSH_CONFIG].lines().count() > 10);
}

#[test]
fn without_nodes_and_cas_nothing_is_forwarded_or_trusted() {
    let mut scene = Scene::new();
    scene.nodes.clear();
    scene.authorities.clear();
    let mut plan = scene.plan();
    plan.api_endpoints.clear();
    let read = sshd_reads(&plan.files()[SSHD_CONFIG]);
    assert_eq!(value(&read, "permitopen"), "none");
    assert_eq!(value(&read, "trustedusercakeys"), "none");
    assert_eq!(value(&read, "authorizedprincipalsfile"), "none");
}

#[test]
fn a_thousand_nodes_are_one_line() {
    let mut scene = Scene::new();
    scene.nodes = (0..1_000_u16)
        .map(|index| {
            let [high, low] = index.to_be_bytes();
            super::fixtures::node(
                "metal",
                &format!("n{index}"),
                &format!("10.0.{high}.{low}"),
                false,
            )
        })
        .collect();
    let files = scene.plan().files();
    let read = sshd_reads(&files[SSHD_CONFIG]);
    assert_eq!(value(&read, "permitopen").split(' ').count(), 1_001);
    let read = ssh_reads(&files[SSH_CONFIG], "n999");
    assert_eq!(value(&read, "hostname"), "10.0.3.231");
}

#[test]
fn ssh_finds_nodes_by_each_of_their_names() {
    let files = Scene::new().plan().files();
    for (name, address, alias) in [
        ("node-1.rack-a", "192.0.2.11", "metal/node-1.rack-a"),
        ("node-1", "192.0.2.11", "metal/node-1.rack-a"),
        ("node-1.rack-a.metal", "192.0.2.11", "metal/node-1.rack-a"),
        ("node-2", "2001:db8::12", "metal/node-2.rack-a"),
        ("node-3", "192.0.2.13", "spare/node-3"),
    ] {
        let read = ssh_reads(&files[SSH_CONFIG], name);
        assert_eq!(value(&read, "hostname"), address, "{name}");
        assert_eq!(value(&read, "hostkeyalias"), alias, "{name}");
        assert_eq!(value(&read, "user"), "ubuntu");
        assert_eq!(value(&read, "stricthostkeychecking"), "accept-new");
        assert_eq!(
            value(&read, "userknownhostsfile"),
            "/home/ubuntu/.ssh/known_hosts"
        );
    }
}

#[test]
fn a_host_named_like_an_ordinal_takes_the_names_of_its_role() {
    let numbered = |name: &str, address: &str, number| {
        super::fixtures::node("metal", name, address, false).numbered("Worker", number)
    };
    let mut scene = Scene::new();
    scene.nodes = vec![
        numbered("worker-3", "192.0.2.21", 0),
        numbered("b", "192.0.2.22", 3),
        super::fixtures::node("metal", "c", "192.0.2.23", true).numbered("ControlPlane", 0),
    ];
    let files = scene.plan().files();
    let leads_to = |name: &str| value(&ssh_reads(&files[SSH_CONFIG], name), "hostname").to_owned();
    // Its own name is the host's, whoever has the number 3; the others of its role lead nowhere, since they could be those of hosts that left.
    assert_eq!(leads_to("worker-3"), "192.0.2.21");
    assert_eq!(leads_to("worker-0"), "worker-0");
    assert_eq!(leads_to("b"), "192.0.2.22");
    assert_eq!(leads_to("controlplane-0"), "192.0.2.23");
    // Without that host each has its number.
    scene.nodes.remove(0);
    let files = scene.plan().files();
    let read = ssh_reads(&files[SSH_CONFIG], "worker-3");
    assert_eq!(value(&read, "hostname"), "192.0.2.22");
    assert_eq!(value(&read, "hostkeyalias"), "metal/b");
}
