//! Names of servers: those of hosts, unchanged where Kubernetes made them.

use super::{api_servers, member};

fn server_names(names: &[(&str, &str)]) -> Vec<String> {
    let members: Vec<_> = names
        .iter()
        .map(|(namespace, name)| member(namespace, name, "192.0.2.1"))
        .collect();
    let config = api_servers(&members).config;
    let lines = config.lines().filter_map(|line| line.strip_prefix("  server "));
    lines
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_server_is_called_after_its_host_and_namespace() {
    assert_eq!(
        server_names(&[("lab", "rdm9r006o001.example")]),
        ["lab.rdm9r006o001.example"]
    );
    let longest = ("n".repeat(63), "h".repeat(253));
    assert_eq!(
        server_names(&[(&longest.0, &longest.1)]),
        [format!("{}.{}", longest.0, longest.1)]
    );
}

#[test]
fn hosts_of_one_name_in_two_namespaces_are_two_servers() {
    assert_eq!(server_names(&[("a", "x"), ("b", "x")]), ["a.x", "b.x"]);
    assert_eq!(server_names(&[("a", "b.c"), ("a.b", "c")]), ["a.b.c", "a_2eb.c"]);
}

#[test]
fn a_hostile_name_stays_one_word() {
    let hostile = "x 192.0.2.9:1\n  server evil 192.0.2.6:6443 # \"${HOME}\"";
    let names = server_names(&[("lab", hostile)]);
    assert_eq!(names.len(), 1);
    assert_eq!(
        names[0],
        "lab.x_20192.0.2.9_3a1_0a_20_20server_20evil_20192.0.2.6_3a6443_20_23_20_22_24_7bHOME_7d_22"
    );
}

#[test]
fn long_names_that_differ_at_the_end_stay_different() {
    let long = "h".repeat(5_000);
    let names = server_names(&[("lab", &format!("{long}1")), ("lab", &format!("{long}2"))]);
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.len() == 384));
}
