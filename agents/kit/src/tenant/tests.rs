use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
};

use kube::client::Body;
use serde_json::Value;
use tracing::Level;

use super::*;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server whose answers are all the same; what it logs stands for the libraries between.
fn server(code: u16, answer: &str) -> Tenant {
    let answer = answer.to_owned();
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = http::Response::builder().status(code);
        let response = response.body(Body::from(answer.clone().into_bytes()));
        async move {
            tracing::error!("failed with status {code}");
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    Tenant::connected("https://tenant".to_owned(), Client::new(service, "default"))
}

fn get() -> Request<Vec<u8>> {
    Request::get("/api/v1/nodes").body(Vec::new()).unwrap()
}

#[tokio::test]
async fn no_answer_of_a_tenant_reaches_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(Level::TRACE);
    let lines = lines.with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(lines);
    let long = format!("forged\n{}", "x".repeat(10_000));
    for (code, answer) in [
        (200, &*long),
        (200, r#"{"metadata": "forged\nline"}"#),
        (200, r#"{"kind": "Status", "status": "forged"}"#),
        (500, &*long),
        (
            403,
            r#"{"kind": "Status", "message": "forged\nline", "reason": "forged"}"#,
        ),
    ] {
        let error = server(code, answer).call::<Vec<u8>>(Ok(get())).await.unwrap_err();
        let message = error.to_string();
        assert!(
            message.len() < 4 * MAX_QUOTED_CHARACTERS && !message.contains('\n'),
            "{code}: {message}"
        );
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains("forged") && !log.contains("failed with"), "{log}");
}

#[tokio::test]
async fn an_error_has_the_code_of_the_answer() {
    for (code, answer, message) in [
        (403, r#"{"kind": "Status", "code": 200, "message": "no"}"#, "no"),
        (502, "<html>", "<html>"),
        (302, "", ""),
    ] {
        let error = server(code, answer).call::<Value>(Ok(get())).await.unwrap_err();
        assert_eq!((apply::code(&error), &*reason(&error)), (Some(code), message));
        assert!(!is_too_long(&error));
    }
}

#[tokio::test]
async fn an_answer_of_more_than_its_limit_is_not_read() {
    let long = format!("{}{{}}", " ".repeat(MAX_ANSWER_BYTES - 2));
    assert!(server(200, &long).call::<Value>(Ok(get())).await.is_ok());
    for code in [200, 403] {
        let error = server(code, &format!(" {long}"))
            .call::<Value>(Ok(get()))
            .await
            .unwrap_err();
        assert!(is_too_long(&error), "{error}");
    }
}

#[tokio::test]
async fn only_a_refusal_of_a_change_is_read() {
    server(200, r#" {"what": is not read}"#)
        .change(Ok(get()))
        .await
        .unwrap();
    for other in ["<html>", ""] {
        let page = server(200, other).change(Ok(get())).await.unwrap_err();
        assert!(page.to_string().contains("is not a JSON object"), "{page}");
    }
    let endless = "a".repeat(MAX_ANSWER_BYTES + 1);
    let long_refusal = format!(r#"{{"kind":"Status","message":"no {endless}","code":403}}"#);
    let long = server(200, &endless).change(Ok(get())).await;
    assert!(is_too_long(&long.unwrap_err()));
    let refusal =
        r#"{"kind": "Status", "status": "Failure", "code": 200, "message": "no", "reason": "Forbidden"}"#;
    for (body, expected) in [(refusal, "no"), (&*endless, "aaa"), (&long_refusal, "no aaa")] {
        let refused = server(403, body).change(Ok(get())).await.unwrap_err();
        assert_eq!(apply::code(&refused), Some(403));
        assert!(reason(&refused).starts_with(expected), "{refused}");
    }
}
