//! A real API server with clusters, jump hosts and hosts; an emulator of BMCs; `PowerService` under its agent's own rights.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{ledger::Ledger, proxy::Proxy};
use api::{
    BareMetalHost, SIPCluster,
    labels::{CLUSTER_NAME, CLUSTER_NAMESPACE},
};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, Secret, ServiceAccount},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use power::{
    Answers, Config, EffectPolling, Power, PowerMetrics, Replica, ServeArgs, Server,
    redfish::{Network, NetworkArgs, Timeouts},
};
use proto::power::v1::power_service_client::PowerServiceClient;
use sandbox::{
    authority::{Authority, Caller, Identity},
    crds,
    process::Group,
    redfish_emulator::{PASSWORD, RedfishEmulator, USER},
    repository,
    site::Site,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request,
    metadata::MetadataValue,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

pub(crate) const HOSTS: &str = "metal";
/// Where the agent is, and its `ServiceAccount`.
const AGENT: (&str, &str) = ("sip-system", "sip-jump-host-agent");
pub(crate) const SERVER_NAME: &str = "sip-jump-host-agent-power.sip-system.svc";
/// Fast, so that tests end soon.
const EFFECT_POLLING: EffectPolling = EffectPolling {
    timeout: Duration::from_mins(1),
    interval: Duration::from_millis(200),
};

/// A jump host's pod.
#[derive(Clone, Debug)]
pub(crate) struct JumpHost {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) pod: Pod,
}

pub(crate) struct Stage {
    pub(crate) site: Site,
    pub(crate) emulator: RedfishEmulator,
    pub(crate) ledger: Ledger,
    pub(crate) answers: Answers,
    /// The site's proxy for BMCs.
    pub(crate) proxy: Proxy,
    serving: Option<JoinHandle<()>>,
    pub(crate) stop: CancellationToken,
    pub(crate) address: String,
    pub(crate) authority: PathBuf,
    certificate: Identity,
    _group: Group,
}

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

impl Stage {
    /// An API server with the agent's rights, an emulator with these systems, and `PowerService` that serves.
    pub(crate) async fn start(name: &str, systems: &[&str]) -> Self {
        let site = Site::builder(name)
            .crds(crds::all())
            .namespace(HOSTS)
            .namespace(AGENT.0)
            .namespace("shop")
            .namespace("bank")
            .start()
            .await
            .unwrap();
        let group = Group::new(name).unwrap();
        let emulator = RedfishEmulator::start(&group, "bmc", systems).await.unwrap();
        let authority = Authority::new(&group.directory().join("pki"), "north").unwrap();
        let agent = Caller::Agent {
            site: "site-a",
            name: "jump-host",
        };
        let certificate = authority.issue_server(&agent, &[SERVER_NAME]).unwrap();
        let mut stage = Self {
            ledger: Ledger::default(),
            answers: Answers::new().0,
            proxy: Proxy::start().await,
            serving: None,
            stop: CancellationToken::new(),
            address: String::new(),
            authority: authority.certificate().to_owned(),
            certificate,
            emulator,
            site,
            _group: group,
        };
        stage.grant().await;
        stage.serve().await.lead(stage.power().await);
        stage
    }

    /// The agent's `ServiceAccount` and its rights, as they are shipped.
    async fn grant(&self) {
        let (namespace, name) = AGENT;
        let account = json!({"metadata": {"name": name}});
        self.create::<ServiceAccount>(namespace, account).await;
        self.site
            .apply_file(&repository::deploy().join("agents/jump-host/rights/power.yaml"))
            .await
            .unwrap();
        self.site
            .apply_kustomization(&repository::deploy().join("sandbox/hosts"))
            .await
            .unwrap();
        let binding = repository::deploy().join("tenant-namespace/jump-host-agent-power.yaml");
        for tenant in ["shop", "bank"] {
            let file = binding.display().to_string();
            let apply = ["apply", "--namespace", tenant, "--filename", &*file];
            self.site.kubectl_ok(&apply).await.unwrap();
        }
        // What every service agent may do.
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let role = [
            "create",
            "clusterrole",
            "framework",
            "--verb=get,list",
            "--resource=sipclusters.airship.airshipit.org,services",
        ];
        self.site.kubectl_ok(&role).await.unwrap();
        let user = format!("--user={user}");
        let binding = [
            "create",
            "clusterrolebinding",
            "framework",
            "--clusterrole=framework",
            &*user,
        ];
        self.site.kubectl_ok(&binding).await.unwrap();
    }

    fn program(&self) -> Program {
        let path = |path: &std::path::Path| path.display().to_string();
        clap::Parser::parse_from([
            "program".to_owned(),
            "--power-listen=127.0.0.1:0".to_owned(),
            format!("--power-tls-cert={}", path(&self.certificate.certificate)),
            format!("--power-tls-key={}", path(&self.certificate.key)),
            format!("--bmc-ca={}", path(self.emulator.authority())),
            format!("--bmc-proxy=http://{}", self.proxy.address()),
        ])
    }

    /// Opens a port of another replica, which is on standby.
    pub(crate) async fn serve(&mut self) -> Replica<Ledger> {
        let bound = Server::bind(&self.program().serve).await.unwrap();
        let (server, replica) = bound.expect("a port is asked for");
        self.address = server.address().to_string();
        let stop = self.stop.clone();
        self.serving = Some(tokio::spawn(async move { server.serve(stop).await.unwrap() }));
        replica
    }

    /// Power control under the rights of the agent.
    pub(crate) async fn power(&self) -> Power<Ledger> {
        let (namespace, name) = AGENT;
        let kubeconfig = self
            .site
            .service_account_kubeconfig(namespace, name)
            .await
            .unwrap();
        let client = self.site.client_from(&kubeconfig).await.unwrap();
        let timeouts = Timeouts {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(5),
        };
        let config = Config {
            host_namespaces: [HOSTS.to_owned()].into(),
            network: Network::new(&self.program().network, timeouts)
                .unwrap()
                .with_loopback(),
            effect_polling: EFFECT_POLLING,
            metrics: PowerMetrics::default(),
            answers: self.answers.clone(),
            stop: self.stop.clone(),
        };
        Power::new(client, self.ledger.clone(), config)
    }

    pub(crate) fn client(&self) -> Client {
        self.site.client()
    }

    pub(crate) async fn create<K>(&self, namespace: &str, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + Serialize
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api = Api::<K>::namespaced(self.client(), namespace);
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// A host that baremetal-operator reports as provisioned.
    pub(crate) async fn host(&self, name: &str, bmc: &str) -> BareMetalHost {
        let secret = json!({"metadata": {"name": format!("{name}-bmc")}, "stringData": {"username": USER, "password": PASSWORD}});
        self.create::<Secret>(HOSTS, secret).await;
        let host = json!({
            "metadata": {"name": name},
            "spec": {
                "online": true, "bootMACAddress": "52:54:00:00:00:01",
                "bmc": {"address": bmc, "credentialsName": format!("{name}-bmc")},
            },
        });
        let host: BareMetalHost = self.create(HOSTS, host).await;
        self.provisioned(name, "provisioned").await;
        host
    }

    /// Has baremetal-operator report a state.
    pub(crate) async fn provisioned(&self, host: &str, state: &str) {
        let status = json!({"status": {
            "operationalStatus": "OK", "errorCount": 0, "errorMessage": "", "poweredOn": true, "hardwareProfile": "unknown",
            "provisioning": {"ID": "", "state": state, "image": {"url": ""}},
        }});
        let hosts = Api::<BareMetalHost>::namespaced(self.client(), HOSTS);
        hosts
            .patch_status(host, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Labels a host as one of a cluster.
    pub(crate) async fn label(&self, host: &str, namespace: &str, name: &str) {
        let patch = json!({"metadata": {"labels": {CLUSTER_NAMESPACE: namespace, CLUSTER_NAME: name}}});
        let hosts = Api::<BareMetalHost>::namespaced(self.client(), HOSTS);
        hosts
            .patch(host, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn annotate(&self, host: &str, key: &str) {
        let patch = json!({"metadata": {"annotations": {key: ""}}});
        let hosts = Api::<BareMetalHost>::namespaced(self.client(), HOSTS);
        hosts
            .patch(host, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn cluster(&self, namespace: &str, name: &str) -> SIPCluster {
        self.cluster_by(namespace, name, false).await
    }

    /// The same, whose jump host reaches BMCs by the site's proxy or not.
    pub(crate) async fn cluster_by(&self, namespace: &str, name: &str, proxy: bool) -> SIPCluster {
        let cluster = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "metadata": {"name": name},
            "spec": {
                "nodes": {"Worker": {"labelSelector": {}, "count": {"active": 1, "standby": 0}}},
                "services": {"jumpHost": [{"image": "example.org/jump-host:1", "nodePort": 30000, "nodeInterfaceId": "oam", "bmc": {"proxy": proxy}}]},
            },
        });
        self.create(namespace, cluster).await
    }

    /// A pod under a `ServiceAccount` of this name that the cluster owns.
    pub(crate) async fn jump_host(&self, cluster: &SIPCluster, account: &str) -> JumpHost {
        let namespace = cluster.namespace().unwrap();
        let owner = cluster.controller_owner_ref(&()).unwrap();
        let object = json!({"metadata": {"name": account, "ownerReferences": [owner]}});
        self.create::<ServiceAccount>(&namespace, object).await;
        let pod = self.pod(&namespace, account).await;
        JumpHost {
            namespace,
            account: account.to_owned(),
            pod,
        }
    }

    pub(crate) async fn pod(&self, namespace: &str, account: &str) -> Pod {
        let object = json!({
            "metadata": {"generateName": format!("{account}-")},
            "spec": {"serviceAccountName": account, "containers": [{"name": "sshd", "image": "example.org/jump-host:1"}]},
        });
        let pod: Pod = self.create(namespace, object).await;
        // As the kubelet reports it.
        let running = json!({"status": {"phase": "Running"}});
        let pods = Api::<Pod>::namespaced(self.client(), namespace);
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(running))
            .await
            .unwrap()
    }

    pub(crate) async fn delete_pod(&self, jump_host: &JumpHost) {
        let pods = Api::<Pod>::namespaced(self.client(), &jump_host.namespace);
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&jump_host.pod.name_any(), &now).await.unwrap();
    }

    /// A token as the kubelet projects it into the pod.
    pub(crate) async fn token(&self, jump_host: &JumpHost) -> String {
        self.token_for(jump_host, "sip-power", Some(&jump_host.pod), 3600)
            .await
    }

    pub(crate) async fn token_for(
        &self,
        jump_host: &JumpHost,
        audience: &str,
        pod: Option<&Pod>,
        seconds: i64,
    ) -> String {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Some(vec![audience.to_owned()]),
                bound_object_ref: pod.map(|pod| BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.uid(),
                }),
                expiration_seconds: Some(seconds),
                ..TokenRequestSpec::default()
            }
            .into(),
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), &jump_host.namespace);
        let answer = accounts
            .create_token_request(&jump_host.account, &PostParams::default(), &request)
            .await;
        answer.unwrap().status.unwrap().token.unwrap()
    }

    /// A client that verifies the server by its name.
    pub(crate) fn grpc(&self) -> PowerServiceClient<Channel> {
        self.grpc_from([127, 0, 0, 1])
    }

    /// The same at another address of this machine.
    pub(crate) fn grpc_from(&self, address: [u8; 4]) -> PowerServiceClient<Channel> {
        let ca = Certificate::from_pem(std::fs::read(&self.authority).unwrap());
        let tls = ClientTlsConfig::new().ca_certificate(ca).domain_name(SERVER_NAME);
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        let endpoint = endpoint.local_address(Some(address.into()));
        PowerServiceClient::new(endpoint.tls_config(tls).unwrap().connect_lazy())
    }

    /// Notes of the Events on a host, once there is one.
    pub(crate) async fn events(&self, host: &BareMetalHost) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let found = self.events_now(host).await;
            if !found.is_empty() || begun.elapsed() > Duration::from_secs(20) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn events_now(&self, host: &BareMetalHost) -> Vec<String> {
        let events = Api::<k8s_openapi::api::events::v1::Event>::namespaced(self.client(), HOSTS);
        let all = events.list(&kube::api::ListParams::default()).await.unwrap();
        let about = all
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|object| object.uid.clone()) == host.uid());
        about
            .map(|event| {
                format!(
                    "{} {}",
                    event.reason.unwrap_or_default(),
                    event.note.unwrap_or_default()
                )
            })
            .collect()
    }

    /// Ends the service, and waits until it has ended.
    pub(crate) async fn end(&mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap();
        }
    }
}

/// A request with a token, from a user of this ssh key.
pub(crate) fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
        .metadata_mut()
        .insert("sip-ssh-key", "SHA256:key-of-ana".parse().unwrap());
    request
}
