//! The region's certificate authority: who the scheduler, its agents and its people are to each other.
//!
//! An identity is a URI in the certificate's subject alternative names, in SPIFFE's form.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use rcgen::SanType;

use crate::pki::{CertificateAuthority, Files, Subject};
pub use crate::pki::{Error, Validity};

/// The trust domain of every sandbox.
pub const TRUST_DOMAIN: &str = "sip.example";

/// Who somebody is, within a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// The region's scheduler.
    Scheduler,
    /// An agent of a site.
    Agent {
        /// The site.
        site: &'a str,
        /// The agent, such as `cluster` or `load-balancer`.
        name: &'a str,
    },
    /// A person or program that may change things.
    Operator(&'a str),
    /// A person or program that may only look.
    Reader(&'a str),
}

impl Caller<'_> {
    /// The identity's URI.
    #[must_use]
    pub fn uri(&self, region: &str) -> String {
        format!("spiffe://{TRUST_DOMAIN}/region/{region}/{self}")
    }
}

impl fmt::Display for Caller<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler => formatter.write_str("scheduler"),
            Self::Agent { site, name } => write!(formatter, "site/{site}/agent/{name}"),
            Self::Operator(name) => write!(formatter, "operator/{name}"),
            Self::Reader(name) => write!(formatter, "reader/{name}"),
        }
    }
}

/// PEM files that prove an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The URI in the certificate.
    pub uri: String,
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signed it, and that signs those whom it talks to.
    pub authority: PathBuf,
}

/// A region's certificate authority.
#[derive(Debug)]
pub struct Authority {
    region: String,
    ca: CertificateAuthority,
}

impl Authority {
    /// A new authority that writes its PEM files into a directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn new(directory: &Path, region: &str) -> Result<Self, Error> {
        let ca = CertificateAuthority::new(directory, &format!("{TRUST_DOMAIN} region {region}"))?;
        Ok(Self {
            region: region.to_owned(),
            ca,
        })
    }

    /// The authority's own certificate (PEM).
    #[must_use]
    pub fn certificate(&self) -> &Path {
        self.ca.certificate()
    }

    /// A day's certificate for a caller of this region.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn issue(&self, caller: &Caller<'_>) -> Result<Identity, Error> {
        self.issue_uri(&file_name(caller), &caller.uri(&self.region), Validity::DAY)
    }

    /// As [`Authority::issue`], valid at another time. Issuing again replaces the files: a renewal.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn issue_valid(&self, caller: &Caller<'_>, validity: Validity) -> Result<Identity, Error> {
        self.issue_uri(&file_name(caller), &caller.uri(&self.region), validity)
    }

    /// A certificate for a server on 127.0.0.1 that is also a caller.
    ///
    /// # Errors
    /// When the files cannot be written, or a name is not ASCII.
    pub fn issue_server(&self, caller: &Caller<'_>, names: &[&str]) -> Result<Identity, Error> {
        self.identity(
            &file_name(caller),
            &caller.uri(&self.region),
            Validity::DAY,
            names,
            Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        )
    }

    /// The same for a server at another address of this machine, in files of its own: the caller's other certificate stays.
    ///
    /// # Errors
    /// When the files cannot be written, or a name is not ASCII.
    pub fn issue_server_at(
        &self,
        caller: &Caller<'_>,
        address: IpAddr,
        names: &[&str],
    ) -> Result<Identity, Error> {
        self.issue_server_valid(caller, address, names, Validity::DAY)
    }

    /// The same, valid at another time.
    ///
    /// # Errors
    /// When the files cannot be written, or a name is not ASCII.
    pub fn issue_server_valid(
        &self,
        caller: &Caller<'_>,
        address: IpAddr,
        names: &[&str],
        validity: Validity,
    ) -> Result<Identity, Error> {
        let file = format!("{}-serving", file_name(caller));
        let uri = caller.uri(&self.region);
        self.identity(&file, &uri, validity, names, Some(address))
    }

    /// A certificate with any URI, also one that no honest authority of this region would sign.
    ///
    /// # Errors
    /// When the files cannot be written, or the URI is not ASCII.
    pub fn issue_uri(&self, file: &str, uri: &str, validity: Validity) -> Result<Identity, Error> {
        self.identity(file, uri, validity, &[], None)
    }

    fn identity(
        &self,
        file: &str,
        uri: &str,
        validity: Validity,
        dns_names: &[&str],
        address: Option<IpAddr>,
    ) -> Result<Identity, Error> {
        let not_ascii = |source| Error::Certificate {
            subject: uri.to_owned(),
            source,
        };
        let mut names = vec![SanType::URI(uri.try_into().map_err(not_ascii)?)];
        for name in dns_names {
            names.push(SanType::DnsName((*name).try_into().map_err(not_ascii)?));
        }
        names.extend(address.map(SanType::IpAddress));
        let subject = Subject {
            common_name: file,
            organization: None,
            names,
        };
        let Files { certificate, key } = self.ca.issue(file, subject, validity)?;
        Ok(Identity {
            uri: uri.to_owned(),
            certificate,
            key,
            authority: self.certificate().to_owned(),
        })
    }
}

fn file_name(caller: &Caller<'_>) -> String {
    caller.to_string().replace('/', "-")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

    use super::*;

    fn names(identity: &Identity) -> Vec<String> {
        let der = CertificateDer::from_pem_file(&identity.certificate).unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let extension = certificate.subject_alternative_name().unwrap().unwrap();
        extension
            .value
            .general_names
            .iter()
            .map(|name| match name {
                GeneralName::URI(uri) => format!("URI:{uri}"),
                GeneralName::DNSName(name) => format!("DNS:{name}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn valid_now(identity: &Identity) -> bool {
        let der = CertificateDer::from_pem_file(&identity.certificate).unwrap();
        X509Certificate::from_der(&der).unwrap().1.validity().is_valid()
    }

    #[test]
    fn every_caller_gets_the_uri_of_its_region() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "north").unwrap();
        let agent = Caller::Agent {
            site: "site-a",
            name: "cluster",
        };
        let cases = [
            (
                Caller::Scheduler,
                "URI:spiffe://sip.example/region/north/scheduler",
            ),
            (
                agent,
                "URI:spiffe://sip.example/region/north/site/site-a/agent/cluster",
            ),
            (
                Caller::Operator("ana"),
                "URI:spiffe://sip.example/region/north/operator/ana",
            ),
            (
                Caller::Reader("ben"),
                "URI:spiffe://sip.example/region/north/reader/ben",
            ),
        ];

        for (caller, expected) in cases {
            assert_eq!(names(&authority.issue(&caller).unwrap()), [expected]);
        }
    }

    #[test]
    fn a_server_also_carries_its_names_and_the_loopback_address() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "north").unwrap();

        let server = authority
            .issue_server(&Caller::Scheduler, &["localhost"])
            .unwrap();

        assert_eq!(
            names(&server),
            [
                "URI:spiffe://sip.example/region/north/scheduler",
                "DNS:localhost",
                "IPAddress([127, 0, 0, 1])"
            ]
        );
    }

    #[test]
    fn a_certificate_can_have_ended_already() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "north").unwrap();
        let ana = Caller::Operator("ana");

        assert!(valid_now(&authority.issue(&ana).unwrap()));
        let ended = Validity::EndedAgo(Duration::from_secs(5));
        assert!(!valid_now(&authority.issue_valid(&ana, ended).unwrap()));
    }
}
