use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Result<Address, Refused> {
    Address::parse(Some(text))
}

#[test]
fn addresses_that_sites_write_are_understood() {
    for (text, kind, expected) in [
        (
            "redfish+https://32.68.51.12/redfish/v1/Systems/System.Embedded.1",
            Kind::Redfish,
            (true, "32.68.51.12:443", "/redfish/v1/Systems/System.Embedded.1"),
        ),
        (
            "redfish+http://node-1:8000/redfish/v1/Systems/worker-1",
            Kind::Redfish,
            (false, "node-1:8000", "/redfish/v1/Systems/worker-1"),
        ),
        (
            "redfish://bmc.example/redfish/v1/Systems/1",
            Kind::Redfish,
            (true, "bmc.example:443", "/redfish/v1/Systems/1"),
        ),
        (
            "redfish+http://192.0.2.1/redfish/v1/Systems/1",
            Kind::Redfish,
            (false, "192.0.2.1:80", "/redfish/v1/Systems/1"),
        ),
        (
            "redfish-virtualmedia+https://[2001:db8::7]:8443/redfish/v1/Systems/1/",
            Kind::RedfishVirtualMedia,
            (true, "[2001:db8::7]:8443", "/redfish/v1/Systems/1"),
        ),
        (
            "redfish+https://[::ffff:192.0.2.1]/redfish/v1/Systems/1",
            Kind::Redfish,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/1"),
        ),
        (
            "redfish-uefihttp://192.0.2.1/redfish/v1/Systems/1",
            Kind::RedfishUefiHttp,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/1"),
        ),
        (
            "idrac-redfish://192.0.2.1/redfish/v1/Systems/System.Embedded.1",
            Kind::IdracRedfish,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/System.Embedded.1"),
        ),
        (
            "idrac-virtualmedia+https://192.0.2.1/redfish/v1/Systems/System.Embedded.1",
            Kind::IdracVirtualMedia,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/System.Embedded.1"),
        ),
        (
            "ilo5-redfish://ILO.Example/redfish/v1/Systems/1",
            Kind::Ilo5Redfish,
            (true, "ilo.example:443", "/redfish/v1/Systems/1"),
        ),
        (
            "ilo5-redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1",
            Kind::Ilo5RedfishVirtualMedia,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/1"),
        ),
        (
            "ilo5-virtualmedia://192.0.2.1/redfish/v1/Systems/1",
            Kind::Ilo5VirtualMedia,
            (true, "192.0.2.1:443", "/redfish/v1/Systems/1"),
        ),
    ] {
        let address = parsed(text).unwrap();
        let (tls, authority, system) = expected;
        assert_eq!(address.kind(), kind, "{text}");
        assert_eq!(
            (address.is_tls(), &*address.authority(), address.system()),
            (tls, authority, system),
            "{text}"
        );
    }
}

#[test]
fn other_addresses_are_refused_by_the_part_that_is_wrong() {
    let path = |_wrong: &str| Refused::Path;
    let host = |_wrong: &str| Refused::Host;
    let port = |_wrong: &str| Refused::Port;
    let scheme = |scheme: &str| Refused::Scheme(scheme.to_owned());
    let system = "/redfish/v1/Systems/1";
    for (text, expected) in [
        ("", Refused::Absent),
        ("192.0.2.1", Refused::NoUrl),
        ("redfish:/192.0.2.1", Refused::NoUrl),
        (&format!("ipmi://192.0.2.1{system}"), scheme("ipmi")),
        (&format!("idrac://192.0.2.1{system}"), scheme("idrac")),
        (&format!("irmc://192.0.2.1{system}"), scheme("irmc")),
        (&format!("https://192.0.2.1{system}"), scheme("https")),
        (&format!("file://192.0.2.1{system}"), scheme("file")),
        (&format!("redfish+ftp://192.0.2.1{system}"), scheme("redfish+ftp")),
        (&format!("REDFISH://192.0.2.1{system}"), scheme("REDFISH")),
        ("redfish://192.0.2.1", path("")),
        ("redfish://192.0.2.1/", path("/")),
        (
            "redfish://192.0.2.1/redfish/v1/Systems",
            path("/redfish/v1/Systems"),
        ),
        (
            "redfish://192.0.2.1/redfish/v1/Systems/",
            path("/redfish/v1/Systems/"),
        ),
        (
            "redfish://192.0.2.1/redfish/v1/Systems/1/Actions",
            path("/redfish/v1/Systems/1/Actions"),
        ),
        (
            "redfish://192.0.2.1/redfish/v1/Systems/..",
            path("/redfish/v1/Systems/.."),
        ),
        (
            "redfish://192.0.2.1/redfish/v1/Systems/a%2f..",
            path("/redfish/v1/Systems/a%2f.."),
        ),
        (
            "redfish://192.0.2.1/redfish/v1/Systems/1?x",
            path("/redfish/v1/Systems/1?x"),
        ),
        (
            "redfish://192.0.2.1?/redfish/v1/Systems/1",
            path("?/redfish/v1/Systems/1"),
        ),
        (
            "redfish://192.0.2.1#/redfish/v1/Systems/1",
            path("#/redfish/v1/Systems/1"),
        ),
        (
            "redfish://192.0.2.1/redfish/v1//Systems/1",
            path("/redfish/v1//Systems/1"),
        ),
        (&format!("redfish://{system}"), host("")),
        (
            &format!("redfish://169.254.169.254{system}"),
            host("169.254.169.254"),
        ),
        (&format!("redfish://0.0.0.0{system}"), host("0.0.0.0")),
        (&format!("redfish://[::]{system}"), host("[::]")),
        (&format!("redfish://[fe80::1]{system}"), host("[fe80::1]")),
        (
            &format!("redfish://[::ffff:169.254.169.254]{system}"),
            host("[::ffff:169.254.169.254]"),
        ),
        (&format!("redfish://224.0.0.1{system}"), host("224.0.0.1")),
        (&format!("redfish://2130706433{system}"), host("2130706433")),
        (&format!("redfish://0x7f000001{system}"), host("0x7f000001")),
        (&format!("redfish://127.1{system}"), host("127.1")),
        (&format!("redfish://-a{system}"), host("-a")),
        (&format!("redfish://a..b{system}"), host("a..b")),
        (&format!("redfish://a_b{system}"), host("a_b")),
        (&format!("redfish://2001:db8::7{system}"), host("2001:db8::7")),
        (&format!("redfish://[::1]x{system}"), host("[::1]x")),
        (&format!("redfish://192.0.2.1:{system}"), port("")),
        (&format!("redfish://192.0.2.1:0{system}"), port("0")),
        (&format!("redfish://192.0.2.1:65536{system}"), port("65536")),
        (&format!("redfish://192.0.2.1:+80{system}"), port("+80")),
        (&format!("redfish://192.0.2.1 {system}"), Refused::Characters),
        (
            &format!("redfish://192.0.2.1{system}\r\nHost: x"),
            Refused::Characters,
        ),
        (&format!("redfish://bücher.example{system}"), Refused::Characters),
        (
            &format!("redfish://{}{system}", "a".repeat(512)),
            Refused::TooLong(543),
        ),
    ] {
        assert_eq!(parsed(text).unwrap_err(), expected, "{text}");
    }
    assert_eq!(Address::parse(None), Err(Refused::Absent));
}

#[test]
fn a_password_in_an_address_is_not_repeated() {
    for text in [
        "redfish://root:calvin@192.0.2.1/redfish/v1/Systems/1",
        "root:calvin@192.0.2.1",
        "ipmi://root:calvin@192.0.2.1",
        "redfish://192.0.2.1/redfish/v1/Systems/root:calvin@1",
    ] {
        let refused = parsed(text).unwrap_err();
        assert_eq!(refused, Refused::UserInfo);
        assert!(!refused.to_string().contains("calvin"), "{refused}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        let _ = parsed(&text);
    }

    #[test]
    fn what_is_parsed_has_a_plain_host_and_path_and_parses_again(
        text in "(redfish|idrac-redfish|ilo5-redfish)?(\\+https?)?(://)?[a-z0-9.:\\[\\]%-]{0,20}(/redfish/v1/Systems/)?[ -~]{0,12}",
    ) {
        if let Ok(address) = parsed(&text) {
            prop_assert_eq!(&parsed(&address.to_string()).unwrap(), &address);
            let uri: http::Uri = format!("http://{}{}", address.authority(), address.system()).parse().unwrap();
            prop_assert_eq!(uri.port_u16(), Some(address.port()));
            prop_assert_eq!(uri.path(), address.system());
            prop_assert!(uri.query().is_none());
            let host = uri.host().unwrap().trim_start_matches('[').trim_end_matches(']').to_owned();
            prop_assert_eq!(host, address.host());
            prop_assert!(address.system().split('/').all(|segment| segment != "." && segment != ".."));
        }
    }
}

#[test]
fn a_password_in_a_wrong_address_is_not_quoted() {
    for text in [
        "redfish://root:calvin%40192.0.2.1/redfish/v1/Systems/1",
        "redfish://calvin%40192.0.2.1/redfish/v1/Systems/1",
        "redfish://192.0.2.1/redfish/v1/Systems/1?user=root&password=calvin",
        "redfish://192.0.2.1/redfish/v1/Systems/1#calvin",
        "redfish://root:calvin@192.0.2.1/redfish/v1/Systems/1",
    ] {
        let refused = parsed(text).unwrap_err().to_string();
        assert!(!refused.contains("calvin"), "{refused}");
    }
}
