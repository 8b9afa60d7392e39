//! What the agents may do on the API server, and what they must not.

mod reviewed;

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use sandbox::{region::Agent, repository};

use crate::fixtures::{PATIENCE, Stage, cluster, on_shared_site, user};

async fn may(stage: &Stage, agent: Agent, verb: &str, resource: &str, namespace: &str) -> bool {
    may_one(stage, agent, verb, (resource, namespace), None).await
}

/// The same for the one object of a name.
async fn may_one(stage: &Stage, agent: Agent, verb: &str, of: (&str, &str), name: Option<&str>) -> bool {
    account_may(stage, user(agent), verb, of, name).await
}

/// The same for a `ServiceAccount` by its user name.
pub(crate) async fn account_may(
    stage: &Stage,
    user: String,
    verb: &str,
    (resource, namespace): (&str, &str),
    name: Option<&str>,
) -> bool {
    let (group, resource) = resource.split_once('/').unwrap();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                namespace: Some(namespace.to_owned()),
                verb: Some(verb.to_owned()),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(stage.site.client());
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed
}

#[test]
fn agents_may_do_what_they_need_and_no_more() {
    use Agent::{Cluster, LoadBalancer};
    const HOSTS: &str = "metal3.io/baremetalhosts";
    const CLUSTERS: &str = "airship.airshipit.org/sipclusters";
    on_shared_site("rights", async |stage| {
        for (agent, verb, resource, namespace, expected) in [
            // That the question is asked rightly shows in what they may.
            (Cluster, "list", "/secrets", "metal", true),
            (Cluster, "patch", HOSTS, "metal", true),
            (
                Cluster,
                "patch",
                "airship.airshipit.org/sipclusters/status",
                "rights",
                true,
            ),
            (LoadBalancer, "patch", "/configmaps", "rights", true),
            // Who of several replicas acts: the own Lease, which is named, and no other.
            (
                Cluster,
                "create",
                "coordination.k8s.io/leases",
                "sip-system",
                true,
            ),
            (
                LoadBalancer,
                "create",
                "coordination.k8s.io/leases",
                "sip-system",
                true,
            ),
            (
                Cluster,
                "update",
                "coordination.k8s.io/leases",
                "sip-system",
                false,
            ),
            (
                Cluster,
                "create",
                "coordination.k8s.io/leases",
                "kube-system",
                false,
            ),
            (
                LoadBalancer,
                "delete",
                "coordination.k8s.io/leases",
                "sip-system",
                false,
            ),
            (LoadBalancer, "list", "/services", "rights", true),
            // The cluster agent reads Secrets of hosts, and of a tenant the one with the kubeconfig, by its name. It writes none.
            (Cluster, "list", "/secrets", "rights", false),
            (Cluster, "watch", "/secrets", "rights", false),
            (Cluster, "get", "/secrets", "rights", true),
            (Cluster, "get", "/secrets", "kube-system", false),
            (Cluster, "get", "/secrets", "sip-system", false),
            (Cluster, "watch", "/secrets", "", false),
            (Cluster, "list", "/secrets", "kube-system", false),
            (Cluster, "patch", "/secrets", "metal", false),
            (Cluster, "create", "/secrets", "metal", false),
            // Hosts are labelled where they are known to be, never made or removed.
            (Cluster, "patch", HOSTS, "rights", false),
            (Cluster, "create", HOSTS, "metal", false),
            (Cluster, "delete", HOSTS, "metal", false),
            (
                Cluster,
                "patch",
                "metal3.io/baremetalhosts/status",
                "metal",
                false,
            ),
            (Cluster, "create", CLUSTERS, "rights", false),
            (Cluster, "delete", CLUSTERS, "rights", false),
            (Cluster, "patch", "apps/deployments", "rights", false),
            (Cluster, "patch", "/services", "rights", false),
            // Whether pods of a cluster that is gone could read one: wherever that was.
            (Cluster, "list", "/configmaps", "kube-system", true),
            (Cluster, "get", "/configmaps", "rights", false),
            (Cluster, "watch", "/configmaps", "rights", false),
            (Cluster, "patch", "/configmaps", "rights", false),
        ] {
            assert_eq!(
                may(stage, agent, verb, resource, namespace).await,
                expected,
                "{agent:?} {verb} {resource} in {namespace:?}"
            );
        }
    });
}

#[test]
fn the_load_balancer_agent_works_in_namespaces_of_tenants() {
    const HOSTS: &str = "metal3.io/baremetalhosts";
    const CLUSTERS: &str = "airship.airshipit.org/sipclusters";
    on_shared_site("tenant-rights", async |stage| {
        for (verb, resource, namespace, expected) in [
            // The load-balancer agent knows nothing of hosts.
            ("get", HOSTS, "metal", false),
            ("list", HOSTS, "metal", false),
            ("patch", HOSTS, "metal", false),
            ("patch", CLUSTERS, "tenant-rights", false),
            ("delete", CLUSTERS, "tenant-rights", false),
            ("create", "/pods", "tenant-rights", false),
            // It has rights in the namespaces of tenants only, and none on Secrets.
            ("get", "/configmaps", "metal", false),
            ("get", "/secrets", "tenant-rights", false),
            ("patch", "/secrets", "tenant-rights", false),
            ("watch", "/secrets", "tenant-rights", false),
            ("list", "/services", "kube-system", true),
            ("patch", "/services", "kube-system", false),
            ("patch", "apps/deployments", "kube-system", false),
            ("list", "apps/deployments", "", false),
            ("list", "/pods", "kube-system", false),
            ("patch", "rbac.authorization.k8s.io/roles", "kube-system", false),
            ("create", "/serviceaccounts/token", "sip-system", false),
        ] {
            assert_eq!(
                may(stage, Agent::LoadBalancer, verb, resource, namespace).await,
                expected,
                "{verb} {resource} in {namespace:?}"
            );
        }
    });
}

#[test]
fn the_dex_agent_works_in_namespaces_of_tenants() {
    on_shared_site("rights-dex", async |stage| {
        for (verb, resource, namespace, expected) in [
            (
                "patch",
                "airship.airshipit.org/sipclusters/status",
                "rights-dex",
                true,
            ),
            ("list", "/services", "kube-system", true),
            // Secrets that entries name, and its own.
            ("get", "/secrets", "rights-dex", true),
            ("patch", "/secrets", "rights-dex", true),
            ("get", "/secrets", "metal", false),
            ("get", "/secrets", "sip-system", false),
            ("list", "/secrets", "", false),
            ("get", "/configmaps", "rights-dex", false),
            ("patch", "/configmaps", "rights-dex", true),
            ("patch", "/configmaps", "kube-system", false),
            ("patch", "apps/deployments", "kube-system", false),
            ("list", "/pods", "kube-system", false),
            ("patch", "cert-manager.io/certificates", "rights-dex", true),
            ("list", "cert-manager.io/certificates", "rights-dex", false),
            ("patch", "cert-manager.io/certificates", "kube-system", false),
            // Pods of providers have no right, so it gives none.
            ("patch", "rbac.authorization.k8s.io/roles", "rights-dex", false),
            (
                "patch",
                "rbac.authorization.k8s.io/rolebindings",
                "rights-dex",
                false,
            ),
            ("create", "batch/jobs", "rights-dex", false),
            ("create", "/pods", "rights-dex", false),
            ("create", "/serviceaccounts/token", "rights-dex", false),
            ("list", "metal3.io/baremetalhosts", "metal", false),
            ("patch", "airship.airshipit.org/sipclusters", "rights-dex", false),
        ] {
            let allowed = may(stage, Agent::Dex, verb, resource, namespace).await;
            assert_eq!(allowed, expected, "{verb} {resource} in {namespace:?}");
        }
    });
}

#[test]
fn the_agent_reads_pods_and_writes_budgets_and_policies() {
    const JOBS: &str = "batch/jobs";
    const NETWORKS: &str = "k8s.cni.cncf.io/network-attachment-definitions";
    const BUDGETS: &str = "policy/poddisruptionbudgets";
    const POLICIES: &str = "networking.k8s.io/networkpolicies";
    on_shared_site("rights-pods", async |stage| {
        for (verb, resource, expected) in [
            ("list", "/pods", true),
            ("watch", "/pods", true),
            ("patch", "/pods", false),
            ("delete", "/pods", false),
            ("get", "/pods/log", false),
            ("create", "/pods/exec", false),
            ("create", JOBS, true),
            ("patch", JOBS, true),
            ("delete", JOBS, true),
            ("get", JOBS, false),
            ("list", JOBS, false),
            ("get", NETWORKS, true),
            ("list", NETWORKS, false),
            ("create", NETWORKS, false),
            ("patch", BUDGETS, true),
            ("watch", BUDGETS, true),
            ("get", BUDGETS, false),
            ("patch", POLICIES, true),
            ("watch", POLICIES, true),
            ("get", POLICIES, false),
        ] {
            let allowed = may(stage, Agent::LoadBalancer, verb, resource, "rights-pods").await;
            assert_eq!(allowed, expected, "{verb} {resource}");
            // Of a cluster that is gone nobody else says whether its pods still run.
            let listed = (verb, resource) == ("list", "/pods");
            let allowed = may(stage, Agent::Cluster, verb, resource, "rights-pods").await;
            assert_eq!(allowed, listed, "{verb} {resource} by the cluster agent");
        }
    });
}

#[test]
fn templates_are_read_by_name_in_the_agents_namespace() {
    const MAPS: &str = "/configmaps";
    on_shared_site("rights-templates", async |stage| {
        for (verb, namespace, name, expected) in [
            ("watch", "sip-system", Some("loadbalancerworker"), true),
            ("watch", "sip-system", Some("loadbalancercontrolplane"), true),
            ("patch", "sip-system", Some("loadbalancerworker"), false),
            ("get", "sip-system", Some("sip-load-balancer-templates"), true),
            ("patch", "sip-system", Some("sip-load-balancer-templates"), true),
            ("delete", "sip-system", Some("sip-load-balancer-templates"), false),
            ("create", "sip-system", None, true),
            ("get", "sip-system", Some("another"), false),
            ("patch", "sip-system", Some("another"), false),
            ("list", "sip-system", None, false),
            ("watch", "metal", Some("loadbalancerworker"), false),
            ("create", "metal", None, false),
        ] {
            let of = (MAPS, namespace);
            let allowed = may_one(stage, Agent::LoadBalancer, verb, of, name).await;
            assert_eq!(allowed, expected, "{verb} {name:?} in {namespace}");
            // The cluster agent lists those of load balancers whose cluster is gone.
            let allowed = may_one(stage, Agent::Cluster, verb, of, name).await;
            assert_eq!(allowed, verb == "list", "{verb} {name:?} by the cluster agent");
        }
    });
}

#[test]
fn machines_of_cluster_api_are_read_by_name_and_annotated() {
    const MACHINES: &str = "cluster.x-k8s.io/machines";
    const METAL3_MACHINES: &str = "infrastructure.cluster.x-k8s.io/metal3machines";
    const HOST_CLAIMS: &str = "metal3.io/hostclaims";
    // Of namespaces: whether it may in one of a tenant, and in one of hosts. Nowhere else.
    on_shared_site("rights-machines", async |stage| {
        for (verb, resource, of_tenant, of_hosts) in [
            ("get", METAL3_MACHINES, true, true),
            ("list", METAL3_MACHINES, false, false),
            ("patch", METAL3_MACHINES, false, false),
            ("get", HOST_CLAIMS, true, false),
            ("list", HOST_CLAIMS, false, false),
            ("patch", HOST_CLAIMS, false, false),
            ("get", MACHINES, true, true),
            ("patch", MACHINES, true, true),
            ("list", MACHINES, false, false),
            ("delete", MACHINES, false, false),
        ] {
            for (namespace, expected) in [
                ("rights-machines", of_tenant),
                ("metal", of_hosts),
                ("kube-system", false),
                ("", false),
            ] {
                let allowed = may(stage, Agent::Cluster, verb, resource, namespace).await;
                assert_eq!(allowed, expected, "{verb} {resource} in {namespace:?}");
                assert!(!may(stage, Agent::LoadBalancer, verb, resource, namespace).await);
            }
        }
    });
}

#[test]
fn load_balancer_pods_get_no_more_rights_than_the_agent() {
    const ROLES: &str = "rbac.authorization.k8s.io/roles";
    const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
    on_shared_site("rights-given", async |stage| {
        for (verb, resource, expected) in [
            ("watch", "/configmaps", true),
            ("watch", "/secrets", false),
            ("patch", ROLES, true),
            ("get", ROLES, false),
            ("escalate", ROLES, false),
            ("bind", ROLES, false),
            ("escalate", CLUSTER_ROLES, false),
            ("patch", CLUSTER_ROLES, false),
            ("impersonate", "/serviceaccounts", false),
        ] {
            assert_eq!(
                may(stage, Agent::LoadBalancer, verb, resource, "rights-given").await,
                expected,
                "{verb} {resource}"
            );
        }
    });
}

/// As people are given them: the built-in roles, to which `deploy/tenants` adds.
#[test]
fn tenants_write_neither_status_nor_finalizers() {
    on_shared_site("tenant-roles", async |stage| {
        let roles = repository::deploy().join("tenants");
        stage.site.apply_kustomization(&roles).await.unwrap();
        let namespace = "tenant-roles";
        for (user, role) in [("anna", "edit"), ("adam", "admin"), ("victor", "view")] {
            let (role, user_flag) = (format!("--clusterrole={role}"), format!("--user={user}"));
            stage
                .kubectl(&["create", "rolebinding", user, "-n", namespace, &role, &user_flag])
                .await;
        }
        let shop = cluster(namespace, "shop");
        stage.create(&shop).await;
        let tries = async |user: &str, arguments: &[&str]| {
            let who = format!("--as={user}");
            let all = [&["-n", namespace, &who], arguments].concat();
            stage.site.kubectl(&all).await.unwrap()
        };
        let label = ["label", "sipcluster", "shop", "team=blue", "--overwrite"];
        // The API server adds up the roles a moment after they are there.
        let known = async {
            while !tries("anna", &label).await.success || !tries("adam", &label).await.success {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            while !tries("victor", &["get", "sipcluster", "shop"]).await.success {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, known).await.unwrap();

        let status = r#"{"status":{"counts":{"workers":"9/9"}}}"#;
        let patch = [
            "patch",
            "sipcluster",
            "shop",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ];
        for user in ["anna", "adam", "victor"] {
            let answer = tries(user, &patch).await;
            assert!(
                !answer.success && answer.stderr.to_lowercase().contains("forbidden"),
                "{user}: {}",
                answer.stderr
            );
            for what in ["--subresource=status", "--subresource=finalizers"] {
                for verb in ["update", "patch"] {
                    let answer = tries(user, &["auth", "can-i", verb, "sipclusters", what]).await;
                    assert_eq!(answer.stdout.trim(), "no", "{user} {verb} {what}");
                }
            }
        }
        // Another value: kubectl writes nothing where nothing changes.
        let relabel = ["label", "sipcluster", "shop", "team=red", "--overwrite"];
        let answer = tries("victor", &relabel).await;
        assert!(
            answer.stderr.to_lowercase().contains("forbidden"),
            "{}",
            answer.stderr
        );
    });
}
