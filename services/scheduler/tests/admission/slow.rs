//! Requests that do not arrive, and that are large.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use prost::{
    bytes::Bytes,
    encoding::{WireType, encode_key, encode_varint},
};
use scheduler::{admission::Limits, call_rules::Call};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};
use tonic_types::StatusExt as _;

use crate::{
    fixtures::{Served, agent, reader},
    raw::{request, send, send_request},
};

/// A field that no request has: it is skipped when a message is decoded.
const UNKNOWN_FIELD: u32 = 15_000;

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_again_and_again_is_read_more_slowly() {
    const RATE: u32 = 100;
    const TIME: Duration = Duration::from_secs(3);
    const CONNECTIONS: u32 = 4;
    const CALLS: u32 = 16;
    let served = Served::limited(Limits::default().rate(NonZeroU32::new(RATE).unwrap())).await;
    let begun_all = Instant::now();
    let (refused, mut calls) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let channel = served.channel(&reader("hasty"));
        for _ in 0..CALLS {
            let (channel, refused) = (channel.clone(), Arc::clone(&refused));
            calls.spawn(async move {
                loop {
                    let answered = send_request(&channel, Call::GetHost, "a").await;
                    if answered.is_err_and(|status| status.code() == Code::ResourceExhausted) {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
    tokio::time::sleep(TIME).await;
    // Another identity of the same kind is not slowed.
    let begun = Instant::now();
    let patient = send_request(&served.channel(&reader("patient")), Call::GetHost, "a").await;
    assert!(!patient.is_err_and(|status| status.code() == Code::ResourceExhausted));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    calls.shutdown().await;
    let refused = refused.load(Ordering::Relaxed);
    let took = begun_all.elapsed();
    println!("{refused} calls were refused in {took:?}");
    // Those that one read of each connection had are refused before it is paused.
    let most = f64::from(RATE) * took.as_secs_f64() + f64::from(4 * CONNECTIONS * CALLS);
    assert!((1.0..most).contains(&f64::from(refused)), "{refused} of {most}");
}

#[tokio::test]
async fn a_report_stream_without_a_hello_ends() {
    let served = Served::start().await;
    let channel = served.channel(&agent("b", "cluster"));
    let started = Instant::now();
    let path = Call::ReportHosts.descriptor().path;
    let ended = send(&channel, path, tokio_stream::pending()).await.unwrap_err();
    assert_eq!(
        (ended.code(), &*reason(&ended)),
        (Code::DeadlineExceeded, "TOO_SLOW"),
        "{ended}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_request_that_does_not_arrive_ends() {
    let served = Served::limited(Limits::default().arrival(Duration::from_secs(1))).await;
    let channel = served.channel(&reader("slow"));
    let path = Call::ListHosts.descriptor().path;
    // Nothing at all, and a message without the end of the stream.
    let nothing = send(&channel, path, tokio_stream::pending());
    let endless = send(
        &channel,
        path,
        tokio_stream::once(request(Call::ListHosts, "a")).chain(tokio_stream::pending()),
    );
    let (nothing, endless) = tokio::join!(nothing, endless);
    for ended in [nothing.unwrap_err(), endless.unwrap_err()] {
        assert_eq!(
            (ended.code(), &*reason(&ended)),
            (Code::DeadlineExceeded, "TOO_SLOW"),
            "{ended}"
        );
    }
}

#[tokio::test]
async fn large_requests_of_one_identity_are_bounded() {
    let served = Served::limited(Limits::default()).await;
    let path = Call::GetHost.descriptor().path;
    // It can be decoded, and its stream does not end: none of the calls is over before all have sent theirs.
    let mut large = request(Call::GetHost, "a").to_vec();
    let filler = vec![0; 250 << 10];
    encode_key(UNKNOWN_FIELD, WireType::LengthDelimited, &mut large);
    encode_varint(filler.len() as u64, &mut large);
    large.extend(filler);
    let large = Bytes::from(large);
    let mut calls = JoinSet::new();
    let channel = served.channel(&reader("large"));
    for _ in 0..140 {
        let channel = channel.clone();
        let body = tokio_stream::once(large.clone()).chain(tokio_stream::pending());
        calls.spawn(async move { send(&channel, path, body).await.unwrap_err() });
    }
    let first = calls.join_next().await.unwrap().unwrap();
    assert_eq!(first.code(), Code::ResourceExhausted, "{first}");
    let info = first.get_details_error_info().unwrap();
    assert_eq!(info.metadata["limit"], "buffer", "{first}");
    // Others have their own.
    let other = served.channel(&reader("other"));
    send_request(&other, Call::GetHost, "a").await.unwrap();
}

/// More than a rate of 1,000 a second lets through at once.
const ASKED: usize = 20_000;

#[tokio::test]
async fn questions_within_a_stream_count_like_calls() {
    let served = Served::start().await;
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(served.channel(&agent("b", "curious")));
    let asked = tokio_stream::iter(vec![question; ASKED]);
    let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
    let mut answered = 0;
    // The service ends its answers with its questions, whatever ended those.
    while let Ok(Some(_)) = answers.message().await {
        answered += 1;
    }
    println!("{answered} of {ASKED} are answered");
    assert!((1..ASKED).contains(&answered), "{answered}");
}
