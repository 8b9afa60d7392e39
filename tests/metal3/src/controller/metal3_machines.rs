//! `Metal3Machine`s: each searches a host until it has one, and lets it go before it goes; and the hosts themselves.

use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Controller,
    objects::{Kind, controller},
};
use crate::{
    metal3_machine::Metal3Machine,
    names::{CLONED_FROM, HOST, METAL3_MACHINE_FINALIZER},
    provider::{Claim, Release, found},
    provisioning,
};

/// On a Machine: the `MachineDeployment` that it is one of.
const DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";

impl Controller {
    pub(super) async fn reconcile_metal3_machines(&mut self) -> kube::Result<()> {
        let all = self.objects.all(Kind::Metal3Machine).await?;
        self.searches
            .retain(|name, _| all.iter().any(|object| object.name_any() == *name));
        for object in all {
            let Some(machine) = self.read(&object).await? else {
                continue;
            };
            if object.metadata.deletion_timestamp.is_some() {
                let released = self.provider.release(&machine).await?;
                if !matches!(released, Release::Waits(_)) {
                    let kind = Kind::Metal3Machine;
                    self.objects
                        .remove_finalizer(kind, &object, METAL3_MACHINE_FINALIZER)
                        .await?;
                }
            } else {
                self.associate(&object, &machine).await?;
            }
        }
        Ok(())
    }

    /// With its Machine and template; `None` while no Machine owns it.
    async fn read(&self, object: &DynamicObject) -> kube::Result<Option<Metal3Machine>> {
        let Some(machine) = controller(object, "Machine") else {
            return Ok(None);
        };
        let Some(machine) = self.objects.get(Kind::Machine, machine).await? else {
            return Ok(None);
        };
        let template = match object.annotations().get(CLONED_FROM) {
            Some(template) => self.objects.get(Kind::Template, template).await?,
            None => None,
        };
        let owner = machine.labels().get(DEPLOYMENT).map(String::as_str);
        let owner = owner
            .or_else(|| controller(&machine, "MachineSet"))
            .or_else(|| controller(&machine, "KubeadmControlPlane"));
        Ok(Some(Metal3Machine::read(
            object,
            &machine,
            template.as_ref(),
            owner.unwrap_or_default(),
        )))
    }

    /// One that had a host does not search another one, though that may be gone.
    async fn associate(&mut self, object: &DynamicObject, machine: &Metal3Machine) -> kube::Result<()> {
        if let Some(host) = object.annotations().get(HOST) {
            let host = host.rsplit('/').next().unwrap_or_default();
            let host = self.objects.hosts().get_opt(host).await?;
            let is_ready = host.as_ref().is_some_and(|host| {
                !self.settings.operates_hosts || host.data["status"]["provisioning"]["state"] == "provisioned"
            });
            if is_ready {
                self.objects
                    .status(Kind::Metal3Machine, object, &json!({"ready": true}))
                    .await?;
            }
            return Ok(());
        }
        let now = Instant::now();
        if self.searches.get(&machine.name).is_some_and(|next| *next > now) {
            return Ok(());
        }
        match self.provider.associate(machine).await? {
            Claim::Has(host) => {
                let name = format!("{}/{host}", machine.namespace);
                let patch = json!({"metadata": {"annotations": {HOST: name}}});
                self.objects.patch(Kind::Metal3Machine, object, &patch).await
            }
            Claim::NoHost | Claim::Refused { .. } => {
                let next = now + self.provider.pauses().search;
                self.searches.insert(machine.name.clone(), next);
                Ok(())
            }
        }
    }

    /// Plays the baremetal-operator: each host goes one state further, as its image says.
    pub(super) async fn operate_hosts(&mut self) -> kube::Result<()> {
        let hosts = self.objects.hosts();
        for host in hosts.list(&ListParams::default()).await?.items {
            let state = host
                .data
                .pointer("/status/provisioning/state")
                .and_then(Value::as_str);
            let has_image = !host.data["spec"]["image"].is_null();
            if let Some(next) = provisioning::next(state.unwrap_or_default(), has_image) {
                let patch = json!({"status": {"provisioning": {"state": next}, "poweredOn": host.data["spec"]["online"]}});
                let params = PatchParams::default();
                found(
                    hosts
                        .patch_status(&host.name_any(), &params, &Patch::Merge(patch))
                        .await,
                )?;
            }
        }
        Ok(())
    }
}
