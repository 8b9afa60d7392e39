//! `MachineSet`s and control planes: they make Machines as many as they want, each with its `Metal3Machine`, and delete what is too many.

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Controller,
    objects::{Kind, controller},
};
use crate::{
    deletion_order::{Order, surplus},
    names::{
        CLONED_FROM, CLUSTER, CLUSTER_API_VERSION, CONTROL_PLANE, INFRASTRUCTURE_VERSION, MACHINE_FINALIZER,
        METAL3_MACHINE_FINALIZER,
    },
};

/// What differs between the kinds of owners.
struct Owner<'a> {
    object: &'a DynamicObject,
    kind: Kind,
    version: &'static str,
    name: &'static str,
    cluster: String,
    /// Its `Metal3MachineTemplate`.
    template: String,
    order: Order,
    /// Most Machines that it deletes at once.
    at_once: usize,
    finalizer: &'static str,
}

impl Owner<'_> {
    fn text(object: &DynamicObject, pointer: &str) -> String {
        let text = object.data.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    }

    fn machine_set(object: &DynamicObject) -> Owner<'_> {
        let order = object.data.pointer("/spec/deletePolicy").and_then(Value::as_str);
        Owner {
            object,
            kind: Kind::MachineSet,
            version: CLUSTER_API_VERSION,
            name: "MachineSet",
            cluster: Self::text(object, "/spec/clusterName"),
            template: Self::text(object, "/spec/template/spec/infrastructureRef/name"),
            order: Order::parse(order),
            at_once: usize::MAX,
            finalizer: "cluster.x-k8s.io/machineset",
        }
    }

    /// A control plane shrinks by one Machine at a time, the oldest first.
    fn control_plane(object: &DynamicObject) -> Owner<'_> {
        Owner {
            object,
            kind: Kind::ControlPlane,
            version: "controlplane.cluster.x-k8s.io/v1beta1",
            name: "KubeadmControlPlane",
            cluster: object.labels().get(CLUSTER).cloned().unwrap_or_default(),
            template: Self::text(object, "/spec/machineTemplate/infrastructureRef/name"),
            order: Order::Oldest,
            at_once: 1,
            finalizer: "kubeadm.controlplane.cluster.x-k8s.io",
        }
    }

    fn wanted(&self) -> usize {
        let replicas = self.object.data.pointer("/spec/replicas").and_then(Value::as_u64);
        replicas
            .and_then(|replicas| usize::try_from(replicas).ok())
            .unwrap_or(1)
    }
}

impl Controller {
    pub(super) async fn scale_owners(&mut self) -> kube::Result<()> {
        let sets = self.objects.all(Kind::MachineSet).await?;
        let planes = self.objects.all(Kind::ControlPlane).await?;
        let owners = sets.iter().map(Owner::machine_set);
        for owner in owners.chain(planes.iter().map(Owner::control_plane)) {
            let name = owner.object.name_any();
            let is_owned = |machine: &DynamicObject| controller(machine, owner.name) == Some(&name);
            let machines = self.objects.all(Kind::Machine).await?;
            let machines: Vec<DynamicObject> = machines.into_iter().filter(is_owned).collect();
            if owner.object.metadata.deletion_timestamp.is_some() {
                self.delete_owner(&owner, &machines).await?;
            } else {
                self.scale(&owner, &machines).await?;
            }
        }
        Ok(())
    }

    /// It goes after its Machines.
    async fn delete_owner(&self, owner: &Owner<'_>, machines: &[DynamicObject]) -> kube::Result<()> {
        for machine in machines {
            if machine.metadata.deletion_timestamp.is_none() {
                self.objects.delete(Kind::Machine, machine).await?;
            }
        }
        if machines.is_empty() {
            self.objects
                .remove_finalizer(owner.kind, owner.object, owner.finalizer)
                .await?;
        }
        Ok(())
    }

    async fn scale(&mut self, owner: &Owner<'_>, machines: &[DynamicObject]) -> kube::Result<()> {
        if !owner
            .object
            .finalizers()
            .iter()
            .any(|name| name == owner.finalizer)
        {
            let finalizers = json!({"metadata": {"finalizers": [owner.finalizer]}});
            self.objects.patch(owner.kind, owner.object, &finalizers).await?;
        }
        let going = |machine: &&DynamicObject| machine.metadata.deletion_timestamp.is_some();
        let leaving = machines.iter().filter(going).count();
        let wanted = owner.wanted();
        for _ in machines.len() - leaving..wanted {
            self.make(owner).await?;
        }
        let due = owner.at_once.saturating_sub(leaving.min(owner.at_once));
        let too_many = surplus(machines, wanted, owner.order);
        let too_many = too_many.iter().filter(|machine| !going(machine)).take(due);
        for machine in too_many {
            self.objects.delete(Kind::Machine, machine).await?;
        }
        let ready = machines
            .iter()
            .filter(|machine| machine.data["status"]["phase"] == "Running")
            .count();
        let status = json!({"replicas": machines.len(), "readyReplicas": ready});
        self.objects.status(owner.kind, owner.object, &status).await
    }

    /// Makes a Machine and its `Metal3Machine`, as the template has it.
    async fn make(&mut self, owner: &Owner<'_>) -> kube::Result<()> {
        let Some(template) = self.objects.get(Kind::Template, &owner.template).await? else {
            return Ok(());
        };
        let name = format!("{}-{}", owner.object.name_any(), self.suffix());
        let mut labels = json!({ CLUSTER: owner.cluster });
        if owner.kind == Kind::ControlPlane {
            labels[CONTROL_PLANE] = json!("");
        }
        let reference = |version: &str, kind: &str, object: &DynamicObject| {
            let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
            json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}])
        };
        let domain = owner.object.data.pointer("/spec/template/spec/failureDomain");
        let machine = json!({
            "metadata": {
                "labels": labels,
                "ownerReferences": reference(owner.version, owner.name, owner.object),
                "finalizers": [MACHINE_FINALIZER],
            },
            "spec": {
                "clusterName": owner.cluster,
                "failureDomain": domain,
                "infrastructureRef": {"apiVersion": INFRASTRUCTURE_VERSION, "kind": "Metal3Machine", "name": name},
            },
        });
        let machine = self.objects.create(Kind::Machine, &name, &machine).await?;
        let metal3_machine = json!({
            "metadata": {
                "labels": labels,
                "annotations": {CLONED_FROM: owner.template},
                "ownerReferences": reference(CLUSTER_API_VERSION, "Machine", &machine),
                "finalizers": [METAL3_MACHINE_FINALIZER],
            },
            "spec": template.data.pointer("/spec/template/spec"),
        });
        self.objects
            .create(Kind::Metal3Machine, &name, &metal3_machine)
            .await?;
        Ok(())
    }
}
