use serde_json::{Value, json};

use super::*;

const PATH: &str = "/redfish/v1/Systems/1";

fn address() -> Address {
    Address::parse(Some("redfish://192.0.2.1/redfish/v1/Systems/1")).unwrap()
}

fn parse(system: Value) -> Result<System, Failure> {
    let raw: RawSystem = serde_json::from_value(system).unwrap();
    raw.parse(&address(), PATH)
}

fn full() -> Value {
    json!({
        "@odata.id": PATH, "PowerState": "On", "LastResetTime": "2026-11-01T00:00:00Z",
        "BootProgress": {"LastState": "OSRunning", "LastStateTime": "2026-11-01T00:02:00Z"},
        "Actions": {"#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset/",
            "ResetType@Redfish.AllowableValues": ["On", "GracefulRestart"],
        }},
        "SerialConsole": {
            "SSH": {"ServiceEnabled": true, "Port": 2200, "ConsoleEntryCommand": "console com2"},
            "IPMI": {"ServiceEnabled": false},
        },
        "GraphicalConsole": {"ServiceEnabled": true, "ConnectTypesSupported": ["KVMIP"]},
    })
}

#[test]
fn a_system_is_read_in_full() {
    let System {
        reading,
        consoles,
        reset,
    } = parse(full()).unwrap();
    assert_eq!(
        (reading.power, reading.boot.as_deref()),
        (Power::On, Some("OSRunning"))
    );
    let reset = reset.unwrap();
    assert_eq!(
        reset.target,
        "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset/"
    );
    assert_eq!(reset.offered.unwrap(), ["On", "GracefulRestart"]);
    let urls: Vec<_> = consoles.iter().map(|console| &*console.url).collect();
    assert_eq!(urls, ["ssh://192.0.2.1:2200", "https://192.0.2.1/"]);
    assert_eq!(consoles[0].command, "console com2");
}

#[test]
fn a_system_that_says_little_is_read_too() {
    let system = parse(
        json!({"PowerState": null, "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/x"}}}),
    );
    let system = system.unwrap();
    assert_eq!(system.reading.power, Power::Unknown);
    assert_eq!(system.reset.unwrap().offered, None);
    assert_eq!(parse(json!({"PowerState": "Off"})).unwrap().reset, None);
}

#[test]
fn the_reset_action_of_another_system_is_refused() {
    for (pointer, value) in [
        (
            "/Actions/#ComputerSystem.Reset/target",
            "/redfish/v1/Systems/2/Actions/ComputerSystem.Reset",
        ),
        (
            "/Actions/#ComputerSystem.Reset/target",
            "/redfish/v1/Systems/10/Actions/ComputerSystem.Reset",
        ),
        ("/Actions/#ComputerSystem.Reset/target", "/redfish/v1/Systems/1"),
        (
            "/Actions/#ComputerSystem.Reset/target",
            "/redfish/v1/Systems/1/../2/Reset",
        ),
        (
            "/Actions/#ComputerSystem.Reset/target",
            "https://evil.example/redfish/v1/Systems/1/x",
        ),
        ("/@odata.id", "/redfish/v1/Systems/2"),
    ] {
        let mut system = full();
        *system.pointer_mut(pointer).unwrap() = value.into();
        let error = parse(system).unwrap_err();
        assert!(
            matches!(error, Failure::NotRedfish { .. } | Failure::Elsewhere { .. }),
            "{value}: {error}"
        );
    }
}

#[test]
fn json_that_is_no_system_is_refused() {
    let error = parse(json!({"@odata.id": "/redfish/v1"})).unwrap_err();
    assert!(error.to_string().contains("no ComputerSystem"), "{error}");
}

#[test]
fn what_is_offered_may_be_described_elsewhere() {
    let info: RawActionInfo = serde_json::from_value(json!({"Parameters": [
        {"Name": "Other"}, {"Name": "ResetType", "AllowableValues": ["ForceRestart"]},
    ]}))
    .unwrap();
    assert_eq!(info.offered().unwrap(), ["ForceRestart"]);
}

#[test]
fn an_error_says_what_is_for_people() {
    let body = json!({"error": {"message": "general", "@Message.ExtendedInfo": [{"Message": "precise"}]}});
    assert_eq!(
        error_message(body.to_string().as_bytes()).as_deref(),
        Some("precise")
    );
    assert_eq!(error_message(b"<html>"), None);
}
