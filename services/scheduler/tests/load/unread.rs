//! Answers that nobody reads count and hold the places of their calls for as long as they are kept.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    time::{Duration, Instant},
};

use http_body::{Body as _, Frame};
use prost::{Message as _, bytes::Bytes};
use proto::inventory::v1::GetHostRequest;
use scheduler::{
    admission::{CallMetrics, Limits},
    call_rules::Call,
    server,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};
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

/// A connection by which calls are made and nothing is read. Its socket takes few bytes.
struct Mute {
    stream: TcpStream,
    next: u32,
}

impl Mute {
    async fn connect(stage: &Stage) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(stage.address).await.unwrap();
        // The preface of HTTP/2, and settings of which none is other than usual.
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        Self { stream, next: 1 }
    }

    /// A call with one message; an error once the server has ended the connection, and `None` while it reads nothing.
    async fn call(&mut self, message: &[u8]) -> Option<io::Result<()>> {
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend(text.bytes());
        };
        // POST, http, :path, :authority, content-type, and te.
        let mut head = vec![0x83, 0x86, 0x04];
        text(&mut head, Call::GetHost.descriptor().path);
        head.push(0x01);
        text(&mut head, "x");
        head.extend([0x0f, 0x10]);
        text(&mut head, "application/grpc");
        head.push(0);
        text(&mut head, "te");
        text(&mut head, "trailers");
        let mut body = vec![0];
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(message);
        let mut frames = Vec::new();
        for (kind, flags, content) in [(1, 4, head), (0, 1, body)] {
            frames.extend(&u32::try_from(content.len()).unwrap().to_be_bytes()[1..]);
            frames.extend([kind, flags]);
            frames.extend(self.next.to_be_bytes());
            frames.extend(content);
        }
        self.next += 2;
        let written = timeout(Duration::from_millis(500), self.stream.write_all(&frames));
        written.await.ok()
    }
}

/// A request whose refusal quotes so many characters.
fn invalid(characters: usize) -> Vec<u8> {
    GetHostRequest {
        namespace: "\u{e9}".repeat(characters),
        ..host()
    }
    .encode_to_vec()
}

#[tokio::test]
async fn unread_refusals_hold_the_places_of_their_calls() {
    let stage = limited(Limits::of_each_kind(3)).await;
    let mut mute = Mute::connect(&stage).await;
    // What the kernels take is written. After that three answers wait in the process.
    while let Some(sent) = mute.call(&invalid(10)).await {
        sent.unwrap();
    }
    let refused = stage.inventory().get_host(host()).await;
    assert_eq!(limit(&refused.expect_err("no place is held")), "reads");
    drop(mute);
    let answered = async {
        while stage.inventory().get_host(host()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, answered).await.unwrap();
}

#[tokio::test]
async fn who_leaves_too_many_refusals_unread_is_disconnected() {
    // An eighth of it is for heads.
    let stage = limited(Limits::of_each_kind(100_000).buffer(512 << 10)).await;
    let mut mute = Mute::connect(&stage).await;
    let begun = Instant::now();
    while !matches!(mute.call(&invalid(1000)).await, Some(Err(_))) {
        // Sooner than by keepalive, which each new call puts off.
        assert!(begun.elapsed() < PATIENCE / 2, "refusals are kept without end");
    }
    stage.inventory().get_host(host()).await.unwrap();
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
