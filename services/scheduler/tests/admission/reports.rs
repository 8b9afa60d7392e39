//! What a site reports fills no log, whatever it is.

use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use placement::Policy;
use proto::inventory::v1::{self as wire, HostRef};
use scheduler::{
    convert,
    ledger::{
        Commit, Fence,
        commit::{self, Committer},
    },
    site::{Author, Limits, Session, Site},
};

use crate::audit::{listen, warnings};

/// Reports of each kind: more than there are lines at once.
const REPORTS: usize = 100;

/// A site that may have so many hosts.
fn site(name: &str, hosts: usize) -> Site {
    let mut site = Site::without_records(name, Policy::default());
    site.set_limits(Limits {
        hosts,
        ..Limits::default()
    });
    site
}

/// A session of the next reporter.
fn open(site: &mut Site, committer: &Committer, transitions: usize) -> Session {
    let fence = Fence {
        lease: "lease".to_owned(),
        transitions: i64::try_from(transitions).unwrap(),
    };
    let author = Author {
        caller: "test",
        action: "fence",
        now: SystemTime::now(),
    };
    let permit = committer.reserve().now_or_never().unwrap().unwrap();
    site.open_session(&fence, &author, permit).unwrap().0
}

/// Reports these hosts.
fn report(site: &mut Site, session: &Session, hosts: Vec<wire::Host>) {
    let changes = convert::changes(
        site.name(),
        wire::HostChanges {
            hosts,
            ..wire::HostChanges::default()
        },
    );
    site.report(&session.id, changes, SystemTime::now()).unwrap();
}

fn host(number: usize, cordoned: bool) -> wire::Host {
    wire::Host {
        r#ref: Some(HostRef {
            namespace: "metal".to_owned(),
            name: format!("h{number}"),
            uid: format!("u{number}"),
        }),
        cordoned,
        ..wire::Host::default()
    }
}

fn are_few(lines: usize, begun: Instant) {
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((1..40 + seconds).contains(&lines), "{lines} lines of {REPORTS}");
}

#[test]
fn hosts_that_make_room_again_and_again_fill_no_log() {
    listen();
    let begun = Instant::now();
    let (committer, _writer) = commit::committer(Commit::NONE);
    let mut site = site("crowded", 2);
    for number in 0..REPORTS {
        let session = open(&mut site, &committer, number);
        let hosts = [2 * number, 2 * number + 1].map(|number| host(number, false));
        report(&mut site, &session, hosts.into());
        site.close_session(&session.id, SystemTime::now() + Duration::from_secs(1));
    }
    are_few(warnings("crowded", "removed hosts and SIPClusters"), begun);
}

#[test]
fn marks_that_change_again_and_again_fill_no_log() {
    /// More than wait to be noted.
    const HOSTS: usize = 300;
    listen();
    let begun = Instant::now();
    let (committer, _writer) = commit::committer(Commit::NONE);
    let mut site = site("marked", HOSTS);
    let session = open(&mut site, &committer, 1);
    for number in 0..=REPORTS {
        let hosts = (0..HOSTS).map(|host| self::host(host, number % 2 == 1));
        report(&mut site, &session, hosts.collect());
        drop(site.take_notes());
    }
    are_few(warnings("marked", "are not in the log of decisions"), begun);
}
