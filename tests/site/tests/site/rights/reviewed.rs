//! Every right of every account, as the API server itself tells it to the account. The snapshot is the list that a reviewer reads: what is
//! not in it, the account may not do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectRulesReviewStatus},
    core::v1::ServiceAccount,
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use sandbox::{
    region::{AGENTS_NAMESPACE, Agent, HOSTS_NAMESPACE},
    site::Site,
    wait,
};

use crate::fixtures::{PATIENCE, Role, Stage, cluster};

/// A tenant's namespace with `deploy/tenant-namespace`.
const TENANT: &str = "tenant";
/// One without it.
const STRANGER: &str = "stranger";
/// A load balancer with a sidecar, which has an account of its own.
const SIDECAR: &str = "loadbalancer-controlplane-shop";

/// Every account of this project that talks to the API server. A new agent is one more row.
const ACCOUNTS: [(&str, &str); 5] = [
    (AGENTS_NAMESPACE, "sip-cluster-agent"),
    (AGENTS_NAMESPACE, "sip-load-balancer-agent"),
    (AGENTS_NAMESPACE, "sip-jump-host-agent"),
    (AGENTS_NAMESPACE, "sip-dex-agent"),
    (TENANT, SIDECAR),
];
/// Where each is asked what it may.
const NAMESPACES: [(&str, &str); 5] = [
    (AGENTS_NAMESPACE, "the agents' own namespace"),
    (HOSTS_NAMESPACE, "a namespace of hosts"),
    (TENANT, "a tenant's namespace"),
    (STRANGER, "a namespace without deploy/tenant-namespace"),
    ("kube-system", "a namespace of the cluster itself"),
];

/// Rights, as lines for people.
type Rights = BTreeSet<String>;

async fn rights(client: &Client, namespace: &str) -> Rights {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    lines(answer.status.unwrap())
}

/// One line for each kind of object and set of names.
fn lines(status: SubjectRulesReviewStatus) -> Rights {
    let SubjectRulesReviewStatus {
        evaluation_error,
        incomplete,
        non_resource_rules,
        resource_rules,
    } = status;
    assert!(!incomplete && evaluation_error.is_none(), "{evaluation_error:?}");
    let mut verbs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for rule in resource_rules {
        let names = rule.resource_names.unwrap_or_default().join(", ");
        for group in rule.api_groups.unwrap_or_default() {
            for resource in rule.resources.iter().flatten() {
                let kind = [resource.as_str(), group.as_str()].join(".");
                let kind = kind.trim_end_matches('.').to_owned();
                let of = verbs.entry((kind, names.clone())).or_default();
                of.extend(rule.verbs.iter().cloned());
            }
        }
    }
    let resources = verbs.into_iter().map(|((kind, names), verbs)| {
        let verbs = verbs.into_iter().collect::<Vec<_>>().join(" ");
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(" [{names}]")
        };
        format!("{kind}{names}: {verbs}")
    });
    let others = non_resource_rules.into_iter().flat_map(|rule| {
        let verbs = rule.verbs.join(" ");
        let urls = rule.non_resource_urls.unwrap_or_default().into_iter();
        urls.map(move |url| format!("{url}: {verbs}")).collect::<Vec<_>>()
    });
    resources.chain(others).collect()
}

async fn client(site: &Site, (namespace, name): (&str, &str)) -> Client {
    let kubeconfig = site.service_account_kubeconfig(namespace, name).await.unwrap();
    site.client_from(&kubeconfig).await.unwrap()
}

/// A site with a cluster whose load balancer has a sidecar.
async fn start() -> Stage {
    let mut stage = Stage::start("rights", &[Agent::Cluster]).await;
    stage
        .start_agent_where(Agent::LoadBalancer, |config| {
            config.haproxy_sidecar_image = Some("localhost/sip-haproxy-sidecar:1".to_owned());
        })
        .await;
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace(TENANT).await.unwrap();
    stage.site.create_namespace(STRANGER).await.unwrap();
    let shop = cluster(TENANT, "shop")
        .role(Role::ControlPlane, 0)
        .balanced(31_900);
    stage.create(&shop).await;
    // The account comes first, and its rights with the last of these.
    let bindings: Api<RoleBinding> = Api::namespaced(stage.site.client(), TENANT);
    let what = "the rights of the sidecar to exist";
    wait::until(bindings, SIDECAR, what, PATIENCE, |_| true)
        .await
        .unwrap();
    stage
}

/// Waits until the API server's authorizer knows what the account may do somewhere.
async fn known(client: &Client, namespace: &str, common: &Rights) {
    let started = Instant::now();
    while rights(client, namespace).await.is_subset(common) {
        assert!(started.elapsed() < PATIENCE, "it may do nothing in {namespace}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn each_account_may_do_what_the_list_says_and_no_more() {
    let stage = start().await;
    // What every account may do, whoever it is, such as asking what it may.
    let nobody = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("nobody".to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.site.client(), STRANGER);
    accounts.create(&PostParams::default(), &nobody).await.unwrap();
    let everybody = client(&stage.site, (STRANGER, "nobody")).await;

    let mut list = String::new();
    for account in ACCOUNTS {
        let asking = client(&stage.site, account).await;
        let (namespace, name) = account;
        known(&asking, namespace, &rights(&everybody, namespace).await).await;
        writeln!(list, "{name} (namespace {namespace})").unwrap();
        for (namespace, described) in NAMESPACES {
            writeln!(list, "  in {namespace}, {described}:").unwrap();
            let own = rights(&asking, namespace).await;
            let common = rights(&everybody, namespace).await;
            assert!(common.is_subset(&own));
            let mut special = own.difference(&common).peekable();
            if special.peek().is_none() {
                writeln!(list, "    nothing").unwrap();
            }
            for right in special {
                writeln!(list, "    {right}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(list);
    // The same by kubectl with the agents' tokens, for people.
    for account in ACCOUNTS {
        let (namespace, name) = account;
        let kubeconfig = stage
            .site
            .service_account_kubeconfig(namespace, name)
            .await
            .unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        for namespace in ["kube-system", TENANT] {
            let listed = stage
                .kubectl(&[&kubeconfig, "auth", "can-i", "--list", "-n", namespace])
                .await;
            println!("{name} in {namespace}:\n{listed}");
        }
    }
    stage.nothing_was_forbidden();
}
