//! A directory, an etcd, and providers on loopback.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{Cluster, HttpsUrl, SIPCluster, SecretKey, Source};
use dex_agent::{
    certificates::{self, CertificateSet, Names},
    checks::{self, Target},
    directory::Bind,
    discovery, https,
    metrics::StorageMetrics,
    storage::{StorageArgs, StoragePart, Store},
    tenant::stored,
};
use etcd_client::{Client, ConnectOptions};
use kit::{shares::OfNamespaces, tenant::destinations::Destinations};
use render::dex::{self, Certificate, Plan, Secrets, Storage};
use runtime::resolver::Resolver;
use rustls::ClientConfig;
use sandbox::{
    dex::Dex,
    etcd::Etcd,
    login, port,
    process::Group,
    slapd::{BIND_DN, Directory, Person, SUFFIX},
};
use serde_json::{Value, json};
use tokio::time;

/// Of the account that searches: everything that means something to YAML, JSON, a shell or Dex.
pub(crate) const BIND_PASSWORD: &str = r#"p$HOME-x${HOME}$$"'\#{}: é %s &*!|>@`"#;
pub(crate) const ROOT_PASSWORD: &str = "root-password";
/// Whose providers they are.
pub(crate) const SITE: &str = "north/lab";
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const ADA: Person<'_> = Person {
    uid: "ada",
    password: "correct horse",
    groups: &["admins"],
};
pub(crate) const BOB: Person<'_> = Person {
    uid: "bob",
    password: "battery staple",
    groups: &["readers"],
};

/// A directory, an etcd, and what providers are made of.
pub(crate) struct Stage {
    pub(crate) group: Group,
    pub(crate) directory: Directory,
    pub(crate) etcd: Etcd,
    pub(crate) store: Store,
    pub(crate) storage: StorageArgs,
}

/// One provider, and where it is.
pub(crate) struct Provider {
    pub(crate) issuer: HttpsUrl,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) storage: Storage,
    pub(crate) certificate: Certificate,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    environment: Vec<(String, String)>,
    /// What the kubelet asks for to know whether Dex lives, and whether it is ready.
    pub(crate) probed: [String; 2],
    pub(crate) target: Target,
}

impl Stage {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, &[]).await
    }

    /// With these flags of etcd.
    pub(crate) async fn start_with(name: &str, flags: &[(&str, &str)]) -> Self {
        let group = Group::new(name).unwrap();
        let directory = Directory::start(&group, &[ADA, BOB], BIND_PASSWORD)
            .await
            .unwrap();
        let etcd = Etcd::start_with_flags(&group, flags).await.unwrap();
        let password = group.directory().join("storage-password");
        fs::write(&password, format!("{ROOT_PASSWORD}\n")).unwrap();
        let args = StorageArgs {
            endpoints: etcd.endpoints(),
            ca: None,
            user: "root".to_owned(),
            password: Some(password),
        };
        let store = Store::new(args.clone(), SITE, StorageMetrics::default());
        Self {
            group,
            directory,
            etcd,
            store: store.unwrap(),
            storage: args,
        }
    }

    /// The storage as an agent finds it that was started again.
    pub(crate) fn restarted(&self) -> Store {
        self.store_of(SITE)
    }

    /// The storage as the agent of another site has it.
    pub(crate) fn store_of(&self, site: &str) -> Store {
        Store::new(self.storage.clone(), site, StorageMetrics::default()).unwrap()
    }

    /// A connector to the directory.
    pub(crate) fn ldap(&self) -> Value {
        json!({"id": "ldap", "name": "Directory $HOME <b>\"", "ldap": {
            "host": self.directory.address(),
            "rootCA": {"name": "ldap", "key": "ca.crt"},
            "bindDN": BIND_DN, "bindPassword": {"name": "ldap", "key": "password"},
            "userSearch": {"baseDN": format!("ou=people,{SUFFIX}"), "filter": "(objectClass=person)",
                "username": "uid", "idAttr": "uid", "emailAttr": "mail", "nameAttr": "cn"},
            "groupSearch": {"baseDN": format!("ou=groups,{SUFFIX}"), "filter": "(objectClass=groupOfNames)"},
        }})
    }

    /// The values of the Secrets that connectors and clients name.
    fn values(&self) -> BTreeMap<(&'static str, &'static str), String> {
        [
            (("ldap", "ca.crt"), self.directory.authority().unwrap()),
            (("ldap", "password"), BIND_PASSWORD.to_owned()),
            (("console", "secret"), "s$HOME\"\\'".to_owned()),
        ]
        .into()
    }

    /// What is rendered for a cluster whose provider has these fields.
    pub(crate) async fn provider(&self, name: &str, fields: Value) -> Provider {
        let port = port::reserve().unwrap();
        let mut entry = json!({"image": "dex:2", "nodeInterfaceId": "oam", "nodePort": port, "clusterIP": "127.0.0.1",
            "connectors": [self.ldap()]});
        entry
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let cluster = json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": {"namespace": "tenants", "name": name, "uid": format!("uid-{name}")},
            "spec": {"services": {"auth": [entry]}},
        });
        let cluster: SIPCluster = serde_json::from_value(cluster).unwrap();
        let cluster = Cluster::parse(&cluster).unwrap();
        let entry = &cluster.auth()[0];
        let named = self.values();
        let keys = entry.provider().secret_keys().into_iter();
        let values: BTreeMap<SecretKey, Vec<u8>> = keys
            .map(|key| (key.clone(), named[&(key.name(), key.key())].clone().into_bytes()))
            .collect();
        let secrets = Secrets::read(entry.provider(), &values).unwrap();
        let mut names = Names::default();
        names.add("127.0.0.1");
        let (_, certificate) =
            certificates::renew(CertificateSet::default(), None, &names, SystemTime::now()).unwrap();
        let object = entry.service().object_name().as_str();
        let storage = self
            .store
            .ensure_part(cluster.uid(), object, &format!("password-of-{name}"))
            .await
            .unwrap();
        let issuer = HttpsUrl::from_parts("127.0.0.1", port, "/dex").unwrap();
        let rendered = dex::objects(&Plan {
            site: SITE,
            cluster: &cluster,
            entry,
            issuer: Some(&issuer),
            secrets: &secrets,
            storage: &storage,
            certificate: &certificate,
        });
        let pod = rendered.deployment.spec.template.spec.unwrap();
        let probes = [
            &pod.containers[0].liveness_probe,
            &pod.containers[0].readiness_probe,
        ];
        let probed = probes.map(|probe| probe.clone().unwrap().http_get.unwrap().path.unwrap());
        let environment = pod.containers[0].env.iter().flatten();
        let environment =
            environment.map(|variable| (variable.name.clone(), variable.value.clone().unwrap()));
        let data = rendered.secret.data.unwrap();
        let connectors = entry.provider().connectors().iter();
        let binds = connectors.filter_map(|connector| match connector.source() {
            Source::Ldap(ldap) => Some(Bind::new(ldap, &secrets)),
            _ => None,
        });
        Provider {
            tls: https::tls_config(&certificate.bundle).unwrap(),
            files: data
                .into_iter()
                .map(|(file, content)| (file, content.0))
                .collect(),
            environment: environment.collect(),
            probed,
            target: Target {
                provider: Some(checks::Provider {
                    part: StoragePart {
                        uid: cluster.uid().to_owned(),
                        name: object.to_owned(),
                    },
                    issuer: issuer.clone(),
                    at: None,
                    bundle: certificate.bundle.clone(),
                    binds: binds.collect(),
                }),
                tenant: None,
            },
            issuer,
            storage,
            certificate,
        }
    }

    /// Starts a provider, and waits until it answers.
    pub(crate) async fn run(&self, name: &str, provider: &Provider) -> Dex {
        let dex = Dex::start(
            &self.group,
            name,
            provider.issuer.port(),
            &provider.files,
            &provider.environment,
        );
        let mut dex = dex.unwrap();
        provider.answers(&mut dex).await;
        dex
    }
}

impl Provider {
    /// As people and programs reach it.
    pub(crate) fn person(&self) -> login::Provider {
        login::Provider::new(self.issuer.as_str(), &self.certificate.bundle).unwrap()
    }

    /// Waits until Dex answers as its issuer.
    pub(crate) async fn answers(&self, dex: &mut Dex) {
        let answered = async {
            let mut pace = time::interval(Duration::from_millis(50));
            loop {
                pace.tick().await;
                dex.process.check().unwrap();
                if discovery::check(&self.issuer, &self.tls, None, &on_loopback())
                    .await
                    .is_ok()
                {
                    return;
                }
            }
        };
        let answered = time::timeout(PATIENCE, answered).await;
        assert!(answered.is_ok(), "{}", dex.process.log_tail(30));
    }
}

/// Everything of a test is on loopback.
pub(crate) fn on_loopback() -> Arc<Destinations> {
    let loopback = ["127.0.0.0/8".parse().unwrap()];
    Destinations::new(Resolver::from_system().unwrap(), Some(&loopback), []).into()
}

/// Nobody reads former kubeconfigs in these tests.
pub(crate) fn no_secrets() -> stored::SecretReader {
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(nowhere).unwrap();
    stored::SecretReader::new(client, OfNamespaces::new(1).into())
}

/// A client of etcd with a provider's own name and password.
pub(crate) async fn storage_client(storage: &Storage) -> Client {
    let options = ConnectOptions::new().with_user(&storage.user, &storage.password);
    Client::connect(&storage.endpoints, Some(options)).await.unwrap()
}

/// A client of etcd as its administrator, once it requires passwords.
pub(crate) async fn root_client(stage: &Stage) -> Client {
    let options = ConnectOptions::new().with_user("root", ROOT_PASSWORD);
    Client::connect(&stage.etcd.endpoints(), Some(options))
        .await
        .unwrap()
}
