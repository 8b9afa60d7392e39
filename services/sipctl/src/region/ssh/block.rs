//! The text for `~/.ssh/config`.

use std::fmt::Write as _;

use placement::ClusterName;

use super::nodes::Node;

/// How a jump host is reached and recognised.
#[derive(Clone, Debug)]
pub(super) struct JumpHost {
    /// Name of its objects.
    pub(super) name: String,
    pub(super) address: String,
    pub(super) port: u16,
    /// Algorithm and base64 of each host key.
    pub(super) keys: Vec<(String, String)>,
}

/// What ends the names of a cluster's hosts: several clusters fit into one configuration.
pub(super) fn suffix(cluster: &ClusterName) -> String {
    format!("{}.{}", cluster.name(), cluster.namespace())
}

/// SSH alias of the jump host that leads to the nodes, before the suffix.
pub(super) const JUMP_ALIAS: &str = "jump";

/// The names that a configuration has.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    let hosts = text.lines().filter_map(|line| line.strip_prefix("Host "));
    hosts.flat_map(|names| names.split(' '))
}

/// Blocks for each jump host and each node. The nodes are behind the first jump host, which is called `jump`; the others have the names of
/// their objects. The host keys of jump hosts are in the text: nobody is asked whether to trust them. ssh keeps those of nodes by host and
/// cluster, since hosts of other sites can have the same namespace and name.
pub(super) fn text(cluster: &ClusterName, jump_hosts: &[JumpHost], nodes: &[Node]) -> String {
    let suffix = suffix(cluster);
    let names = jump_hosts.iter().enumerate();
    let names: Vec<&str> = names
        .map(|(index, jump_host)| if index == 0 { JUMP_ALIAS } else { &*jump_host.name })
        .collect();
    let blocks = names.iter().zip(jump_hosts);
    let blocks: Vec<String> = blocks
        .map(|(name, jump_host)| block(&format!("{name}.{suffix}"), jump_host))
        .collect();
    let mut text = format!("# SIPCluster {cluster}\n{}", blocks.join("\n"));
    for Node {
        names: node_names,
        address,
        alias,
    } in nodes
    {
        let (Some(address), Some(alias)) = (address, alias) else {
            continue;
        };
        // ssh would take what the block of a jump host does not say from that of a node of its name, such as to go through itself.
        let own = node_names.iter().filter(|name| !names.contains(&name.as_str()));
        let own: Vec<String> = own.map(|name| format!("{name}.{suffix}")).collect();
        if own.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nHost {}\n  HostName {address}\n  User ubuntu\n  HostKeyAlias {alias}.{suffix}\n  ProxyJump {JUMP_ALIAS}.{suffix}\n",
            own.join(" ")
        );
    }
    text
}

fn block(host: &str, jump_host: &JumpHost) -> String {
    let JumpHost {
        name: _,
        address,
        port,
        keys,
    } = jump_host;
    let known: Vec<String> = keys
        .iter()
        .map(|(algorithm, key)| format!("{host} {algorithm} {key}"))
        .collect();
    format!(
        "Host {host}\n  HostName {address}\n  Port {port}\n  User ubuntu\n  HostKeyAlias {host}\n  \
         StrictHostKeyChecking yes\n  UserKnownHostsFile none\n  KnownHostsCommand /usr/bin/printf {}\n",
        printf(&known)
    )
}

/// Arguments by which `printf` prints these lines. ssh reads `%%` as `%`.
fn printf(lines: &[String]) -> String {
    let quoted: Vec<String> = lines.iter().map(|line| format!("\"{line}\"")).collect();
    format!("\"%%s\\n\" {}", quoted.join(" "))
}

/// A name of DNS: what a host is called, and what means nothing else to ssh.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !text.is_empty() && text.len() <= 253 && !text.starts_with(['-', '.']) && text.chars().all(plain)
}

/// `NAMESPACE/NAME`.
pub(super) fn is_alias(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

/// Base64, or the name of an algorithm.
pub(super) fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=-@.".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::{super::nodes, *};

    const RENDERED: &str = "\
# The jump-host agent writes this file.
Include /etc/opt/sip/identities

Host node-1.rack-a node-1 controlplane-0
  HostName 192.0.2.11
  HostKeyAlias metal/node-1.rack-a

Host *
  User ubuntu
";

    fn jump_host() -> JumpHost {
        JumpHost {
            name: "jumphost-orders".to_owned(),
            address: "198.51.100.7".to_owned(),
            port: 30_101,
            keys: vec![(
                "ssh-ed25519".to_owned(),
                "AAAAC3NzaC1lZDI1NTE5AAAAIHkY".to_owned(),
            )],
        }
    }

    /// What ssh does for a destination.
    fn ssh_reads(text: &str, destination: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, text).unwrap();
        let output = Command::new("ssh")
            .arg("-GF")
            .arg(&file)
            .arg(destination)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}\n{text}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_ssh_block_uses_the_jump_host_and_its_key() {
        let cluster: ClusterName = "shop/orders".parse().unwrap();
        let text = text(&cluster, &[jump_host()], &nodes::parse(RENDERED));
        let jump = ssh_reads(&text, "jump.orders.shop");
        for expected in [
            "hostname 198.51.100.7\n",
            "port 30101\n",
            "stricthostkeychecking true\n",
            "knownhostscommand /usr/bin/printf \"%%s\\n\" \"jump.orders.shop ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkY\"\n",
        ] {
            assert!(jump.contains(expected), "{expected}{jump}");
        }
        for name in ["node-1.rack-a", "node-1", "controlplane-0"] {
            let node = ssh_reads(&text, &format!("{name}.orders.shop"));
            assert!(node.contains("hostname 192.0.2.11\n"), "{node}");
            assert!(node.contains("proxyjump jump.orders.shop\n"), "{node}");
            assert!(
                node.contains("hostkeyalias metal/node-1.rack-a.orders.shop\n"),
                "{node}"
            );
        }
        assert_eq!(names(&text).count(), 4);
    }

    #[test]
    fn each_jump_host_has_a_name_and_a_key_of_its_own() {
        let cluster: ClusterName = "shop/orders".parse().unwrap();
        let second = JumpHost {
            name: "jumphost-orders-1".to_owned(),
            port: 30_102,
            keys: vec![("ssh-ed25519".to_owned(), "AAAAC3Second".to_owned())],
            ..jump_host()
        };
        let text = text(&cluster, &[jump_host(), second], &nodes::parse(RENDERED));
        let read = ssh_reads(&text, "jumphost-orders-1.orders.shop");
        for expected in [
            "port 30102\n",
            "hostkeyalias jumphost-orders-1.orders.shop\n",
            "\"jumphost-orders-1.orders.shop ssh-ed25519 AAAAC3Second\"\n",
        ] {
            assert!(read.contains(expected), "{expected}{read}");
        }
        let first = ssh_reads(&text, "jump.orders.shop");
        assert!(
            first.contains("port 30101\n") && !first.contains("AAAAC3Second"),
            "{first}"
        );
        let node = ssh_reads(&text, "controlplane-0.orders.shop");
        assert!(node.contains("proxyjump jump.orders.shop\n"), "{node}");
    }

    #[test]
    fn a_node_named_like_a_jump_host_changes_nothing() {
        let cluster: ClusterName = "shop/orders".parse().unwrap();
        let rendered = RENDERED.replace("node-1.rack-a node-1 controlplane-0", "jump jump.metal worker-3");
        let text = text(&cluster, &[jump_host()], &nodes::parse(&rendered));
        let read = ssh_reads(&text, "jump.orders.shop");
        assert!(
            read.contains("hostname 198.51.100.7\n") && !read.contains("proxyjump"),
            "{read}"
        );
        for name in ["jump.metal.orders.shop", "worker-3.orders.shop"] {
            let node = ssh_reads(&text, name);
            assert!(node.contains("hostname 192.0.2.11\n"), "{node}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_text_never_adds_a_line(text in "(Host |HostName |HostKeyAlias |ProxyCommand |[ -~]{0,8}|\n|\r|\u{2028}|\"|%){0,20}") {
            let cluster: ClusterName = "shop/orders".parse().unwrap();
            let nodes = nodes::parse(&text);
            let rendered = super::text(&cluster, &[jump_host()], &nodes);
            prop_assert_eq!(rendered.lines().count(), 9 + 6 * nodes.len());
            prop_assert!(!rendered.contains("ProxyCommand"));
        }
    }
}
