//! Templates of operators: their data, what they may not do, and the errors of those that fail.

use std::collections::{BTreeMap, BTreeSet};

use insta::{assert_snapshot, assert_yaml_snapshot};
use proptest::prelude::*;

use super::haproxy::{any_member, check, servers};
use super::large::many;
use super::{cluster, fixtures, members};
use crate::load_balancer::template::{MAX_TEMPLATE_BYTES, Template};
use crate::load_balancer::{Member, Objects, Plan};

const CONTROL_PLANE: &str = include_str!("../../../../../deploy/templates/loadBalancerControlPlane.cfg");
const WORKER: &str = include_str!("../../../../../deploy/templates/loadBalancerWorker.cfg");
/// SIP's template for workers, by the table in docs/load-balancers.md.
const FROM_SIP: &str = include_str!("from_sip.cfg");

/// The objects of a load balancer for workers by a template, or the error.
fn render_template(template: &str, members: &[Member]) -> Result<Objects, String> {
    let cluster = cluster(fixtures::SITE);
    let template = Template::parse(template).map_err(|error| error.to_string())?;
    Plan::worker(&cluster, &cluster.load_balancers_worker()[0])
        .objects_from_template(members, &template, "haproxy:2.3.2")
        .map_err(|error| error.to_string())
}

/// The lines of each section, by its title.
fn sections(config: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut title = "";
    let meant = config
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in meant {
        if line.starts_with(' ') {
            sections.get_mut(title).unwrap().push(line);
        } else {
            title = line;
            assert_eq!(sections.insert(title, Vec::new()), None, "{title} is there twice");
        }
    }
    sections
}

#[test]
fn the_sample_templates_make_the_built_in_configuration() {
    let clusters = [fixtures::SITE, &fixtures::otherwise()].map(cluster);
    for (plan, text) in clusters.iter().flat_map(|cluster| {
        [
            (
                Plan::control_plane(cluster, &cluster.load_balancers_control_plane()[0]),
                CONTROL_PLANE,
            ),
            (Plan::worker(cluster, &cluster.load_balancers_worker()[0]), WORKER),
        ]
    }) {
        let template = Template::parse(text).unwrap();
        let mut with_backup = members();
        with_backup[1].is_backup = true;
        for members in [members(), with_backup, Vec::new()] {
            let made = plan
                .objects_from_template(&members, &template, "haproxy:2.3.2")
                .unwrap();
            let mut found = sections(&made.config);
            assert!(found.remove("defaults internal").is_some());
            assert_eq!(found, sections(&plan.objects(&members).config));
            assert_eq!(check(&made.config), Ok(()), "{}", made.config);
        }
    }
}

#[test]
fn a_template_of_sip_makes_what_it_made_once_it_is_translated() {
    let made = render_template(FROM_SIP, &members()).unwrap();
    assert_snapshot!(made.config);
    assert_eq!(servers(&made.config).len(), 6);
    check(&made.config).unwrap();
}

#[test]
fn a_changed_template_rolls_the_deployment() {
    let [first, second] =
        [WORKER, FROM_SIP].map(|text| render_template(text, &members()).unwrap().deployment);
    let annotations = first.metadata.annotations.clone().unwrap();
    assert_eq!(
        annotations["sip.airshipit.org/template"],
        Template::parse(WORKER).unwrap().digest()
    );
    assert_eq!(annotations["sip.airshipit.org/template-image"], "haproxy:2.3.2");
    assert_ne!(first.metadata.annotations, second.metadata.annotations);
    assert_ne!(first.spec.template, second.spec.template);
}

#[test]
fn template_errors_name_their_line() {
    for (template, expected) in [
        ("global\n{{ servers[0].addres }}", "line 2: undefined value"),
        ("{% for s in server %}{% endfor %}", "line 1: undefined value"),
        ("{{ servers[7].name }}", "line 1: undefined value"),
        (
            "global\n\n{% for server in servers %}",
            "line 3: syntax error: unexpected end of input",
        ),
        (
            "{% include '/etc/passwd' %}",
            "line 1: syntax error: unknown statement include",
        ),
        (
            "{% macro x() %}{% endmacro %}",
            "line 1: syntax error: unknown statement macro",
        ),
        ("{{ servers|shout }}", "line 1: unknown filter"),
        (
            "{{- range .Servers }}",
            "line 1: {{ range .Servers }} is Go's text/template, as those of Airship SIP were; write {% for server in servers %}",
        ),
        (
            "\n  server {{ $server.Name }} {{ .IP }}",
            "line 2: {{ $server.Name }} is Go's",
        ),
        ("x\n{{ end -}}\n", "line 2: {{ end }} is Go's"),
        ("{{/* said */}}", "write {# ... #}"),
        (
            "{% for a in range(9000) %}{% for b in range(9000) %}{% endfor %}{% endfor %}",
            "the template does not end within the limit of instructions",
        ),
        (
            "{% for a in range(50000) %}12345678901234567890{% endfor %}",
            "the configuration that the template generates has more than 900000 bytes",
        ),
        (
            &"#".repeat(MAX_TEMPLATE_BYTES + 1),
            "the template has 65537 bytes: must have at most 65536",
        ),
    ] {
        let error = render_template(template, &members()).unwrap_err();
        let start = template.get(..80).unwrap_or(template);
        assert!(
            error.contains(expected),
            "{start}: {error:?}, expected {expected:?}"
        );
    }
}

#[test]
fn a_template_is_known_by_its_text() {
    let template = "{# range .Servers #}{% set range_end = 3 %}{{ range_end }}{{ ports[0].name }}\n";
    let objects = render_template(template, &[]).unwrap();
    assert!(objects.config.starts_with("3port-30002\n"), "{}", objects.config);
    assert_eq!(render_template(template, &[]).unwrap(), objects);
}

#[test]
fn a_template_check_covers_present_and_future_members() {
    let cluster = cluster(fixtures::SITE);
    let plan = Plan::control_plane(&cluster, &cluster.load_balancers_control_plane()[0]);
    let template = Template::parse(CONTROL_PLANE).unwrap();
    let found = plan.check(&members(), &template).unwrap();
    let mut config_map = found.config_map("5a1f");
    let data = std::mem::take(config_map.data.as_mut().unwrap());
    assert_yaml_snapshot!((&found.job, config_map));

    let used = plan
        .objects_from_template(&members(), &template, "haproxy:2.3.2")
        .unwrap()
        .config;
    let texts: BTreeMap<_, _> = data.into_iter().collect();
    assert_eq!(
        texts.keys().collect::<Vec<_>>(),
        ["members.cfg", "none.cfg", "otherwise.cfg", "sample.cfg"]
    );
    assert_eq!(texts["members.cfg"], used);
    assert_eq!(
        (
            servers(&texts["none.cfg"]).len(),
            servers(&texts["sample.cfg"]).len()
        ),
        (0, 3)
    );
    assert!(texts["otherwise.cfg"].contains("balance leastconn"));
    for text in texts.values() {
        assert_eq!(check(text), Ok(()));
    }
}

#[test]
fn a_template_check_does_not_depend_on_members() {
    let first = cluster(fixtures::SITE);
    let other_image = cluster(&fixtures::SITE.replace("haproxy:2.3.2", "haproxy:2.8"));
    let templates = [CONTROL_PLANE, WORKER].map(|text| Template::parse(text).unwrap());
    let of = |cluster, template: usize, members: &[Member]| {
        let cluster: &api::Cluster = cluster;
        let plan = Plan::control_plane(cluster, &cluster.load_balancers_control_plane()[0]);
        plan.check(members, &templates[template]).unwrap().id
    };
    let worker = Plan::worker(&first, &first.load_balancers_worker()[0]);
    let ids = [
        of(&first, 0, &members()),
        of(&first, 1, &members()),
        of(&other_image, 0, &members()),
        worker.check(&members(), &templates[0]).unwrap().id,
    ];
    assert_eq!(BTreeSet::from(ids.clone()).len(), 4);
    assert_eq!(of(&first, 0, &[]), ids[0]);
}

#[test]
fn a_check_returns_the_lines_of_what_it_reads() {
    let cluster = cluster(fixtures::SITE);
    let plan = Plan::worker(&cluster, &cluster.load_balancers_worker()[0]);
    let text = "global\n{% for server in servers %}\n# {{ server.name }}{% endfor %}\n";
    let check = plan.check(&members(), &Template::parse(text).unwrap()).unwrap();
    for (file, number, expected) in [
        ("members.cfg", 1, Some("global")),
        ("members.cfg", 4, Some("# rack-a.node-2")),
        ("members.cfg", 0, None),
        ("members.cfg", 999, None),
        ("other.cfg", 1, None),
    ] {
        assert_eq!(check.line(file, number), expected, "{file}:{number}");
    }
}

#[test]
fn a_template_may_be_as_long_as_the_built_in_configuration() {
    let site = fixtures::SITE
        .replace("start: 30002", "start: 31000")
        .replace("end: 30003", "end: 31019");
    let cluster = cluster(&site);
    let plan = Plan::worker(&cluster, &cluster.load_balancers_worker()[0]);
    let members = many(500, |index| format!("{index:0>63}"));
    let template = Template::parse(WORKER).unwrap();
    let made = plan
        .objects_from_template(&members, &template, "haproxy:2.3.2")
        .unwrap();
    assert_eq!(servers(&made.config), servers(&plan.objects(&members).config));
    assert_eq!(check(&made.config), Ok(()));
    let found = plan.check(&members, &template).unwrap();
    let read = found.config_map("5a1f").data.unwrap();
    let bytes: usize = read.values().map(String::len).sum();
    assert!(read.contains_key("members.cfg") && bytes < 1_000_000, "{bytes}");
}

/// Pieces of templates, in any order.
fn any_template() -> impl Strategy<Value = String> {
    let pieces = [
        "{% for server in servers %}",
        "{% endfor %}",
        "{% if servers %}",
        "{% endif %}",
        "{{ server.name }}",
        "{{ ports[0].number // 0 }}",
        "{{ servers|length }}",
        "{{ range .Servers }}",
        "{% set x = [1] * 9 %}",
        "{% raw %}",
    ];
    let known = prop::sample::select(pieces.to_vec()).prop_map(str::to_owned);
    let piece = prop_oneof![any::<String>(), "[{}%#-]{1,4}", known];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_template_renders_our_listener_or_an_error(text in any_template()) {
        match render_template(&text, &members()) {
            Ok(made) => prop_assert!(made.config.contains("\nfrontend internal\n  mode http\n  bind :::8404 v4v6\n")),
            Err(error) => prop_assert!(error.starts_with("line "), "{}", error),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_name_adds_a_line_or_a_word(members in prop::collection::vec(any_member(), 0..12)) {
        let hosts: BTreeSet<_> = members.iter().map(|member| (&member.namespace, &member.name)).collect();
        let line = "{{ server.name }} {{ server.full_name }} {{ server.address }}";
        let template = format!("{{% for server in servers %}}\n>> {line} <<{{% endfor %}}\n");
        let config = render_template(&template, &members).unwrap().config;
        let found: Vec<_> = config.lines().filter(|line| line.starts_with(">> ")).collect();
        prop_assert_eq!(found.len(), hosts.len());
        for line in found {
            let words: Vec<_> = line.split_whitespace().collect();
            prop_assert!(matches!(words[..], [">>", _, _, _, "<<"]), "{}", line);
            prop_assert!(!line.contains(['"', '\'', '\\', '#', '$', '{']), "{}", line);
        }
        prop_assert_eq!(config.lines().count(), render_template(&template, &[]).unwrap().config.lines().count() + hosts.len());
    }
}
