//! CA certificates of an image: those of the machine that builds it, and a site's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// Where the programs of an image find the bundle.
pub const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read the CA certificates {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file holds no certificate, or something that is none.
    #[error("{path}: {reason}")]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The certificates of all files, in their order, as one PEM text. Nothing else of a file gets into it: whoever pulls an
/// image reads its bundle, and files of proxies often hold the authority's private key too.
///
/// # Errors
/// When a file cannot be read, or is not a list of PEM certificates.
pub fn bundle<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<String, Error> {
    let mut bundle = String::new();
    for path in files {
        let text = fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let form = |reason: String| Error::Form {
            path: path.to_owned(),
            reason,
        };
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| form(error.to_string()))?;
        if certificates.is_empty() {
            return Err(form("it holds no PEM certificate".to_owned()));
        }
        let line_feeds = EncodeConfig::new().set_line_ending(LineEnding::LF);
        for certificate in certificates {
            bundle.push_str(&encode_config(
                &Pem::new("CERTIFICATE", certificate.to_vec()),
                line_feeds,
            ));
        }
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

    #[test]
    fn extra_certificates_follow_the_machines_own() {
        let directory = tempfile::tempdir().unwrap();
        let [own, extra, none] = ["own", "extra", "none"].map(|name| directory.path().join(name));
        fs::write(&own, ONE).unwrap();
        fs::write(&extra, ONE).unwrap();
        fs::write(&none, "no certificate").unwrap();

        let both = bundle([own.as_path(), &extra]).unwrap();

        assert_eq!(both, format!("{ONE}{ONE}"));
        let refused = bundle([own.as_path(), &none]).unwrap_err().to_string();
        assert!(
            refused.ends_with("none: it holds no PEM certificate"),
            "{refused}"
        );
    }

    #[test]
    fn a_private_key_beside_a_certificate_stays_out() {
        let directory = tempfile::tempdir().unwrap();
        let proxy = directory.path().join("proxy.pem");
        let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        fs::write(&proxy, format!("{key}# the proxy's\n{ONE}")).unwrap();

        assert_eq!(bundle([proxy.as_path()]).unwrap(), ONE);
    }
}
