//! Keeps small the number of paths from a client's certificate to a CA that a server trusts.
//!
//! The library that verifies chains tries every path that the names of certificates allow, with up to a hundred signatures, on a thread that serves
//! everybody. The owner of a site's CA chooses names and keys, and a signature of a slow key takes about a millisecond. With one certificate of each
//! name there is one path.

use std::collections::BTreeSet;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::identity;

/// The CA certificates among these that may be part of a path: the first of each name. One that cannot be read leads nowhere.
pub(super) fn with_distinct_names<'a>(shown: &'a [CertificateDer<'_>]) -> Vec<CertificateDer<'a>> {
    let mut names = BTreeSet::new();
    let mut distinct = Vec::new();
    for certificate in shown {
        let name = identity::parse(certificate).map(|parsed| parsed.subject().as_raw().to_vec());
        if name.is_ok_and(|name| names.insert(name)) {
            let der: &[u8] = certificate.as_ref();
            distinct.push(CertificateDer::from(der));
        }
    }
    distinct
}

/// Leaves one CA certificate of each name and key: a CA that was renewed with its key has several. It is one without name constraints, if there is
/// one: that leads wherever the others do.
pub(super) fn retain_distinct(anchors: &mut RootCertStore) {
    anchors
        .roots
        .sort_by_key(|anchor| anchor.name_constraints.is_some());
    let mut seen = BTreeSet::new();
    anchors.roots.retain(|anchor| {
        let key = anchor.subject_public_key_info.as_ref().to_vec();
        seen.insert((anchor.subject.as_ref().to_vec(), key))
    });
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{Der, TrustAnchor};

    use super::*;

    #[test]
    fn a_renewed_ca_is_kept_without_name_constraints() {
        let anchor = |key: &'static str, constraints: Option<&'static str>| TrustAnchor {
            subject: Der::from_slice(b"site"),
            subject_public_key_info: Der::from_slice(key.as_bytes()),
            name_constraints: constraints.map(|names| Der::from_slice(names.as_bytes())),
        };
        let (first, renewed) = (anchor("a", Some("names")), anchor("a", None));
        let other = anchor("b", Some("names"));
        for both in [[&first, &renewed], [&renewed, &first]] {
            let roots = both.into_iter().chain([&other, &other]).cloned().collect();
            let mut anchors = RootCertStore { roots };
            retain_distinct(&mut anchors);
            assert_eq!(anchors.roots, [renewed.clone(), other.clone()]);
        }
    }
}
