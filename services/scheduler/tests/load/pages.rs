//! The log of decisions, page by page.

use proto::{
    inventory::v1::ClusterRef,
    placement::v1::{Decision, ListDecisionsRequest, ListDecisionsResponse},
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::fixtures::{Stage, apply};

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
async fn the_log_comes_in_pages_newest_first_with_nothing_twice_and_nothing_left_out_while_it_grows() {
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
