//! Templates of the site's people: by which one a load balancer is rendered, and what is wrong with the one it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use api::{
    Cluster, SIPCluster, annotations,
    conditions::{
        load_balancer::{BAD_TEMPLATE, REFUSED},
        ready::PROGRESSING,
    },
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kit::{apply, placement};
use kube::{Api, Client, ResourceExt as _, runtime::reflector::Store};
use render::load_balancer::{Member, Objects, Plan, template::Template};

use super::{
    Context, Error,
    apply::Lack,
    balancers::{Balancer, Rendered},
    check::{self, Outcome},
    kept::Kept,
};

/// A `ConfigMap` and its key, by SIP's names.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Name of the `ConfigMap`.
    pub name: &'static str,
    key: &'static str,
}

/// Where the template for API servers is.
pub const CONTROL_PLANE: Place = Place {
    name: "loadbalancercontrolplane",
    key: "loadBalancerControlPlane.cfg",
};
/// Where the template for workers is.
pub const WORKER: Place = Place {
    name: "loadbalancerworker",
    key: "loadBalancerWorker.cfg",
};

/// Namespace and name of a load balancer.
type Key = (String, String);

/// What is written, and what is known of it.
#[derive(Debug)]
pub struct Templates {
    control_plane: Store<ConfigMap>,
    worker: Store<ConfigMap>,
    deployments: Store<Deployment>,
    kept: Kept,
    known: Mutex<BTreeMap<Key, Known>>,
}

/// What is known for one load balancer.
#[derive(Clone, Debug, Default)]
struct Known {
    accepted: Option<Accepted>,
    /// The check that was lost last, and the words for it.
    refused: Option<(String, String)>,
}

/// A template, and the image whose haproxy has accepted it.
#[derive(Clone, Debug)]
struct Accepted {
    template: Template,
    image: String,
}

impl Templates {
    /// Over watches of both `ConfigMap`s and of the Deployments of load balancers. `namespace` is the agents' own.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        (control_plane, worker): (Store<ConfigMap>, Store<ConfigMap>),
        deployments: Store<Deployment>,
    ) -> Self {
        Self {
            control_plane,
            worker,
            deployments,
            kept: Kept::new(client, namespace),
            known: Mutex::default(),
        }
    }

    /// The load balancer is gone, or is not rendered by a template any more.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn remember(&self, key: Key, now: Known) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, now);
    }

    /// The `ConfigMap` with the template for a load balancer, if there is one.
    fn written(&self, balancer: Balancer<'_>) -> Option<Written> {
        let (place, store) = match balancer {
            Balancer::ControlPlane(_) => (CONTROL_PLANE, &self.control_plane),
            Balancer::Worker(_) => (WORKER, &self.worker),
        };
        let found = store
            .state()
            .into_iter()
            .find(|map| map.name_any() == place.name)?;
        let text = found.data.as_ref().and_then(|data| data.get(place.key)).cloned();
        Some(Written {
            what: format!(
                "ConfigMap {}/{}, key {}",
                self.kept.namespace(),
                place.name,
                place.key
            ),
            text,
        })
    }

    /// What is known for a load balancer. After a restart its Deployment says by which template it was rendered.
    async fn known(&self, client: &Client, (namespace, name): &Key) -> Result<Known, Error> {
        let key = (namespace.clone(), name.clone());
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&key).cloned()
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        let found = deployments
            .get_metadata_opt(name)
            .await
            .map_err(Error::kubernetes("read the Deployment"))?;
        let said = |annotation| found.as_ref()?.annotations().get(annotation).cloned();
        let accepted = match said(annotations::TEMPLATE).zip(said(annotations::TEMPLATE_IMAGE)) {
            Some((digest, image)) => {
                let template = self.kept.get(&digest).await?;
                template.map(|template| Accepted { template, image })
            }
            None => None,
        };
        let known = Known {
            accepted,
            refused: None,
        };
        self.remember(key, known.clone());
        Ok(known)
    }

    /// The templates by which a load balancer is rendered, or is about to be.
    fn in_use(&self) -> BTreeSet<String> {
        let deployments = self.deployments.state();
        let said = deployments
            .iter()
            .filter_map(|deployment| deployment.annotations().get(annotations::TEMPLATE).cloned());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = known.values().filter_map(|known| known.accepted.as_ref());
        said.chain(accepted.map(|accepted| accepted.template.digest().to_owned()))
            .collect()
    }

    /// Keeps a template that was accepted; says why it cannot be kept, and so not be used.
    async fn keep(&self, template: &Template) -> Result<Option<Lack>, Error> {
        let keys = match self.kept.put(template).await {
            Ok(keys) => keys,
            Err(error) if apply::code(&error).is_some_and(|code| (400..500).contains(&code)) => {
                let words = format!("it cannot be kept: {}", apply::reason(&error));
                return Ok(Some(Lack::new(REFUSED, words)));
            }
            Err(error) => return Err(Error::kubernetes("keep a template")(error)),
        };
        let used = self.in_use();
        let unused = keys
            .iter()
            .filter(|key| *key != template.digest() && !used.contains(*key));
        self.kept.remove(&unused.cloned().collect::<Vec<_>>()).await?;
        Ok(None)
    }
}

/// What somebody has written.
struct Written {
    /// Where, for people.
    what: String,
    /// `None`: the key is not there.
    text: Option<String>,
}

/// By which template, and what is wrong with the one that it should be.
struct Choice {
    by: Option<Accepted>,
    lack: Option<Lack>,
}

/// The objects of a load balancer: by the template of the site's people if its image accepts that, or else by the last one
/// that it did, or else by the built-in one. Members never wait for a template.
pub(super) async fn render(
    context: &Context,
    object: &SIPCluster,
    cluster: &Cluster,
    balancer: Balancer<'_>,
    members: &BTreeMap<&str, Vec<&placement::Member>>,
) -> Result<Rendered, Error> {
    let plan = balancer.plan(cluster).followed_by(context.sidecar.as_ref());
    let (balanced, without_address) = balancer.members(members);
    let (objects, template) = match context.templates.written(balancer) {
        None => {
            context.templates.forget(cluster.namespace(), balancer.name());
            (plan.objects(&balanced), None)
        }
        Some(written) => {
            let choice = choose(context, object, balancer, (&plan, &balanced), &written).await?;
            rendered(&plan, &balanced, choice, &written.what)
        }
    };
    Ok(Rendered {
        objects,
        without_address,
        balanced: balanced.len(),
        template,
    })
}

async fn choose(
    context: &Context,
    object: &SIPCluster,
    balancer: Balancer<'_>,
    (plan, members): (&Plan<'_>, &[Member]),
    written: &Written,
) -> Result<Choice, Error> {
    let key = (object.namespace().unwrap_or_default(), balancer.name().to_owned());
    let image = balancer.entry().image().as_str();
    let known = context.templates.known(&context.client, &key).await?;
    let bad = |words: &str| Some(Lack::new(BAD_TEMPLATE, words));
    let instead = |lack| Choice {
        by: known.accepted.clone(),
        lack,
    };
    let Some(text) = &written.text else {
        return Ok(instead(bad("the key is not there")));
    };
    let wanted = match Template::parse(text) {
        Ok(wanted) => wanted,
        Err(error) => return Ok(instead(bad(&error.to_string()))),
    };
    let same = |accepted: &&Accepted| accepted.template == wanted;
    if let Some(accepted) = known
        .accepted
        .as_ref()
        .filter(same)
        .filter(|is| is.image == image)
    {
        return Ok(Choice {
            by: Some(accepted.clone()),
            lack: None,
        });
    }
    let check = match plan.check(members, &wanted) {
        Ok(check) => check,
        Err(error) => return Ok(instead(bad(&error.to_string()))),
    };
    // One that another image has accepted, and this one refuses, is a good one no more.
    let but_this = || known.accepted.clone().filter(|accepted| !same(&accepted));
    if let Some((_, words)) = known.refused.as_ref().filter(|(id, _)| *id == check.id) {
        return Ok(Choice {
            by: but_this(),
            lack: bad(words),
        });
    }
    match check::look(context, object, &check).await? {
        Outcome::Open(lack) => Ok(instead(Some(lack))),
        Outcome::Refused(words) => {
            let now = Known {
                accepted: but_this(),
                refused: Some((
                    check.id.clone(),
                    format!("haproxy of {image} refuses it: {words}"),
                )),
            };
            let choice = Choice {
                by: now.accepted.clone(),
                lack: now.refused.as_ref().and_then(|(_, words)| bad(words)),
            };
            context.templates.remember(key, now);
            check::end(&context.client, &check).await?;
            Ok(choice)
        }
        Outcome::Accepted => {
            if let Some(lack) = context.templates.keep(&wanted).await? {
                return Ok(instead(Some(lack)));
            }
            let accepted = Accepted {
                template: wanted,
                image: image.to_owned(),
            };
            let now = Known {
                accepted: Some(accepted.clone()),
                refused: None,
            };
            context.templates.remember(key, now);
            check::end(&context.client, &check).await?;
            Ok(Choice {
                by: Some(accepted),
                lack: None,
            })
        }
    }
}

/// The objects, and what is to be said of the template.
fn rendered(plan: &Plan<'_>, members: &[Member], choice: Choice, what: &str) -> (Objects, Option<Lack>) {
    let Choice { by, mut lack } = choice;
    let made = by.and_then(|Accepted { template, image }| {
        match plan.objects_by(members, &template, &image) {
            Ok(objects) => Some(objects),
            // It was accepted with other members.
            Err(error) => {
                lack.get_or_insert_with(|| Lack::new(BAD_TEMPLATE, error.to_string()));
                None
            }
        }
    });
    let instead = if made.is_some() {
        "the last good template"
    } else {
        "the built-in configuration"
    };
    let said = lack.map(|Lack { reason, message }| {
        let kind = if reason == PROGRESSING {
            "meanwhile"
        } else {
            "in its place"
        };
        Lack::new(reason, format!("{what}: {message}; {kind}: {instead}"))
    });
    (made.unwrap_or_else(|| plan.objects(members)), said)
}
