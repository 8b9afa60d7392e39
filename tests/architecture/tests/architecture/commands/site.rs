//! A site like the demonstration's, and a shell in it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kube::api::DynamicObject;
use metal3::{
    controller::{Controller, Settings},
    provider::Pauses,
};
use sandbox::{
    authority, inventory, programs,
    region::{Agent, AgentProcess, HOSTS_NAMESPACE, Region},
    repository, sip_clusters,
    site::{Nodes, Site},
    tools, wait,
};
use tokio::{process::Command, task::JoinSet};

use crate::repository::files_ending;

/// The region's name.
const REGION: &str = "north";
/// How long one command or one cluster may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Everything that runs. The fields are dropped in this order: the agents first.
pub(super) struct Stage {
    _agents: Vec<AgentProcess>,
    /// Plays Cluster API, once a document has installed its kinds.
    _cluster_api: JoinSet<()>,
    site: Site,
    region: Region,
}

impl Stage {
    /// Brings up what the demonstration shows: two clusters that are ready, and one that does not fit.
    ///
    /// One cluster after the other, so that each gets the same hosts every time.
    pub(super) async fn set() -> Self {
        let builder = Site::builder("site-a")
            .tenant_namespace("shop")
            .tenant_namespace("bank")
            .tenant_namespace("lab")
            .namespace(HOSTS_NAMESPACE)
            .nodes(Nodes::Kwok(3))
            .crds(definitions());
        let (site, region) = tokio::join!(builder.start(), Region::start(REGION));
        let (site, region) = (site.unwrap(), region.unwrap());
        let fleet = inventory::fleet(24, 4);
        inventory::load(&site.client(), HOSTS_NAMESPACE, &fleet)
            .await
            .unwrap();
        site.prepare_for_agents().await.unwrap();
        let mut config = region.site_config(&site);
        config.not_installed = vec!["auth".to_owned()];
        let mut agents = Vec::new();
        for agent in [Agent::Cluster, Agent::LoadBalancer] {
            agents.push(region.start_agent(&site, agent, &config).await.unwrap());
        }
        let power = region.power_port(&site).unwrap().variables(None);
        let jump_host = region.start_agent_with(&site, Agent::JumpHost, &config, &power);
        agents.push(jump_host.await.unwrap());
        for agent in &mut agents {
            agent.is_ready().await.unwrap();
        }
        let settings = Settings {
            pauses: Pauses::default(),
            period: Duration::from_millis(500),
            seed: 1,
            operates_hosts: true,
        };
        let controller = Controller::new(site.client(), HOSTS_NAMESPACE, settings);
        let mut cluster_api = JoinSet::new();
        // Before its kinds are installed every pass fails.
        cluster_api.spawn(controller.run(|_| {}));
        let stage = Self {
            _agents: agents,
            _cluster_api: cluster_api,
            site,
            region,
        };
        stage
            .place("shop", "orders", |cluster| wait::is_true(cluster, "Ready"))
            .await;
        stage
            .place("bank", "payments", |cluster| wait::is_true(cluster, "Ready"))
            .await;
        stage.place("lab", "training", is_refused).await;
        stage
    }

    async fn place(&self, namespace: &str, name: &str, done: impl Fn(&DynamicObject) -> bool) {
        let sample = repository::samples().join(format!("{name}.yaml"));
        self.site.apply_file(&sample).await.unwrap();
        let clusters = sip_clusters::api(self.site.client(), namespace);
        let what = format!("SIPCluster {namespace}/{name} to be placed or refused");
        if let Err(error) = wait::until(clusters, name, &what, PATIENCE, done).await {
            panic!(
                "{error}\n{}{}",
                self.site.log_tails(15),
                self.region.log_tails(15)
            );
        }
    }

    /// Runs a command as the reader of a document does: in a shell, from the root of the project, with the login that
    /// the demonstration prints, and for `sipctl` what `docs/install.md` exports. Returns its standard output.
    pub(super) async fn run(&self, command: &str) -> Result<String, String> {
        let login = self.region.operator();
        let options = format!(
            "-cacert {} -cert {} -key {}",
            login.authority.display(),
            login.certificate.display(),
            login.key.display()
        );
        let folders =
            ["kubectl", "grpcurl"].map(|tool| tools::path(tool).unwrap().parent().unwrap().to_owned());
        let own = programs::path("sipctl").unwrap().parent().unwrap().to_owned();
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(folders.into_iter().chain([own]).chain(env::split_paths(&path))).unwrap();
        let running = Command::new("sh")
            .args(["-eu", "-c", command])
            .current_dir(repository::root())
            .env("PATH", path)
            .env("KUBECONFIG", self.site.admin_kubeconfig())
            .env("KUBECACHEDIR", self.site.directory().join("kubectl-cache"))
            .env("LOGIN", options)
            .env("SCHEDULER", self.region.address())
            .env("POLICY", self.region.policy())
            .env("EXPORT", self.site.directory().join("ledger.export"))
            .env("SIP_SCHEDULER", format!("https://{}", self.region.address()))
            .env("SIP_REGION", REGION)
            .env("SIP_TRUST_DOMAIN", authority::TRUST_DOMAIN)
            .env("SIP_TLS_CA", &login.authority)
            .env("SIP_TLS_CERT", &login.certificate)
            .env("SIP_TLS_KEY", &login.key)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, running)
            .await
            .map_err(|_| format!("is not done after {} s", PATIENCE.as_secs()))?
            .map_err(|error| error.to_string())?;
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(printed(&output.stdout))
        } else {
            Err(format!("{}\n{}", output.status, printed(&output.stderr)))
        }
    }
}

/// The definitions that this project ships, and no others: what kubectl prints depends on them.
fn definitions() -> Vec<PathBuf> {
    let folder = Path::new("deploy/crd");
    files_ending(".yaml")
        .into_iter()
        .filter(|path| Path::new(path).parent() == Some(folder) && !path.ends_with("kustomization.yaml"))
        .map(|path| repository::root().join(path))
        .collect()
}

fn is_refused(cluster: &DynamicObject) -> bool {
    wait::condition(cluster, "Ready")
        .is_some_and(|(status, reason, _)| status == "False" && reason == "Unschedulable")
}

#[tokio::test]
async fn a_command_that_fails_is_a_finding_with_its_words() {
    let site = Site::builder("site-a").start().await.unwrap();
    let region = Region::start(REGION).await.unwrap();
    let stage = Stage {
        _agents: Vec::new(),
        _cluster_api: JoinSet::new(),
        site,
        region,
    };

    let fault = stage.run("kubectl get sipclusters -A").await.unwrap_err();
    let fine = stage.run("grpcurl $LOGIN $SCHEDULER list").await.unwrap();

    assert!(fault.contains("doesn't have a resource type"), "{fault}");
    assert!(fine.contains("sip.placement.v1.PlacementService"), "{fine}");
}
