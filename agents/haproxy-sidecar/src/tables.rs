//! The tables in which a worker lists its servers. HAProxy separates columns by commas or by spaces; which there are, and in
//! which order, differs between versions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use csv::ReaderBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::members::{Server, Word};

/// Why an answer is not such a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It begins with something else.
    #[error("it has no column `{0}`")]
    Column(&'static str),
    /// A row does not match the columns.
    #[error("a row does not have the columns of the table")]
    Row(#[source] csv::Error),
}

/// Whether a server admits connections, by its administrative state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admin {
    /// It admits new connections.
    Ready,
    /// It keeps its connections, and admits no new ones.
    Drain,
    /// It admits no connections.
    Maintenance,
}

/// The state of a server in a worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerState {
    /// Its address, if it has one.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Whether it may be given connections.
    pub admin: Admin,
    /// Whether it takes connections, by its health.
    pub up: bool,
    /// Whether its health checks run.
    pub checked: bool,
    /// Connections that it has, and those that wait for it.
    pub sessions: u64,
}

impl ServerState {
    /// A server that is known by its sessions only: HAProxy's own, or one of a worker that no longer lists servers.
    pub(crate) const UNLISTED: Self = Self {
        address: None,
        port: 0,
        admin: Admin::Ready,
        up: true,
        checked: false,
        sessions: 0,
    };
}

#[derive(Deserialize)]
struct StateRow {
    #[serde(rename = "be_name")]
    backend: String,
    #[serde(rename = "srv_name")]
    name: String,
    #[serde(rename = "srv_addr")]
    address: String,
    #[serde(rename = "srv_port")]
    port: u16,
    #[serde(rename = "srv_op_state")]
    operation: u32,
    #[serde(rename = "srv_admin_state")]
    admin: u32,
    #[serde(rename = "srv_check_state")]
    check: u32,
}

#[derive(Deserialize)]
struct StatisticsRow {
    #[serde(rename = "# pxname")]
    backend: String,
    #[serde(rename = "svname")]
    name: String,
    #[serde(rename = "qcur")]
    queued: Option<u64>,
    #[serde(rename = "scur")]
    sessions: Option<u64>,
}

/// Parses the answer to `show servers state`. Sessions are 0 until they are counted.
///
/// # Errors
/// When it is something else.
pub fn servers(answer: &str) -> Result<BTreeMap<Server, ServerState>, Error> {
    // The first line is the version of the format, the names of the columns follow behind a mark.
    let table = answer.split_once("# ").map_or(answer, |(_, table)| table);
    let seen = |row: StateRow| {
        let seen = ServerState {
            address: row.address.parse().ok(),
            port: row.port,
            admin: admin(row.admin),
            up: UP.contains(&row.operation),
            checked: row.check & CHECK_ENABLED != 0,
            sessions: 0,
        };
        server(&row.backend, &row.name).map(|server| (server, seen))
    };
    Ok(rows(table, b' ', "srv_name")?
        .into_iter()
        .filter_map(seen)
        .collect())
}

/// Sets each server's connections from the answer to `show stat`.
///
/// # Errors
/// When it is something else.
pub fn count_sessions(answer: &str, servers: &mut BTreeMap<Server, ServerState>) -> Result<(), Error> {
    for row in rows::<StatisticsRow>(answer, b',', "svname")? {
        let seen = server(&row.backend, &row.name).and_then(|server| servers.get_mut(&server));
        if let Some(seen) = seen {
            seen.sessions = row.queued.unwrap_or_default() + row.sessions.unwrap_or_default();
        }
    }
    Ok(())
}

fn rows<T: DeserializeOwned>(table: &str, between: u8, column: &'static str) -> Result<Vec<T>, Error> {
    let mut reader = ReaderBuilder::new()
        .delimiter(between)
        // Some rows end with a separator, some do not.
        .flexible(true)
        .from_reader(table.as_bytes());
    let columns = reader.headers().map_err(Error::Row)?;
    // The answer for a worker that does not exist is not an empty table.
    if !columns.iter().any(|name| name == column) {
        return Err(Error::Column(column));
    }
    reader.deserialize().collect::<Result<_, _>>().map_err(Error::Row)
}

/// `None` for a name that no command can contain; HAProxy has no such names.
fn server(backend: &str, name: &str) -> Option<Server> {
    Some(Server {
        backend: Word::parse(backend)?,
        name: Word::parse(name)?,
    })
}

/// Of HAProxy's `srv_op_state`: it begins to run, it runs.
const UP: [u32; 2] = [1, 2];
/// Bits of HAProxy's `srv_admin_state`: forced, inherited, of the configuration, without an address.
const MAINTENANCE: u32 = 0x01 | 0x02 | 0x04 | 0x20;
/// Forced, inherited.
const DRAIN: u32 = 0x08 | 0x10;
/// Bit of its `srv_check_state`.
const CHECK_ENABLED: u32 = 0x04;

fn admin(bits: u32) -> Admin {
    match (bits & MAINTENANCE != 0, bits & DRAIN != 0) {
        (true, _) => Admin::Maintenance,
        (false, true) => Admin::Drain,
        (false, false) => Admin::Ready,
    }
}

/// Sessions in what `show sess` answers: the number of each, and the server that it uses.
fn sessions(answer: &str) -> impl Iterator<Item = (&str, Server)> {
    answer.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace();
        let mut word = |prefix: &str| words.find_map(|word| word.strip_prefix(prefix));
        let server = server(word("be=")?, word("srv=")?)?;
        Word::parse(number).is_some().then_some((number, server))
    })
}

/// Numbers of the sessions, in what `show sess` answers, that use one of these servers.
pub fn sessions_of(answer: &str, uses: impl Fn(&Server) -> bool) -> Vec<&str> {
    let used = sessions(answer).filter(|(_, server)| uses(server));
    used.map(|(number, _)| number).collect()
}

/// State of a stream's end at the server, as `show sess` prints it, from which on the stream keeps its server: it is connected.
const CONNECTED: u32 = 8;
/// The stream of the commands themselves, which each worker has.
const COMMANDS: &str = "GLOBAL";

/// Connections of clients that may still be given a server: streams in what `show sess` answers that are not connected to one (after a failed
/// attempt HAProxy chooses again), and connections of `all` that have no stream, as idle ones of HTTP. What cannot be read counts.
#[must_use]
pub fn undecided(answer: &str, all: u64) -> u64 {
    let (mut streams, mut connected) = (0, 0);
    for line in answer.lines().filter(|line| line.starts_with("0x")) {
        let mut words = line.split_whitespace();
        if words
            .clone()
            .any(|word| word.strip_prefix("fe=") == Some(COMMANDS))
        {
            continue;
        }
        streams += 1;
        // Named so since 2.6, and before.
        let end = words.find_map(|word| word.strip_prefix("scb=[").or_else(|| word.strip_prefix("s1=[")));
        let state = end.and_then(|end| end.split(',').next()?.parse().ok());
        connected += u64::from(state.is_some_and(|state: u32| state >= CONNECTED));
    }
    all.max(streams) - connected
}

/// Counts in what `show sess` answers how many connections each server has at least. A server that the tables lack is at no
/// address.
pub fn count_listed_sessions(answer: &str, servers: &mut BTreeMap<Server, ServerState>) {
    let mut counts: BTreeMap<Server, u64> = BTreeMap::new();
    for (_, server) in sessions(answer) {
        *counts.entry(server).or_default() += 1;
    }
    for (server, count) in counts {
        let seen = servers.entry(server).or_insert(ServerState::UNLISTED);
        seen.sessions = seen.sessions.max(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(backend: &str, name: &str) -> Server {
        super::server(backend, name).unwrap()
    }

    const STATE: &str = "1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change \
srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord
2 b 1 s1 127.0.0.1 2 0 1 1 1 6 3 4 6 0 0 0 - 29101 -
2 b 2 s2 ::1 0 8 1 1 0 1 0 0 6 0 0 0 - 29102 -
2 b 3 s3 - 0 1 1 1 0 1 0 0 2 0 0 0 - 29103 -

";
    const STATISTICS: &str = "# pxname,svname,qcur,qmax,scur,last_chk,type,
b,s1,1,0,4,\"a, b\",2,
b,s2,,,,,2,
b,unknown,1,1,1,,2,

";

    #[test]
    fn servers_are_read_with_their_sessions() {
        let mut servers = servers(STATE).unwrap();
        count_sessions(STATISTICS, &mut servers).unwrap();
        let seen = |address: Option<&str>, port, up, admin, checked, sessions| ServerState {
            address: address.map(|address| address.parse().unwrap()),
            port,
            admin,
            up,
            checked,
            sessions,
        };
        let expected = [
            (
                server("b", "s1"),
                seen(Some("127.0.0.1"), 29101, true, Admin::Ready, true, 5),
            ),
            (
                server("b", "s2"),
                seen(Some("::1"), 29102, false, Admin::Drain, true, 0),
            ),
            (
                server("b", "s3"),
                seen(None, 29103, false, Admin::Maintenance, false, 0),
            ),
        ];
        assert_eq!(servers, expected.into());
    }

    #[test]
    fn the_answer_for_a_worker_that_ended_is_an_error() {
        let gone = "Can't find the target PID matching the prefix '@!99'\n\n";
        for answer in [gone, ""] {
            assert!(matches!(servers(answer), Err(Error::Column(_))), "{answer:?}");
            let counted = count_sessions(answer, &mut BTreeMap::new());
            assert!(matches!(counted, Err(Error::Column(_))), "{answer:?}");
        }
        let none = STATE.split_inclusive('\n').take(2).collect::<String>();
        assert_eq!(servers(&none).unwrap(), BTreeMap::new());
    }

    #[test]
    fn connections_without_a_server_are_counted() {
        let stream = |frontend: &str, end: &str| {
            format!(
                "0x5556f7c20a60: proto=tcpv4 src=127.0.0.1:1 fe={frontend} be=b srv=s1 ts=00 {end} exp=28s\n"
            )
        };
        let own = stream("GLOBAL", "scf=[8,200h,fd=17] scb=[8,1h,fd=-1]");
        for (all, lines, expected) in [
            (0, vec![], 0),
            (1, vec![stream("f", "scf=[8,0h,fd=14] scb=[8,1h,fd=16]")], 0),
            // It connects, or has read nothing yet.
            (1, vec![stream("f", "scf=[8,0h,fd=14] scb=[5,1h,fd=15]")], 1),
            (1, vec![stream("f", "s0=[8,0h,fd=1,ex=] s1=[0,0h,fd=-1,ex=]")], 1),
            (1, vec![stream("f", "s0=[8,0h,fd=1,ex=] s1=[8,0h,fd=2,ex=]")], 0),
            // Two connections of HTTP are idle.
            (3, vec![stream("f", "scf=[8,0h,fd=14] scb=[8,1h,fd=16]")], 2),
            // What a later HAProxy prints in another way.
            (1, vec![stream("f", "front=8 back=8")], 1),
        ] {
            let answer = format!("{}{own}\n", lines.concat());
            assert_eq!(undecided(&answer, all), expected, "{answer}");
        }
    }

    #[test]
    fn sessions_are_found_by_their_server() {
        let answer = "0x5598800df580: proto=tcpv4 src=127.0.0.1:51668 fe=f be=b srv=s1 ts=00\n\
            0x559880217a10: proto=sockpair src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00\n\
            0x7f03d002ac00: proto=tcpv4 src=127.0.0.1:51672 fe=f be=b srv=s3 ts=00\n\
            0x7f03d002ac01: proto=tcpv4 src=127.0.0.1:51672 fe=f be=c srv=s3 ts=00\n\n";
        let found = sessions_of(answer, |found| *found == server("b", "s3"));
        assert_eq!(found, ["0x7f03d002ac00"]);

        let mut counted = servers(STATE).unwrap();
        count_listed_sessions(answer, &mut counted);
        let counts = counted.values().map(|seen| seen.sessions);
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [1, 0, 1, 1],
            "b/s1, b/s2, b/s3 and c/s3, which only has a session"
        );
    }
}
