//! The Jobs that fill a ledger: they have the volume of the scheduler and its options of etcd, and their commands run here, as programs of
//! this machine, on ledgers that a scheduler has made.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output},
};

use images::catalogue::{IMAGES, LOCAL};
use sandbox::{
    authority::{Authority, Caller, Identity, TRUST_DOMAIN},
    etcd::Etcd,
    process::Group,
    programs,
    region::Region,
    repository,
};
use serde_json::Value;

use super::{
    commands::sample,
    drift::{LEDGER_JOBS, Rendered, containers, environment, list, text},
    page::PAGE,
};

const TO_ETCD: &str = "ledger-to-etcd";
const IMPORT: &str = "ledger-import";
/// The backup that the tests import.
const BACKUP: &str = "ledger-000000000001.export";
/// The ledger in a container.
const LEDGER: &str = "/var/lib/sip/ledger.redb";

/// A pod of a Job: a directory stands for the root of its containers, and has those directories that they mount.
struct Pod {
    rendered: Rendered,
    root: tempfile::TempDir,
}

impl Pod {
    fn new(folder: &str) -> Self {
        let pod = Self {
            rendered: Rendered::overlay(folder),
            root: tempfile::tempdir().unwrap(),
        };
        let inits = list(&pod.job()["spec"]["template"]["spec"]["initContainers"]);
        for container in inits.chain(containers(pod.job())) {
            for mount in list(&container["volumeMounts"]) {
                fs::create_dir_all(pod.path(text(&mount["mountPath"]))).unwrap();
            }
        }
        pod
    }

    fn job(&self) -> &Value {
        self.rendered.of_kind("Job").next().unwrap()
    }

    /// Runs the containers as the kubelet does: one after the other, until one fails. Returns the last one that ran.
    fn run_all(&self, variables: &[(&str, &str)]) -> Output {
        let job = self.job();
        let inits = list(&job["spec"]["template"]["spec"]["initContainers"]);
        let mut last = None;
        for container in inits.chain(containers(job)) {
            let takes = container["envFrom"].is_array();
            let output = self.run(container, if takes { variables } else { &[] });
            let failed = !output.status.success();
            last = Some(output);
            if failed {
                break;
            }
        }
        last.unwrap()
    }

    /// The names of the files beside the ledger, and its own.
    fn ledgers(&self) -> Vec<String> {
        let folder = fs::read_dir(self.path("/var/lib/sip")).unwrap();
        let mut names: Vec<String> = folder
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Where a path of a container is here.
    fn path(&self, inside: &str) -> PathBuf {
        self.root.path().join(inside.trim_start_matches('/'))
    }

    /// Runs a container, with other values for variables that its manifest sets.
    fn run(&self, container: &Value, variables: &[(&str, &str)]) -> Output {
        let mut environment = environment(&self.rendered, container);
        for (name, value) in variables {
            let before = environment.insert((*name).to_owned(), (*value).to_owned());
            assert!(before.is_some(), "the manifest does not set {name}");
        }
        let root = self.root.path().display().to_string();
        let words: Vec<String> = list(&container["command"])
            .map(|word| {
                let word = environment
                    .iter()
                    .fold(text(word).to_owned(), |word, (name, value)| {
                        word.replace(&format!("$({name})"), value)
                    });
                let option = word
                    .split_once("=/")
                    .filter(|(option, _)| option.starts_with("--"));
                if let Some((option, path)) = option {
                    format!("{option}={root}/{path}")
                } else if word.starts_with('/') {
                    format!("{root}{word}")
                } else {
                    word
                }
            })
            .collect();
        let (program, arguments) = words.split_first().unwrap();
        let binary = if program == "sh" {
            PathBuf::from(program)
        } else {
            programs::path(program).unwrap()
        };
        Command::new(binary)
            .args(arguments)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap())
            // It is there if the containers mount one: their images have no directory that they may write to.
            .env("TMPDIR", self.path("/tmp"))
            .envs(environment)
            .output()
            .unwrap()
    }
}

/// What a command prints that must succeed.
fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sipctl(region: &Region, arguments: &[&str]) -> String {
    let Identity {
        uri: _,
        certificate,
        key,
        authority,
    } = region.operator();
    let output = Command::new(programs::path("sipctl").unwrap())
        .arg("ledger")
        .args(arguments)
        .env("SIP_SCHEDULER", region.endpoint())
        .env("SIP_REGION", region.name())
        .env("SIP_TRUST_DOMAIN", TRUST_DOMAIN)
        .env("SIP_TLS_CA", authority)
        .env("SIP_TLS_CERT", certificate)
        .env("SIP_TLS_KEY", key)
        .output()
        .unwrap();
    printed(&output)
}

/// Writes the backup to the volume of a pod.
fn export(region: &Region, pod: &Pod) {
    let backup = pod.path("/var/backups/sip").join(BACKUP);
    sipctl(region, &["export", "--output", backup.to_str().unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_copies_the_ledger_of_a_volume_to_etcd() {
    let mut region = Region::start(TO_ETCD).await.unwrap();
    region.scheduler().kill9().await.unwrap();
    let group = Group::new("ledger-etcd").unwrap();
    let authority = Authority::new(&group.directory().join("pki"), "etcd").unwrap();
    let server = authority
        .issue_server(&Caller::Operator("etcd"), &["localhost"])
        .unwrap();
    let etcd = Etcd::start_with_tls(&group, 1, &server).await.unwrap();
    let client = authority.issue(&Caller::Scheduler).unwrap();
    let pod = Pod::new(TO_ETCD);
    for (file, name) in [
        (&client.authority, "ca.crt"),
        (&client.certificate, "tls.crt"),
        (&client.key, "tls.key"),
    ] {
        fs::copy(file, pod.path("/etc/sip/etcd").join(name)).unwrap();
    }
    fs::copy(region.directory().join("ledger.redb"), pod.path(LEDGER)).unwrap();
    let endpoint = etcd.endpoints().join(",");
    let container = containers(pod.job()).next().unwrap();

    let output = pod.run(container, &[("SIP_LEDGER_ETCD", &endpoint)]);

    let printed = printed(&output);
    let place = format!("/sip/north in {endpoint}: 0 records,");
    assert!(printed.starts_with(&place), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_imports_a_backup_and_keeps_the_former_ledger() {
    let region = Region::start(IMPORT).await.unwrap();
    let pod = Pod::new(IMPORT);
    export(&region, &pod);

    // On a new volume there is no ledger to rename.
    printed(&pod.run_all(&[("BACKUP", BACKUP)]));
    assert_eq!(pod.ledgers(), ["ledger.redb"]);
    fs::write(pod.path(LEDGER), "the former ledger").unwrap();
    printed(&pod.run_all(&[("BACKUP", BACKUP)]));

    let ledger = pod.path(LEDGER);
    sipctl(&region, &["check", "--ledger", ledger.to_str().unwrap()]);
    let names = pod.ledgers();
    assert_eq!(names.len(), 2, "{names:?}");
    let former = names.iter().find(|name| name.starts_with("ledger.redb.former-"));
    let former = pod.path("/var/lib/sip").join(former.unwrap());
    assert_eq!(fs::read_to_string(former).unwrap(), "the former ledger");
}

#[test]
fn an_import_that_fails_leaves_the_ledger_in_its_place() {
    let pod = Pod::new(IMPORT);
    fs::write(pod.path(LEDGER), "the former ledger").unwrap();
    let broken = pod.path("/var/backups/sip").join(BACKUP);
    fs::write(broken, "no export").unwrap();

    for backup in [BACKUP, "ledger-000000000002.export"] {
        let output = pod.run_all(&[("BACKUP", backup)]);

        assert!(!output.status.success(), "{backup}");
        assert_eq!(pod.ledgers(), ["ledger.redb"], "{backup}");
        let kept = fs::read_to_string(pod.path(LEDGER)).unwrap();
        assert_eq!(kept, "the former ledger", "{backup}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_does_not_replace_the_ledger_of_a_scheduler() {
    let mut region = Region::start("ledger-import-in-use").await.unwrap();
    let pod = Pod::new(IMPORT);
    export(&region, &pod);
    symlink(region.directory().join("ledger.redb"), pod.path(LEDGER)).unwrap();

    let output = pod.run_all(&[("BACKUP", BACKUP)]);

    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("a scheduler has it open"), "{errors}");
    assert_eq!(pod.ledgers(), ["ledger.redb"]);

    // Once the scheduler has ended, the next attempt succeeds.
    region.scheduler().kill9().await.unwrap();
    printed(&pod.run_all(&[("BACKUP", BACKUP)]));
    assert_eq!(pod.ledgers().len(), 2);
}

#[test]
fn ledger_jobs_mount_the_volume_as_the_scheduler_does() {
    let scheduler = Rendered::overlay("scheduler");
    let workload = scheduler.workloads().next().unwrap();
    let template = &workload["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
    let claim = format!("{}-{}-0", text(template), text(&workload["metadata"]["name"]));
    let of_scheduler = containers(workload).next().unwrap();
    let is_known = |mount: &Value| list(&of_scheduler["volumeMounts"]).any(|known| known == mount);
    for folder in LEDGER_JOBS {
        let rendered = Rendered::overlay(folder);
        let job = rendered.of_kind("Job").next().unwrap();
        let pod = &job["spec"]["template"]["spec"];
        let volume = list(&pod["volumes"]).find(|volume| volume["name"] == *template);

        assert_eq!(
            volume.unwrap()["persistentVolumeClaim"]["claimName"],
            claim,
            "{folder}"
        );
        assert_eq!(
            pod["securityContext"], workload["spec"]["template"]["spec"]["securityContext"],
            "{folder}: the files are the scheduler's"
        );
        for container in list(&pod["initContainers"]).chain(containers(job)) {
            assert_eq!(
                container["securityContext"], of_scheduler["securityContext"],
                "{folder}"
            );
            let mut mounts = list(&container["volumeMounts"]).filter(|mount| mount["name"] == *template);
            assert!(mounts.all(is_known), "{folder}: {container}");
        }
    }
}

#[test]
fn the_patch_of_the_page_imports_a_backup_of_a_replica() {
    let schedulers = Rendered::overlay("scheduler/ha");
    let workload = schedulers.workloads().next().unwrap();
    let template = &workload["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
    let claim = format!("{}-{}-0", text(template), text(&workload["metadata"]["name"]));
    let of_scheduler = containers(workload).next().unwrap();
    let backups = list(&of_scheduler["volumeMounts"]).find(|mount| mount["name"] == *template);
    let backups = backups.unwrap();
    let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(repository::deploy().join(TO_ETCD)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let kustomization = copy.path().join("kustomization.yaml");
    let own = fs::read_to_string(&kustomization).unwrap();
    let patched = format!("{own}{}", sample(&page, &format!("value: {claim}")));
    fs::write(kustomization, patched).unwrap();

    let rendered = Rendered::overlay(copy.path().to_str().unwrap());

    let job = rendered.of_kind("Job").next().unwrap();
    let container = containers(job).next().unwrap();
    let file = text(&container["command"][3]);
    let (folder, name) = file.rsplit_once('/').unwrap();
    assert_eq!(folder, text(&backups["mountPath"]));
    assert!(name.starts_with("ledger-") && name.ends_with(".export"), "{name}");
    let mounted = list(&container["volumeMounts"]).find(|mount| mount["mountPath"] == backups["mountPath"]);
    let mounted = mounted.unwrap();
    assert_eq!(mounted["subPath"], backups["subPath"]);
    let mut volumes = list(&job["spec"]["template"]["spec"]["volumes"]);
    let volume = volumes.find(|volume| volume["name"] == mounted["name"]);
    assert_eq!(volume.unwrap()["persistentVolumeClaim"]["claimName"], claim);
}

#[test]
fn ledger_jobs_run_the_sipctl_of_their_release() {
    for folder in LEDGER_JOBS {
        let rendered = Rendered::overlay(folder);
        let job = rendered.of_kind("Job").next().unwrap();
        let inits = list(&job["spec"]["template"]["spec"]["initContainers"]);
        let own: Vec<&Value> = inits
            .chain(containers(job))
            .filter(|container| text(&container["image"]).starts_with(LOCAL))
            .collect();
        let [container] = &own[..] else {
            panic!("{folder}: {own:?}");
        };
        let image = text(&container["image"]);
        let row = IMAGES
            .iter()
            .find(|row| row.reference(LOCAL, env!("CARGO_PKG_VERSION")) == image);
        let programs = row.unwrap_or_else(|| panic!("{folder}: {image}")).programs;
        assert!(
            programs.contains(&text(&container["command"][0])),
            "{folder}: {container}"
        );
    }
}

#[test]
fn the_job_reaches_etcd_as_schedulers_do() {
    let schedulers = Rendered::overlay("scheduler/ha");
    let workload = schedulers.workloads().next().unwrap();
    let of_scheduler = containers(workload).next().unwrap();
    let rendered = Rendered::overlay(TO_ETCD);
    let job = rendered.of_kind("Job").next().unwrap();
    let container = containers(job).next().unwrap();
    let options = |words: &Value| -> BTreeSet<String> {
        list(words)
            .map(text)
            .filter(|word| word.starts_with("--etcd-"))
            .map(str::to_owned)
            .collect()
    };
    let named = |all: &Value| list(all).find(|one| one["name"] == "etcd").cloned().unwrap();
    let egress = |rendered: &Rendered| {
        let policy = rendered.of_kind("NetworkPolicy").next().unwrap();
        policy["spec"]["egress"].clone()
    };

    assert_eq!(options(&container["command"]), options(&of_scheduler["args"]));
    assert_eq!(
        named(&container["volumeMounts"]),
        named(&of_scheduler["volumeMounts"])
    );
    assert_eq!(
        named(&job["spec"]["template"]["spec"]["volumes"]),
        named(&workload["spec"]["template"]["spec"]["volumes"])
    );
    assert_eq!(egress(&rendered), egress(&schedulers));
}
