//! Bringing a site up.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use super::{
    Error, Nodes, PATIENCE, Site,
    access::api_error,
    control_plane::{Addresses, ControlPlane},
    store::Store,
};
use crate::{
    node::{Image, Machine, NODE_NAME, Node},
    process::Group,
    wait,
};

/// A port that was free when it was chosen can be taken by the time it is used, by a program that chose it itself.
const ATTEMPTS: u32 = 3;

/// What programs say when a port is taken.
const PORT_TAKEN: &str = "address already in use";

/// What a site is to have.
#[derive(Clone)]
pub struct Builder {
    name: String,
    nodes: Nodes,
    images: Vec<Image>,
    crds: Vec<PathBuf>,
    namespaces: Vec<String>,
    tenants: Vec<String>,
    api_server_flags: Vec<String>,
    hosts: Option<PathBuf>,
    store: Option<Arc<Store>>,
    say: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("name", &self.name)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes: Nodes::None,
            images: Vec::new(),
            crds: Vec::new(),
            namespaces: Vec::new(),
            tenants: Vec::new(),
            api_server_flags: Vec::new(),
            hosts: None,
            store: None,
            say: Arc::new(|_| {}),
        }
    }

    /// Who runs the site's pods; nobody if this is not called.
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = nodes;
        self
    }

    /// Whether its pods really run.
    #[must_use]
    pub fn has_real_node(&self) -> bool {
        self.nodes == Nodes::Real
    }

    /// An image that pods of a real node may ask for. Fake nodes need none.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Custom resource definitions to apply; the site has started when they are served.
    #[must_use]
    pub fn crds(mut self, files: impl IntoIterator<Item = PathBuf>) -> Self {
        self.crds.extend(files);
        self
    }

    /// A namespace to make.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespaces.push(name.to_owned());
        self
    }

    /// A namespace to make in which the agents have their rights.
    #[must_use]
    pub fn tenant_namespace(mut self, name: &str) -> Self {
        self.tenants.push(name.to_owned());
        self
    }

    /// Whose tokens the API server takes besides its own: a file with an `AuthenticationConfiguration`.
    #[must_use]
    pub fn authentication(self, file: &Path) -> Self {
        self.api_server_flag(format!("--authentication-config={}", file.display()))
    }

    /// A flag of the API server.
    #[must_use]
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// The file that is `/etc/hosts` for the API server, such as one with the name of an identity provider. Only for root.
    #[must_use]
    pub fn hosts(mut self, file: &Path) -> Self {
        self.hosts = Some(file.to_owned());
        self
    }

    /// Starts with the objects of another site. A site with a real node has other addresses for Services, so it cannot.
    #[must_use]
    pub fn stored(mut self, store: Arc<Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Is told of every step, in words for people.
    #[must_use]
    pub fn on_progress(mut self, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.say = Arc::new(say);
        self
    }

    /// Brings the site up: about four seconds, of which the API server needs three; a real node one or two more.
    ///
    /// # Errors
    /// When a tool is missing, or a process does not become ready: with the end of its log.
    pub async fn start(self) -> Result<Site, Error> {
        let mut attempt = 1;
        loop {
            match Box::pin(self.start_once()).await {
                Err(error) if attempt < ATTEMPTS && error.to_string().contains(PORT_TAKEN) => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn start_once(&self) -> Result<Site, Error> {
        let group = Group::new(&self.name)?;
        if let Some(store) = &self.store {
            store.copy_to(group.directory())?;
        }
        let say = self.say.as_ref();
        let machine = match self.nodes {
            Nodes::Real => {
                say("containerd starts in namespaces of its own");
                Some(Machine::start(&group).await?)
            }
            Nodes::None | Nodes::Kwok(_) => None,
        };
        let addresses = machine
            .as_ref()
            .map_or(Addresses::LOOPBACK, |machine| Addresses::beside(machine.block()));
        // The images are there by the time that the API server is.
        let ((mut control_plane, access), machine) = tokio::try_join!(
            ControlPlane::start(
                &group,
                addresses,
                self.nodes.any(),
                (&self.api_server_flags, self.hosts.as_deref()),
                say
            ),
            self.stock(machine),
        )?;
        control_plane.kwok = self.nodes.start_fake(&group, &access, say).await?;
        let node = match machine {
            Some(machine) => {
                say("kubelet and kube-proxy start");
                let membership = access.membership(NODE_NAME, machine.address())?;
                Some(Box::new(Node::join(machine, &group, membership).await?))
            }
            None => None,
        };
        let site = Site {
            node,
            control_plane,
            access,
            name: self.name.clone(),
            group,
        };
        self.prepare(&site).await?;
        Ok(site)
    }

    async fn stock(&self, machine: Option<Machine>) -> Result<Option<Machine>, Error> {
        let Some(mut machine) = machine else {
            return Ok(None);
        };
        machine.stock(&self.images).await?;
        Ok(Some(machine))
    }

    async fn prepare(&self, site: &Site) -> Result<(), Error> {
        for file in &self.crds {
            (self.say)(&format!(
                "applying {}",
                file.file_name().unwrap_or_default().to_string_lossy()
            ));
            // Large definitions do not fit into the annotation of a client-side apply.
            site.kubectl_ok(&[
                "apply",
                "--server-side",
                "--filename",
                &file.display().to_string(),
            ])
            .await?;
        }
        if !self.crds.is_empty() {
            site.crds_are_served(PATIENCE).await?;
        }
        for name in &self.namespaces {
            site.create_namespace(name).await?;
        }
        for name in &self.tenants {
            site.create_tenant_namespace(name).await?;
        }
        Ok(())
    }
}

impl Site {
    /// Makes a namespace; one that exists is fine.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_namespace(&self, name: &str) -> Result<(), Error> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(self.client());
        match api.create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(api_error(format!("create the namespace {name}"))(error)),
        }
    }

    /// Waits until every custom resource definition is served.
    ///
    /// # Errors
    /// When one is not served in time.
    pub async fn crds_are_served(&self, deadline: Duration) -> Result<(), Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        let served = |crds: &[&CustomResourceDefinition]| {
            crds.iter().all(|crd| {
                crd.status
                    .as_ref()
                    .and_then(|status| status.conditions.as_ref())
                    .is_some_and(|conditions| {
                        conditions
                            .iter()
                            .any(|one| one.type_ == "Established" && one.status == "True")
                    })
            })
        };
        let config = kube::runtime::watcher::Config::default();
        wait::until_all(
            api,
            config,
            "custom resource definitions to be served",
            deadline,
            served,
        )
        .await?;
        Ok(())
    }
}
