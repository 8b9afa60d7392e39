//! Sessions, by the lines that sshd writes at level VERBOSE. Patterns match from the beginning of a line, and none matches a name that a stranger
//! chooses, so a line cannot be forged without a login. A user with a shell runs as sshd's user and can add lines to its output, so the record of
//! sessions is no evidence against users.

pub mod metrics;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    time::{Duration, Instant},
};

use regex::{Captures, Regex};

use crate::connections::Remote;

/// Sessions that are recorded at most. Each open one is a process of sshd, so there are never as many.
const MAX_OPEN_SESSIONS: usize = 10_000;

/// Where a session comes from: no two open ones have the same.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Peer {
    /// IP address.
    pub address: String,
    /// Port.
    pub port: u16,
}

impl Peer {
    /// The peer as the kernel lists connections; `None` if sshd has logged no IP address. sshd logs the zone of a link-local address, the kernel
    /// does not list it.
    fn remote(&self) -> Option<Remote> {
        let address = self.address.split('%').next()?;
        let ip: IpAddr = address.parse().ok()?;
        Some((ip.to_canonical(), self.port))
    }
}

/// The credential of a login.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Login {
    /// A listed key, by its fingerprint.
    Key(String),
    /// A certificate.
    Certificate {
        /// The identity that its authority gave it.
        id: String,
        /// Its number.
        serial: String,
        /// Fingerprint of the authority's key.
        authority: String,
    },
}

/// What a line reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A session begins.
    Opened(Peer, Login),
    /// It ends, after this time.
    Closed(Peer, Login, Duration),
    /// A connection has ended without a login. Its port is 0 where sshd does not name it.
    Refused(Peer),
}

#[derive(Clone, Debug)]
struct Session {
    login: Login,
    since: Instant,
    /// Whether the last check found no connection of the session.
    disconnected: bool,
}

impl Session {
    fn closed(self, peer: Peer, now: Instant) -> Event {
        Event::Closed(peer, self.login, now.saturating_duration_since(self.since))
    }
}

/// The sessions that are open.
#[derive(Clone, Debug)]
pub struct Sessions {
    open: BTreeMap<Peer, Session>,
    accepted: Regex,
    certificate: Regex,
    closed: Regex,
    refused: Regex,
    timed_out: Regex,
}

impl Sessions {
    /// None.
    ///
    /// # Errors
    /// Never: a test reads every expression.
    pub fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            open: BTreeMap::new(),
            accepted: Regex::new(r"^Accepted publickey for ubuntu from (\S+) port (\d+) ssh2: (.*)$")?,
            certificate: Regex::new(
                r"^\S+-CERT (?:SHA256:\S+ )?ID (.*) \(serial (\d+)\) CA \S+ (SHA256:\S+)",
            )?,
            closed: Regex::new(
                r"^(?:Closing connection to|Disconnected from|Received disconnect from|Connection closed by|Connection reset by|Read error from remote host|Timeout, client not responding from|ssh_dispatch_run_fatal: Connection from) (?:user ubuntu )?(\S+) port (\d+)(?:[: ]|$)",
            )?,
            refused: Regex::new(
                r"^(?:Disconnected from|Connection closed by|Connection reset by|Disconnecting) (?:authenticating|invalid) user .* (\S+) port (\d+)(?:: Too many authentication failures)?(?: \[preauth\])?$",
            )?,
            // OpenSSH 9.8 and later name no port.
            timed_out: Regex::new(
                r"^Timeout before authentication for (?:connection from )?(\S+)(?: port (\d+)| to .*)$",
            )?,
        })
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Ends every open session, once no session can exist, whatever sshd has logged.
    pub fn cut(&mut self, now: Instant) -> Vec<Event> {
        let open = mem::take(&mut self.open).into_iter();
        open.map(|(peer, session)| session.closed(peer, now)).collect()
    }

    /// Ends each session that has no connection now and had none in the check before: its process was killed, and sshd reports nothing. One
    /// check alone may miss a connection, since the kernel lists them while they change.
    pub fn end_disconnected(&mut self, connected: &BTreeSet<Remote>, now: Instant) -> Vec<Event> {
        let mut ended = Vec::new();
        self.open.retain(|peer, session| {
            let is_connected = peer.remote().is_none_or(|remote| connected.contains(&remote));
            let ends = session.disconnected && !is_connected;
            session.disconnected = !is_connected;
            if ends {
                ended.push(session.clone().closed(peer.clone(), now));
            }
            !ends
        });
        ended
    }

    /// Takes a line of sshd, written now. Returns what it reports.
    pub fn observe(&mut self, line: &str, now: Instant) -> Option<Event> {
        if let Some(found) = self.accepted.captures(line) {
            let peer = peer(&found)?;
            let login = self.login(found.get(3)?.as_str())?;
            if self.open.len() < MAX_OPEN_SESSIONS {
                let session = Session {
                    login: login.clone(),
                    since: now,
                    disconnected: false,
                };
                self.open.insert(peer.clone(), session);
            }
            return Some(Event::Opened(peer, login));
        }
        if let Some(found) = self.closed.captures(line) {
            let peer = peer(&found)?;
            let session = self.open.remove(&peer)?;
            return Some(session.closed(peer, now));
        }
        if let Some(found) = self.timed_out.captures(line) {
            let port = found.get(2).and_then(|port| port.as_str().parse().ok());
            return Some(Event::Refused(Peer {
                address: found.get(1)?.as_str().to_owned(),
                port: port.unwrap_or_default(),
            }));
        }
        let found = self.refused.captures(line)?;
        Some(Event::Refused(peer(&found)?))
    }

    fn login(&self, text: &str) -> Option<Login> {
        if let Some(found) = self.certificate.captures(text) {
            let (_, [id, serial, authority]) = found.extract();
            return Some(Login::Certificate {
                id: id.to_owned(),
                serial: serial.to_owned(),
                authority: authority.to_owned(),
            });
        }
        let (_, fingerprint) = text.split_once(' ')?;
        Some(Login::Key(fingerprint.to_owned()))
    }
}

fn peer(found: &Captures<'_>) -> Option<Peer> {
    Some(Peer {
        address: found.get(1)?.as_str().to_owned(),
        port: found.get(2)?.as_str().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str, port: u16) -> Peer {
        Peer {
            address: address.to_owned(),
            port,
        }
    }

    #[test]
    fn a_session_is_known_from_its_first_line_to_its_last() {
        let mut sessions = Sessions::new().unwrap();
        let begin = Instant::now();
        let end = begin + Duration::from_secs(9);
        let key = Login::Key("SHA256:wXuVqbH".to_owned());
        let one = peer("192.0.2.1", 40_001);
        let two = peer("2001:db8::7", 40_002);
        let certificate = Login::Certificate {
            id: "ana (laptop) of shop".to_owned(),
            serial: "7".to_owned(),
            authority: "SHA256:CCC".to_owned(),
        };
        for (line, at, expected) in [
            (
                "Accepted publickey for ubuntu from 192.0.2.1 port 40001 ssh2: ED25519 SHA256:wXuVqbH",
                begin,
                Some(Event::Opened(one.clone(), key.clone())),
            ),
            (
                "Accepted publickey for ubuntu from 2001:db8::7 port 40002 ssh2: ED25519-CERT SHA256:BBB ID ana (laptop) of shop (serial 7) CA ED25519 SHA256:CCC",
                begin,
                Some(Event::Opened(two.clone(), certificate.clone())),
            ),
            (
                "Starting session: shell on pts/0 for ubuntu from 192.0.2.1 port 40001 id 0",
                begin,
                None,
            ),
            ("Closing connection to 192.0.2.1 port 40003", end, None),
            (
                "Received disconnect from 192.0.2.1 port 40001:11: disconnected by user",
                end,
                Some(Event::Closed(one, key, Duration::from_secs(9))),
            ),
            ("Disconnected from user ubuntu 192.0.2.1 port 40001", end, None),
            (
                "Closing connection to 2001:db8::7 port 40002",
                end,
                Some(Event::Closed(two, certificate, Duration::from_secs(9))),
            ),
            (
                "Connection closed by authenticating user ubuntu 192.0.2.9 port 5 [preauth]",
                end,
                Some(Event::Refused(peer("192.0.2.9", 5))),
            ),
            ("Connection closed by 192.0.2.9 port 6 [preauth]", end, None),
            (
                "Disconnecting authenticating user ubuntu 192.0.2.9 port 7: Too many authentication failures [preauth]",
                end,
                Some(Event::Refused(peer("192.0.2.9", 7))),
            ),
            (
                "Disconnecting invalid user ana 192.0.2.9 port 8: Too many authentication failures",
                end,
                Some(Event::Refused(peer("192.0.2.9", 8))),
            ),
            (
                "Timeout before authentication for 192.0.2.9 port 9",
                end,
                Some(Event::Refused(peer("192.0.2.9", 9))),
            ),
            (
                "Timeout before authentication for connection from 192.0.2.9 to 192.0.2.1, pid = 71",
                end,
                Some(Event::Refused(peer("192.0.2.9", 0))),
            ),
        ] {
            assert_eq!(sessions.observe(line, at), expected, "{line}");
        }
        assert_eq!(sessions.open(), 0);
    }

    #[test]
    fn session_without_connection_ends_at_the_second_check() {
        let mut sessions = Sessions::new().unwrap();
        let begin = Instant::now();
        for peer in [
            "192.0.2.1 port 1",
            "192.0.2.1 port 2",
            "fe80::7%eth0 port 3",
            "UNKNOWN port 4",
        ] {
            let line = format!("Accepted publickey for ubuntu from {peer} ssh2: ED25519 SHA256:a");
            assert!(sessions.observe(&line, begin).is_some());
        }
        let remote = |address: &str, port| -> Remote { (address.parse().unwrap(), port) };
        let some = BTreeSet::from([remote("192.0.2.1", 2), remote("fe80::7", 3)]);
        let all: BTreeSet<Remote> = some.iter().copied().chain([remote("192.0.2.1", 1)]).collect();
        // A check that misses a connection, between others that find it, ends nothing.
        for connected in [&some, &all, &some] {
            assert_eq!(sessions.end_disconnected(connected, begin), []);
        }
        let end = begin + Duration::from_secs(9);
        let key = Login::Key("SHA256:a".to_owned());
        let closed = Event::Closed(peer("192.0.2.1", 1), key, Duration::from_secs(9));
        assert_eq!(sessions.end_disconnected(&some, end), [closed]);
        assert_eq!(sessions.end_disconnected(&some, end), []);
        assert_eq!(sessions.open(), 3);
        // A line that comes afterwards reports nothing twice.
        let late = "Connection closed by 192.0.2.1 port 1";
        assert_eq!(sessions.observe(late, end), None);
    }

    #[test]
    fn the_name_that_a_stranger_gives_ends_no_session() {
        let mut sessions = Sessions::new().unwrap();
        let now = Instant::now();
        sessions.observe(
            "Accepted publickey for ubuntu from 192.0.2.1 port 7 ssh2: ED25519 SHA256:a",
            now,
        );
        for line in [
            "Invalid user Closing connection to 192.0.2.1 port 7 from 192.0.2.9 port 5",
            "Disconnected from invalid user ubuntu 192.0.2.1 port 7 192.0.2.9 port 5 [preauth]",
            "Connection closed by invalid user user ubuntu 192.0.2.1 port 7  192.0.2.9 port 5 [preauth]",
            "Failed publickey for Accepted publickey for ubuntu from 192.0.2.1 port 8 ssh2: x from 192.0.2.9 port 5 ssh2",
        ] {
            let event = sessions.observe(line, now);
            let harmless = match &event {
                None => true,
                Some(Event::Refused(from)) => *from == peer("192.0.2.9", 5),
                Some(Event::Opened(..) | Event::Closed(..)) => false,
            };
            assert!(harmless, "{line}: {event:?}");
        }
        assert_eq!(sessions.open(), 1);
    }
}
