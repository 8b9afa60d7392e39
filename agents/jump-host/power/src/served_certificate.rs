//! Finds what clients will reject in the certificate of the port, so that a condition can report it before.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use runtime::tls::{Validity, rfc3339};
use rustls::{
    CertificateError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

use crate::certificate::Certificate;

/// A certificate is reported once less than one part in so many of its lifetime remains: cert-manager renews it when a third remains.
const EXPIRY_DIVISOR: u32 = 10;

/// Why clients cannot call the service; for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// They cannot now.
    Now(String),
    /// They can until this time.
    Later(String, SystemTime),
}

/// The certificate as clients see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServedCertificate(pub(crate) Arc<Certificate>);

impl ServedCertificate {
    /// What is wrong with it for clients that connect to a server of this name and trust these CAs (PEM).
    #[must_use]
    pub fn flaw(&self, name: &str, ca: &str) -> Option<Flaw> {
        self.flaw_at(name, ca, SystemTime::now())
    }

    fn flaw_at(&self, name: &str, ca: &str, now: SystemTime) -> Option<Flaw> {
        let key = self.0.current();
        let [leaf, intermediates @ ..] = &key.cert[..] else {
            return Some(Flaw::Now("PowerService has no certificate".to_owned()));
        };
        if let Err(why) = self.verify((leaf, intermediates), name, ca, now) {
            return Some(Flaw::Now(why));
        }
        let Validity {
            not_before,
            not_after,
        } = Validity::parse(leaf).ok()?;
        let left = not_after.duration_since(now).unwrap_or_default();
        let life = not_after.duration_since(not_before).unwrap_or_default();
        if let Some(why) = self.0.refused() {
            let why = format!("the new certificate of PowerService cannot be used ({why})");
            return Some(Flaw::Later(why, not_after));
        }
        (left < life / EXPIRY_DIVISOR).then(|| {
            Flaw::Later(
                "the certificate of PowerService was not renewed".to_owned(),
                not_after,
            )
        })
    }

    fn verify(
        &self,
        (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        name: &str,
        ca: &str,
        now: SystemTime,
    ) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        let trusted: Vec<_> = CertificateDer::pem_slice_iter(ca.as_bytes())
            .filter_map(Result::ok)
            .collect();
        roots.add_parsable_certificates(trusted);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.0.provider));
        let verifier = verifier
            .build()
            .map_err(|_| "the file of --power-ca has no CA certificate".to_owned())?;
        let name = ServerName::try_from(name)
            .map_err(|_| format!("--power-address has no usable host: {name:?}"))?;
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let at = UnixTime::since_unix_epoch(since);
        let verified = verifier.verify_server_cert(leaf, intermediates, &name, &[], at);
        verified.map(drop).map_err(|error| refusal(&error, leaf, &name))
    }
}

fn refusal(error: &rustls::Error, leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> String {
    let validity = Validity::parse(leaf).ok();
    let of_service = "the certificate of PowerService";
    match (error, validity) {
        (
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ),
            Some(Validity { not_after, .. }),
        ) => format!("{of_service} expired at {}", rfc3339(not_after)),
        (
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ),
            Some(Validity { not_before, .. }),
        ) => format!("{of_service} is not valid before {}", rfc3339(not_before)),
        (
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ),
            _,
        ) => format!(
            "{of_service} is not for {}, the host of --power-address",
            name.to_str()
        ),
        (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), _) => {
            format!("{of_service} is not issued by a CA of --power-ca")
        }
        (error, _) => format!("{of_service} cannot be verified: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sandbox::authority::{Authority, Caller, Identity};

    use super::*;
    use crate::certificate::Files;

    const NAME: &str = "power.example";

    fn authority(directory: &Path, name: &str) -> Authority {
        Authority::new(&directory.join(name), name).unwrap()
    }

    fn issued(authority: &Authority, name: &str) -> Identity {
        let agent = Caller::Agent {
            site: "s",
            name: "jump-host",
        };
        authority.issue_server(&agent, &[name]).unwrap()
    }

    fn served(identity: &Identity) -> ServedCertificate {
        let files = Files {
            certificate: identity.certificate.clone(),
            key: identity.key.clone(),
        };
        ServedCertificate(Certificate::load(files).unwrap())
    }

    #[test]
    fn what_clients_refuse_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let [own, other] = ["north", "south"].map(|name| authority(directory.path(), name));
        let served = served(&issued(&own, NAME));
        let ca = |authority: &Authority| std::fs::read_to_string(authority.certificate()).unwrap();
        let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
        let now_flaw = |name: &str, ca: &str, at| match served.flaw_at(name, ca, at) {
            Some(Flaw::Now(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(served.flaw(NAME, &ca(&own)), None);
        for (why, expected) in [
            (
                now_flaw("other.example", &ca(&own), now),
                "is not for other.example, the host of --power-address",
            ),
            (
                now_flaw(NAME, &ca(&other), now),
                "is not issued by a CA of --power-ca",
            ),
            (now_flaw(NAME, "", now), "--power-ca has no CA certificate"),
            (
                now_flaw("-", &ca(&own), now),
                "--power-address has no usable host",
            ),
            (now_flaw(NAME, &ca(&own), now + 25 * hour), "expired at "),
            (now_flaw(NAME, &ca(&own), now - 48 * hour), "is not valid before "),
        ] {
            assert!(why.contains(expected), "{expected}: {why}");
        }
        let Some(Flaw::Later(why, until)) = served.flaw_at(NAME, &ca(&own), now + 23 * hour) else {
            panic!("it ends within the hour");
        };
        assert!(
            why.ends_with("was not renewed") && until > now + 23 * hour,
            "{why} {until:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn new_files_that_cannot_be_used_are_named_until_mended() {
        let directory = tempfile::tempdir().unwrap();
        let own = authority(directory.path(), "north");
        let identity = issued(&own, NAME);
        let served = served(&identity);
        let ca = std::fs::read_to_string(own.certificate()).unwrap();
        let good = std::fs::read(&identity.certificate).unwrap();
        let following = served.clone();
        let follow = tokio::spawn(async move { following.0.follow().await });
        std::fs::write(&identity.certificate, "broken").unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
        let Some(Flaw::Later(why, _)) = served.flaw(NAME, &ca) else {
            panic!("the new one is broken");
        };
        assert!(
            why.contains("cannot be used (") && why.contains("jump-host"),
            "{why}"
        );
        std::fs::write(&identity.certificate, good).unwrap();
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(served.flaw(NAME, &ca), None);
        follow.abort();
    }
}
