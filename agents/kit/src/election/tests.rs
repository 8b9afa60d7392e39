use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
};

use http::{Method, StatusCode};
use kube::client::Body;
use runtime::readiness::Readiness;
use serde_json::json;
use tokio::time::timeout;

use super::*;

/// Of the candidates of these tests.
const LEASE_SECONDS: u8 = 15;

fn lease(holder: Option<&str>, seconds: Option<i32>) -> Lease {
    Lease {
        spec: Some(LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    }
}

#[test]
fn a_lease_is_taken_only_when_unchanged_for_its_duration() {
    for (holder, seconds, unchanged, expected) in [
        (None, None, 0, true),
        (Some(""), Some(15), 0, true),
        (Some("me"), Some(15), 0, true),
        (Some("other"), Some(15), 0, false),
        (Some("other"), Some(15), 14, false),
        (Some("other"), Some(15), 15, true),
        // The Lease's own duration counts, not the candidate's.
        (Some("other"), Some(60), 20, false),
        (Some("other"), None, 14, false),
        (Some("other"), None, 15, true),
        (Some("other"), Some(-1), 14, false),
    ] {
        let free = is_free(
            &lease(holder, seconds),
            "me",
            Duration::from_secs(15),
            Duration::from_secs(unchanged),
        );
        assert_eq!(free, expected, "{holder:?} {seconds:?} {unchanged}");
    }
    assert!(is_free(
        &Lease::default(),
        "me",
        Duration::from_secs(15),
        Duration::ZERO
    ));
}

#[test]
fn a_lease_holder_stops_before_another_can_begin() {
    for seconds in [3, 15, 255] {
        let length = Duration::from_secs(seconds);
        assert!(held(length) < length);
        assert!(retry(length) * 4 < held(length));
    }
}

/// An API server with one Lease. `lost` answers of writes do not arrive.
fn api_server(lost: usize) -> (Client, Arc<Mutex<Vec<Method>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let state = Arc::new(Mutex::new((None::<Lease>, lost)));
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (state, seen) = (Arc::clone(&state), Arc::clone(&seen));
        async move {
            let (parts, body) = request.into_parts();
            seen.lock().unwrap().push(parts.method.clone());
            let body = body.collect_bytes().await.unwrap();
            let (lease, lost) = &mut *state.lock().unwrap();
            let failed = |code: StatusCode, reason: &str| {
                let status =
                    json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason});
                let answer = http::Response::builder().status(code);
                Ok::<_, Infallible>(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
            };
            if parts.method != Method::GET {
                let mut new: Lease = serde_json::from_slice(&body).unwrap();
                let version = lease.as_ref().and_then(kube::ResourceExt::resource_version);
                if new.resource_version() != version {
                    return failed(StatusCode::CONFLICT, "Conflict");
                }
                let next = version.map_or(1, |version| version.parse::<u32>().unwrap() + 1);
                new.metadata.resource_version = Some(next.to_string());
                let is_first = lease.replace(new).is_none();
                if !is_first && *lost > 0 {
                    *lost -= 1;
                    return failed(StatusCode::GATEWAY_TIMEOUT, "Timeout");
                }
            }
            match lease {
                Some(lease) => Ok(http::Response::new(Body::from(
                    serde_json::to_vec(lease).unwrap(),
                ))),
                None => failed(StatusCode::NOT_FOUND, "NotFound"),
            }
        }
    });
    (Client::new(service, "sip-system"), asked)
}

async fn elected(client: Client, replica: &str) -> Leadership {
    let args = ElectionArgs {
        replica: Some(replica.to_owned()),
        lease_namespace: None,
        lease_seconds: LEASE_SECONDS,
    };
    Candidate::new(client, "agent", &args)
        .elected(&Readiness::default().gate("lease"))
        .await
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_made_up_at_once() {
    let (client, asked) = api_server(1);
    let mut leader = elected(client, "me").await;
    assert!(leader.renew().await.is_err(), "the answer was lost");
    asked.lock().unwrap().clear();
    assert!(matches!(leader.renew().await, Ok(None)), "it is still held");
    assert_eq!(*asked.lock().unwrap(), [Method::PUT, Method::GET, Method::PUT]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_a_renewal_without_answer() {
    let (client, _) = api_server(1);
    let mut first = elected(client.clone(), "first").await;
    assert!(first.renew().await.is_err(), "the answer was lost");
    first.release().await;
    let second = timeout(Duration::from_secs(3), elected(client, "second")).await;
    assert_eq!(second.unwrap().election().transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_else_is_elected_while_the_holder_works() {
    let (client, _) = api_server(0);
    let first = elected(client.clone(), "first").await;
    let mut second = pin!(elected(client, "second"));
    // It ends between two renewals, which are two seconds apart.
    let work = timeout(Duration::from_secs(301), second.as_mut());
    let taken = first.during(work).await.unwrap();
    assert!(taken.is_err(), "the second is elected while the first works");
    // Released: the second does not wait until the Lease expires.
    let second = timeout(Duration::from_secs(3), second).await.unwrap();
    assert_eq!(second.election().transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn work_ends_before_another_replica_can_begin() {
    // No renewal is answered.
    let (client, _) = api_server(usize::MAX);
    let leader = elected(client, "me").await;
    let begun = Instant::now();
    let mut last = begun;
    let work = async {
        for _ in 0..600 {
            sleep(Duration::from_millis(100)).await;
            last = Instant::now();
        }
    };
    let ended = leader.during(work).await;
    assert!(matches!(ended, Err(Lost::Late { lease: _ })), "{ended:?}");
    assert!(last > begun && last < begun + Duration::from_secs(LEASE_SECONDS.into()));
}

#[tokio::test(start_paused = true)]
async fn work_ends_when_another_process_takes_the_lease() {
    let (client, _) = api_server(0);
    let former = elected(client.clone(), "pod").await;
    // The container restarts: the same replica, elected anew.
    let work = async {
        elected(client, "pod").await;
        sleep(Duration::from_mins(1)).await;
    };
    let ended = former.during(work).await;
    assert!(
        matches!(ended, Err(Lost::Taken { lease: _, holder: _ })),
        "{ended:?}"
    );
}
