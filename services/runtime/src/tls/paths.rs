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

/// Leaves one CA certificate of each name and key: a CA that was renewed with its key has several, and each leads where the others do.
pub(super) fn retain_distinct(anchors: &mut RootCertStore) {
    let mut seen = BTreeSet::new();
    anchors.roots.retain(|anchor| {
        let key = anchor.subject_public_key_info.as_ref().to_vec();
        seen.insert((anchor.subject.as_ref().to_vec(), key))
    });
}
