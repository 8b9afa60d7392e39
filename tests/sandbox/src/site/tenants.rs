//! Namespaces of tenants: those in which the agents have rights.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::{ClusterRole, PolicyRule, RoleBinding, Subject},
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};

use super::{Error, PATIENCE, Site, access::api_error};
use crate::{repository, wait};

/// Between two questions whether a right is in effect.
const LOOK: Duration = Duration::from_millis(20);

impl Site {
    /// Makes a namespace in which the agents have their rights, as `deploy/tenant-namespace` gives them; one that exists is fine.
    ///
    /// # Errors
    /// When a manifest cannot be read, or the API server refuses it.
    pub async fn create_tenant_namespace(&self, name: &str) -> Result<(), Error> {
        self.create_namespace(name).await?;
        self.grant_agents(name).await
    }

    /// Gives the agents their rights in a namespace that exists, and waits until they are in effect: the API server decides by a
    /// watch of its own, which is a moment behind what it has stored.
    ///
    /// # Errors
    /// When a manifest cannot be read, or the API server refuses it.
    pub async fn grant_agents(&self, namespace: &str) -> Result<(), Error> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let granted = role_bindings(&repository::deploy().join("tenant-namespace"))?;
        for binding in &granted {
            let name = binding.name_any();
            bindings
                .patch(&name, &PatchParams::apply("sandbox"), &Patch::Apply(binding))
                .await
                .map_err(api_error(format!("apply the RoleBinding {namespace}/{name}")))?;
        }
        for binding in &granted {
            self.until_in_effect(namespace, binding).await?;
        }
        Ok(())
    }

    /// Waits until what a binding gives is allowed. The role of an agent that is not installed gives nothing.
    async fn until_in_effect(&self, namespace: &str, binding: &RoleBinding) -> Result<(), Error> {
        let what = format!(
            "the RoleBinding {namespace}/{} to be in effect",
            binding.name_any()
        );
        let failed = || api_error(format!("ask for {what}"));
        let roles: Api<ClusterRole> = Api::all(self.client());
        let role = roles.get_opt(&binding.role_ref.name).await.map_err(failed())?;
        let rules = role.and_then(|role| role.rules).unwrap_or_default();
        // Whatever a binding gives is in effect at once.
        let (Some(rule), Some(subject)) = (rules.first(), binding.subjects.iter().flatten().next()) else {
            return Ok(());
        };
        let review = review(subject, namespace, rule);
        let reviews: Api<SubjectAccessReview> = Api::all(self.client());
        let mut pace = tokio::time::interval(LOOK);
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            pace.tick().await;
            let answer = reviews.create(&PostParams::default(), &review).await;
            if answer
                .map_err(failed())?
                .status
                .is_some_and(|status| status.allowed)
            {
                return Ok(());
            }
        }
        Err(Error::Wait(wait::Error::Late {
            what,
            deadline: PATIENCE,
            last: format!("{:?}", review.spec),
        }))
    }

    /// Takes these rights away again.
    ///
    /// # Errors
    /// When a manifest cannot be read, or the API server refuses it.
    pub async fn revoke_agents(&self, namespace: &str) -> Result<(), Error> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        for binding in role_bindings(&repository::deploy().join("tenant-namespace"))? {
            let name = binding.name_any();
            bindings
                .delete(&name, &kube::api::DeleteParams::default())
                .await
                .map_err(api_error(format!("delete the RoleBinding {namespace}/{name}")))?;
        }
        Ok(())
    }
}

/// Asks whether somebody may do the first thing that a rule allows.
fn review(subject: &Subject, namespace: &str, rule: &PolicyRule) -> SubjectAccessReview {
    let of = subject.namespace.as_deref().unwrap_or_default();
    let first = |all: &Option<Vec<String>>| all.as_ref().and_then(|all| all.first().cloned());
    let resource = first(&rule.resources).unwrap_or_default();
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
        None => (resource, None),
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{of}:{}", subject.name)),
            resource_attributes: Some(ResourceAttributes {
                group: first(&rule.api_groups),
                name: first(&rule.resource_names),
                namespace: Some(namespace.to_owned()),
                resource: Some(resource),
                subresource,
                verb: rule.verbs.first().cloned(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Those of a component: every file but the kustomization and the quota holds one.
fn role_bindings(component: &Path) -> Result<Vec<RoleBinding>, Error> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Manifest { path, source }
    };
    let mut bindings = Vec::new();
    for file in fs::read_dir(component).map_err(unreadable(component))? {
        let path = file.map_err(unreadable(component))?.path();
        if path.ends_with("kustomization.yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        let binding =
            serde_saphyr::from_str(&text).map_err(|error| unreadable(&path)(std::io::Error::other(error)))?;
        bindings.push(binding);
    }
    Ok(bindings)
}
