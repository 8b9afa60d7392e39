use super::*;
use crate::fixtures::{host, of_kind, samples};
use crate::network_data::SecretName;

const HOST: &str = "
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  name: host-1
  namespace: lab
  uid: 77aa
  labels: {example.org/rack: r1, example.org/empty: ''}
  annotations: {sip.airshipit.org/placement-revision: '42', sip.airshipit.org/cordoned: ''}
spec:
  online: true
  bmc: {address: 'redfish+http://10.0.0.1:8000/redfish/v1/Systems/worker-1', credentialsName: host-1-credentials}
  consumerRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Machine, namespace: lab, name: m}
  networkData: {name: host-1-network-data}
  somethingNew: [1, 2]
status:
  provisioning: {state: provisioned, ID: x}
  operationalStatus: OK
  errorMessage: ''
  poweredOn: true
  hardware: {cpu: {count: 4}}
";

fn parse(yaml: &str) -> Host {
    Host::parse(&host(yaml), None).unwrap()
}

#[test]
fn a_host_is_read_in_full() {
    let data = NetworkData::parse(
        &SecretName {
            namespace: "lab".to_owned(),
            name: "host-1-network-data".to_owned(),
        },
        b"networks: [{id: oam, ip_address: 192.0.2.9}]",
    );
    let host = Host::parse(&host(HOST), Some(&data)).unwrap();
    insta::assert_debug_snapshot!(host);
    assert_eq!(host.placement_revision(), Some(42));
    assert!(host.is_cordoned() && !host.is_failed() && !host.is_unhealthy());
    assert_eq!(
        host.labels()["example.org/empty"],
        "",
        "an empty value is a value"
    );
}

#[test]
fn a_host_of_which_nothing_is_known_is_read() {
    let host = parse("metadata: {name: a, namespace: b, uid: c}");
    assert_eq!(host.provisioning_state(), &ProvisioningState::None);
    assert_eq!(host.operational_status(), &OperationalStatus::None);
    assert!(host.reports().is_empty());
    assert!(host.addresses().is_empty() && host.consumer().is_none() && host.bmc_address().is_none());
}

#[test]
fn the_older_annotation_of_capm3_counts_too() {
    let host =
        parse("metadata: {name: a, namespace: b, uid: c, annotations: {capi.metal3.io/unhealthy: ''}}");
    assert!(host.is_unhealthy());
}

#[test]
fn annotations_count_by_being_there() {
    type Flag = fn(&Host) -> bool;
    let flags: [(&str, Flag); 6] = [
        (annotations::PAUSED, Host::is_paused),
        (annotations::DETACHED, Host::is_detached),
        (annotations::UNHEALTHY, Host::is_unhealthy),
        (annotations::FAILED, Host::is_failed),
        (annotations::CORDONED, Host::is_cordoned),
        (annotations::REPLACE, Host::is_to_be_replaced),
    ];
    for (index, (key, _)) in flags.iter().enumerate() {
        let host = parse(&format!(
            "metadata: {{name: a, namespace: b, uid: c, annotations: {{{key}: ''}}}}"
        ));
        for (other, (name, flag)) in flags.iter().enumerate() {
            assert_eq!(flag(&host), index == other, "{key} and {name}");
        }
    }
}

#[test]
fn every_state_of_metal3_is_known_and_others_are_kept() {
    for state in [
        "available",
        "ready",
        "match profile",
        "externally provisioned",
        "powering off before delete",
    ] {
        let parsed = ProvisioningState::parse(state);
        assert!(!matches!(parsed, ProvisioningState::Unknown(_)), "{state}");
        assert_eq!(parsed.as_str(), state);
    }
    assert_eq!(
        ProvisioningState::parse("dreaming"),
        ProvisioningState::Unknown("dreaming".into())
    );
    let error = parse(
        "{metadata: {name: a, namespace: b, uid: c}, status: {operationalStatus: error, errorMessage: no power}}",
    );
    assert!(error.is_in_error());
    assert_eq!(error.error_message(), "no power");
    let detached =
        parse("{metadata: {name: a, namespace: b, uid: c}, status: {operationalStatus: detached}}");
    assert!(detached.is_detached());
}

#[test]
fn only_a_false_condition_healthy_is_a_fault() {
    for (conditions, expected) in [
        ("[]", None),
        ("[{type: Healthy, status: 'True', reason: Healthy}]", None),
        ("[{type: Healthy, status: Unknown, reason: Unknown}]", None),
        ("[{type: Ready, status: 'False', reason: No}]", None),
        (
            "[{type: Ready, status: 'True'}, {type: Healthy, status: 'False', reason: CriticalError, message: fan 2}]",
            Some("CriticalError: fan 2"),
        ),
        (
            "[{type: Healthy, status: 'False', reason: Warning, message: ''}]",
            Some("Warning"),
        ),
    ] {
        let host = parse(&format!(
            "{{metadata: {{name: a, namespace: b, uid: c}}, status: {{conditions: {conditions}}}}}"
        ));
        assert_eq!(host.fault(), expected, "{conditions}");
        assert!(host.reports().is_empty() && !host.is_unhealthy() && !host.is_failed());
    }
}

#[test]
fn a_state_that_this_version_does_not_know_is_reported() {
    let odd = parse(
        "{metadata: {name: a, namespace: b, uid: c}, status: {operationalStatus: tired, provisioning: {state: dreaming}}}",
    );
    let report = odd.reports()[0].to_string();
    for expected in [
        "status.provisioning.state is \"dreaming\": must be one of unmanaged, registering,",
        "status.operationalStatus is \"tired\": must be one of OK, discovered, error, delayed, detached, servicing",
    ] {
        assert!(report.contains(expected), "{report}");
    }
}

fn with_bmc(address: &str) -> Host {
    let mut object = host("metadata: {name: a, namespace: b, uid: c}");
    object.spec.bmc = Some(Bmc {
        address: Some(address.to_owned()),
        ..Bmc::default()
    });
    Host::parse(&object, None).unwrap()
}

#[test]
fn addresses_of_bmcs_are_kept_as_written() {
    for address in [
        "redfish+https://32.68.51.12/redfish/v1/Systems/System.Embedded.1",
        "redfish+http://10.0.0.1:8000/redfish/v1/Systems/worker-1",
        "redfish://[2001:db8::1]:8000/redfish/v1/Systems/1",
        "ipmi://192.0.2.1:6230",
        "192.0.2.1",
    ] {
        let host = with_bmc(address);
        assert_eq!(host.bmc_address().map(BmcAddress::as_str), Some(address));
        assert!(host.reports().is_empty(), "{:?}", host.reports());
    }
    assert!(with_bmc("").bmc_address().is_none());
}

#[test]
fn a_password_in_a_bmc_address_is_never_reported() {
    for address in [
        "redfish://root:hunter2@192.0.2.1/redfish/v1",
        "root:hunter2@192.0.2.1",
        "redfish://root:hunter2 @192.0.2.1",
        "redfish://192.0.2.1\nhunter2",
        "/hunter2",
    ] {
        let host = with_bmc(address);
        assert!(host.bmc_address().is_none(), "{address:?}");
        let report = host.reports()[0].to_string();
        assert!(
            report.starts_with("BareMetalHost b/a: spec.bmc.address is a redacted value: must "),
            "{report}"
        );
        assert!(!format!("{host:?}").contains("hunter2"));
    }
}

#[test]
fn a_bad_secret_is_a_fault_of_its_host_only() {
    let secret = SecretName {
        namespace: "lab".to_owned(),
        name: "s".to_owned(),
    };
    let data = NetworkData::parse(
        &secret,
        b"networks: [{id: a, ip_address: x}, {id: b, ip_address: 192.0.2.1}]",
    );
    let host = Host::parse(&host(HOST), Some(&data)).unwrap();
    assert_eq!(host.reports().len(), 1);
    assert_eq!(host.reports()[0].object(), "Secret lab/s");
    assert_eq!(host.addresses().len(), 1);
    assert_eq!(host.labels().len(), 2);
}

#[test]
fn a_bad_revision_is_reported() {
    let host = parse(&HOST.replace("'42'", "'next'"));
    assert_eq!(host.placement_revision(), None);
    assert_eq!(
        host.reports()[0].to_string(),
        "BareMetalHost lab/host-1: metadata.annotations[sip.airshipit.org/placement-revision] is \"next\": must be a revision, a whole number"
    );
}

#[test]
fn an_object_without_identity_is_no_host() {
    let invalid = Host::parse(&host("metadata: {name: a}"), None).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "BareMetalHost /a: metadata.namespace is absent: must be set; metadata.uid is absent: must be set"
    );
}

#[test]
fn hosts_of_samples_are_read_without_a_report() {
    let files = samples(
        &["stock/hosts.yaml", "left-by-sip.yaml"],
        &["sip/baremetalhosts.yaml", "sip/leftovers.yaml"],
    );
    for (_, objects) in files {
        for object in of_kind(objects, "BareMetalHost") {
            let mut object: BareMetalHost = serde_json::from_value(object).unwrap();
            object.metadata.uid = Some("u".to_owned());
            object
                .metadata
                .namespace
                .get_or_insert_with(|| "sipcluster-system".to_owned());
            let host = Host::parse(&object, None).unwrap();
            assert!(host.reports().is_empty(), "{:?}", host.reports());
            assert!(host.bmc_address().is_some());
        }
    }
}
