use super::*;

const GOOD: &str = "
region: lab
site: site-a
trustDomain: sip.example
scheduler: {endpoint: 'https://127.0.0.1:7443'}
hostNamespaces: [metal]
notInstalled: [jumpHost, auth]
";

#[test]
fn a_good_file_says_where_the_agent_works() {
    let config = SiteConfig::parse(GOOD, "site.yaml").unwrap();
    assert_eq!(config.site(), "site-a");
    assert_eq!(
        config.not_installed(),
        &BTreeSet::from([Section::JumpHost, Section::Auth])
    );
}

#[test]
fn a_bad_file_is_refused_with_file_field_value_and_rule() {
    for (from, to, expected) in [
        ("site: site-a", "site: 'a/b'", "site \"a/b\""),
        ("[metal]", "[]", "hostNamespaces"),
        (
            "https://127.0.0.1:7443",
            "not a uri",
            "scheduler.endpoint \"not a uri\"",
        ),
        ("region: lab", "regio: lab", "expected form"),
        (
            "region: lab",
            "region: lab\ntenantDrainSeconds: 3601",
            "tenantDrainSeconds \"3601\": must be from 0 to 3600",
        ),
        (
            "region: lab",
            "region: lab\nownerlessServicesSeconds: 0",
            "ownerlessServicesSeconds \"0\": must be from 1 to 86400",
        ),
        (
            "region: lab",
            "region: lab\nhaproxySidecarImage: 'side car'",
            "haproxySidecarImage \"side car\"",
        ),
        (
            "region: lab",
            "region: lab\nidentityProviders: {allowedNetworks: [10.0.0.0/8, ldap.example.org]}",
            "identityProviders.allowedNetworks \"ldap.example.org\"",
        ),
        (
            "region: lab",
            "region: lab\nidentityProviders: {clusterIssuer: ''}",
            "identityProviders.clusterIssuer \"\"",
        ),
        (
            "region: lab",
            "region: lab\nserviceOverrides: {labels: ['']}",
            "serviceOverrides.labels \"\"",
        ),
    ] {
        let error = SiteConfig::parse(&GOOD.replace(from, to), "site.yaml")
            .unwrap_err()
            .to_string();
        assert!(error.contains("site.yaml") && error.contains(expected), "{error}");
    }
}
