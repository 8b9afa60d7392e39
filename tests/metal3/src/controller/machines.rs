//! Machines: they run once their `Metal3Machine` is ready, and go once it has gone.

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use super::{Controller, objects::Kind};
use crate::names::MACHINE_FINALIZER;

impl Controller {
    pub(super) async fn reconcile_machines(&mut self) -> kube::Result<()> {
        for machine in self.objects.all(Kind::Machine).await? {
            let infrastructure = machine
                .data
                .pointer("/spec/infrastructureRef/name")
                .and_then(Value::as_str);
            let metal3_machine = match infrastructure {
                Some(name) => self.objects.get(Kind::Metal3Machine, name).await?,
                None => None,
            };
            if machine.metadata.deletion_timestamp.is_some() {
                self.delete_machine(&machine, metal3_machine.as_ref()).await?;
            } else {
                self.run_machine(&machine, metal3_machine.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn delete_machine(
        &self,
        machine: &DynamicObject,
        metal3_machine: Option<&DynamicObject>,
    ) -> kube::Result<()> {
        match metal3_machine {
            Some(metal3_machine) => {
                if metal3_machine.metadata.deletion_timestamp.is_none() {
                    self.objects.delete(Kind::Metal3Machine, metal3_machine).await?;
                }
                self.objects
                    .status(Kind::Machine, machine, &json!({"phase": "Deleting"}))
                    .await
            }
            None => {
                self.objects
                    .remove_finalizer(Kind::Machine, machine, MACHINE_FINALIZER)
                    .await
            }
        }
    }

    /// A Machine that ran once goes on as it was: that its host has gone it does not notice.
    async fn run_machine(
        &self,
        machine: &DynamicObject,
        metal3_machine: Option<&DynamicObject>,
    ) -> kube::Result<()> {
        if machine.data["status"]["phase"] == "Running" {
            return Ok(());
        }
        let is_ready = metal3_machine.is_some_and(|one| one.data["status"]["ready"] == true);
        let status = if is_ready {
            json!({"phase": "Running", "nodeRef": {"kind": "Node", "name": machine.name_any()}})
        } else {
            json!({"phase": "Provisioning"})
        };
        self.objects.status(Kind::Machine, machine, &status).await
    }
}
