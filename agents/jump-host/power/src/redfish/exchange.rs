//! One request and its answer, bounded in time and size.

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::Bytes,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    connect::Connection,
    failure::{Failure, printable},
    model,
    network::Network,
};
use crate::bmc::Address;

/// Bytes of a response, at most: ten times the largest system that a real BMC is known to describe.
pub(super) const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Where a session's token is.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// How a request is authenticated.
#[derive(Clone, Debug)]
pub(super) enum Login {
    /// Not at all: the service root is open.
    None,
    /// By user and password each time.
    Basic(HeaderValue),
    /// By the token of a session.
    Session(HeaderValue),
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// `None`: the end of the body did not come, or it is too large.
    pub(super) body: Result<Bytes, Failure>,
}

/// Sends a request and reads its answer. After a failure it is not known whether the BMC has received the request.
pub(super) async fn exchange(
    network: &Network,
    address: &Address,
    connection: &mut Connection,
    (method, path, login): (Method, &str, &Login),
    body: Option<&serde_json::Value>,
) -> Result<Answer, Failure> {
    let within = network.timeouts().answer;
    let exchanged = exchanged(address, connection, (method, path, login), body);
    timeout(within, exchanged).await.unwrap_or_else(|_elapsed| {
        Err(Failure::Slow {
            bmc: address.authority(),
            what: "answer",
            within,
        })
    })
}

async fn exchanged(
    address: &Address,
    connection: &mut Connection,
    (method, path, login): (Method, &str, &Login),
    body: Option<&serde_json::Value>,
) -> Result<Answer, Failure> {
    let broken = |source: Box<dyn std::error::Error + Send + Sync>| Failure::Broken {
        bmc: address.authority(),
        source,
    };
    let uri = if connection.by_proxy {
        format!("http://{}{path}", address.authority())
    } else {
        path.to_owned()
    };
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(HOST, address.authority())
        .header(USER_AGENT, concat!("sip-power/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/json")
        .header("odata-version", "4.0");
    request = match login {
        Login::None => request,
        Login::Basic(value) => request.header(AUTHORIZATION, value),
        Login::Session(token) => request.header(TOKEN, token),
    };
    let request = match body {
        None => request.body(Full::default()),
        Some(json) => request
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(json.to_string())),
    };
    let request = request.map_err(|error| broken(error.into()))?;
    let answer = connection.sender.send_request(request).await;
    let (head, body) = answer.map_err(|error| broken(error.into()))?.into_parts();
    let body = match Limited::new(body, MAX_RESPONSE_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::TooLarge {
            bmc: address.authority(),
            most: MAX_RESPONSE_BYTES,
        }),
        Err(error) => Err(broken(error)),
    };
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
    })
}

impl Answer {
    /// The answer's resource.
    pub(super) fn resource<T: DeserializeOwned>(self, address: &Address, path: &str) -> Result<T, Failure> {
        if !self.status.is_success() {
            return Err(self.refusal(address, path));
        }
        let type_ = self.headers.get(CONTENT_TYPE);
        let type_ = printable(&String::from_utf8_lossy(type_.map_or(b"", HeaderValue::as_bytes)));
        let body = self.body?;
        serde_json::from_slice(&body).map_err(|error| Failure::NotRedfish {
            bmc: address.authority(),
            path: path.to_owned(),
            // serde's message quotes the data.
            found: match error.classify() {
                serde_json::error::Category::Data => format!("JSON of another form ({type_:?})"),
                _ => format!("{} bytes that are no JSON ({type_:?})", body.len()),
            },
        })
    }

    /// What a status other than success means.
    pub(super) fn refusal(self, address: &Address, path: &str) -> Failure {
        let bmc = address.authority();
        if self.status == StatusCode::UNAUTHORIZED {
            return Failure::Unauthorized { bmc };
        }
        let body = self.body.unwrap_or_default();
        Failure::Status {
            bmc,
            path: path.to_owned(),
            status: self.status.as_u16(),
            message: model::error_message(&body).map_or_else(String::new, |text| printable(&text)),
        }
    }

    /// A header as text.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
