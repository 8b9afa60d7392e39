//! Which certificates a server accepts: what each CA may certify, except for callers on the deny list.
//!
//! With authorities of sites, an agent's certificate must chain to the one of the site that it names, and every other
//! identity must be certified by one of the region's anchors itself. So an authority that a site has can make agents of that
//! site, and nobody else, also if the region has certified it; and whatever certificates a site writes into its file, they
//! concern its own agents only.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, OtherError, RootCertStore};

use super::Error;
use super::deny_list::Denied;
use super::faults::Faults;
use super::material::anchors;
use super::paths;
use crate::error_chain::chain;
use crate::identity::{self, Caller, Name, Realm};

/// Maximum number of CA certificates between a caller's own and a trust anchor. The library that verifies chains tries all paths through
/// them, which takes seconds for hundreds, and no connection can be closed meanwhile.
const MAX_INTERMEDIATES: usize = 4;
/// Maximum size of all of these certificates together, in bytes.
const MAX_CHAIN_BYTES: usize = 32 * 1024;
/// Maximum size of a caller's own certificate, in bytes. Those of agents have one KiB.
const MAX_LEAF_BYTES: usize = 8 * 1024;
/// Maximum number of CA certificates, each of another name or key, in a site's file. A site that replaces its CA has two.
const MAX_SITE_ANCHORS: usize = 8;

/// Extensions of the names of authorities' files.
const AUTHORITY_EXTENSIONS: [&str; 2] = ["crt", "pem"];

/// Files that decide which callers a server accepts, besides those with the region's CAs.
#[derive(Debug, Clone, Default)]
pub(super) struct TrustFiles {
    /// A directory with one file per site.
    pub(super) sites: Option<PathBuf>,
    /// The file with denied callers.
    pub(super) denied: Option<PathBuf>,
}

impl TrustFiles {
    /// All files there are.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let Self { sites, denied } = self;
        let mut paths: Vec<PathBuf> = denied.iter().cloned().collect();
        if let Some(directory) = sites {
            paths.push(directory.clone());
            let files = site_files(directory).unwrap_or_default();
            paths.extend(files.into_values().filter_map(Result::ok));
        }
        paths
    }
}

/// Decides which callers a server accepts.
pub(super) struct Trust {
    realm: Realm,
    region: Arc<dyn ClientCertVerifier>,
    /// By site; `None` where the region's authorities certify agents, too.
    sites: Option<BTreeMap<Name, SiteAuthority>>,
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
    /// Reads the files; of one that is not usable, `former` has what is in use.
    pub(super) fn read(
        files: &TrustFiles,
        region: (&Path, &Arc<RootCertStore>),
        realm: &Realm,
        provider: &Arc<CryptoProvider>,
        known: &SiteAuthorities,
        former: Option<&Self>,
        faults: &mut Faults,
    ) -> Result<Self, Error> {
        let TrustFiles { sites, denied } = files;
        let own = keys(region.1);
        let sites = sites.as_deref().map(|directory| {
            let former = former.and_then(|former| former.sites_apart_from(&own));
            faults.or_former(known.read(directory, &own, provider), former)
        });
        let sites = sites.transpose()?;
        let denied = denied
            .as_deref()
            .map(|list| Denied::read(list, former.map(|former| &former.denied), faults));
        Ok(Self {
            realm: realm.clone(),
            region: verifier(region.0, Arc::clone(region.1), provider)?,
            sites,
            denied: denied.transpose()?.unwrap_or_default(),
        })
    }

    /// The authorities of sites, without those that have a key of the region.
    fn sites_apart_from(&self, region: &BTreeSet<Vec<u8>>) -> Option<BTreeMap<Name, SiteAuthority>> {
        let mut sites = self.sites.clone()?;
        sites.retain(|_, authority| authority.keys.is_disjoint(region));
        Some(sites)
    }

    /// The verifier with the region's CAs, for what does not depend on the caller.
    pub(super) fn region(&self) -> &dyn ClientCertVerifier {
        &*self.region
    }

    /// Whether only the region's authorities certify anybody.
    pub(super) fn has_one_authority(&self) -> bool {
        self.sites.is_none()
    }

    /// The caller that this certificate names, if a CA that may certify that caller has issued it and the caller is not denied.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(Caller, ClientCertVerified), rustls::Error> {
        if leaf.len() > MAX_LEAF_BYTES {
            // Reading a certificate with thousands of names takes long.
            return Err(super::refusal::refused(identity::Error::LongCertificate {
                bytes: leaf.len(),
            }));
        }
        let caller = self.realm.caller_of(leaf).map_err(super::refusal::refused)?;
        super::refusal::claim(|| self.realm.uri(&caller));
        let bytes = intermediates.iter().map(|certificate| certificate.len()).sum();
        if intermediates.len() > MAX_INTERMEDIATES || bytes > MAX_CHAIN_BYTES {
            return Err(super::refusal::refused(identity::Error::LongChain {
                id: self.realm.uri(&caller),
                found: intermediates.len(),
                bytes,
            }));
        }
        let between = || paths::with_distinct_names(intermediates);
        let verified = match (caller.site(), &self.sites) {
            (Some(site), Some(sites)) => {
                let authority = sites.get(site).ok_or_else(|| {
                    let site = site.clone();
                    super::refusal::refused(identity::Error::NoAuthority { site })
                })?;
                authority.verifier.verify_client_cert(leaf, &between(), now)?
            }
            // The region may have certified a site's authority too, so that a CA between proves nothing.
            (None, Some(_)) => {
                let verified = self.region.verify_client_cert(leaf, &[], now);
                let has_issuer = !intermediates.is_empty();
                verified.map_err(|error| match error {
                    rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) if has_issuer => {
                        let id = self.realm.uri(&caller);
                        super::refusal::refused(identity::Error::NotDirect { id })
                    }
                    error => error,
                })?
            }
            (Some(_) | None, None) => self.region.verify_client_cert(leaf, &between(), now)?,
        };
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

/// The public keys of certificates, in the form in which trust anchors have them.
fn keys(store: &RootCertStore) -> BTreeSet<Vec<u8>> {
    let roots = store.roots.iter();
    roots
        .map(|root| root.subject_public_key_info.as_ref().to_vec())
        .collect()
}

fn verifier(
    path: &Path,
    anchors: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    WebPkiClientVerifier::builder_with_provider(anchors, Arc::clone(provider))
        .build()
        .map_err(|source| Error::Verifier {
            path: path.to_owned(),
            source,
        })
}

/// Who certifies the agents of a site.
#[derive(Clone)]
struct SiteAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
    keys: BTreeSet<Vec<u8>>,
}

impl SiteAuthority {
    fn read(path: &Path, region: &BTreeSet<Vec<u8>>, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let mut anchors = anchors(path)?;
        paths::retain_distinct(&mut anchors);
        if anchors.len() > MAX_SITE_ANCHORS {
            return Err(Error::ManyAuthorities {
                path: path.to_owned(),
                found: anchors.len(),
                most: MAX_SITE_ANCHORS,
            });
        }
        let keys = keys(&anchors);
        if !keys.is_disjoint(region) {
            return Err(Error::SharedAuthority {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            verifier: verifier(path, Arc::new(anchors), provider)?,
            keys,
        })
    }
}

/// What earlier readings of a site's file found.
#[derive(Default)]
struct SiteFileState {
    /// The authority of the last usable file.
    good: Option<SiteAuthority>,
    /// Why its file is not usable now.
    fault: Option<String>,
}

/// The authorities of all sites, kept between two readings of their files. An unusable file affects only its own site: the authority that it held
/// before stays in use, and without one the site's agents are refused.
#[derive(Default)]
pub(super) struct SiteAuthorities {
    known: Mutex<BTreeMap<Name, SiteFileState>>,
    /// How many sites have a file that is not usable.
    faults: Gauge,
}

impl SiteAuthorities {
    pub(super) fn counted(faults: Gauge) -> Self {
        Self {
            known: Mutex::default(),
            faults,
        }
    }

    fn read(
        &self,
        directory: &Path,
        region: &BTreeSet<Vec<u8>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<BTreeMap<Name, SiteAuthority>, Error> {
        let files = site_files(directory)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|site, _| files.contains_key(site));
        let mut usable = BTreeMap::new();
        for (site, file) in files {
            let read = file.and_then(|path| SiteAuthority::read(&path, region, provider));
            let known = known.entry(site.clone()).or_default();
            // The region may now have a CA that the site's last usable file has too.
            known.good.take_if(|good| !good.keys.is_disjoint(region));
            known.take(&site, read);
            usable.extend(known.good.clone().map(|good| (site, good)));
        }
        let faults = known.values().filter(|known| known.fault.is_some()).count();
        self.faults.set(i64::try_from(faults).unwrap_or(i64::MAX));
        Ok(usable)
    }
}

impl SiteFileState {
    /// Stores the result of a reading, and logs it if it differs from the last one.
    fn take(&mut self, site: &Name, read: Result<SiteAuthority, Error>) {
        match read {
            Ok(good) => {
                self.good = Some(good);
                if self.fault.take().is_some() {
                    tracing::info!(%site, "the CA certificates of the site are usable again");
                }
            }
            Err(error) => {
                let fault = chain(&error);
                if self.fault.as_ref() != Some(&fault) {
                    let then = if self.good.is_some() {
                        "those it had before stay in use"
                    } else {
                        "its agents are refused"
                    };
                    tracing::error!(%site, error = fault, then, "the CA certificates of the site are not usable");
                    self.fault = Some(fault);
                }
            }
        }
    }
}

/// The files in a directory of authorities, by the site that they are named after; an error where it is not clear which.
fn site_files(directory: &Path) -> Result<BTreeMap<Name, Result<PathBuf, Error>>, Error> {
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
        if let (true, Some(Ok(site))) = (AUTHORITY_EXTENSIONS.contains(&ending), site) {
            match found.entry(site) {
                Entry::Vacant(place) => {
                    place.insert(Ok(path));
                }
                Entry::Occupied(mut place) => {
                    *place.get_mut() = Err(Error::TwoAuthorities { path });
                }
            }
        }
    }
    Ok(found)
}
