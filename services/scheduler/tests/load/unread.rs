//! Answers that nobody reads count and hold the places of their calls for as long as they are kept.

use std::{future::poll_fn, pin::Pin, time::Duration};

use http_body::{Body as _, Frame};
use prost::{Message as _, bytes::Bytes};
use proto::inventory::v1::GetHostRequest;
use scheduler::{
    admission::{CallMetrics, Limits},
    call::Call,
    server,
};
use tokio::time::{sleep, timeout};
use tonic::{
    Code, Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::fixtures::{SITE, Stage};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

async fn limited(limits: Limits) -> Stage {
    let calls = CallMetrics::default();
    Stage::with(|terms| server::guarded_routes(&terms, limits, calls).unwrap().1).await
}

/// A connection whose streams have a window of one byte: of each answer the transport sends one, and keeps the rest.
async fn deaf(stage: &Stage) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", stage.address)).unwrap();
    endpoint.initial_stream_window_size(1).connect().await.unwrap()
}

fn host() -> GetHostRequest {
    GetHostRequest {
        site: SITE.to_owned(),
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
    }
}

/// The head of an answer, and its body, of which nothing is read.
async fn get_host(channel: &Channel) -> http::Response<Body> {
    let message = host().encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    let request = http::Request::post(Call::GetHost.descriptor().path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(axum::body::Body::from(framed)));
    channel.clone().oneshot(request.unwrap()).await.unwrap()
}

/// The next part of an answer.
async fn part(answer: &mut http::Response<Body>) -> Frame<Bytes> {
    let next = poll_fn(|cx| Pin::new(answer.body_mut()).poll_frame(cx));
    timeout(PATIENCE, next).await.unwrap().unwrap().unwrap()
}

fn limit(status: &Status) -> String {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    status.get_details_error_info().unwrap().metadata["limit"].clone()
}

#[tokio::test]
async fn unread_answers_hold_the_places_of_their_calls() {
    const PLACES: usize = 3;
    let stage = limited(Limits::of_each_kind(PLACES)).await;
    let channel = deaf(&stage).await;
    let mut unread = Vec::new();
    for _ in 0..PLACES {
        let mut answer = get_host(&channel).await;
        // With the first byte of it the transport has all of it.
        assert_eq!(part(&mut answer).await.into_data().unwrap().len(), 1);
        unread.push(answer);
    }
    let refused = stage.inventory().get_host(host()).await.unwrap_err();
    assert_eq!(limit(&refused), "reads");

    drop(unread);
    let answered = async {
        while stage.inventory().get_host(host()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, answered).await.unwrap();
}

#[tokio::test]
async fn answers_beyond_the_buffer_are_not_kept() {
    const BUFFER: usize = 4096;
    let stage = limited(Limits::of_each_kind(1000).buffer(BUFFER)).await;
    let answer = stage.inventory().get_host(host()).await.unwrap().into_inner();
    let bytes = 5 + answer.encoded_len();
    let channel = deaf(&stage).await;
    let (mut kept, mut withheld) = (Vec::new(), 0);
    for _ in 0..2 * BUFFER / bytes {
        let mut answer = get_host(&channel).await;
        // A head with a status: the call was refused by what was kept at that moment.
        if let Some(status) = Status::from_header_map(answer.headers()) {
            assert_eq!(limit(&status), "buffer");
            continue;
        }
        let part = part(&mut answer).await;
        if let Some(trailers) = part.trailers_ref() {
            let status = Status::from_header_map(trailers).unwrap();
            assert_eq!(limit(&status), "buffer");
            assert!(status.message().contains("the answer is not sent"), "{status}");
            withheld += 1;
        } else {
            kept.push(answer);
        }
    }
    println!(
        "{} answers of {bytes} bytes are kept, {withheld} are not",
        kept.len()
    );
    assert!(kept.len() * bytes <= BUFFER && withheld > 0);
}
