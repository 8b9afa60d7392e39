use super::*;

const DAY: Duration = Duration::from_hours(24);

fn names(host: &str) -> Names {
    let mut names = Names::default();
    names.add(host);
    names
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn nothing_is_made_anew_without_a_reason() {
    let now = SystemTime::now();
    let (stored, first) = renewed(Stored::default(), None, &names("192.0.2.1"), now).unwrap();
    let (same, again) = renewed(stored.clone(), None, &names("192.0.2.1"), now + 59 * DAY).unwrap();
    assert!(stored == same && first == again);
    let (due, renewed_in_time) = renewed(stored.clone(), None, &names("192.0.2.1"), now + 61 * DAY).unwrap();
    assert!(due.authority == stored.authority && renewed_in_time.chain != first.chain);
    assert!(renewed_in_time.bundle == first.bundle);
    let (_, named) = renewed(stored, None, &names("sso.example.org"), now).unwrap();
    assert!(named.chain != first.chain && named.bundle == first.bundle);
}

#[test]
fn the_next_authority_is_trusted_before_it_issues() {
    let mut now = SystemTime::now();
    let host = names("sso.example.org");
    let (mut stored, certificate) = renewed(Stored::default(), None, &host, now).unwrap();
    let mut trusted = certificate.bundle;
    // Clients that fetched the bundle within the last year trust every certificate.
    let mut widest = 0;
    for _ in 0..22 {
        now += 180 * DAY;
        let (next, certificate) = renewed(stored, None, &host, now).unwrap();
        let signer = next.authority.as_ref().unwrap().certificate.clone();
        assert!(trusted.contains(&signer), "{now:?}");
        widest = widest.max(count(&certificate.bundle));
        trusted = certificate.bundle;
        stored = next;
    }
    assert_eq!(widest, 2);
}

#[test]
fn what_is_published_has_certificates_only() {
    let Pair { certificate, key } = authority(SystemTime::now()).unwrap();
    let combined = format!("Bag Attributes: hidden\n{key}{certificate}{key}\r\ntrailing");
    assert_eq!(
        only_certificates(&combined).unwrap(),
        certificate.replace("\r\n", "\n")
    );
    for bad in [
        String::new(),
        key,
        "-----BEGIN CERTIFICATE-----\naGlkZGVu\n-----END CERTIFICATE-----\n".to_owned(),
    ] {
        assert_eq!(only_certificates(&bad), None, "{bad}");
    }
    assert_eq!(only_certificates(&certificate.repeat(9)), None);
}

#[test]
fn a_given_authority_must_be_one() {
    let now = SystemTime::now();
    let pair = authority(now).unwrap();
    let given = |pair: &Pair| Given {
        pair: pair.clone(),
        root: None,
    };
    let host = names("sso.example.org");
    let (stored, certificate) = renewed(Stored::default(), Some(&given(&pair)), &host, now).unwrap();
    assert!(certificate.bundle == pair.certificate && stored.authority.is_none());
    let other = Pair {
        key: authority(now).unwrap().key,
        ..pair.clone()
    };
    let leaf = Pair {
        certificate: stored.serving.as_ref().unwrap().chain.clone(),
        key: stored.serving.as_ref().unwrap().key.clone(),
    };
    let nothing = Pair {
        certificate: String::new(),
        ..pair.clone()
    };
    for (name, wrong) in [
        ("another key", other),
        ("no CA", leaf),
        ("no certificate", nothing),
    ] {
        assert!(
            matches!(
                renewed(Stored::default(), Some(&given(&wrong)), &host, now),
                Err(Error::Given(_))
            ),
            "{name}"
        );
    }
    let ended = renewed(
        Stored::default(),
        Some(&given(&pair)),
        &host,
        now + AUTHORITY + DAY,
    );
    assert!(matches!(ended, Err(Error::Given(_))));
}
