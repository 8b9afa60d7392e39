//! A certificate authority that lives as long as a test.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate itself, for example a name that is not ASCII.
    #[error("make a certificate for {subject:?}")]
    Certificate {
        /// Whom it was for.
        subject: String,
        /// What was wrong.
        source: rcgen::Error,
    },
    /// A PEM file.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// Clocks of one machine do not differ, but a certificate should not depend on which second it was made in.
const BACKDATED: Duration = Duration::from_mins(1);

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// From a minute ago, for this long from now.
    For(Duration),
    /// It ended this long ago.
    EndedAgo(Duration),
}

impl Validity {
    /// A day: longer than any test.
    pub const DAY: Self = Self::For(Duration::from_hours(24));

    fn bounds(self) -> (SystemTime, SystemTime) {
        let now = SystemTime::now();
        match self {
            Self::For(length) => (now - BACKDATED, now + length),
            Self::EndedAgo(ago) => (now - ago - BACKDATED, now - ago),
        }
    }
}

/// Whom a certificate is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) common_name: &'a str,
    /// Kubernetes reads groups from here.
    pub(crate) organization: Option<&'a str>,
    pub(crate) names: Vec<SanType>,
}

/// PEM files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A certificate authority whose key never leaves memory.
#[derive(Debug)]
pub(crate) struct CertificateAuthority {
    directory: PathBuf,
    certificate: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// A new authority that writes into a directory.
    pub(crate) fn new(directory: &Path, name: &str) -> Result<Self, Error> {
        let failed = |source| Error::Certificate {
            subject: name.to_owned(),
            source,
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = distinguished_name(name, None);
        let (begin, end) = Validity::DAY.bounds();
        (params.not_before, params.not_after) = (begin.into(), end.into());
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)?;
        fs::create_dir_all(directory).map_err(|source| Error::Write {
            path: directory.to_owned(),
            source,
        })?;
        let certificate = directory.join("ca.crt");
        write(&certificate, &issuer.pem())?;
        Ok(Self {
            directory: directory.to_owned(),
            certificate,
            issuer,
        })
    }

    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Writes `FILE.crt` and `FILE.key`.
    ///
    /// Every certificate may serve and call: agents do both.
    pub(crate) fn issue(&self, file: &str, subject: Subject<'_>, validity: Validity) -> Result<Files, Error> {
        let Subject {
            common_name,
            organization,
            names,
        } = subject;
        let failed = |source| Error::Certificate {
            subject: common_name.to_owned(),
            source,
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(common_name, organization);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let (begin, end) = validity.bounds();
        (params.not_before, params.not_after) = (begin.into(), end.into());
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let files = Files {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        write(&files.key, &key.serialize_pem())?;
        write(&files.certificate, &certificate.pem())?;
        Ok(files)
    }

    /// A bare key pair, written as `FILE.key` and `FILE.pub`.
    pub(crate) fn key_pair(&self, file: &str) -> Result<(PathBuf, PathBuf), Error> {
        let pair = KeyPair::generate().map_err(|source| Error::Certificate {
            subject: file.to_owned(),
            source,
        })?;
        let (private, public) = (
            self.directory.join(format!("{file}.key")),
            self.directory.join(format!("{file}.pub")),
        );
        write(&private, &pair.serialize_pem())?;
        write(&public, &pair.public_key_pem())?;
        Ok((private, public))
    }
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// Replaces the file in one step: a program that reloads its certificate never reads half of one.
fn write(path: &Path, pem: &str) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, pem).map_err(failed)?;
    fs::rename(&next, path).map_err(failed)
}
