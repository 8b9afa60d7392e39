//! A host that the API server refuses to write is a condition, in the API server's words.

use sandbox::region::Agent;
use tokio::time::{interval, timeout};

use crate::fixtures::{AGENTS, PATIENCE, Role, Stage, cluster, fleet, user};

/// An admission policy of somebody who has other rules for labels than we.
const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-labels}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [metal3.io], apiVersions: ['*'], operations: [UPDATE], resources: [baremetalhosts]}
  validations:
    - expression: request.userInfo.username != 'USER'
      message: hosts are frozen until Monday
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-labels}
spec: {policyName: no-labels, validationActions: [Deny]}
";

#[tokio::test]
async fn a_refused_host_write_is_reported_in_the_servers_words() {
    let stage = Stage::start("refused", &AGENTS).await;
    stage.site.create_tenant_namespace("refused").await.unwrap();
    stage.load(&fleet("refused", 1, 0, 1)).await;
    let agent = user(Agent::Cluster);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, POLICY.replace("USER", &agent)).unwrap();
    let file = file.display().to_string();
    forbid(&stage, &file, &agent).await;

    let shop = cluster("refused", "shop").role(Role::Worker, 1);
    stage.create(&shop).await;
    for (kind, reason) in [("HostsLabeled", "Refused"), ("Ready", "UnableToApplyLabels")] {
        let why = stage.condition_is(&shop, kind, "False", reason).await;
        assert!(
            why.contains("metal/refused-r1-w1 cannot be written") && why.contains("frozen until Monday"),
            "{kind}: {why}"
        );
    }

    stage.kubectl(&["delete", "-f", &file]).await;
    stage.ready(&shop).await;

    forbid(&stage, &file, &agent).await;
    stage.delete(&shop).await;
    let why = stage
        .condition_is(&shop, "Ready", "False", "UnableToDecommission")
        .await;
    assert!(
        why.contains("metal/refused-r1-w1 cannot be written") && why.contains("frozen until Monday"),
        "{why}"
    );

    stage.kubectl(&["delete", "-f", &file]).await;
    stage.gone(&shop).await;
}

/// Applies the policy, and waits until it counts: a moment after it is there.
async fn forbid(stage: &Stage, file: &str, agent: &str) {
    stage.kubectl(&["apply", "-f", file]).await;
    let as_agent = format!("--as={agent}");
    let try_it = [
        "annotate",
        "bmh",
        "-n",
        "metal",
        "refused-r1-w1",
        // The agent may write it where no other policy forbids that.
        "sip.airshipit.org/placement-revision=1",
        "--dry-run=server",
        "--overwrite",
        &as_agent,
    ];
    let in_force = async {
        let mut pace = interval(std::time::Duration::from_millis(200));
        while stage.site.kubectl_ok(&try_it).await.is_ok() {
            pace.tick().await;
        }
    };
    timeout(PATIENCE, in_force).await.unwrap();
}
