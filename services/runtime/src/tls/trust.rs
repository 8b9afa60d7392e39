//! Whom a server believes: authorities by what they may certify, and who is denied whatever they say.
//!
//! With authorities of sites, an agent's certificate must chain to the one of the site that it names, and every other
//! identity to the region's. So an authority that a site has can make agents of that site, and nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, OtherError, RootCertStore};
use sha2::{Digest as _, Sha256};

use super::Error;
use super::material::anchors;
use crate::identity::{self, Caller, Name, Realm};

/// Ends of the names of authorities' files.
const ENDINGS: [&str; 2] = ["crt", "pem"];

/// Where it is said whom a server believes, besides the region's authorities.
#[derive(Debug, Clone, Default)]
pub(super) struct TrustFiles {
    /// A directory with one file per site.
    pub(super) sites: Option<PathBuf>,
    /// Who is denied.
    pub(super) denied: Option<PathBuf>,
}

impl TrustFiles {
    /// All files there are.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let Self { sites, denied } = self;
        let mut paths: Vec<PathBuf> = denied.iter().cloned().collect();
        if let Some(directory) = sites {
            paths.push(directory.clone());
            paths.extend(site_files(directory).unwrap_or_default().into_values());
        }
        paths
    }
}

/// Whom a server believes.
pub(super) struct Trust {
    realm: Realm,
    region: Arc<dyn ClientCertVerifier>,
    /// By site; `None` where the region's authorities certify agents, too.
    sites: Option<BTreeMap<Name, Arc<dyn ClientCertVerifier>>>,
    denied: Denied,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("realm", &self.realm)
            .finish_non_exhaustive()
    }
}

impl Trust {
    pub(super) fn read(
        files: &TrustFiles,
        region: (&Path, &Arc<RootCertStore>),
        realm: &Realm,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let TrustFiles { sites, denied } = files;
        let verifier =
            |path: &Path, anchors: Arc<RootCertStore>| -> Result<Arc<dyn ClientCertVerifier>, Error> {
                WebPkiClientVerifier::builder_with_provider(anchors, Arc::clone(provider))
                    .build()
                    .map_err(|source| Error::Verifier {
                        path: path.to_owned(),
                        source,
                    })
            };
        let sites = match sites {
            None => None,
            Some(directory) => {
                let mut by_site = BTreeMap::new();
                for (site, path) in site_files(directory)? {
                    let own = anchors(&path)?;
                    if own.roots.iter().any(|root| region.1.roots.contains(root)) {
                        return Err(Error::SharedAuthority { path });
                    }
                    by_site.insert(site, verifier(&path, Arc::new(own))?);
                }
                Some(by_site)
            }
        };
        Ok(Self {
            realm: realm.clone(),
            region: verifier(region.0, Arc::clone(region.1))?,
            sites,
            denied: denied
                .as_deref()
                .map(Denied::read)
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// The verifier for what is the same whoever calls.
    pub(super) fn region(&self) -> &dyn ClientCertVerifier {
        &*self.region
    }

    /// Whether only the region's authorities certify anybody.
    pub(super) fn has_one_authority(&self) -> bool {
        self.sites.is_none()
    }

    /// Who shows this certificate, if the authority that may certify that has, and nobody denies it.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(Caller, ClientCertVerified), rustls::Error> {
        let caller = self.realm.caller_of(leaf).map_err(super::refusal::refused)?;
        let authority = match (caller.site(), &self.sites) {
            (Some(site), Some(sites)) => sites.get(site).ok_or_else(|| {
                let site = site.clone();
                super::refusal::refused(identity::Error::NoAuthority { site })
            })?,
            (Some(_), None) | (None, _) => &self.region,
        };
        let verified = authority.verify_client_cert(leaf, intermediates, now)?;
        if self.denied.holds(leaf, &self.realm.uri(&caller)) {
            let denied = identity::Error::Denied {
                id: self.realm.uri(&caller),
            };
            let denied = OtherError(Arc::new(denied));
            return Err(rustls::Error::InvalidCertificate(CertificateError::Other(denied)));
        }
        Ok((caller, verified))
    }
}

/// The files in a directory of authorities, by the site that they are named after.
fn site_files(directory: &Path) -> Result<BTreeMap<Name, PathBuf>, Error> {
    let fail = |source| Error::Read {
        what: "the authorities of sites",
        path: directory.to_owned(),
        source,
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        let site = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .map(str::parse::<Name>);
        // Others are what a volume needs for itself.
        if let (true, Some(Ok(site))) = (ENDINGS.contains(&ending), site)
            && let Some(twice) = found.insert(site, path)
        {
            return Err(Error::TwoAuthorities { path: twice });
        }
    }
    Ok(found)
}

/// Who is denied, whoever certifies them.
#[derive(Debug, Default)]
struct Denied {
    certificates: BTreeSet<[u8; 32]>,
    identities: BTreeSet<String>,
}

impl Denied {
    /// Reads a list: in each line the SHA-256 of a certificate, `sha256:HEX`, or an identity, `spiffe://…`; what follows a `#` is
    /// a comment.
    fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::Read {
            what: "the list of those who are denied",
            path: path.to_owned(),
            source,
        })?;
        let mut denied = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if line.starts_with("spiffe://") {
                denied.identities.insert(line.to_owned());
            } else if let Some(digest) = line.strip_prefix("sha256:").and_then(digest) {
                denied.certificates.insert(digest);
            } else {
                return Err(Error::DenyList {
                    path: path.to_owned(),
                    line: index + 1,
                });
            }
        }
        Ok(denied)
    }

    fn holds(&self, certificate: &CertificateDer<'_>, uri: &str) -> bool {
        let Self {
            certificates,
            identities,
        } = self;
        identities.contains(uri)
            || !certificates.is_empty()
                && certificates.contains(&<[u8; 32]>::from(Sha256::digest(certificate)))
    }
}

/// 64 hexadecimal digits, with or without colons between bytes as openssl writes them.
fn digest(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let mut digest = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}
