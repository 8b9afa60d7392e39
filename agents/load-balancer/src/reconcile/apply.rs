//! A load balancer's objects onto the API server, and how far its pods are.

use std::time::{Duration, Instant};

use api::{
    Cluster, SIPCluster,
    conditions::{
        Reason,
        load_balancer::{BAD_TEMPLATE, NAME_CONFLICT, REFUSED},
        ready::PROGRESSING,
    },
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kit::apply;
use kube::{Client, ResourceExt as _};
use render::load_balancer::{Access, Objects};

use super::{
    Context, Error, MANAGER, attachments,
    balancers::{Balancer, Rendered},
    children::Unchanged,
    conflict,
    guards::{self, Versions},
    ownership::{self, Ownership},
    pods, remove,
    running::{self, Follows},
};

/// What has come of one load balancer.
#[derive(Debug)]
pub(super) enum Applied {
    /// Its objects are on the API server.
    Done {
        /// Name of its objects.
        name: String,
        /// The Service as it is now, with the node ports that the API server gave.
        service: Box<Service>,
        /// The address that users reach, where the spec names one.
        address: Option<String>,
        /// What it lacks; `None` when nothing.
        lacks: Option<Lack>,
        /// Members without an address in its network.
        without_address: Vec<String>,
        /// Whether it has members, and none answers.
        unserved: bool,
        /// What is wrong with the template that it should be rendered by.
        template: Option<Lack>,
        /// When its pods are asked again what they run; `None`: every one follows the configuration.
        ask_again: Option<Duration>,
    },
    /// What the spec asks for cannot be had. Nothing of it was applied.
    Refused(Lack),
}

impl Applied {
    /// Whether a template is being checked: nobody tells when that is done.
    pub(super) fn is_checked(&self) -> bool {
        match self {
            Self::Done { template, .. } => template.as_ref().is_some_and(|lack| lack.reason != BAD_TEMPLATE),
            Self::Refused(_) => false,
        }
    }

    /// Whether something of it was refused. Nobody tells when it can be had: the port is free, the network there, the quota
    /// larger.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Done { lacks, .. } => lacks.as_ref().is_some_and(|lack| lack.reason == REFUSED),
            Self::Refused(_) => true,
        }
    }

    /// When its pods are to be asked again.
    pub(super) fn ask_again(&self) -> Option<Duration> {
        match self {
            Self::Done { ask_again, .. } => *ask_again,
            Self::Refused(_) => None,
        }
    }
}

/// Why a load balancer is not as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    /// Reason for the condition.
    pub(super) reason: Reason,
    /// For people.
    pub(super) message: String,
}

impl Lack {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// A load balancer whose Service and configuration are on the API server: its members may be handed over. What runs it is
/// next.
#[derive(Debug)]
pub(super) struct Joined<'a> {
    balancer: Balancer<'a>,
    rendered: Rendered,
    service: Service,
    /// When that was applied.
    at: Instant,
    /// The Deployment, if what runs it has not changed since it was applied.
    deployment: Option<Deployment>,
}

impl Joined<'_> {
    /// Since when what runs it waits to be applied; `None` when nothing of it has changed.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.deployment.is_none().then_some(self.at)
    }

    /// Name of its objects.
    pub(super) fn name(&self) -> &str {
        self.balancer.name()
    }

    /// SHA-256 of the configuration that its pods are to run.
    pub(super) fn config_digest(&self) -> String {
        self.rendered.objects.config_digest()
    }

    /// What has come of it as long as nothing new runs.
    pub(super) fn so_far(&self) -> Applied {
        let deployment = self.deployment.as_ref();
        let lacks = lacks(deployment.unwrap_or(&self.rendered.objects.deployment));
        self.applied(lacks, false, None)
    }

    fn applied(&self, lacks: Option<Lack>, unserved: bool, ask_again: Option<Duration>) -> Applied {
        let address = self.balancer.entry().cluster_ip();
        Applied::Done {
            name: self.balancer.name().to_owned(),
            service: Box::new(self.service.clone()),
            address: address.map(|address| address.to_string()),
            lacks,
            without_address: self.rendered.without_address.clone(),
            unserved,
            template: self.rendered.template.clone(),
            ask_again,
        }
    }
}

/// Applies the Service and the configuration of a load balancer, unless they are as they were: first it is looked whether
/// all of it can be. The Service comes first, since it is what can be refused.
pub(super) async fn join<'a>(
    context: &Context,
    object: &SIPCluster,
    cluster: &Cluster,
    balancer: Balancer<'a>,
    rendered: Rendered,
) -> Result<Result<Joined<'a>, Lack>, Error> {
    if let Some(lack) = attachments::absent(&context.client, cluster, balancer.entry()).await? {
        return Ok(Err(lack));
    }
    let Unchanged { service, at } = match context.children.exposes(&rendered.objects) {
        Some(unchanged) => unchanged,
        None => match expose(context, object, &rendered.objects).await? {
            Ok(service) => service,
            Err(lack) => return Ok(Err(lack)),
        },
    };
    let deployment = context.children.runs(&rendered.objects);
    Ok(Ok(Joined {
        balancer,
        rendered,
        service,
        at,
        deployment,
    }))
}

async fn expose(
    context: &Context,
    object: &SIPCluster,
    objects: &Objects,
) -> Result<Result<Unchanged, Lack>, Error> {
    let Objects {
        secret,
        service,
        deployment: _,
        budget: _,
        policy: _,
        access: _,
        config: _,
    } = objects;
    let client = &context.client;
    let name = service.name_any();
    if let Some(lack) = conflict::foreseen(context, object, service) {
        return Ok(Err(lack));
    }
    let known = context.children.service(objects);
    let applied = match ownership::apply(client, object, service, known.as_deref()).await? {
        Ownership::Ours(applied) => *applied,
        Ownership::Anothers(message) => return Ok(Err(Lack::new(NAME_CONFLICT, message))),
        Ownership::Refused(words) => return Ok(Err(conflict::explain(client, service, &words).await?)),
    };
    match apply::apply::<Secret>(client, MANAGER, secret).await {
        Ok(secret) => {
            let at = Instant::now();
            context.children.exposed(objects, &applied, &secret, at);
            Ok(Ok(Unchanged { service: applied, at }))
        }
        Err(error) => {
            let Lack { reason, message } = refused("apply the Secret", error)?;
            Ok(Err(Lack::new(
                reason,
                format!("{name}: its configuration: {message}"),
            )))
        }
    }
}

/// Applies what runs a load balancer, unless it is as it was, and looks how far its pods are.
pub(super) async fn run(
    context: &Context,
    object: &SIPCluster,
    cluster: &Cluster,
    joined: &Result<Joined<'_>, Lack>,
) -> Result<Applied, Error> {
    let joined = match joined {
        Ok(joined) => joined,
        Err(lack) => return Ok(Applied::Refused(lack.clone())),
    };
    let Joined {
        balancer,
        rendered,
        service: _,
        at,
        deployment,
    } = joined;
    let objects = &rendered.objects;
    let written;
    let deployment = if let Some(deployment) = deployment {
        deployment
    } else {
        let before = context.children.guards(objects);
        let Deployed { deployment, guards } = match deploy(context, object, objects).await? {
            Ok(deployed) => deployed,
            // Service and configuration are there all the same, and stay told.
            Err(lack) => return Ok(joined.applied(Some(lack), false, None)),
        };
        let guards = guards::Applied::new(before, guards, Instant::now());
        context.children.deployed(objects, &deployment, guards);
        written = deployment;
        &written
    };
    let pods = pods::of(&context.pods, objects);
    let lacks = lacks(deployment)
        .map(|lacks| pods::trouble(&pods).unwrap_or(lacks))
        .or_else(|| attachments::not_joined(&pods, cluster, balancer.entry()));
    let unserved = rendered.balanced > 0 && context.unserved.contains(cluster.namespace(), balancer.name());
    let follows = follow(context, objects).await;
    let elapsed = at.elapsed();
    let lacks = lacks.or_else(|| follows.lack(elapsed));
    Ok(joined.applied(lacks, unserved, follows.ask_again(elapsed)))
}

/// Whether every pod follows the configuration; once they all do, they are not asked again.
async fn follow(context: &Context, objects: &Objects) -> Follows {
    if context.children.followed(objects) {
        return Follows::All;
    }
    let follows = running::look(&context.pods, objects).await;
    if follows == Follows::All {
        context.children.follows(objects);
    }
    follows
}

/// What runs a load balancer, as the API server has it.
struct Deployed {
    deployment: Deployment,
    guards: Versions,
}

/// Applies the Deployment, whose pods mount the Secret, and what guards its pods.
async fn deploy(
    context: &Context,
    object: &SIPCluster,
    objects: &Objects,
) -> Result<Result<Deployed, Lack>, Error> {
    let Objects {
        deployment,
        budget,
        policy,
        access,
        secret: _,
        service: _,
        config: _,
    } = objects;
    let client = &context.client;
    let name = deployment.name_any();
    if !context.children.has_deployment(objects) {
        let namespace = object.namespace().unwrap_or_default();
        ownership::take_over::<Deployment>(client, &namespace, &name).await?;
    }
    // Pods cannot be made without their account.
    let granted = match access {
        Some(access) => grant(client, access).await.map(Some),
        None => Ok(None),
    };
    let access = match granted {
        Ok(access) => access,
        Err(error) => return refused("apply what the pods may read", error).map(Err),
    };
    let (deployment, policy, budget) = tokio::join!(
        apply::apply::<Deployment>(client, MANAGER, deployment),
        apply::apply::<NetworkPolicy>(client, MANAGER, policy),
        self::budget(client, object, &name, budget.as_ref()),
    );
    let budget = budget?;
    let policy = match policy {
        Ok(policy) => policy,
        Err(error) => return refused("apply the NetworkPolicy", error).map(Err),
    };
    match deployment {
        Ok(deployment) => Ok(Ok(Deployed {
            deployment,
            guards: Versions::of(budget.as_ref(), &policy, access.as_ref()),
        })),
        Err(error) => refused("apply the Deployment", error).map(Err),
    }
}

/// What the sidecar needs to read the Secret.
async fn grant(client: &Client, access: &Access) -> kube::Result<Access> {
    let Access {
        account,
        role,
        binding,
    } = access;
    let (account, role) = tokio::join!(
        apply::apply::<ServiceAccount>(client, MANAGER, account),
        apply::apply::<Role>(client, MANAGER, role),
    );
    let (account, role) = (account?, role?);
    // A binding is only taken when the API server finds its Role, to see that we have as many rights.
    let binding = apply::apply::<RoleBinding>(client, MANAGER, binding).await?;
    Ok(Access {
        account,
        role,
        binding,
    })
}

/// What the API server refuses is for the condition; what else went wrong is tried again.
fn refused(action: &'static str, error: kube::Error) -> Result<Lack, Error> {
    if apply::is_refusal(&error) {
        Ok(Lack::new(REFUSED, apply::reason(&error)))
    } else {
        Err(Error::kubernetes(action)(error))
    }
}

async fn budget(
    client: &Client,
    object: &SIPCluster,
    name: &str,
    budget: Option<&PodDisruptionBudget>,
) -> Result<Option<PodDisruptionBudget>, Error> {
    match budget {
        Some(budget) => apply::apply(client, MANAGER, budget)
            .await
            .map(Some)
            .map_err(Error::kubernetes("apply the PodDisruptionBudget")),
        None => remove::budget(client, object, name).await.map(|()| None),
    }
}

/// What a Deployment lacks: the controller must have seen this generation, and every pod must be of it and available.
fn lacks(deployment: &Deployment) -> Option<Lack> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let seen =
        status.observed_generation.is_some() && status.observed_generation >= deployment.metadata.generation;
    let updated = if seen {
        status.updated_replicas.unwrap_or(0)
    } else {
        0
    };
    let available = status.available_replicas.unwrap_or(0).min(updated);
    let surplus = status.replicas.unwrap_or(0) > wanted;
    if seen && available >= wanted && !surplus {
        return None;
    }
    let message = format!("{available} of {wanted} pods are up to date and available");
    Some(Lack::new(PROGRESSING, message))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DeploymentSpec, DeploymentStatus};
    use kube::core::ObjectMeta;

    use super::*;

    fn deployment(generation: i64, observed: i64, updated: i32, available: i32, total: i32) -> Deployment {
        Deployment {
            metadata: ObjectMeta {
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            spec: DeploymentSpec {
                replicas: Some(2),
                ..DeploymentSpec::default()
            },
            status: Some(DeploymentStatus {
                observed_generation: Some(observed),
                replicas: Some(total),
                updated_replicas: Some(updated),
                available_replicas: Some(available),
                ..DeploymentStatus::default()
            }),
        }
    }

    #[test]
    fn a_deployment_lacks_nothing_only_when_every_pod_is_of_this_generation_and_available() {
        for (name, deployment, complete) in [
            ("done", deployment(2, 2, 2, 2, 2), true),
            ("the controller has not seen it", deployment(2, 1, 2, 2, 2), false),
            ("an old pod is still there", deployment(2, 2, 2, 3, 3), false),
            ("a new pod is not available", deployment(2, 2, 2, 1, 2), false),
            ("only old pods are available", deployment(2, 2, 0, 2, 2), false),
        ] {
            assert_eq!(lacks(&deployment).is_none(), complete, "{name}");
        }
        let mut rendered = deployment(2, 2, 0, 0, 0);
        rendered.spec.replicas = Some(0);
        assert_eq!(lacks(&rendered), None, "no pod is wanted");
        (rendered.metadata.generation, rendered.status) = (None, None);
        assert!(lacks(&rendered).is_some(), "it is not applied yet");
    }
}
