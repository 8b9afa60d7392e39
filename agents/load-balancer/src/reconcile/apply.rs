//! A load balancer's objects onto the API server, and how far its pods are.

use api::SIPCluster;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kit::apply;
use kube::Client;
use render::load_balancer::Objects;

use super::{
    Error, MANAGER,
    balancers::{Balancer, Rendered},
    children::Children,
    conflict, ownership, remove,
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
        /// What its pods lack; `None` when all are there.
        lacks: Option<String>,
        /// Members without an address in its network.
        without_address: Vec<String>,
    },
    /// The API server refuses what the spec asks for. Nothing else of it was applied.
    Refused {
        /// Reason for the condition.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// Applies one load balancer: the Service first, since it is what can be refused, the Secret before the Deployment that
/// mounts it, and what guards the pods last: a budget without pods would be in the way of nobody.
pub(super) async fn apply(
    client: &Client,
    children: &Children,
    object: &SIPCluster,
    balancer: Balancer<'_>,
    rendered: Rendered,
) -> Result<Applied, Error> {
    let Rendered {
        objects,
        without_address,
    } = rendered;
    let Objects {
        secret,
        deployment,
        service,
        budget,
        policy,
        config: _,
    } = &objects;
    let name = balancer.name().to_owned();
    let address = balancer.entry().cluster_ip().map(|address| address.to_string());
    if let Some((service, deployment)) = children.unchanged(&objects) {
        let (service, lacks) = (Box::new(service), lacks(&deployment));
        return Ok(Applied::Done {
            name,
            service,
            address,
            lacks,
            without_address,
        });
    }
    if let Some(message) = ownership::claimed_by_another(client, object, &name).await? {
        return Ok(Applied::Refused {
            reason: "NameConflict",
            message,
        });
    }
    let applied: Service = match apply::apply(client, MANAGER, service).await {
        Ok(service) => service,
        Err(error) if apply::code(&error) == Some(422) => {
            let words = apply::reason(&error);
            let (reason, message) = conflict::explain(client, service, words).await?;
            return Ok(Applied::Refused { reason, message });
        }
        Err(error) => return Err(Error::kubernetes("apply the Service")(error)),
    };
    apply::apply::<Secret>(client, MANAGER, secret)
        .await
        .map_err(Error::kubernetes("apply the Secret"))?;
    let deployment = match apply::apply::<Deployment>(client, MANAGER, deployment).await {
        Ok(deployment) => deployment,
        Err(error) if apply::code(&error) == Some(422) => {
            return Ok(Applied::Refused {
                reason: "Refused",
                message: format!("{name}: {}", apply::reason(&error)),
            });
        }
        Err(error) => return Err(Error::kubernetes("apply the Deployment")(error)),
    };
    apply::apply::<NetworkPolicy>(client, MANAGER, policy)
        .await
        .map_err(Error::kubernetes("apply the NetworkPolicy"))?;
    match budget {
        Some(budget) => apply::apply::<PodDisruptionBudget>(client, MANAGER, budget)
            .await
            .map(drop)
            .map_err(Error::kubernetes("apply the PodDisruptionBudget"))?,
        None => remove::budget(client, object, &name).await?,
    }
    children.applied(&objects, &applied, &deployment);
    Ok(Applied::Done {
        name,
        service: Box::new(applied),
        address,
        lacks: lacks(&deployment),
        without_address,
    })
}

/// What a Deployment lacks: the controller must have seen this generation, and every pod must be of it and available.
fn lacks(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let seen = status.observed_generation >= deployment.metadata.generation;
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
    Some(format!(
        "{available} of {wanted} pods are up to date and available"
    ))
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
    }
}
