//! Templates of the site's operators: which one a load balancer uses, and what is wrong with the newest one.

use std::collections::BTreeSet;

use api::{
    SIPCluster, annotations,
    conditions::load_balancer::{BAD_TEMPLATE, REFUSED},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kit::{
    apply,
    service::{Error, Problem, Scope, Stores, Watches},
};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{reflector::Store, watcher},
};
use render::load_balancer::{Check, Sidecar, template::Template};

use crate::{
    balancers::Balancer,
    known_templates::{AcceptedTemplate, KnownTemplates, TemplateRecord},
    preference::Preference,
    template_check::{self, Outcome},
    template_store::TemplateStore,
};

/// A `ConfigMap` and its key, by SIP's names.
#[derive(Clone, Copy, Debug)]
struct TemplateKey {
    /// Name of the `ConfigMap`.
    name: &'static str,
    key: &'static str,
}

/// Where the template for API servers is.
const CONTROL_PLANE_TEMPLATE: TemplateKey = TemplateKey {
    name: "loadbalancercontrolplane",
    key: "loadBalancerControlPlane.cfg",
};
/// Where the template for workers is.
const WORKER_TEMPLATE: TemplateKey = TemplateKey {
    name: "loadbalancerworker",
    key: "loadBalancerWorker.cfg",
};

/// The templates of the operators, and what is known of them.
pub(crate) struct Templates {
    client: Client,
    control_plane: Store<ConfigMap>,
    worker: Store<ConfigMap>,
    stores: Stores,
    store: TemplateStore,
    known: KnownTemplates,
}

impl Templates {
    /// With watches of both `ConfigMap`s; a template concerns every cluster.
    pub(crate) fn new(watches: &mut Watches) -> Self {
        let client = watches.client().clone();
        let store = TemplateStore::new(client.clone(), watches.namespace());
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), watches.namespace());
        let mut watch = |place: TemplateKey| {
            let by_name = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
            watches.read_for_all(maps.clone(), by_name)
        };
        let (control_plane, worker) = (watch(CONTROL_PLANE_TEMPLATE), watch(WORKER_TEMPLATE));
        Self {
            client,
            control_plane,
            worker,
            stores: watches.stores().clone(),
            store,
            known: KnownTemplates::default(),
        }
    }

    /// Forgets the load balancers of a cluster that have none of these names.
    pub(crate) fn retain(&self, cluster: &SIPCluster, names: &[&str]) {
        self.known.retain(cluster, names);
    }

    fn remember(&self, (cluster, name): (&SIPCluster, &str), now: TemplateRecord) {
        self.known.remember(&self.stores.clusters, cluster, name, now);
    }

    /// The `ConfigMap` with the template for a load balancer, if there is one.
    fn find_written(&self, balancer: &Balancer) -> Option<WrittenTemplate> {
        let (place, store) = match balancer {
            Balancer::ControlPlane(_) => (CONTROL_PLANE_TEMPLATE, &self.control_plane),
            Balancer::Worker(_) => (WORKER_TEMPLATE, &self.worker),
        };
        let found = store
            .state()
            .into_iter()
            .find(|map| map.name_any() == place.name)?;
        let text = found.data.as_ref().and_then(|data| data.get(place.key)).cloned();
        Some(WrittenTemplate {
            source: format!(
                "ConfigMap {}/{}, key {}",
                self.store.namespace(),
                place.name,
                place.key
            ),
            text,
        })
    }

    /// What is known for a load balancer. After a restart, its Deployment states the template that it was rendered from.
    async fn lookup(&self, (cluster, name): (&SIPCluster, &str)) -> Result<TemplateRecord, Error> {
        if let Some(known) = self.known.get(cluster, name) {
            return Ok(known);
        }
        let namespace = cluster.namespace().unwrap_or_default();
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &namespace);
        let found = deployments
            .get_metadata_opt(name)
            .await
            .map_err(Error::kubernetes("read the Deployment"))?;
        let annotation = |annotation| found.as_ref()?.annotations().get(annotation).cloned();
        let accepted = match annotation(annotations::TEMPLATE).zip(annotation(annotations::TEMPLATE_IMAGE)) {
            Some((digest, image)) => {
                let template = self.store.get(&digest).await?;
                template.map(|template| AcceptedTemplate { template, image })
            }
            None => None,
        };
        let known = TemplateRecord {
            accepted,
            refused: None,
        };
        self.remember((cluster, name), known.clone());
        Ok(known)
    }

    /// The templates by which a load balancer is rendered, or is about to be.
    fn in_use(&self) -> BTreeSet<String> {
        let deployments = self.stores.deployments.state();
        let annotated = deployments
            .iter()
            .filter_map(|deployment| deployment.annotations().get(annotations::TEMPLATE).cloned());
        annotated.chain(self.known.accepted()).collect()
    }

    /// Stores an accepted template; returns why it cannot be stored, and so not be used.
    async fn store_accepted(&self, template: &Template) -> Result<Option<Problem>, Error> {
        let keys = match self.store.put(template).await {
            Ok(keys) => keys,
            Err(error) if apply::code(&error).is_some_and(|code| (400..500).contains(&code)) => {
                let message = format!("the template cannot be stored: {}", apply::reason(&error));
                return Ok(Some(Problem::new(REFUSED, message)));
            }
            Err(error) => return Err(Error::kubernetes("store a template")(error)),
        };
        // A Deployment in a namespace without a complete list may use any of them.
        if !self.stores.has_every_tenant() {
            return Ok(None);
        }
        let used = self.in_use();
        let unused = keys
            .iter()
            .filter(|key| *key != template.digest() && !used.contains(*key));
        self.store.remove(&unused.cloned().collect::<Vec<_>>()).await?;
        Ok(None)
    }

    /// Chooses the template for a load balancer; `None` where the operators have written none. One that its image has not accepted yet
    /// is checked first.
    pub(crate) async fn choose(
        &self,
        scope: Scope<'_>,
        balancer: &Balancer,
        sidecar: Option<&Sidecar>,
    ) -> Result<Option<ChosenTemplate>, Error> {
        let balanced = (scope.observed.object(), balancer.name());
        let Some(WrittenTemplate { source, text }) = self.find_written(balancer) else {
            self.known.forget(balanced.0, balanced.1);
            return Ok(None);
        };
        let known = self.lookup(balanced).await?;
        let instead = |problem| ChosenTemplate {
            accepted: known.accepted.clone(),
            problem: Some(problem),
            source: source.clone(),
        };
        let bad = |message: &str| Problem::new(BAD_TEMPLATE, message);
        let Some(text) = text else {
            return Ok(Some(instead(bad("the key does not exist"))));
        };
        let wanted = match Template::parse(&text) {
            Ok(wanted) => wanted,
            Err(error) => return Ok(Some(instead(bad(&error.to_string())))),
        };
        let image = balancer.entry().image().as_str();
        if let Some(accepted) = &known.accepted
            && accepted.template == wanted
            && accepted.image == image
        {
            return Ok(Some(ChosenTemplate {
                accepted: Some(accepted.clone()),
                problem: None,
                source,
            }));
        }
        let preference = Preference::new(scope.observed.object(), sidecar);
        let (members, _) = balancer.members(scope.members, &preference);
        let check = match balancer.plan(scope.cluster, sidecar).check(&members, &wanted) {
            Ok(check) => check,
            Err(error) => return Ok(Some(instead(bad(&error.to_string())))),
        };
        let wanted = AcceptedTemplate {
            template: wanted,
            image: image.to_owned(),
        };
        let (accepted, problem) = self.choose_by_check(balanced, known, &check, wanted).await?;
        Ok(Some(ChosenTemplate {
            accepted,
            problem,
            source,
        }))
    }

    /// Chooses by the outcome of a check.
    async fn choose_by_check(
        &self,
        balanced: (&SIPCluster, &str),
        known: TemplateRecord,
        check: &Check,
        wanted: AcceptedTemplate,
    ) -> Result<(Option<AcceptedTemplate>, Option<Problem>), Error> {
        let TemplateRecord { accepted, refused } = known;
        // A template that another image has accepted and this one refuses is no longer a fallback.
        let other = accepted
            .clone()
            .filter(|accepted| accepted.template != wanted.template);
        if let Some((_, message)) = refused.filter(|(id, _)| *id == check.id) {
            return Ok((other, Some(Problem::new(BAD_TEMPLATE, message))));
        }
        match template_check::observe(&self.client, &self.stores.pods, check).await? {
            Outcome::Pending(problem) => Ok((accepted, Some(problem))),
            Outcome::Refused(alerts) => {
                let message = format!("haproxy of {} refuses the template: {alerts}", wanted.image);
                let known = TemplateRecord {
                    accepted: other.clone(),
                    refused: Some((check.id.clone(), message.clone())),
                };
                self.remember(balanced, known);
                template_check::delete(&self.client, check).await?;
                Ok((other, Some(Problem::new(BAD_TEMPLATE, message))))
            }
            Outcome::Accepted => {
                if let Some(problem) = self.store_accepted(&wanted.template).await? {
                    return Ok((accepted, Some(problem)));
                }
                let known = TemplateRecord {
                    accepted: Some(wanted.clone()),
                    refused: None,
                };
                self.remember(balanced, known);
                template_check::delete(&self.client, check).await?;
                Ok((Some(wanted), None))
            }
        }
    }
}

/// The template that the operators have written.
struct WrittenTemplate {
    /// Object and key, for messages.
    source: String,
    /// `None`: the key does not exist.
    text: Option<String>,
}

/// By which template a load balancer is rendered, and what is wrong with the written one.
#[derive(Debug)]
pub(crate) struct ChosenTemplate {
    /// `None`: the built-in configuration.
    pub(crate) accepted: Option<AcceptedTemplate>,
    pub(crate) problem: Option<Problem>,
    /// Object and key of the written template, for messages.
    pub(crate) source: String,
}
