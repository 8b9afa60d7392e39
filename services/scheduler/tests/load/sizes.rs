//! Messages that are too large: the answer says what to do.

use proto::inventory::v1::{
    HostChanges, HostRef, LabelSelector, ListHostsRequest, ReportHostsRequest, report_hosts_request::Message,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::fixtures::{SITE, Stage, apply, hello, host};

/// Largest message that is taken, as the answer says it.
const MOST: &str = "16 MiB";

fn is_too_large(status: &Status) {
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    let reason = status.get_details_error_info().unwrap().reason;
    assert_eq!(reason, "MESSAGE_TOO_LARGE");
    assert!(status.message().contains(MOST), "{status}");
}

#[tokio::test]
async fn a_too_large_report_is_refused_with_a_hint_to_chunk() {
    let stage = Stage::served().await;
    let mut large = host("large");
    large.error_message = "x".repeat(17 << 20);
    let changes = HostChanges {
        hosts: vec![large],
        deleted_hosts: vec![HostRef::default()],
        ..HostChanges::default()
    };
    let messages = [hello("lease"), Message::Changes(changes)];
    let requests = messages
        .into_iter()
        .zip(1..)
        .map(|(message, sequence)| ReportHostsRequest {
            sequence,
            message: Some(message),
        });
    let requests: Vec<_> = requests.collect();

    let opened = stage.inventory().report_hosts(tokio_stream::iter(requests)).await;
    let mut answers = opened.unwrap().into_inner();
    let refused = loop {
        match answers.message().await {
            Ok(answer) => assert!(answer.is_some(), "the stream has ended"),
            Err(status) => break status,
        }
    };

    is_too_large(&refused);
    assert!(
        refused.message().contains("in chunks of at most 1,000"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_too_large_request_is_refused_with_the_limit() {
    let stage = Stage::served().await;
    let selector = LabelSelector {
        match_labels: [("key".to_owned(), "v".repeat(17 << 20))].into(),
        ..LabelSelector::default()
    };

    let request = ListHostsRequest {
        site: SITE.to_owned(),
        label_selector: Some(selector.clone()),
        ..ListHostsRequest::default()
    };
    let refused = stage.inventory().list_hosts(request).await.unwrap_err();
    is_too_large(&refused);

    let mut request = apply("large", 1);
    request.spec.as_mut().unwrap().roles[0].label_selector = Some(selector);
    let refused = stage.placements().apply_cluster(request).await.unwrap_err();
    is_too_large(&refused);
    let found = stage.decisions().await;
    assert!(found.iter().all(|entry| entry.action != "apply"), "{found:?}");
}
