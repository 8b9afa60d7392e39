//! `docs/jump-host.md`, command by command: a user on another machine, a jump host in a pod, a node and a BMC.

use std::{env, ffi::OsString, fs, net::Ipv4Addr, path::Path, process::Stdio};

use sandbox::{
    inventory::{Host, NETWORK},
    programs, repository, tools,
};
use serde_json::json;
use tokio::process::Command;

use super::{CREDENTIALS, HOSTS_NAMESPACE, OURS, Scene, client::Key, machine::Machine, on_site};
use crate::{
    fixtures::{Role, cluster},
    install::commands::{Step, steps},
};

const PAGE: &str = "docs/jump-host.md";
const HOST: &str = "r2-h1";

/// The machine of a user, with a directory of its own in place of `~/.ssh`.
struct Desk {
    directory: tempfile::TempDir,
    path: OsString,
    /// A member.
    node: Ipv4Addr,
}

impl Desk {
    fn new(user: &Key, node: Ipv4Addr, machine: &Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("ssh");
        fs::create_dir(&own).unwrap();
        fs::copy(user.file(), own.join("id_ed25519")).unwrap();
        let key = machine.host_key.public();
        let known = format!("{HOSTS_NAMESPACE}/{HOST}.orders.shop {key}\n{node} {key}\n");
        fs::write(own.join("known_hosts"), known).unwrap();
        let own_path = env::var_os("PATH").unwrap();
        let programs = [programs::path("sipctl").unwrap(), tools::path("kubectl").unwrap()];
        let directories = programs.iter().map(|program| program.parent().unwrap());
        let directories = directories.map(Path::to_owned).chain(env::split_paths(&own_path));
        let path = env::join_paths(directories).unwrap();
        Self {
            directory,
            path,
            node,
        }
    }

    /// What a block of commands prints on standard output; the first that fails ends it. ssh puts its two streams in no order.
    async fn run(&self, scene: &Scene, step: &Step) -> String {
        // ssh takes the home directory from the account, not from the environment.
        let isolated = "mount --make-rprivate / && mkdir -p ~/.ssh && mount --bind ssh ~/.ssh";
        let script = format!("set -euo pipefail; {isolated}\n{}", step.script);
        let output = Command::new("unshare")
            .args(["--mount", "bash", "-c", &script])
            .current_dir(self.directory.path())
            .env("PATH", &self.path)
            .env("NODE", self.node.to_string())
            .env("KUBECONFIG", scene.stage.site.admin_kubeconfig())
            .env("KUBECACHEDIR", scene.stage.site.directory().join("kubectl-cache"))
            .env_remove("SSH_AUTH_SOCK")
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{PAGE}:{}: {}\n{printed}\n{}",
            step.line,
            step.script,
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }
}

#[test]
fn the_page_of_jump_hosts_shows_what_its_commands_print() {
    on_site("shop", async |scene| {
        let ana = Key::new("ana");
        let [_, _, node] = scene.stage.site.node().unwrap().machines();
        let machine = Machine::start(node, &ana).await;
        let host = Host::new(HOST, "shop-worker", "r2", node);
        let host = host.behind(&scene.emulator.bmc_address(HOST), CREDENTIALS);
        scene.stage.load(&[host]).await;
        let entry = json!({
            "image": OURS, "nodeInterfaceId": NETWORK, "nodePort": 30_101, "sshAuthorizedKeys": [ana.public()],
        });
        let orders = cluster("shop", "orders")
            .with("/services/jumpHost", json!([entry]))
            .role(Role::Worker, 1);
        // It waits until sshd answers.
        scene.jump_host(&orders, &ana).await;

        let page = fs::read_to_string(repository::root().join(PAGE)).unwrap();
        let steps = steps(&page);
        assert!(steps.len() > 4, "{steps:?}");
        let desk = Desk::new(&ana, node, &machine);
        for step in &steps {
            let printed = desk.run(scene, step).await;
            println!("{PAGE}:{}\n{}\n{printed}", step.line, step.script);
            let missing = step.missing(&printed);
            assert_eq!(missing, None, "{PAGE}:{}: {}\n{printed}", step.line, step.script);
        }
    });
}
