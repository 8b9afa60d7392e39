//! A way to the API server on which every call can be made to fail.
//!
//! It speaks plain HTTP on loopback to the agent and TLS to the API server, with the agent's own token: the audit log shows
//! each call as the agent's.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{
    HeaderMap, Request, Response,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    request::Parts,
};
use http_body_util::{BodyDataStream, BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use sandbox::site::Site;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinSet,
};

use super::{
    call::Call,
    rules::{Fault, Injected, Rules, refusal},
};

type BoxError = Box<dyn Error + Send + Sync>;
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Why a connection ends without an answer.
#[derive(Clone, Copy, Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut")
    }
}

impl Error for Cut {}

/// What has come of a call.
enum Outcome {
    Answered(Box<Answer>),
    Cut,
    Silence,
}

/// The proxy. It ends with this.
pub(crate) struct ApiProxy {
    url: String,
    way: Way,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct Way {
    upstream: Client,
    rules: Rules,
    seen: Arc<Mutex<Vec<Call>>>,
    /// Resources whose watches tell nothing at present.
    frozen: watch::Sender<BTreeSet<String>>,
    /// Resources whose watches end, each time that they are named.
    ended: watch::Sender<(u64, String)>,
    /// Calls that are under way: they go on when the caller has hung up.
    calls: Arc<Mutex<JoinSet<()>>>,
}

impl ApiProxy {
    /// A way to a site's API server.
    pub(crate) async fn to(site: &Site) -> Self {
        let mut kubeconfig = Kubeconfig::read_from(site.admin_kubeconfig()).unwrap();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        config.proxy_url = None;
        config.default_retry = false;
        let way = Way {
            upstream: Client::try_from(config).unwrap(),
            rules: Rules::default(),
            seen: Arc::default(),
            frozen: watch::Sender::default(),
            ended: watch::Sender::default(),
            calls: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, way.clone()));
        Self {
            url,
            way,
            _serving: serving,
        }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Every call so far, in the order in which they came.
    pub(crate) fn seen(&self) -> Vec<Call> {
        self.way.seen.lock().unwrap().clone()
    }

    /// Does something to one call that matches, after so many that pass.
    pub(crate) fn inject(
        &self,
        matches: impl Fn(&Call) -> bool + Send + Sync + 'static,
        pass: usize,
        fault: Fault,
    ) -> Injected {
        self.way.rules.add(Box::new(matches), pass, 1, fault)
    }

    /// Does something to every call that matches.
    pub(crate) fn inject_always(
        &self,
        matches: impl Fn(&Call) -> bool + Send + Sync + 'static,
        fault: Fault,
    ) -> Injected {
        self.way.rules.add(Box::new(matches), 0, usize::MAX, fault)
    }

    /// Holds back what the watches of a resource tell.
    pub(crate) fn freeze(&self, resource: &str) {
        self.way.frozen.send_modify(|frozen| {
            frozen.insert(resource.to_owned());
        });
    }

    /// Holds it back for so long.
    pub(crate) fn freeze_for(&self, resource: &str, time: Duration) {
        self.freeze(resource);
        let (frozen, resource) = (self.way.frozen.clone(), resource.to_owned());
        self.way.calls.lock().unwrap().spawn(async move {
            tokio::time::sleep(time).await;
            frozen.send_modify(|frozen| {
                frozen.remove(&resource);
            });
        });
    }

    /// Lets the watches of a resource go on.
    pub(crate) fn thaw(&self, resource: &str) {
        self.way.frozen.send_modify(|frozen| {
            frozen.remove(resource);
        });
    }

    /// Ends the watches of a resource that are open now.
    pub(crate) fn end_watches(&self, resource: &str) {
        self.way
            .ended
            .send_modify(|(times, which)| (*times, *which) = (*times + 1, resource.to_owned()));
    }
}

async fn serve(listener: TcpListener, way: Way) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let way = way.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| way.clone().answer(request));
            // How a connection ends is the business of its two ends.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Way {
    async fn answer(self, request: Request<Incoming>) -> Result<Answer, Cut> {
        let call = Call::parse(request.method(), request.uri());
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        self.seen.lock().unwrap().push(call.clone());
        let (sender, receiver) = oneshot::channel();
        {
            let (way, mut calls) = (self.clone(), self.calls.lock().unwrap());
            while calls.try_join_next().is_some() {}
            calls.spawn(async move {
                let outcome = way.carry_out(&call, &parts, &body).await;
                // Its caller may have hung up.
                let _ = sender.send(outcome);
            });
        }
        match receiver.await.map_err(|_| Cut)? {
            Outcome::Answered(answer) => Ok(*answer),
            Outcome::Cut => Err(Cut),
            Outcome::Silence => match std::future::pending::<Infallible>().await {},
        }
    }

    async fn carry_out(&self, call: &Call, parts: &Parts, body: &Bytes) -> Outcome {
        let pass = async || match self.forward(call, parts, body).await {
            Ok(answer) => Outcome::Answered(Box::new(answer)),
            Err(_) => Outcome::Cut,
        };
        let Some((fault, injected)) = self.rules.apply(call) else {
            return pass().await;
        };
        match fault {
            Fault::Refused(code) => {
                injected.done();
                Outcome::Answered(Box::new(refusal(code)))
            }
            Fault::Cut => {
                injected.done();
                Outcome::Cut
            }
            Fault::Aborted(after) => {
                // What is dropped in the middle closes its connection.
                let _ = tokio::time::timeout(after, pass()).await;
                injected.done();
                Outcome::Cut
            }
            Fault::Lost | Fault::Silent => {
                let _ = pass().await;
                injected.done();
                if fault == Fault::Lost {
                    Outcome::Cut
                } else {
                    Outcome::Silence
                }
            }
            Fault::Twice => {
                let _ = pass().await;
                let second = pass().await;
                injected.done();
                second
            }
            Fault::HeldBefore => {
                injected.done();
                injected.is_open().await;
                let answer = pass().await;
                if let Outcome::Answered(answer) = &answer {
                    injected.answered(answer.status());
                }
                answer
            }
            Fault::HeldAfter => {
                let answer = pass().await;
                injected.done();
                injected.is_open().await;
                answer
            }
        }
    }

    async fn forward(&self, call: &Call, parts: &Parts, body: &Bytes) -> Result<Answer, BoxError> {
        let mut request = Request::new(Body::from(body.clone()));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = end_to_end(&parts.headers);
        let (head, body) = self.upstream.send(request).await?.into_parts();
        let body = if call.verb == "watch" {
            self.recorded(call.resource.clone(), body)
        } else {
            let bytes = body.collect().await?.to_bytes();
            full(bytes)
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = head.status;
        *answer.headers_mut() = end_to_end(&head.headers);
        Ok(answer)
    }

    /// What a watch tells, while it may.
    fn recorded(&self, resource: String, body: Body) -> UnsyncBoxBody<Bytes, BoxError> {
        let (frozen, mut ended) = (self.frozen.subscribe(), self.ended.subscribe());
        ended.mark_unchanged();
        let events = BodyDataStream::new(body).map_err(BoxError::from);
        let told = stream::unfold(
            (Box::pin(events), frozen, ended, resource),
            |(mut events, mut frozen, mut ended, resource)| async move {
                let next = async {
                    let next = events.next().await;
                    let _ = frozen.wait_for(|frozen| !frozen.contains(&resource)).await;
                    next
                };
                let ends = async {
                    loop {
                        if ended.changed().await.is_err() {
                            std::future::pending::<()>().await;
                        }
                        if ended.borrow().1 == resource {
                            return;
                        }
                    }
                };
                let next = tokio::select! {
                    next = next => next,
                    () = ends => None,
                };
                next.map(|next| (next, (events, frozen, ended, resource)))
            },
        );
        StreamBody::new(told.map_ok(Frame::data)).boxed_unsync()
    }
}

/// Headers without those that are about one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for own in [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING] {
        headers.remove(own);
    }
    headers
}

/// A body that is known.
pub(super) fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
