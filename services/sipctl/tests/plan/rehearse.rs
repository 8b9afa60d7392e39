//! `sipctl ledger rehearse`, on files.

use std::path::Path;
use std::sync::Arc;

use placement::{ClusterName, HostId, HostName, MemberState, RoleName, Uid};
use scheduler::ledger::export::Writer;
use scheduler::ledger::{Change, Commit, Decision, Ledger as _, RecordKey, redb::Redb};
use scheduler::record::{Member, Record, ReleaseReason};
use scheduler::spec::Spec;
use serde_json::Value;

use crate::command::{directory, sipctl, text};
use crate::fixtures::{Edit as _, NAMESPACE, cluster, host};

const SITE: &str = "site-a";
const MARK: &str = "sip.airshipit.org~1placement-revision";

/// `(cluster, [(host, state)])`, each a commit of its own: the first is revision 1.
type Records<'a> = &'a [(&'a str, &'a [(&'a str, MemberState)])];

fn record(name: &str, revision: u64, hosts: &[(&str, MemberState)]) -> Record {
    let name = ClusterName::new(NAMESPACE, name).unwrap();
    let mut record = Record::new(
        name.clone(),
        format!("uid-{}", name.name()),
        None,
        1,
        Spec::default(),
    );
    record.revision = revision;
    for (host, state) in hosts {
        let id = HostId {
            name: HostName::new(NAMESPACE, *host).unwrap(),
            uid: Uid::new(format!("uid-{host}")).unwrap(),
        };
        let mut member = Member::new(RoleName::new("Worker").unwrap(), None, *state);
        member.revision = revision;
        member.ordinal = Some(0);
        if *state == MemberState::Releasing {
            member.release_reason = Some(ReleaseReason::Surplus);
        }
        record.members.insert(id, member);
    }
    record
}

/// The bytes of an export.
fn export(records: Records<'_>) -> Vec<u8> {
    let ledger = Redb::in_memory().unwrap();
    for (commit, (name, hosts)) in (1..).zip(records) {
        let record = record(name, commit, hosts);
        let change = Change::Record {
            key: RecordKey {
                site: SITE.to_owned(),
                cluster: record.cluster.clone(),
            },
            decision: Box::new(Decision {
                commit: Commit::new(commit),
                site: SITE.to_owned(),
                action: "apply".to_owned(),
                cluster: Some(record.id()),
                ..Decision::default()
            }),
            record: Some(Arc::new(record)),
            commit: Commit::new(commit),
        };
        ledger.commit(&[change]).unwrap();
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    ledger.export(&mut |entry| Ok(writer.write(&entry)?)).unwrap();
    let end = writer.counts().end();
    writer.write(&end).unwrap();
    bytes
}

/// A labelled host of the cluster `shop`.
fn own(name: &str) -> Value {
    host(name, "r1").member_of("shop", "Worker")
}

/// The SIPCluster `shop`, whose status has a position and hosts.
fn shop(position: (u64, u64), hosts: &[(&str, &str)]) -> Value {
    let shop = cluster("shop", &[("Worker", 1)]).set("/metadata/uid", "uid-shop");
    let shop = hosts
        .iter()
        .fold(shop, |shop, (host, state)| shop.claims(host, "Worker", state));
    shop.set("/status/placement/epoch", position.0)
        .set("/status/placement/revision", position.1)
}

struct Files {
    folder: tempfile::TempDir,
    objects: tempfile::TempDir,
}

impl Files {
    fn new(export: &[u8], objects: &[Value]) -> Self {
        let texts: Vec<(String, String)> = (0..)
            .zip(objects)
            .map(|(index, object)| (format!("{index}.json"), object.to_string()))
            .collect();
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("export"), export).unwrap();
        Self {
            folder,
            objects: directory(&texts),
        }
    }

    fn rehearse(&self, site: &str, more: &[&str]) -> (Option<i32>, String) {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let (file, objects) = (
            path(&self.folder.path().join("export")),
            path(self.objects.path()),
        );
        let arguments = ["ledger", "rehearse", &file, "--site", site, "-f", &objects];
        let output = sipctl(&[&arguments, more].concat());
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        (output.status.code(), said)
    }
}

fn rehearse(records: Records<'_>, objects: &[Value]) -> (Option<i32>, String) {
    Files::new(&export(records), objects).rehearse(SITE, &[])
}

/// Records, objects of the site, the exit code, and a part of a line.
type Case<'a> = (Records<'a>, Vec<Value>, i32, &'a str);

#[track_caller]
fn assert_rehearsed(cases: &[Case<'_>]) {
    for (records, objects, code, expected) in cases {
        let (found, said) = rehearse(records, objects);
        assert_eq!(found, Some(*code), "{expected}: {said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn each_claim_of_the_export_is_compared_with_the_site() {
    use MemberState::{Bound, Claimed};
    let one: Records<'_> = &[("shop", &[("h1", Bound)])];
    let held = shop((1, 1), &[("h1", "Bound")]);
    let other = cluster("other", &[("Worker", 1)]);
    assert_rehearsed(&[
        (one, vec![held.clone(), own("h1")], 0, "kept      lab/h1 (Worker)"),
        (
            one,
            vec![held.clone()],
            2,
            "CONFLICT  lab/h1: the export claims it, and the site does not have it",
        ),
        (
            one,
            vec![held.clone(), own("h1").set("/metadata/uid", "again")],
            0,
            "reported  lab/h1: it was recreated, with the labels of the cluster",
        ),
        (
            one,
            vec![
                held.clone(),
                other.clone(),
                host("h1", "r1").member_of("other", "Worker"),
            ],
            2,
            "CONFLICT  lab/h1: the export holds it, and it has the labels of lab/other: neither",
        ),
        (
            one,
            vec![own("h1")],
            2,
            "CONFLICT  the export has it, and the site does not have its SIPCluster: lab/h1",
        ),
        (
            one,
            vec![shop((1, 1), &[]), host("h1", "r1")],
            2,
            "CONFLICT  lab/h1: the export claims it, and neither its labels nor the status do",
        ),
        (
            &[("shop", &[("h1", Claimed)])],
            vec![shop((1, 1), &[("h1", "Claimed")]), host("h1", "r1")],
            0,
            "kept      lab/h1 (Worker)",
        ),
    ]);
}

#[test]
fn each_claim_of_the_site_is_compared_with_the_export() {
    use MemberState::{Bound, Releasing};
    let one: Records<'_> = &[("shop", &[("h1", Bound)])];
    let releasing: Records<'_> = &[("shop", &[("h1", Bound), ("h2", Releasing)])];
    let held = shop((1, 1), &[("h1", "Bound")]);
    let other = cluster("other", &[("Worker", 1)]);
    assert_rehearsed(&[
        (
            one,
            vec![
                shop((1, 7), &[("h1", "Bound"), ("h2", "Claimed")]),
                own("h1"),
                host("h2", "r2"),
            ],
            0,
            "reported  lab/h2: the export does not have it: the scheduler takes it over from the status",
        ),
        (
            one,
            vec![
                shop((1, 1), &[("h1", "Bound"), ("h2", "Claimed")]),
                own("h1"),
                host("h2", "r2"),
            ],
            2,
            "CONFLICT  lab/h2: the status claims it and is not newer than the export",
        ),
        (
            one,
            vec![held.clone(), own("h1"), own("h2")],
            0,
            "reported  lab/h2: it has the labels of the cluster, and the export does not have it",
        ),
        (
            releasing,
            vec![
                shop((1, 1), &[("h1", "Bound"), ("h2", "Releasing")]),
                own("h1"),
                own("h2"),
            ],
            0,
            "reported  lab/h2: the export releases it since revision 1: the release continues",
        ),
        (
            releasing,
            vec![
                shop((1, 7), &[("h1", "Bound"), ("h2", "Bound")]),
                own("h1"),
                own("h2"),
            ],
            0,
            "reported  lab/h2: the export releases it, and the newer status holds it",
        ),
        (
            one,
            vec![
                shop((1, 7), &[]),
                host("h1", "r1").set(&format!("/metadata/annotations/{MARK}"), "6"),
            ],
            0,
            "reported  lab/h1: it was released after the export: it is free",
        ),
        (
            &[("shop", &[("h1", Bound)]), ("other", &[("h2", Bound)])],
            vec![
                shop((1, 7), &[("h1", "Bound"), ("h2", "Claimed")]),
                other.clone(),
                own("h1"),
                host("h2", "r1").member_of("other", "Worker"),
            ],
            2,
            "CONFLICT  lab/h2: the status claims it, and the export holds it for lab/other",
        ),
    ]);
}

#[test]
fn hosts_and_statuses_without_a_claim_can_be_conflicts() {
    use MemberState::Bound;
    let one: Records<'_> = &[("shop", &[("h1", Bound)])];
    let held = shop((1, 1), &[("h1", "Bound")]);
    assert_rehearsed(&[
        (
            one,
            vec![
                held.clone(),
                own("h1"),
                host("h2", "r1").member_of("never", "Worker"),
            ],
            2,
            "CONFLICT  lab/h2: its labels name SIPCluster lab/never, which neither",
        ),
        (
            one,
            vec![
                held.clone(),
                own("h1"),
                host("h2", "r1").set(&format!("/metadata/annotations/{MARK}"), u64::MAX.to_string()),
            ],
            2,
            "CONFLICT  lab/h2: no ledger can have issued its release mark",
        ),
        (
            one,
            vec![held.clone().set("/status/placement/members", 7), own("h1")],
            2,
            "CONFLICT  SIPCluster lab/shop: status.placement.members",
        ),
    ]);
}

#[test]
fn rehearsal_tells_where_the_site_is_ahead() {
    let records: Records<'_> = &[("shop", &[("h1", MemberState::Bound)])];
    let bound = |position| vec![shop(position, &[("h1", "Bound")]), own("h1")];
    let (_, said) = rehearse(records, &bound((1, 1)));
    assert!(
        said.contains("Site site-a is at 1.1 in the export; it states nothing beyond that."),
        "{said}"
    );
    let (code, said) = rehearse(records, &bound((3, 900)));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("Site site-a is at 1.1 in the export and states 3.900: it would continue at 4.901."),
        "{said}"
    );
    let (_, json) = Files::new(&export(records), &bound((3, 900))).rehearse(SITE, &["-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["raised"], "4.901");
    assert_eq!(json["clusters"][0]["keeps"][0], "lab/h1 (Worker)");
}

#[test]
fn an_export_that_cannot_be_loaded_is_refused_with_a_reason() {
    let records: Records<'_> = &[("shop", &[("h1", MemberState::Bound)])];
    let whole = export(records);
    let mut newer = whole.clone();
    newer[10] = b'3';
    let cases: [(&[u8], &str, i32, &str); 4] = [
        (
            &whole,
            "site-b",
            1,
            "the export has no site site-b: it has site-a",
        ),
        (
            &newer,
            SITE,
            1,
            "the export has version 3 of the format, and this program reads versions up to 2",
        ),
        (b"kind: List", SITE, 1, "this is not an export of a ledger"),
        (&whole[..40], SITE, 2, "the export is truncated after"),
    ];
    for (bytes, site, code, expected) in cases {
        let (found, said) = Files::new(bytes, &[]).rehearse(site, &[]);
        assert_eq!(found, Some(code), "{expected}: {said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn objects_without_uids_are_compared_by_name() {
    let records: Records<'_> = &[("shop", &[("h1", MemberState::Bound)])];
    let objects = [
        shop((1, 1), &[("h1", "Bound")]).without("/metadata/uid"),
        own("h1").without("/metadata/uid"),
    ];
    let (code, said) = rehearse(records, &objects);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("kept      lab/h1 (Worker)"), "{said}");
}
