//! `sipctl certs`: authorities and certificates in a directory, for development and for regions without a certificate service.
//!
//! | file | what it is | who reads it |
//! |---|---|---|
//! | `region.crt` | authority of the scheduler and of people | `--tls-client-ca` of the scheduler, `--tls-ca` of everybody else |
//! | `sites/SITE.crt` | authority of a site's agents | `--tls-site-ca-dir sites` |
//! | `denied` | who is denied | `--tls-deny` |
//! | `keys/` | the authorities' keys | nobody but this command |
//! | `issued/IDENTITY.crt`, `.key` | certificates, `/` in the identity as `_` | `--tls-cert`, `--tls-key` |

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use runtime::identity::{Caller, Name, Realm};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::ending::Ending;
use crate::region::cli::{Certs, Deny, Init, Issue, Show, SiteAuthority};

/// By how much certificates are valid before now: the clocks of several machines differ.
const CLOCK_SKEW: Duration = Duration::from_mins(5);
const DAY: Duration = Duration::from_hours(24);

/// Runs a command; returns its output, and how it ended.
///
/// # Errors
/// What cannot be read or written, or is there already.
pub fn run(action: Certs) -> anyhow::Result<(String, Ending)> {
    match action {
        Certs::Init(command) => init(&command),
        Certs::Site(command) => site(&command),
        Certs::Issue(command) => issue(&command),
        Certs::Deny(command) => deny(&command),
        Certs::Show(command) => show(&command, SystemTime::now()),
    }
}

/// A directory of certificates.
struct Store<'a>(&'a Path);

impl Store<'_> {
    fn realm(&self) -> anyhow::Result<Realm> {
        let path = self.0.join("realm");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read: `sipctl certs init` makes it", path.display()))?;
        let (domain, region) = text
            .trim()
            .split_once(' ')
            .with_context(|| format!("{} is not `DOMAIN REGION`", path.display()))?;
        Ok(Realm::new(domain.parse()?, region.parse()?))
    }

    fn certificate(&self, authority: Option<&Name>) -> PathBuf {
        match authority {
            None => self.0.join("region.crt"),
            Some(site) => self.0.join("sites").join(format!("{site}.crt")),
        }
    }

    fn key(&self, authority: Option<&Name>) -> PathBuf {
        let file = authority.map_or_else(|| "region.key".to_owned(), |site| format!("site-{site}.key"));
        self.0.join("keys").join(file)
    }

    /// Makes a CA for a site, or the region's.
    fn make(&self, realm: &Realm, authority: Option<&Name>, days: u32) -> anyhow::Result<PathBuf> {
        let mut params = authority_params(realm, authority);
        (params.not_before, params.not_after) = validity(days);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        secret(&self.key(authority), &key.serialize_pem())?;
        let path = self.certificate(authority);
        new(&path, &pem, 0o644)?;
        Ok(path)
    }

    fn issuer(&self, realm: &Realm, authority: Option<&Name>) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let path = self.key(authority);
        let pem = fs::read_to_string(&path).with_context(|| match authority {
            Some(site) => format!(
                "{} cannot be read: `sipctl certs site` makes it for {site}",
                path.display()
            ),
            None => format!("{} cannot be read", path.display()),
        })?;
        Ok(Issuer::new(
            authority_params(realm, authority),
            KeyPair::from_pem(&pem)?,
        ))
    }
}

fn authority_params(realm: &Realm, authority: Option<&Name>) -> CertificateParams {
    let mut params = CertificateParams::default();
    // It certifies who calls, and no other authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, realm.trust_domain().to_string());
    let region = realm.region();
    let common = authority.map_or_else(
        || format!("region {region}"),
        |site| format!("site {site} of {region}"),
    );
    name.push(DnType::CommonName, common);
    params.distinguished_name = name;
    params
}

fn validity<T: From<SystemTime>>(days: u32) -> (T, T) {
    let now = SystemTime::now();
    ((now - CLOCK_SKEW).into(), (now + DAY * days).into())
}

fn init(command: &Init) -> anyhow::Result<(String, Ending)> {
    let Init {
        directory,
        realm,
        days,
    } = command;
    let realm = realm.realm();
    for folder in ["sites", "keys", "issued"] {
        let folder = directory.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    let store = Store(directory);
    let named = format!("{} {}\n", realm.trust_domain(), realm.region());
    new(&directory.join("realm"), &named, 0o644)?;
    let made = store.make(&realm, None, *days)?;
    let denied = directory.join("denied");
    new(
        &denied,
        "# sha256:DIGEST of a certificate, or spiffe://IDENTITY, one per line\n",
        0o644,
    )?;
    Ok((
        format!(
            "{}: CA of region {}\n{}: no identity is denied\n",
            made.display(),
            realm.region(),
            denied.display()
        ),
        Ending::Done,
    ))
}

fn site(command: &SiteAuthority) -> anyhow::Result<(String, Ending)> {
    let SiteAuthority {
        directory,
        site,
        days,
    } = command;
    let store = Store(directory);
    let made = store.make(&store.realm()?, Some(site), *days)?;
    Ok((format!("{}: CA of site {site}\n", made.display()), Ending::Done))
}

fn issue(command: &Issue) -> anyhow::Result<(String, Ending)> {
    let Issue {
        directory,
        identity,
        dns_names,
        days,
    } = command;
    let store = Store(directory);
    let realm = store.realm()?;
    let uri = format!(
        "spiffe://{}/region/{}/{identity}",
        realm.trust_domain(),
        realm.region()
    );
    let caller = realm.caller(&uri)?;
    let issuer = store.issuer(&realm, caller.site())?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
    for name in dns_names {
        let ascii = name.as_str().try_into();
        let ascii = ascii.with_context(|| format!("--dns {name:?} is not ASCII"))?;
        params.subject_alt_names.push(SanType::DnsName(ascii));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let serves = match caller {
        Caller::Scheduler => true,
        Caller::Agent { .. } | Caller::Operator { .. } | Caller::Reader { .. } => !dns_names.is_empty(),
    };
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
        .extended_key_usages
        .extend(serves.then_some(ExtendedKeyUsagePurpose::ServerAuth));
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = validity(*days);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    let file = identity.replace('/', "_");
    let place = |ending: &str| directory.join("issued").join(format!("{file}.{ending}"));
    // A renewed one takes the place of the one before.
    replace(&place("key"), &key.serialize_pem(), 0o600)?;
    replace(&place("crt"), &certificate.pem(), 0o644)?;
    Ok((
        format!("{}: {uri}, for {days} days\n", place("crt").display()),
        Ending::Done,
    ))
}

fn deny(command: &Deny) -> anyhow::Result<(String, Ending)> {
    let Deny { directory, who, why } = command;
    let store = Store(directory);
    let realm = store.realm()?;
    let path = Path::new(who);
    let entry = if path.is_file() {
        format!("sha256:{}", hex::encode(Sha256::digest(first(path)?)))
    } else {
        let uri = format!(
            "spiffe://{}/region/{}/{who}",
            realm.trust_domain(),
            realm.region()
        );
        let caller = realm
            .caller(&uri)
            .with_context(|| format!("{who} is neither a file nor an identity"))?;
        realm.uri(&caller)
    };
    let denied = directory.join("denied");
    let text = fs::read_to_string(&denied).with_context(|| format!("{} cannot be read", denied.display()))?;
    let why: String = why.chars().filter(|c| !c.is_control()).collect();
    replace(&denied, &format!("{text}{entry} # {why}\n"), 0o644)?;
    Ok((format!("{}: {entry}\n", denied.display()), Ending::Done))
}

fn show(command: &Show, now: SystemTime) -> anyhow::Result<(String, Ending)> {
    let Show { directory, warn_days } = command;
    let store = Store(directory);
    store.realm()?;
    let mut files = vec![store.certificate(None)];
    for folder in ["sites", "issued"] {
        let folder = directory.join(folder);
        let entries =
            fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "crt") {
                found.push(path);
            }
        }
        found.sort();
        files.extend(found);
    }
    let mut table = Table::new();
    table.load_style(UTF8_FULL);
    table.set_header(["file", "for", "expires", "days left", "state"]);
    let mut due = false;
    for path in files {
        let (name, not_after) = read(&path)?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let left = not_after - i64::try_from(now)?;
        let days = left.div_euclid(86_400);
        let state = match days {
            ..0 => "expired",
            days if days < i64::from(*warn_days) => "renew",
            _ => "good",
        };
        due |= state != "good";
        let file = path
            .strip_prefix(directory)
            .unwrap_or(&path)
            .display()
            .to_string();
        let expires = x509_parser::time::ASN1Time::from_timestamp(not_after)?.to_string();
        table.add_row([file, name, expires, days.to_string(), state.to_owned()]);
    }
    let ending = if due {
        Ending::CertificatesDue
    } else {
        Ending::Done
    };
    Ok((format!("{table}\n"), ending))
}

/// Whom a certificate is for, and when it expires in seconds since 1970.
fn read(path: &Path) -> anyhow::Result<(String, i64)> {
    let certificate = first(path)?;
    let (_, parsed) = X509Certificate::from_der(&certificate)
        .map_err(|error| anyhow::anyhow!("{error}"))
        .with_context(|| format!("{} is no certificate", path.display()))?;
    let names = parsed.subject_alternative_name()?;
    let uri = names.and_then(|names| {
        names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        })
    });
    let name = uri.unwrap_or_else(|| format!("CA: {}", parsed.subject()));
    Ok((name, parsed.validity().not_after.timestamp()))
}

fn first(path: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let pem = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    CertificateDer::from_pem_slice(&pem).with_context(|| format!("{} holds no certificate", path.display()))
}

fn secret(path: &Path, text: &str) -> anyhow::Result<()> {
    new(path, text, 0o600)
}

/// Writes a file that must not be there.
fn new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    match opened {
        Ok(mut file) => file
            .write_all(text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} exists already, and is not changed", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be made", path.display())),
    }
}

/// Writes a file in one step.
fn replace(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".certs-").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("{} cannot be written", path.display()))
}
