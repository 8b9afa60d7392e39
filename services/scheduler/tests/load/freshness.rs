//! What answers to reads tell of how recent they are.

use proto::{
    inventory::v1::{
        ClusterRef, ClusterSpec, ExplainHostRequest, FindCapacityRequest, GetHostRequest, LabelSelector,
        ListHostsRequest, ListSitesRequest, Revision, Role, SiteState,
    },
    placement::v1::{GetPlacementRequest, ListPlacementsRequest, PlanClusterRequest},
};

use crate::fixtures::{SITE, Stage, apply};

fn one() -> ClusterRef {
    ClusterRef {
        namespace: "tenant".to_owned(),
        name: "one".to_owned(),
        uid: String::new(),
    }
}

/// State of the site in each answer to a read that a site which is not synced gives too.
async fn states(stage: &Stage) -> Vec<SiteState> {
    let (mut inventory, mut placements) = (stage.inventory(), stage.placements());
    let site = SITE.to_owned();
    let get = GetHostRequest {
        site: site.clone(),
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
    };
    let list = ListHostsRequest {
        site: site.clone(),
        ..ListHostsRequest::default()
    };
    let explain = ExplainHostRequest {
        site: site.clone(),
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
        role: Some(Role {
            name: "Worker".to_owned(),
            label_selector: Some(LabelSelector::default()),
            ..Role::default()
        }),
        network_ids: Vec::new(),
    };
    let placement = GetPlacementRequest {
        site,
        cluster: Some(one()),
        at_least: None,
    };
    let get = inventory.get_host(get).await.unwrap().into_inner();
    let list = inventory.list_hosts(list).await.unwrap().into_inner();
    let explain = inventory.explain_host(explain).await.unwrap().into_inner();
    let placement = placements.get_placement(placement).await.unwrap().into_inner();
    let all = placements.list_placements(ListPlacementsRequest::default());
    let mut states: Vec<SiteState> = [
        get.site_state,
        list.site_state,
        explain.site_state,
        placement.site_state,
    ]
    .into_iter()
    .map(Option::unwrap)
    .collect();
    states.extend(all.await.unwrap().into_inner().site_states);
    states
}

fn capacity() -> FindCapacityRequest {
    FindCapacityRequest {
        spec: apply("any", 1).spec,
        namespace: String::new(),
        max_copies: 10,
    }
}

#[tokio::test]
async fn reads_carry_the_revision_and_whether_the_site_is_synced() {
    let stage = Stage::served().await;
    let applied = stage.placements().apply_cluster(apply("one", 1)).await.unwrap();
    let revision: Revision = applied.into_inner().placement.unwrap().revision.unwrap();

    let expected = SiteState {
        site: SITE.to_owned(),
        revision: Some(revision),
        synced: true,
    };
    assert_eq!(states(&stage).await, vec![expected.clone(); 5]);

    let plan = PlanClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(one()),
        spec: None::<ClusterSpec>,
    };
    let plan = stage.placements().plan_cluster(plan).await.unwrap().into_inner();
    assert_eq!(plan.site_state, Some(expected));
    let sites = stage.inventory().list_sites(ListSitesRequest::default()).await;
    assert_eq!(sites.unwrap().into_inner().sites[0].revision, Some(revision));
    let found = stage
        .inventory()
        .find_capacity(capacity())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.sites[0].revision, Some(revision));
    assert!(found.unsynced.is_empty());
}

#[tokio::test]
async fn a_site_without_a_reporter_is_named_and_not_synced() {
    let stage = Stage::served().await;
    stage.placements().apply_cluster(apply("one", 1)).await.unwrap();
    stage.end_reports().await;

    let synced: Vec<bool> = states(&stage).await.iter().map(|state| state.synced).collect();
    assert_eq!(synced, [false; 5]);
    let found = stage
        .inventory()
        .find_capacity(capacity())
        .await
        .unwrap()
        .into_inner();
    assert!(found.sites.is_empty(), "{found:?}");
    assert_eq!(found.unsynced[0].site, SITE);
    let reason = &found.unsynced[0].reason;
    assert!(reason.contains("no cluster agent reports it"), "{reason}");
}
