//! A real directory with people and groups: `OpenLDAP` on loopback, with TLS from a certificate of the test's own.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    time::Duration,
};

use rcgen::SanType;
use tokio::{net::TcpStream, process::Command, time};

use crate::{
    pki::{CertificateAuthority, Subject, Validity},
    port,
    process::{self, Group, Process, Program},
    tools,
};

/// Everything below this entry is the directory's.
pub const SUFFIX: &str = "dc=example,dc=org";
/// The account that searches.
pub const BIND_DN: &str = "cn=search,dc=example,dc=org";
const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// slapd is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// It did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Its certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] crate::pki::Error),
    /// Its files could not be written, or there is no free port.
    #[error("prepare a directory")]
    Io(#[from] io::Error),
    /// slapadd refused the people.
    #[error("slapadd: {0}")]
    Seed(String),
    /// It does not listen.
    #[error("slapd does not listen. The end of its log:\n{0}")]
    Late(String),
}

/// A person in the directory.
#[derive(Clone, Copy, Debug)]
pub struct Person<'a> {
    /// What people type as their name.
    pub uid: &'a str,
    /// What they type as their password.
    pub password: &'a str,
    /// Groups that they are in.
    pub groups: &'a [&'a str],
}

impl Person<'_> {
    /// Address of their mail.
    #[must_use]
    pub fn email(&self) -> String {
        format!("{}@example.org", self.uid)
    }
}

/// A running directory. It ends with its group.
#[derive(Debug)]
pub struct Directory {
    /// Its process.
    pub process: Process,
    address: SocketAddrV4,
    authority: PathBuf,
    files: PathBuf,
}

impl Directory {
    /// Starts a directory with these people on loopback. `bind_password`: of the account that searches.
    ///
    /// # Errors
    /// When slapd is not installed or does not listen.
    pub async fn start(group: &Group, people: &[Person<'_>], bind_password: &str) -> Result<Self, Error> {
        Self::start_at(group, Ipv4Addr::LOCALHOST, people, &[bind_password]).await
    }

    /// The same at an address of this machine, such as the one at which pods of a real node reach it. The account that searches has each
    /// of these passwords.
    ///
    /// # Errors
    /// When slapd is not installed or does not listen.
    pub async fn start_at(
        group: &Group,
        address: Ipv4Addr,
        people: &[Person<'_>],
        bind_passwords: &[&str],
    ) -> Result<Self, Error> {
        let address = SocketAddrV4::new(address, port::reserve_on(address)?);
        let names = vec![SanType::IpAddress(IpAddr::V4(*address.ip()))];
        Self::start_on(group, address, names, (people, bind_passwords)).await
    }

    /// The same on a port that nobody else may have, with a certificate for this name.
    ///
    /// # Errors
    /// When slapd is not installed or does not listen, or the name is none.
    pub async fn start_named(
        group: &Group,
        address: SocketAddrV4,
        name: &str,
        people: &[Person<'_>],
        bind_password: &str,
    ) -> Result<Self, Error> {
        let not_ascii = |source| crate::pki::Error::Certificate {
            subject: name.to_owned(),
            source,
        };
        let names = vec![SanType::DnsName(name.try_into().map_err(not_ascii)?)];
        Self::start_on(group, address, names, (people, &[bind_password])).await
    }

    async fn start_on(
        group: &Group,
        address: SocketAddrV4,
        names: Vec<SanType>,
        (people, bind_passwords): (&[Person<'_>], &[&str]),
    ) -> Result<Self, Error> {
        let files = group.directory().join("slapd");
        fs::create_dir_all(files.join("data"))?;
        let authority = CertificateAuthority::new(&files.join("pki"), "directory")?;
        let subject = Subject {
            common_name: "directory",
            organization: None,
            names,
        };
        let server = authority.issue("server", subject, Validity::DAY)?;
        let shown = |path: &std::path::Path| path.display().to_string();
        let config = format!(
            "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             pidfile {files}/slapd.pid\nTLSCACertificateFile {ca}\nTLSCertificateFile {certificate}\n\
             TLSCertificateKeyFile {key}\ndatabase mdb\nsuffix \"{SUFFIX}\"\nrootdn \"cn=admin,{SUFFIX}\"\n\
             directory {files}/data\naccess to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn.exact=\"{BIND_DN}\" read by * none\n",
            files = shown(&files),
            ca = shown(authority.certificate()),
            certificate = shown(&server.certificate),
            key = shown(&server.key),
        );
        fs::write(files.join("slapd.conf"), config)?;
        let directory = Self {
            process: group.spawn(
                Program::new("slapd", "/bin/sh")
                    .arg("-c")
                    // It is started once the people are in it.
                    .arg("while [ ! -e \"$0/seeded\" ]; do sleep 0.05; done; exec \"$1\" -f \"$0/slapd.conf\" -h \"$2\" -d stats")
                    .arg(shown(&files))
                    .arg(tools::path("slapd")?)
                    .arg(format!("ldaps://{address}")),
            )?,
            address,
            authority: authority.certificate().to_owned(),
            files,
        };
        directory.seed(people, bind_passwords).await?;
        directory.listens().await?;
        Ok(directory)
    }

    /// `ADDRESS:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The CA certificate of its certificate (PEM).
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn authority(&self) -> io::Result<String> {
        fs::read_to_string(&self.authority)
    }

    /// Waits until it takes connections.
    ///
    /// # Errors
    /// When it does not: with the end of its log.
    pub async fn listens(&self) -> Result<(), Error> {
        let connected = async {
            let mut pace = time::interval(Duration::from_millis(50));
            loop {
                pace.tick().await;
                if TcpStream::connect(self.address).await.is_ok() {
                    return;
                }
            }
        };
        time::timeout(PATIENCE, connected)
            .await
            .map_err(|_| Error::Late(self.process.log_tail(20)))
    }

    /// Gives other passwords to the account that searches, which has none of those before. The directory does not answer for a moment, and
    /// has these people afterwards.
    ///
    /// # Errors
    /// When it does not listen again.
    pub async fn set_bind_passwords(
        &mut self,
        people: &[Person<'_>],
        bind_passwords: &[&str],
    ) -> Result<(), Error> {
        self.process.kill9().await?;
        fs::remove_dir_all(self.files.join("data"))?;
        fs::create_dir(self.files.join("data"))?;
        fs::remove_file(self.files.join("seeded"))?;
        self.process.restart().await?;
        self.seed(people, bind_passwords).await?;
        self.listens().await
    }

    /// Writes the people into the database, which slapd must not have open.
    async fn seed(&self, people: &[Person<'_>], bind_passwords: &[&str]) -> Result<(), Error> {
        let seed = self.files.join("seed.ldif");
        fs::write(&seed, ldif(people, bind_passwords))?;
        let slapadd = tools::path("slapd")?.with_file_name("slapadd");
        let config = self.files.join("slapd.conf");
        let added = Command::new(slapadd)
            .arg("-f")
            .arg(config)
            .arg("-l")
            .arg(seed)
            .output();
        let added = added.await?;
        if !added.status.success() {
            return Err(Error::Seed(String::from_utf8_lossy(&added.stderr).into_owned()));
        }
        Ok(fs::write(self.files.join("seeded"), "")?)
    }
}

/// Entries in the form of `slapadd`.
fn ldif(people: &[Person<'_>], bind_passwords: &[&str]) -> String {
    let unit =
        |name: &str| format!("dn: ou={name},{SUFFIX}\nobjectClass: organizationalUnit\nou: {name}\n\n");
    let bind_passwords = bind_passwords
        .iter()
        .map(|password| format!("userPassword: {password}\n"));
    let mut text = format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n\n{}{}\
         dn: {BIND_DN}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: search\n\
         {}\n",
        unit("people"),
        unit("groups"),
        bind_passwords.collect::<String>(),
    );
    let mut groups: Vec<&str> = people.iter().flat_map(|person| person.groups).copied().collect();
    groups.sort_unstable();
    groups.dedup();
    let of_people = people.iter().map(|person| {
        let Person {
            uid,
            password,
            groups: _,
        } = person;
        format!(
            "dn: uid={uid},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: {uid}\ncn: {uid}\nsn: {uid}\n\
             mail: {}\nuserPassword: {password}\n\n",
            person.email()
        )
    });
    let of_groups = groups.iter().map(|group| {
        let members = people.iter().filter(|person| person.groups.contains(group));
        let members: Vec<String> = members
            .map(|person| format!("member: uid={},ou=people,{SUFFIX}\n", person.uid))
            .collect();
        let members = members.concat();
        format!("dn: cn={group},ou=groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: {group}\n{members}\n")
    });
    text.extend(of_people.chain(of_groups));
    text
}
