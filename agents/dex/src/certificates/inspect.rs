//! What a certificate states. Pure.

use std::{
    net::IpAddr,
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rcgen::KeyPair;
use render::dex::Certificate;
use rustls::{
    CertificateError, RootCertStore, client::verify_server_cert_signed_by_trust_anchor,
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use x509_parser::{certificate::Validity, extensions::GeneralName, parse_x509_certificate, time::ASN1Time};

use super::Names;

/// Maximum number of certificates in one text.
pub(crate) const MAX_CERTIFICATES: usize = 8;
/// Maximum size of a certificate, in bytes.
const MAX_CERTIFICATE_BYTES: usize = 8 * 1024;

/// Checks that a certificate of another issuer can be used now.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn check_usable(certificate: &Certificate, now: SystemTime) -> Result<(), &'static str> {
    let Certificate { chain, key, bundle } = certificate;
    if not_after(chain).is_none_or(|end| end <= now) {
        return Err("tls.crt must be a certificate that has not expired");
    }
    // Of several certificates one may have ended.
    if not_after(bundle).is_none() {
        return Err("ca.crt must be a certificate");
    }
    let key = KeyPair::from_pem(key).map_err(|_| "tls.key must be a private key in PKCS#8")?;
    if !has_key(chain, &key) {
        return Err("tls.key must be the private key of tls.crt");
    }
    check_trusted(certificate, now)
}

/// Checks that clients that trust the published CA certificates trust a certificate now. A signature that this library cannot verify is left to
/// them.
///
/// # Errors
/// The rule that it breaks.
pub(super) fn check_trusted(certificate: &Certificate, now: SystemTime) -> Result<(), &'static str> {
    let rule =
        "tls.crt must chain to a certificate of ca.crt, and both be valid now and for the provider's names";
    let Certificate {
        chain,
        key: _,
        bundle,
    } = certificate;
    let certificates =
        |text: &str| CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let (chain, bundle) = certificates(chain)
        .ok()
        .zip(certificates(bundle).ok())
        .ok_or(rule)?;
    let (own, between) = chain.split_first().ok_or(rule)?;
    // The library does not check the validity of a root.
    let is_valid = |root: &CertificateDer<'_>| validity(root).is_some_and(|range| range.contains(&now));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.into_iter().filter(is_valid));
    let own = ParsedCertificate::try_from(own).map_err(|_| rule)?;
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let since = now.duration_since(UNIX_EPOCH).map_err(|_| rule)?;
    let now = UnixTime::since_unix_epoch(since);
    match verify_server_cert_signed_by_trust_anchor(&own, &roots, between, now, algorithms.all) {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ))
        | Ok(()) => Ok(()),
        Err(_) => Err(rule),
    }
}

/// Whether a certificate has all these names.
pub(crate) fn has_names(certificate: &Certificate, names: &Names) -> bool {
    subject_names(&certificate.chain).is_some_and(|Names { dns, addresses }| {
        names.dns.is_subset(&dns) && names.addresses.is_subset(&addresses)
    })
}

/// The subject alternative names of the first certificate of a text.
pub(super) fn subject_names(chain: &str) -> Option<Names> {
    let der = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
    let (_, parsed) = parse_x509_certificate(&der).ok()?;
    let alternatives = parsed.subject_alternative_name().ok()??;
    let mut names = Names::default();
    for name in &alternatives.value.general_names {
        match name {
            GeneralName::DNSName(name) => {
                names.dns.insert(name.to_ascii_lowercase());
            }
            GeneralName::IPAddress(bytes) => {
                let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let six = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                names.addresses.extend(four.or(six).ok());
            }
            _ => {}
        }
    }
    Some(names)
}

/// The certificates of a text and nothing else of it, since they are published: files with a certificate often have its key too. `None`:
/// there are none, or more than any chain has.
pub(crate) fn only_certificates(text: &str) -> Option<String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found
        .ok()
        .filter(|found| (1..=MAX_CERTIFICATES).contains(&found.len()))?;
    let whole = found
        .iter()
        .all(|der| der.len() <= MAX_CERTIFICATE_BYTES && parse_x509_certificate(der).is_ok());
    let pem = found.iter().map(|der| Pem::new("CERTIFICATE", der.to_vec()));
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    whole.then(|| pem.map(|pem| encode_config(&pem, config)).collect())
}

/// Whether a text contains a certificate. Dex does not start without one.
pub(crate) fn has_certificate(text: &str) -> bool {
    let mut found = CertificateDer::pem_slice_iter(text.as_bytes());
    found.any(|found| found.is_ok_and(|der| parse_x509_certificate(&der).is_ok()))
}

/// Each certificate of a text, as a text of its own; none of a text with anything else.
pub(crate) fn split_certificates(text: &str) -> Vec<String> {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    CertificateDer::pem_slice_iter(text.as_bytes())
        .map_while(Result::ok)
        .map(|der| encode_config(&Pem::new("CERTIFICATE", der.to_vec()), config))
        .collect()
}

/// Whether the first certificate is a CA.
pub(super) fn is_ca_certificate(certificate: &str) -> bool {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes());
    der.is_ok_and(|der| parse_x509_certificate(&der).is_ok_and(|(_, parsed)| parsed.is_ca()))
}

/// Whether the first certificate has this key.
pub(super) fn has_key(certificate: &str, key: &KeyPair) -> bool {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes());
    let own = rcgen::PublicKeyData::subject_public_key_info(key);
    der.is_ok_and(|der| parse_x509_certificate(&der).is_ok_and(|(_, parsed)| parsed.public_key().raw == own))
}

/// When the first certificate of a text becomes valid.
pub(crate) fn not_before(certificates: &str) -> Option<SystemTime> {
    let der = CertificateDer::from_pem_slice(certificates.as_bytes()).ok()?;
    Some(validity(&der)?.start)
}

/// When the first certificate of a text expires.
pub(crate) fn not_after(certificates: &str) -> Option<SystemTime> {
    let der = CertificateDer::from_pem_slice(certificates.as_bytes()).ok()?;
    Some(validity(&der)?.end)
}

fn validity(certificate: &CertificateDer<'_>) -> Option<Range<SystemTime>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let at = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).ok()?;
        Some(UNIX_EPOCH + Duration::from_secs(seconds))
    };
    let Validity {
        not_before,
        not_after,
    } = parsed.validity();
    // Before 1970 is long ago.
    Some(at(*not_before).unwrap_or(UNIX_EPOCH)..at(*not_after)?)
}
