//! Namespaces of tenants: those in which the agents have rights.

use std::{fs, path::Path};

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};

use super::{Error, Site, access::api_error};
use crate::repository;

impl Site {
    /// Makes a namespace in which the agents have their rights, as `deploy/tenant-namespace` gives them; one that exists is fine.
    ///
    /// # Errors
    /// When a manifest cannot be read, or the API server refuses it.
    pub async fn create_tenant_namespace(&self, name: &str) -> Result<(), Error> {
        self.create_namespace(name).await?;
        self.grant_agents(name).await
    }

    /// Gives the agents their rights in a namespace that exists.
    ///
    /// # Errors
    /// When a manifest cannot be read, or the API server refuses it.
    pub async fn grant_agents(&self, namespace: &str) -> Result<(), Error> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        for binding in role_bindings(&repository::deploy().join("tenant-namespace"))? {
            let name = binding.name_any();
            bindings
                .patch(&name, &PatchParams::apply("sandbox"), &Patch::Apply(&binding))
                .await
                .map_err(api_error(format!("apply the RoleBinding {namespace}/{name}")))?;
        }
        Ok(())
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

/// Those of a component: every file but the kustomization holds one.
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
