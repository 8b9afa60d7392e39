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
        ("permitlisten", "none"),
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
    let set: Vec<&str> = read
        .iter()
        .filter(|(key, _)| key == "setenv")
        .map(|(_, value)| value.as_str())
        .collect();
    assert!(set.contains(&"SIP_CLUSTER=shop/orders"), "{set:?}");
    assert!(
        set.iter().any(|value| value.starts_with("PATH=/opt/sip/bin:")),
        "{set:?}"
    );
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
