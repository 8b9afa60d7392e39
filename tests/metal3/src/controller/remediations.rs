//! `Metal3Remediation`s, each of the name of its Machine, as a `MachineHealthCheck` makes them.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use super::{Controller, objects::Kind};
use crate::{
    names::{HOST, UNHEALTHY},
    provider::{found, merge},
    remediation::{Phase, Remediation, Step, step},
};

impl Controller {
    pub(super) async fn remediate(&mut self) -> kube::Result<()> {
        for object in self.objects.all(Kind::Remediation).await? {
            let Some(host) = self.host_to_remediate(&object).await? else {
                continue;
            };
            let remediation = read(&object, &host);
            let now = Timestamp::now().to_string();
            let status = match step(&remediation) {
                Step::Wait => continue,
                Step::Go(phase @ Phase::Running) => json!({"phase": phase.text(), "lastRemediated": now}),
                Step::Go(phase) => json!({ "phase": phase.text() }),
                Step::Retry => json!({
                    "phase": Phase::Running.text(), "lastRemediated": now, "retryCount": remediation.retries + 1,
                }),
                Step::GiveUp => {
                    self.give_up(&object, &host).await?;
                    json!({"phase": Phase::Deleting.text()})
                }
            };
            self.objects.status(Kind::Remediation, &object, &status).await?;
        }
        Ok(())
    }

    async fn host_to_remediate(&self, object: &DynamicObject) -> kube::Result<Option<DynamicObject>> {
        let machine = self.objects.get(Kind::Metal3Machine, &object.name_any()).await?;
        let host = machine
            .as_ref()
            .and_then(|machine| machine.annotations().get(HOST));
        match host.and_then(|host| host.rsplit('/').next()) {
            Some(host) => self.objects.hosts().get_opt(host).await,
            None => Ok(None),
        }
    }

    /// The Machine's owner is to delete it, by a condition that a `MachineSet` of Cluster API v1.13.4 does not read: a person deletes the Machine.
    async fn give_up(&self, object: &DynamicObject, host: &DynamicObject) -> kube::Result<()> {
        if let Some(machine) = self.objects.get(Kind::Machine, &object.name_any()).await? {
            let condition =
                json!([{"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation"}]);
            self.objects
                .status(Kind::Machine, &machine, &json!({ "conditions": condition }))
                .await?;
        }
        let patch = json!({"metadata": {"annotations": {UNHEALTHY: ""}}});
        found(merge(&self.objects.hosts(), &host.name_any(), &patch).await)
    }
}

fn read(object: &DynamicObject, host: &DynamicObject) -> Remediation {
    let (spec, status) = (&object.data["spec"]["strategy"], &object.data["status"]);
    let last = status["lastRemediated"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let since = last.map(|last| Timestamp::now().duration_since(last));
    Remediation {
        phase: Phase::parse(status["phase"].as_str()),
        online: host.data["spec"]["online"] == true,
        timeout: seconds(&spec["timeout"]),
        retry_limit: spec["retryLimit"].as_u64().unwrap_or_default(),
        retries: status["retryCount"].as_u64().unwrap_or_default(),
        since: since
            .and_then(|since| Duration::try_from(since).ok())
            .unwrap_or_default(),
    }
}

/// A duration in whole seconds such as `600s`, which is the default.
fn seconds(text: &Value) -> Duration {
    let number = text
        .as_str()
        .and_then(|text| text.strip_suffix('s'))
        .and_then(|text| text.parse().ok());
    Duration::from_secs(number.unwrap_or(600))
}
