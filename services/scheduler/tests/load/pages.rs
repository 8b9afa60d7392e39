//! The log of decisions, page by page.

use proto::{
    inventory::v1::{ClusterRef, LabelSelector, ListHostsRequest},
    placement::v1::{Decision, ListDecisionsRequest, ListDecisionsResponse, ListPlacementsRequest},
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::fixtures::{SITE, Stage, apply};

fn revision(decision: &Decision) -> u64 {
    decision.revision.unwrap().revision
}

async fn page(stage: &Stage, request: ListDecisionsRequest) -> ListDecisionsResponse {
    stage
        .placements()
        .list_decisions(request)
        .await
        .unwrap()
        .into_inner()
}

/// All pages of a size; `meanwhile` comes between them.
async fn pages(
    stage: &Stage,
    request: ListDecisionsRequest,
    meanwhile: impl AsyncFn(usize),
) -> Vec<Vec<Decision>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let asked = ListDecisionsRequest {
            page_token,
            ..request.clone()
        };
        let answer = page(stage, asked).await;
        pages.push(answer.decisions);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
        meanwhile(pages.len()).await;
    }
}

#[tokio::test]
async fn log_pages_are_complete_while_the_log_grows() {
    let stage = Stage::served().await;
    for generation in 0..10 {
        for name in ["one", "two"] {
            let mut request = apply(name, 1);
            request.generation = generation + 1;
            request.spec.as_mut().unwrap().network_ids = vec![format!("net{generation}")];
            stage.placements().apply_cluster(request).await.unwrap();
        }
    }
    let all = stage.decisions().await;
    assert_eq!(all.len(), 1 + 20);
    assert!(
        all.windows(2).all(|pair| revision(&pair[0]) > revision(&pair[1])),
        "newest first"
    );

    let request = ListDecisionsRequest {
        page_size: 4,
        ..ListDecisionsRequest::default()
    };
    let grown = async |read: usize| {
        stage
            .placements()
            .apply_cluster(apply(&format!("new-{read}"), 0))
            .await
            .unwrap();
    };
    let read = pages(&stage, request.clone(), grown).await;
    let sizes: Vec<usize> = read.iter().map(Vec::len).collect();
    assert_eq!(sizes, [4, 4, 4, 4, 4, 1]);
    assert_eq!(read.concat(), all);

    // One cluster's entries, between those of others; a last page that is full has no next.
    let two = ListDecisionsRequest {
        cluster: Some(ClusterRef {
            namespace: "tenant".to_owned(),
            name: "two".to_owned(),
            uid: String::new(),
        }),
        page_size: 5,
        ..request
    };
    let read = pages(&stage, two, async |_| {}).await;
    let sizes: Vec<usize> = read.iter().map(Vec::len).collect();
    assert_eq!(sizes, [5, 5]);
    let wanted = all.into_iter().filter(|entry| {
        entry
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.name == "two")
    });
    assert_eq!(read.concat(), wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_that_cannot_be_is_refused_with_the_field() {
    let stage = Stage::served().await;
    let strange = [
        (
            "page_token",
            ListDecisionsRequest {
                page_token: "strange".to_owned(),
                ..ListDecisionsRequest::default()
            },
        ),
        (
            "page_size",
            ListDecisionsRequest {
                page_size: -1,
                ..ListDecisionsRequest::default()
            },
        ),
    ];
    for (field, request) in strange {
        let refused = stage.placements().list_decisions(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let fields = refused.get_details_bad_request().unwrap().field_violations;
        assert_eq!(fields[0].field, field);
    }
}

#[track_caller]
fn assert_page_token_refused(refused: &Status, rule: &str) {
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let fields = refused.get_details_bad_request().unwrap().field_violations;
    assert_eq!(fields[0].field, "page_token");
    assert!(fields[0].description.contains(rule), "{fields:?}");
}

#[tokio::test]
async fn a_page_token_is_bound_to_its_filter() {
    let stage = Stage::served().await;
    let hosts = ListHostsRequest {
        site: SITE.to_owned(),
        page_size: 1,
        ..ListHostsRequest::default()
    };
    let first = stage.inventory().list_hosts(hosts.clone()).await.unwrap();
    let page_token = first.into_inner().next_page_token;
    assert!(!page_token.is_empty());

    let next = ListHostsRequest {
        page_token: page_token.clone(),
        ..hosts.clone()
    };
    let larger = ListHostsRequest {
        page_size: 2,
        ..next.clone()
    };
    let rest = stage.inventory().list_hosts(larger).await.unwrap().into_inner();
    assert_eq!(rest.hosts.len(), 2, "another page size is allowed");

    let selected = ListHostsRequest {
        label_selector: Some(LabelSelector {
            match_labels: [("rack".to_owned(), "rack-h1".to_owned())].into(),
            ..LabelSelector::default()
        }),
        ..next
    };
    let refused = stage.inventory().list_hosts(selected).await.unwrap_err();
    assert_page_token_refused(&refused, "was issued for another filter");

    let placements = ListPlacementsRequest {
        site: SITE.to_owned(),
        page_token: page_token.clone(),
        ..ListPlacementsRequest::default()
    };
    let refused = stage.placements().list_placements(placements).await.unwrap_err();
    assert_page_token_refused(&refused, "was not issued by ListPlacements");
}

#[tokio::test]
async fn page_tokens_of_placements_and_decisions_are_bound_too() {
    let stage = Stage::served().await;
    for name in ["one", "two"] {
        stage.placements().apply_cluster(apply(name, 1)).await.unwrap();
    }
    let placements = ListPlacementsRequest {
        page_size: 1,
        ..ListPlacementsRequest::default()
    };
    let first = stage.placements().list_placements(placements).await.unwrap();
    let other = ListPlacementsRequest {
        namespace: "tenant".to_owned(),
        page_token: first.into_inner().next_page_token,
        ..ListPlacementsRequest::default()
    };
    let refused = stage.placements().list_placements(other).await.unwrap_err();
    assert_page_token_refused(&refused, "was issued for another filter");

    let decisions = ListDecisionsRequest {
        page_size: 1,
        ..ListDecisionsRequest::default()
    };
    let other = ListDecisionsRequest {
        site: SITE.to_owned(),
        page_token: page(&stage, decisions).await.next_page_token,
        ..ListDecisionsRequest::default()
    };
    let refused = stage.placements().list_decisions(other).await.unwrap_err();
    assert_page_token_refused(&refused, "was issued for another filter");
}
