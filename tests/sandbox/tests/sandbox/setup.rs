//! The set-up script names what is missing, builds each tool once, and never leaves half of one.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// A machine with nothing but what the script itself needs, and what a test adds.
struct Machine {
    root: tempfile::TempDir,
}

/// Commands that every Debian has.
const ESSENTIAL: [&str; 24] = [
    "bash",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "df",
    "dirname",
    "env",
    "flock",
    "grep",
    "head",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "rmdir",
    "sed",
    "sha256sum",
    "sh",
    "sleep",
    "sort",
    "tail",
    "uname",
];

/// A Go that writes down what it is asked to build, and takes a moment for it.
const GO: &str = r#"#!/bin/sh
case "$1" in
env) echo go1.26.8 ;;
list) case "$*" in *kwok*) echo "$FAKE_ROOT/kwok" ;; *dexidp*) echo "$FAKE_ROOT/dex" ;; *) echo v1.36.3 ;; esac ;;
build)
  for last in "$@"; do :; done
  echo "$last" >>"$FAKE_ROOT/built"
  mkdir -p "$GOCACHE" && echo compiled >"$GOCACHE/$$"
  while [ "$1" != -o ]; do shift; done
  printf half >"$2"
  if [ -e "$FAKE_ROOT/fail" ]; then echo "cannot find module" >&2; exit 1; fi
  sleep 0.1
  printf whole >"$2"
  chmod +x "$2"
  ;;
esac
"#;

impl Machine {
    /// Everything is there but the tools, which this Go builds.
    fn new() -> Self {
        let machine = Self {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.bin()).unwrap();
        for command in ESSENTIAL {
            symlink(find(command), machine.bin().join(command)).unwrap();
        }
        for command in ["cargo", "cc", "protoc", "haproxy", "ssh", "sshd"] {
            machine.install(command, "#!/bin/sh\n");
        }
        machine.install("id", "#!/bin/sh\necho 1000\n");
        machine.install("go", GO);
        fs::create_dir_all(machine.path("dex/web")).unwrap();
        for stage in [
            "node/fast/node-initialize",
            "node/heartbeat-with-lease/node-heartbeat-with-lease",
            "pod/fast/pod-ready",
            "pod/fast/pod-complete",
            "pod/fast/pod-delete",
        ] {
            let file = machine.path("kwok/kustomize/stage").join(format!("{stage}.yaml"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("kind: Stage # {stage}\n")).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn bin(&self) -> PathBuf {
        self.path("bin")
    }

    fn install(&self, command: &str, script: &str) {
        let file = self.bin().join(command);
        fs::write(&file, script).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn without(self, command: &str) -> Self {
        fs::remove_file(self.bin().join(command)).unwrap();
        self
    }

    fn start(&self, arguments: &[&str], environment: &[(&str, &Path)]) -> Child {
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("setup"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.root.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("FAKE_ROOT", self.root.path())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments, &[]).wait_with_output().unwrap()
    }

    fn locate(&self, environment: &[(&str, &Path)]) -> BTreeMap<String, PathBuf> {
        let output = self.start(&["--locate"], environment).wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect()
    }

    fn built(&self) -> Vec<String> {
        let mut built: Vec<String> = fs::read_to_string(self.path("built"))
            .unwrap_or_default()
            .lines()
            .map(|package| package.rsplit('/').next().unwrap().to_owned())
            .collect();
        built.sort();
        built
    }
}

fn find(command: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|directory| directory.join(command))
        .find(|file| file.exists())
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    let old_go = Machine::new();
    old_go.install("go", "#!/bin/sh\necho go1.19.8\n");
    let cases = [
        (
            Machine::new().without("cargo"),
            "cargo is missing. Install Rust with rustup: https://rustup.rs",
        ),
        (
            Machine::new().without("go"),
            "go is missing. Install Go 1.26 or newer: https://go.dev/dl",
        ),
        (old_go, "go 1.19.8 is too old. Install Go 1.26 or newer"),
        (
            Machine::new().without("protoc"),
            "missing: protobuf-compiler. As root: apt-get install protobuf-compiler",
        ),
    ];

    for (machine, expected) in cases {
        let output = machine.run(&[]);

        assert!(!output.status.success(), "{expected}");
        assert!(errors(&output).contains(expected), "{}", errors(&output));
        assert!(machine.built().is_empty());
    }
}

#[test]
fn concurrent_runs_build_every_tool_once() {
    let machine = Machine::new();

    let both =
        [machine.start(&[], &[]), machine.start(&[], &[])].map(|child| child.wait_with_output().unwrap());

    for output in &both {
        assert!(output.status.success(), "{}", errors(output));
    }
    let all = [
        "grpcurl",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kwok",
        "v3",
    ];
    assert_eq!(machine.built(), all);
    let third = machine.run(&[]);
    assert!(
        third.status.success() && errors(&third).is_empty(),
        "{}",
        errors(&third)
    );
    assert_eq!(machine.built(), all);
    let located = machine.locate(&[]);
    assert_eq!(fs::read_to_string(&located["etcd"]).unwrap(), "whole");
    assert_eq!(
        fs::read_to_string(&located["kwok-stages"])
            .unwrap()
            .matches("kind: Stage")
            .count(),
        5
    );
}

#[test]
fn only_the_tools_stay_of_what_go_has_compiled() {
    let machine = Machine::new();

    let output = machine.run(&[]);

    assert!(output.status.success(), "{}", errors(&output));
    let tools = machine.path("cache/sip-sandbox/tools");
    let directories: Vec<_> = fs::read_dir(tools)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(
        directories.len(),
        4,
        "etcd, grpcurl, kubernetes and kwok: {directories:?}"
    );
}

#[test]
fn a_disk_that_may_be_too_small_for_all_tests_is_mentioned() {
    for (free, mentioned) in [(2_097_152, true), (5_242_880, false)] {
        let machine = Machine::new().without("df");
        machine.install(
            "df",
            &format!("#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted on\necho /dev/vda 264000000 1000 {free} 97% /\n"),
        );

        let output = machine.run(&["--checks"]);

        let says = "setup: 2048 MB of disk are free; a fresh clone compiles at least 4 GB";
        assert_eq!(errors(&output).contains(says), mentioned, "{}", errors(&output));
    }
}

#[test]
fn only_root_on_linux_is_given_what_a_real_node_is_made_of() {
    let cases = [
        ("Linux", "0", true),
        ("Linux", "1000", false),
        ("Darwin", "0", false),
    ];

    for (system, user, wanted) in cases {
        let machine = Machine::new().without("uname");
        machine.install("uname", &format!("#!/bin/sh\necho {system}\n"));
        machine.install("id", &format!("#!/bin/sh\necho {user}\n"));
        machine.install("apt-get", "#!/bin/sh\necho \"$*\" >>\"$FAKE_ROOT/asked\"\n");

        let output = machine.run(&[]);

        assert!(output.status.success(), "{system} {user}: {}", errors(&output));
        let asked = fs::read_to_string(machine.path("asked")).unwrap_or_default();
        let built = machine.built();
        for program in ["kubelet", "kube-proxy", "dex", "kubelogin"] {
            assert_eq!(built.iter().any(|one| one == program), wanted, "{system} {user}");
        }
        // Others may be found in the real /usr/sbin and /usr/lib.
        assert_eq!(asked.contains("catatonit"), wanted, "{system} {user}: {asked}");
        let located = machine.locate(&[]);
        assert_eq!(located["kubelet"].exists(), wanted, "{system} {user}");
    }
}

#[test]
fn a_failed_tool_build_is_reported_and_repeated() {
    let machine = Machine::new();
    fs::write(machine.path("fail"), "").unwrap();

    let failed = machine.run(&[]);

    assert!(!failed.status.success());
    assert!(
        errors(&failed).contains("building etcd failed:\nsetup: cannot find module"),
        "{}",
        errors(&failed)
    );
    assert!(!machine.locate(&[])["etcd"].exists());
    fs::remove_file(machine.path("fail")).unwrap();
    assert!(machine.run(&[]).status.success());
    assert_eq!(fs::read_to_string(&machine.locate(&[])["etcd"]).unwrap(), "whole");
}

#[test]
fn binaries_that_are_given_are_used_and_not_built() {
    let machine = Machine::new();
    let assets = machine.path("assets");
    fs::create_dir(&assets).unwrap();
    for binary in ["etcd", "kube-apiserver", "kubectl"] {
        symlink(find("true"), assets.join(binary)).unwrap();
    }
    let given = [("KUBEBUILDER_ASSETS", assets.as_path())];

    let output = machine.start(&[], &given).wait_with_output().unwrap();

    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(
        machine.built(),
        ["grpcurl", "kube-controller-manager", "kube-scheduler", "kwok"]
    );
    assert_eq!(machine.locate(&given)["kubectl"], assets.join("kubectl"));
}

#[test]
fn another_minor_of_kubernetes_is_built_beside_the_newest() {
    let machine = Machine::new();
    let assets = machine.path("assets");
    fs::create_dir(&assets).unwrap();
    for binary in ["etcd", "kube-apiserver", "kubectl"] {
        symlink(find("true"), assets.join(binary)).unwrap();
    }
    assert!(machine.run(&[]).status.success());
    let newest = machine.locate(&[]);
    let environment = [
        ("SIP_KUBERNETES", Path::new("1.31")),
        ("KUBEBUILDER_ASSETS", assets.as_path()),
    ];

    let output = machine.start(&[], &environment).wait_with_output().unwrap();

    assert!(output.status.success(), "{}", errors(&output));
    let built = machine.built();
    let oldest = machine.locate(&environment);
    for program in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ] {
        assert_eq!(built.iter().filter(|one| *one == program).count(), 2, "{program}");
        assert!(oldest[program].exists() && newest[program].exists(), "{program}");
        assert_ne!(oldest[program], newest[program]);
        assert!(
            !oldest[program].starts_with(&assets),
            "the minor of given programs is unknown"
        );
    }
    assert_eq!(oldest["etcd"], assets.join("etcd"));
    assert_eq!(oldest["kwok"], newest["kwok"]);
}

#[test]
fn a_minor_of_kubernetes_that_is_not_pinned_is_refused() {
    let machine = Machine::new();

    let output = machine
        .start(&[], &[("SIP_KUBERNETES", Path::new("1.2"))])
        .wait_with_output()
        .unwrap();

    assert!(!output.status.success());
    assert!(
        errors(&output).contains("SIP_KUBERNETES is 1.2: there is no tests/sandbox/tools/kubernetes-1.2"),
        "{}",
        errors(&output)
    );
    assert!(machine.built().is_empty());
}

#[test]
fn images_need_kubectl_and_no_control_plane() {
    let machine = Machine::new();

    let output = machine.run(&["--images"]);

    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(machine.built(), ["kubectl"]);
}

#[test]
fn a_release_needs_jq_and_no_tool_that_is_built() {
    let machine = Machine::new();
    let missing = machine.run(&["--release"]);
    assert!(!missing.status.success());
    let expected = "missing: jq. As root: apt-get install jq";
    assert!(errors(&missing).contains(expected), "{}", errors(&missing));

    machine.install("jq", "#!/bin/sh\n");
    let output = machine.run(&["--release"]);

    assert!(output.status.success(), "{}", errors(&output));
    assert!(machine.built().is_empty());
}
