use super::{inspect::names_of, *};

const DAY: Duration = Duration::from_hours(24);

fn names(host: &str) -> Names {
    Names::from_hosts([host])
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
fn what_a_clock_that_was_ahead_made_is_valid() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (ahead, first) = renewed(Stored::default(), None, &host, now + 300 * DAY).unwrap();
    assert!(is_trusted(&first, now).is_err());
    let (stored, next) = renewed(ahead, None, &host, now).unwrap();
    assert!(next.chain != first.chain && next.bundle == first.bundle);
    assert_eq!(is_trusted(&next, now), Ok(()));
    let (_, same) = renewed(stored, None, &host, now).unwrap();
    assert!(same == next);
    // One that was ahead by years has made no certificate that is valid for years.
    let (ahead, _) = renewed(Stored::default(), None, &host, now + 3000 * DAY).unwrap();
    let (_, next) = renewed(ahead, None, &host, now).unwrap();
    assert!(ends(&next.chain).unwrap() <= now + (365 + 90) * DAY);
}

#[test]
fn a_clock_that_is_behind_ends_no_certificate() {
    let now = SystemTime::now();
    let host = names("sso.example.org");
    let (stored, first) = renewed(Stored::default(), None, &host, now).unwrap();
    for behind in [DAY, 100 * DAY, 300 * DAY] {
        let (stored, next) = renewed(stored.clone(), None, &host, now - behind).unwrap();
        assert!(next.bundle == first.bundle);
        for time in [now - behind, now] {
            assert_eq!(is_trusted(&next, time), Ok(()), "{behind:?}");
        }
        let (_, same) = renewed(stored, None, &host, now).unwrap();
        assert!(same == next);
    }
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
    let without_root = |given: Given| Given { root: None, ..given };
    let alone = without_root(good.clone());
    renewed(Stored::default(), Some(&alone), &host, now).unwrap();
    let late = || limited("example.org", now + DAY);
    for (what, given) in [
        ("another root", other_root),
        ("not valid yet", late()),
        ("trusted, and not valid yet", without_root(late())),
        ("other names", limited("example.net", now - DAY)),
    ] {
        // What runs has a certificate that is trusted, so it must stay.
        let refused = renewed(stored.clone(), Some(&given), &host, now);
        assert!(matches!(refused, Err(Error::Given(_))), "{what}");
    }
}

#[test]
fn a_former_address_that_the_authority_refuses_is_left_out() {
    let now = SystemTime::now();
    let given = limited("example.org", now - DAY);
    let mut stored = Stored::default();
    let mut made = |lists: &[&[&str]]| {
        let lists: Vec<_> = lists
            .iter()
            .map(|names| Names::from_hosts(names.iter().copied()))
            .collect();
        let (first, fallbacks) = lists.split_first().unwrap();
        let (next, certificate) = renewed_for_any(&stored, Some(&given), first, fallbacks, now).ok()?;
        stored = next;
        let names = lists
            .iter()
            .position(|names| names_of(&certificate.chain).as_ref() == Some(names));
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
