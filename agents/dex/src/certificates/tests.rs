use super::{inspect::subject_names, *};

const DAY: Duration = Duration::from_hours(24);

fn names(host: &str) -> Names {
    Names::from_hosts([host])
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn certificates_are_renewed_only_with_a_reason() {
    let now = SystemTime::now();
    let (stored, first) = renew(CertificateSet::default(), None, &names("192.0.2.1"), now).unwrap();
    let (same, again) = renew(stored.clone(), None, &names("192.0.2.1"), now + 59 * DAY).unwrap();
    assert!(stored == same && first == again);
    let (due, renewed_in_time) = renew(stored.clone(), None, &names("192.0.2.1"), now + 61 * DAY).unwrap();
    assert!(due.authority == stored.authority && renewed_in_time.chain != first.chain);
    assert!(renewed_in_time.bundle == first.bundle);
    let (_, named) = renew(stored, None, &names("sso.example.org"), now).unwrap();
    assert!(named.chain != first.chain && named.bundle == first.bundle);
}

#[test]
fn certificates_of_a_clock_that_was_ahead_are_replaced() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (ahead, first) = renew(CertificateSet::default(), None, &host, now + 300 * DAY).unwrap();
    assert!(check_trusted(&first, now).is_err());
    let (stored, next) = renew(ahead, None, &host, now).unwrap();
    assert!(next.chain != first.chain && next.bundle == first.bundle);
    assert_eq!(check_trusted(&next, now), Ok(()));
    let (_, same) = renew(stored, None, &host, now).unwrap();
    assert!(same == next);
    // One that was ahead by years has made no certificate that is valid for years.
    let (ahead, _) = renew(CertificateSet::default(), None, &host, now + 3000 * DAY).unwrap();
    let (_, next) = renew(ahead, None, &host, now).unwrap();
    assert!(not_after(&next.chain).unwrap() <= now + (365 + 90) * DAY);
}

#[test]
fn a_clock_that_is_behind_ends_no_certificate() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (stored, first) = renew(CertificateSet::default(), None, &host, now).unwrap();
    for behind in [DAY, 100 * DAY, 300 * DAY] {
        let (stored, next) = renew(stored.clone(), None, &host, now - behind).unwrap();
        assert!(next.bundle == first.bundle);
        for time in [now - behind, now] {
            assert_eq!(check_trusted(&next, time), Ok(()), "{behind:?}");
        }
        let (_, same) = renew(stored, None, &host, now).unwrap();
        assert!(same == next);
    }
}

#[test]
fn the_next_authority_is_trusted_before_it_issues() {
    let mut now = SystemTime::now();
    let host = names("sso.example.org");
    let (mut stored, certificate) = renew(CertificateSet::default(), None, &host, now).unwrap();
    let mut trusted = certificate.bundle;
    // Clients that fetched the bundle within the last year trust every certificate.
    let mut widest = 0;
    for _ in 0..22 {
        now += 180 * DAY;
        let (next, certificate) = renew(stored, None, &host, now).unwrap();
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
    let (stored, first) = renew(CertificateSet::default(), None, &host, now).unwrap();
    let authority = |stored: &CertificateSet| stored.authority.clone().unwrap().certificate;
    let own = authority(&stored);
    // The agent did not run while the CA had two years to one year left.
    let late = now + CA_LIFETIME - CA_RENEW_BEFORE / 2 + 10 * DAY;
    let (stored, published) = renew(stored, None, &host, late).unwrap();
    assert!(authority(&stored) == own && count(&published.bundle) == 2 && count(&first.bundle) == 1);
    let (stored, _) = renew(stored, None, &host, late + DAY).unwrap();
    assert!(
        authority(&stored) == own,
        "who fetched the bundle before knows no other"
    );
    let (stored, last) = renew(stored, None, &host, now + CA_LIFETIME - CERTIFICATE_LIFETIME).unwrap();
    assert!(authority(&stored) != own && count(&last.bundle) == 2);
}

#[test]
fn only_certificates_are_published() {
    let CertificateAndKey { certificate, key } = new_ca(SystemTime::now()).unwrap();
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
fn a_ca_of_the_tenant_must_be_a_ca() {
    let now = SystemTime::now();
    let pair = new_ca(now).unwrap();
    let given = |pair: &CertificateAndKey| TenantCa {
        pair: pair.clone(),
        root: None,
    };
    let host = names("sso.example.org");
    let (stored, certificate) = renew(CertificateSet::default(), Some(&given(&pair)), &host, now).unwrap();
    assert!(certificate.bundle == pair.certificate && stored.authority.is_none());
    let other = CertificateAndKey {
        key: new_ca(now).unwrap().key,
        ..pair.clone()
    };
    let leaf = CertificateAndKey {
        certificate: stored.serving.as_ref().unwrap().chain.clone(),
        key: stored.serving.as_ref().unwrap().key.clone(),
    };
    let nothing = CertificateAndKey {
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
                renew(CertificateSet::default(), Some(&given(&wrong)), &host, now),
                Err(Error::TenantCa(_))
            ),
            "{name}"
        );
    }
    let ended = renew(
        CertificateSet::default(),
        Some(&given(&pair)),
        &host,
        now + CA_LIFETIME + DAY,
    );
    assert!(matches!(ended, Err(Error::TenantCa(_))));
}

/// A CA for names below one domain, with its own root, which begins at a time.
fn limited(domain: &str, begin: SystemTime) -> TenantCa {
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
    TenantCa {
        pair: CertificateAndKey {
            certificate,
            key: key.serialize_pem(),
        },
        root: Some(root.pem()),
    }
}

#[test]
fn a_ca_of_the_tenant_is_used_only_if_clients_trust_it() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let good = limited("example.org", now - DAY);
    let (stored, served) = renew(CertificateSet::default(), Some(&good), &host, now).unwrap();
    assert_eq!(count(&served.chain), 2);
    let other_root = TenantCa {
        root: limited("example.org", now - DAY).root,
        ..good.clone()
    };
    let without_root = |given: TenantCa| TenantCa { root: None, ..given };
    let alone = without_root(good.clone());
    renew(CertificateSet::default(), Some(&alone), &host, now).unwrap();
    let late = || limited("example.org", now + DAY);
    for (what, given) in [
        ("another root", other_root),
        ("not valid yet", late()),
        ("trusted, and not valid yet", without_root(late())),
        ("other names", limited("example.net", now - DAY)),
    ] {
        // What runs has a certificate that is trusted, so it must stay.
        let refused = renew(stored.clone(), Some(&given), &host, now);
        assert!(matches!(refused, Err(Error::TenantCa(_))), "{what}");
    }
}

#[test]
fn a_former_address_that_the_authority_refuses_is_left_out() {
    let now = SystemTime::now();
    let given = limited("example.org", now - DAY);
    let mut stored = CertificateSet::default();
    let mut made = |lists: &[&[&str]]| {
        let lists: Vec<_> = lists
            .iter()
            .map(|names| Names::from_hosts(names.iter().copied()))
            .collect();
        let (first, fallbacks) = lists.split_first().unwrap();
        let (next, certificate) = renew_for_any(&stored, Some(&given), first, fallbacks, now).ok()?;
        stored = next;
        let names = lists
            .iter()
            .position(|names| subject_names(&certificate.chain).as_ref() == Some(names));
        Some((names?, certificate.chain))
    };
    let (allowed, own) = (["sso.example.org", "lb.example.org"], ["sso.example.org"]);
    assert_eq!(made(&[&allowed, &own]).unwrap().0, 0);
    let refused = ["sso.example.org", "lb.example.net"];
    let first = made(&[&refused, &refused, &own]).unwrap();
    assert_eq!(first.0, 2);
    assert_eq!(
        made(&[&refused, &refused, &own]),
        Some(first),
        "nothing is made twice"
    );
    assert_eq!(made(&[&refused, &["sso.example.net"]]), None);
}

#[test]
fn a_certificate_of_another_issuer_chains_to_its_authority() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (_, served) = renew(CertificateSet::default(), None, &host, now).unwrap();
    assert_eq!(check_usable(&served, now), Ok(()));
    let untrusted = Certificate {
        bundle: new_ca(now).unwrap().certificate,
        ..served
    };
    assert!(check_usable(&untrusted, now).is_err());
}

#[test]
fn names_are_compared_without_case() {
    let now = SystemTime::now();
    let (_, served) = renew(CertificateSet::default(), None, &names("sso.example.org"), now).unwrap();
    assert!(has_names(&served, &names("SSO.Example.org")));
}

#[test]
fn an_authority_of_a_directory_has_a_certificate() {
    let certificate = new_ca(SystemTime::now()).unwrap().certificate;
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
