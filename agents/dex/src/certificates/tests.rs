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
fn a_certificate_stays_while_an_address_is_missing() {
    let now = SystemTime::now();
    let mut whole = names("sso.example.org");
    whole.add("192.0.2.1");
    let (stored, first) = renewed(Stored::default(), None, &whole, now).unwrap();
    assert!(Stored::default().names() == Names::default() && stored.names() == whole);
    let mut lacking = names("sso.example.org");
    lacking.extend(stored.names());
    let (stored, kept) = renewed(stored, None, &lacking, now).unwrap();
    assert!(kept == first);
    // Another address is in the next one, and the former is not.
    let mut other = names("sso.example.org");
    other.add("192.0.2.2");
    let (stored, next) = renewed(stored, None, &other, now).unwrap();
    assert!(next.chain != first.chain && stored.names() == other);
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
fn the_next_authority_is_published_for_long_also_after_a_gap() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (stored, first) = renewed(Stored::default(), None, &host, now).unwrap();
    let authority = |stored: &Stored| stored.authority.clone().unwrap().certificate;
    let own = authority(&stored);
    // The agent did not run while the CA had two years to one year left.
    let late = now + AUTHORITY - AUTHORITY_LEFT / 2 + 10 * DAY;
    let (stored, published) = renewed(stored, None, &host, late).unwrap();
    assert!(authority(&stored) == own && count(&published.bundle) == 2 && count(&first.bundle) == 1);
    let (stored, _) = renewed(stored, None, &host, late + DAY).unwrap();
    assert!(
        authority(&stored) == own,
        "who fetched the bundle before knows no other"
    );
    let (stored, last) = renewed(stored, None, &host, now + AUTHORITY - SERVING).unwrap();
    assert!(authority(&stored) != own && count(&last.bundle) == 2);
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

/// A CA for names below one domain, with its own root, which begins at a time.
fn limited(domain: &str, begin: SystemTime) -> Given {
    let root_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = |name: &str| {
        let mut distinguished = rcgen::DistinguishedName::new();
        distinguished.push(DnType::CommonName, name);
        distinguished
    };
    params.distinguished_name = name("root");
    let root = params.self_signed(&root_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = name("between");
    params.not_before = begin.into();
    params.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName(domain.to_owned())],
        excluded_subtrees: Vec::new(),
    });
    let issuer = Issuer::from_ca_cert_pem(&root.pem(), &root_key).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Given {
        pair: Pair {
            certificate,
            key: key.serialize_pem(),
        },
        root: Some(root.pem()),
    }
}

#[test]
fn a_given_authority_is_used_only_if_people_trust_it() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let good = limited("example.org", now - DAY);
    let (stored, served) = renewed(Stored::default(), Some(&good), &host, now).unwrap();
    assert_eq!(count(&served.chain), 2);
    let other_root = Given {
        root: limited("example.org", now - DAY).root,
        ..good.clone()
    };
    for (what, given) in [
        ("another root", other_root),
        ("not valid yet", limited("example.org", now + DAY)),
        ("other names", limited("example.net", now - DAY)),
    ] {
        // What runs has a certificate that is trusted, so it must stay.
        let refused = renewed(stored.clone(), Some(&given), &host, now);
        assert!(matches!(refused, Err(Error::Given(_))), "{what}");
    }
}

#[test]
fn a_certificate_of_another_issuer_chains_to_its_authority() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (_, served) = renewed(Stored::default(), None, &host, now).unwrap();
    assert_eq!(usable(&served, now), Ok(()));
    let untrusted = Certificate {
        bundle: authority(now).unwrap().certificate,
        ..served
    };
    assert!(usable(&untrusted, now).is_err());
}

#[test]
fn names_are_compared_without_case() {
    let now = SystemTime::now();
    let (_, served) = renewed(Stored::default(), None, &names("sso.example.org"), now).unwrap();
    assert!(covers(&served, &names("SSO.Example.org")));
}

#[test]
fn an_authority_of_a_directory_has_a_certificate() {
    let certificate = authority(SystemTime::now()).unwrap().certificate;
    assert!(has_certificate(&format!("# of the directory\n{certificate}")));
    for bad in [
        "",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\naGlkZGVu\n-----END CERTIFICATE-----\n",
        &certificate[..certificate.len() / 2],
    ] {
        assert!(!has_certificate(bad), "{bad}");
    }
}
