//! Private keys in the forms in which they are found.

use std::collections::BTreeMap;
use std::process::Command;

use k8s_openapi::ByteString;

use super::fixtures::host_key;
use crate::jump_host::host_keys::HostKeys;
use crate::jump_host::node_keys::NodeKeys;

/// A key as ssh-keygen makes it with these arguments.
fn key(arguments: &[&str]) -> (Vec<u8>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", "", "-C", "test", "-f"]).arg(&file);
    assert!(command.args(arguments).status().unwrap().success());
    let output = Command::new("ssh-keygen").arg("-lf").arg(&file).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let fingerprint = listed.split(' ').nth(1).unwrap().to_owned();
    (std::fs::read(file).unwrap(), fingerprint)
}

fn data(values: &[(&str, &[u8])]) -> BTreeMap<String, ByteString> {
    let values = values.iter();
    values
        .map(|(name, value)| ((*name).to_owned(), ByteString(value.to_vec())))
        .collect()
}

#[test]
fn private_keys_of_each_form_are_found() {
    let (openssh, _) = key(&["-t", "rsa", "-b", "2048"]);
    let (older, _) = key(&["-t", "rsa", "-b", "2048", "-m", "PEM"]);
    let (pkcs8, _) = key(&["-t", "ecdsa", "-m", "PKCS8"]);
    let unterminated = openssh.trim_ascii_end();
    let read = NodeKeys::read(&data(&[
        ("id_rsa", unterminated),
        ("older", &older),
        ("pkcs8", &pkcs8),
        ("key", b"DUMMY_DATA"),
        ("..data", &openssh),
        ("known_hosts", b"* ssh-ed25519 AAAA\n"),
    ]));
    assert_eq!(read.keys.keys().collect::<Vec<_>>(), ["id_rsa", "older", "pkcs8"]);
    assert_eq!(read.keys["id_rsa"], openssh, "its end of line is there again");
    assert_eq!(read.unusable, ["..data", "key"]);
    assert_eq!(read.known_hosts, b"* ssh-ed25519 AAAA\n");
    assert_eq!(
        read.identities(),
        "IdentityFile /etc/opt/sip/ssh-private-keys/id_rsa\n\
         IdentityFile /etc/opt/sip/ssh-private-keys/older\n\
         IdentityFile /etc/opt/sip/ssh-private-keys/pkcs8\n"
    );
}

#[test]
fn a_name_that_is_too_long_for_a_file_is_unusable() {
    let (openssh, _) = key(&["-t", "ed25519"]);
    let (longest, longer) = ("k".repeat(200), "k".repeat(201));
    let read = NodeKeys::read(&data(&[(&longest, &openssh), (&longer, &openssh)]));
    assert_eq!(read.keys.into_keys().collect::<Vec<_>>(), [longest]);
    assert_eq!(read.unusable, [longer]);
}

#[test]
fn each_private_key_has_its_own_digest() {
    let older = || key(&["-t", "rsa", "-b", "2048", "-m", "PEM"]).0;
    let (one, other) = (older(), older());
    let digest = |content: &[u8]| HostKeys::read(&data(&[("ssh_host_rsa_key", content)])).digest();
    assert_eq!(digest(&one), digest(&one));
    assert_ne!(digest(&one), digest(&other));
}

#[test]
fn host_keys_have_the_fingerprints_that_ssh_shows() {
    let (ed25519, shown) = key(&["-t", "ed25519"]);
    let (older, _) = key(&["-t", "rsa", "-b", "2048", "-m", "PEM"]);
    let keys = HostKeys::read(&data(&[
        ("ssh_host_ed25519_key", &ed25519),
        ("ssh_host_rsa_key", &older),
        ("ssh_host_broken_key", b"-----BEGIN"),
        ("ssh_host_../x_key", &ed25519),
        ("hosts", b"[]"),
    ]));
    assert_eq!(
        keys.names().collect::<Vec<_>>(),
        ["ssh_host_ed25519_key", "ssh_host_rsa_key"]
    );
    assert_eq!(keys.unusable(), ["ssh_host_broken_key"]);
    assert_eq!(keys.fingerprints(), [("ssh-ed25519".to_owned(), shown)].into());
    assert!(HostKeys::read(&data(&[("hosts", b"[]")])).is_empty());
    assert!(!HostKeys::read(&data(&[("ssh_host_ed25519_key", &host_key())])).is_empty());
}
