//! Builders for the tests: authorities, certificates, processes with certificates on disk, captured logs.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

use crate::identity::{Caller, Name, Realm};
use crate::tls::{ClientTlsArgs, ServerTlsArgs};

static AUTHORITIES: AtomicU32 = AtomicU32::new(0);

/// Time between two reads of the files by the tests' reloaders.
const RELOAD_PERIOD: Duration = Duration::from_millis(10);

pub(crate) fn realm() -> Realm {
    Realm::new("example.org".parse().unwrap(), name("north"))
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn agent(agent: &str) -> Caller {
    Caller::Agent {
        site: name("s1"),
        name: name(agent),
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// What tells its name from those of others.
    number: u32,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::self_signed(Self::next_number())
    }

    /// An authority of the same name, with another key.
    pub(crate) fn namesake(&self) -> Self {
        Self::self_signed(self.number)
    }

    /// An authority that `above` has certified.
    pub(crate) fn issued_by(above: &Self) -> Self {
        let certify =
            |params: &CertificateParams, key: &KeyPair| params.signed_by(key, &above.issuer).unwrap().pem();
        Self::certified(Self::next_number(), certify)
    }

    /// Of two authorities with one name the wrong one would be tried, and the error be about its signature.
    fn next_number() -> u32 {
        AUTHORITIES.fetch_add(1, Ordering::Relaxed)
    }

    fn self_signed(number: u32) -> Self {
        Self::certified(number, |params, key| params.self_signed(key).unwrap().pem())
    }

    fn certified(number: u32, certify: impl FnOnce(&CertificateParams, &KeyPair) -> String) -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = certify(&params, &key);
        Self {
            issuer: Issuer::new(params, key),
            pem,
            number,
        }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn issue(&self, subject: &Subject) -> Issued {
        let Subject {
            uris,
            not_before,
            not_after,
            usages,
        } = subject;
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris
            .iter()
            .map(|uri| SanType::URI(uri.as_str().try_into().unwrap()))
            .collect();
        let since_1970 = |time: &SystemTime| time.duration_since(UNIX_EPOCH).unwrap();
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after);
        params.extended_key_usages.clone_from(usages);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// What a certificate is to say. By default it is good for an hour on either side of now, and for both sides.
#[derive(Clone)]
pub(crate) struct Subject {
    uris: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    usages: Vec<ExtendedKeyUsagePurpose>,
}

impl Subject {
    pub(crate) fn uris(uris: &[&str]) -> Self {
        let hour = Duration::from_hours(1);
        Self {
            uris: uris.iter().map(ToString::to_string).collect(),
            not_before: SystemTime::now() - hour,
            not_after: SystemTime::now() + hour,
            usages: vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        }
    }

    pub(crate) fn of_caller(caller: &Caller) -> Self {
        Self::uris(&[&realm().uri(caller)])
    }

    pub(crate) fn expired(self) -> Self {
        let not_after = SystemTime::now() - Duration::from_mins(1);
        Self { not_after, ..self }
    }

    pub(crate) fn expiring_in(self, rest: Duration) -> Self {
        Self {
            not_after: SystemTime::now() + rest,
            ..self
        }
    }

    pub(crate) fn only_for(self, usage: ExtendedKeyUsagePurpose) -> Self {
        Self {
            usages: vec![usage],
            ..self
        }
    }
}

/// A certificate with its key, as PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The certificate files of one process.
pub(crate) struct Disk(TempDir);

impl Disk {
    pub(crate) fn new(issued: &Issued, trusted: &Authority) -> Self {
        let this = Self(TempDir::new().unwrap());
        this.write("ca.pem", trusted.pem());
        this.replace(issued);
        this
    }

    /// Swaps certificate and key for others.
    pub(crate) fn replace(&self, issued: &Issued) {
        let Issued { certificate, key } = issued;
        self.write("cert.pem", certificate);
        self.write("key.pem", key);
    }

    /// Replaces a file as a whole, as a Secret volume does.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let new = self.path("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(file)).unwrap();
    }

    /// Gives a site an authority of its own.
    pub(crate) fn trust_site(&self, site: &str, authority: &Authority) {
        std::fs::create_dir_all(self.path("sites")).unwrap();
        self.write(&format!("sites/{site}.crt"), authority.pem());
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    pub(crate) fn server_args(&self) -> ServerTlsArgs {
        ServerTlsArgs {
            tls_cert: Some(self.path("cert.pem")),
            tls_key: Some(self.path("key.pem")),
            tls_client_ca: Some(self.path("ca.pem")),
            tls_site_ca_dir: self.path("sites").is_dir().then(|| self.path("sites")),
            tls_deny: self.path("denied").is_file().then(|| self.path("denied")),
            plaintext_loopback: false,
            tls_reload_seconds: RELOAD_PERIOD,
        }
    }

    pub(crate) fn client_args(&self) -> ClientTlsArgs {
        ClientTlsArgs {
            tls_cert: Some(self.path("cert.pem")),
            tls_key: Some(self.path("key.pem")),
            tls_ca: Some(self.path("ca.pem")),
            plaintext_loopback: false,
            tls_reload_seconds: RELOAD_PERIOD,
        }
    }
}

/// Gives threads without a subscriber one that ignores all.
///
/// While there is only one subscriber, tracing asks the thread that reaches an event first whether anyone wants
/// it, and records the answer for all: without this, a test that does not listen could deafen one that does.
pub(crate) fn subscribe_other_threads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap());
}

/// What the tested code logs.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures what this thread logs, until the guard is dropped.
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        subscribe_other_threads();
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
