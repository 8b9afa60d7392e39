//! What the files hold: chain, key and trusted CAs, checked as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::Error;
use super::faults::Faults;
use super::trust::TrustFiles;
use crate::identity::{Caller, Realm, parse};

const CHAIN: &str = "a certificate chain";
const KEY: &str = "a private key";
const ANCHORS: &str = "CA certificates";

/// Where the material is.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) anchors: PathBuf,
    /// What else a server reads.
    pub(super) trust: TrustFiles,
}

/// Changes whenever one of the files is written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Option<FileStamp>)>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Files {
    /// Follows symbolic links: a Secret volume is updated by swapping one.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        use std::os::unix::fs::MetadataExt as _;

        let Self {
            certificate,
            key,
            anchors,
            trust,
        } = self;
        let stamp = |path: &Path| {
            let meta = fs::metadata(path).ok()?;
            Some(FileStamp {
                device: meta.dev(),
                inode: meta.ino(),
                bytes: meta.len(),
                modified: (meta.mtime(), meta.mtime_nsec()),
            })
        };
        let own = [certificate, key, anchors].into_iter().cloned();
        let stamped = own.chain(trust.paths()).map(|path| {
            let stamp = stamp(&path);
            (path, stamp)
        });
        Fingerprint(stamped.collect())
    }
}

/// What a process shows, and the CAs that peers must chain to.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) own: Own,
    pub(super) anchors: Arc<RootCertStore>,
}

/// Own chain and key. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) identity: Caller,
    pub(super) validity: Validity,
}

/// When a certificate may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From here on.
    pub not_before: SystemTime,
    /// Until then.
    pub not_after: SystemTime,
}

impl Validity {
    /// That of a certificate.
    ///
    /// # Errors
    /// When it is no certificate.
    pub fn parse(certificate: &CertificateDer<'_>) -> Result<Self, crate::identity::Error> {
        let parsed = parse(certificate)?;
        let validity = parsed.validity();
        Ok(Self {
            not_before: from_unix_seconds(validity.not_before.timestamp()),
            not_after: from_unix_seconds(validity.not_after.timestamp()),
        })
    }

    pub(super) fn contains(&self, now: SystemTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// From here on a renewed certificate should be there.
    pub(super) fn half_life(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life / 2
    }
}

impl Material {
    /// Reads and checks all files. A certificate that is not in use yet must be valid; the one in use may have expired, since callers that are
    /// denied, or CAs that are withdrawn, after that must be refused all the same: not every client verifies the server.
    ///
    /// # Errors
    /// When a file is not usable and `former`, what is in use, is `None`.
    pub(super) fn read(
        files: &Files,
        realm: &Realm,
        provider: &CryptoProvider,
        former: Option<&Self>,
        now: SystemTime,
        faults: &mut Faults,
    ) -> Result<Self, Error> {
        let in_use = former.map(|former| &former.own);
        let own = Own::read(files, realm, provider).and_then(|own| {
            if in_use.is_none_or(|in_use| !in_use.has_certificate_of(&own)) {
                own.require_valid(&files.certificate, now)?;
            }
            Ok(own)
        });
        let anchors = anchors(&files.anchors).map(Arc::new);
        Ok(Self {
            own: faults.or_former(own, in_use.cloned())?,
            anchors: faults.or_former(anchors, former.map(|former| Arc::clone(&former.anchors)))?,
        })
    }
}

impl Own {
    /// Reads certificate and key. Whether the certificate is valid now is left to [`require_valid`](Self::require_valid).
    fn read(files: &Files, realm: &Realm, provider: &CryptoProvider) -> Result<Self, Error> {
        let Files {
            certificate: certificate_file,
            key: key_file,
            anchors: _,
            trust: _,
        } = files;
        let chain = certificates(certificate_file, CHAIN)?;
        let key = PrivateKeyDer::from_pem_slice(&read(key_file, KEY)?).map_err(|source| Error::Pem {
            what: KEY,
            path: key_file.clone(),
            source,
        })?;

        let own = CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::KeyPair {
            certificate: certificate_file.clone(),
            key: key_file.clone(),
            source,
        })?;
        let unnamed = |source| Error::Identity {
            path: certificate_file.clone(),
            source,
        };
        let leaf = own.end_entity_cert().map_err(|source| Error::KeyPair {
            certificate: certificate_file.clone(),
            key: key_file.clone(),
            source,
        })?;
        let identity = realm.caller_of(leaf).map_err(unnamed)?;
        let validity = Validity::parse(leaf).map_err(unnamed)?;
        Ok(Self {
            key: Arc::new(own),
            identity,
            validity,
        })
    }

    /// Whether both have the same certificate.
    pub(super) fn has_certificate_of(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// Refuses a certificate, which is from this file, that is not valid at this time.
    pub(super) fn require_valid(&self, file: &Path, now: SystemTime) -> Result<(), Error> {
        if self.validity.contains(now) {
            return Ok(());
        }
        let Validity {
            not_before,
            not_after,
        } = self.validity;
        Err(Error::NotValidNow {
            path: file.to_owned(),
            not_before,
            not_after,
        })
    }
}

pub(super) fn anchors(path: &Path) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for anchor in certificates(path, ANCHORS)? {
        store.add(anchor).map_err(|source| Error::Anchor {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(store)
}

/// At least one certificate.
fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let fail = |source| Error::Pem {
        what,
        path: path.to_owned(),
        source,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path, what)?)
        .collect::<Result<_, _>>()
        .map_err(fail)?;
    if found.is_empty() {
        Err(fail(rustls_pki_types::pem::Error::NoItemsFound))
    } else {
        Ok(found)
    }
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read {
        what,
        path: path.to_owned(),
        source,
    })
}

fn from_unix_seconds(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        UNIX_EPOCH - distance
    } else {
        UNIX_EPOCH + distance
    }
}

/// Whole seconds since 1970, negative before.
pub(super) fn unix_seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}
