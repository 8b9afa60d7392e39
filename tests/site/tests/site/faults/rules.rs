//! What is done to which call.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Response, StatusCode, header::RETRY_AFTER};
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::{
    call::Call,
    proxy::{Answer, full},
};
use crate::fixtures::PATIENCE;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It is not carried out: this status. 429 says to come back after a second.
    Refused(u16),
    /// It is not carried out: the connection ends.
    Cut,
    /// It is sent, and its connection to the API server ends after so long, as when its caller is killed.
    Aborted(Duration),
    /// It is carried out, and the connection ends instead of an answer.
    Lost,
    /// It is carried out, and nothing is ever answered.
    Silent,
    /// It is carried out twice; what comes of the second time is answered.
    Twice,
    /// It waits before it is carried out, though its caller may be gone by then.
    HeldBefore,
    /// It is carried out, and its answer waits.
    HeldAfter,
}

type Matcher = Box<dyn Fn(&Call) -> bool + Send + Sync>;

struct Rule {
    matches: Matcher,
    /// Calls that still pass before it.
    pass: usize,
    /// Calls that it is still done to.
    times: usize,
    fault: Fault,
    state: watch::Sender<State>,
}

/// What has come of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// So many calls it was for.
    taken: usize,
    /// So often it was done.
    done: usize,
    /// Who waits may go on.
    open: bool,
    /// What a call that waited before it was carried out was answered.
    answer: Option<StatusCode>,
}

/// The rules of a proxy.
#[derive(Clone, Default)]
pub(super) struct Rules(Arc<Mutex<Vec<Rule>>>);

/// A rule that was made: says whether it was done, and lets those go on that it holds.
#[derive(Clone, Debug)]
pub(crate) struct Injected(watch::Sender<State>);

impl Rules {
    pub(super) fn add(&self, matches: Matcher, pass: usize, times: usize, fault: Fault) -> Injected {
        let state = watch::Sender::new(State::default());
        self.0.lock().unwrap().push(Rule {
            matches,
            pass,
            times,
            fault,
            state: state.clone(),
        });
        Injected(state)
    }

    /// The first rule that is for this call, which counts it.
    pub(super) fn apply(&self, call: &Call) -> Option<(Fault, Injected)> {
        let mut rules = self.0.lock().unwrap();
        for rule in rules.iter_mut().filter(|rule| (rule.matches)(call)) {
            if rule.pass > 0 {
                rule.pass -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                rule.state.send_modify(|state| state.taken += 1);
                return Some((rule.fault, Injected(rule.state.clone())));
            }
        }
        None
    }
}

impl Injected {
    pub(super) fn done(&self) {
        self.0.send_modify(|state| state.done += 1);
    }

    /// How often it was done.
    pub(crate) fn times(&self) -> usize {
        self.0.borrow().done
    }

    /// Whether a call came that it was for: says so when it was done to that. What a call brings about is seen before it has
    /// come to its end.
    pub(crate) async fn came(&self) -> bool {
        let mut seen = self.0.subscribe();
        let done = timeout(PATIENCE, seen.wait_for(|state| state.done == state.taken)).await;
        done.unwrap().unwrap().taken > 0
    }

    /// Waits until it has been done, for as long as that takes.
    pub(crate) async fn comes(&self) {
        let mut seen = self.0.subscribe();
        // It fails only when nothing can be done any more.
        let _ = seen.wait_for(|state| state.done > 0).await;
    }

    /// Waits until it has been done.
    pub(crate) async fn happens(&self) {
        let mut seen = self.0.subscribe();
        let done = timeout(PATIENCE, seen.wait_for(|state| state.done > 0)).await;
        assert!(done.is_ok(), "the call that is to fail never came");
    }

    /// Lets those go on that it holds.
    pub(crate) fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Lets the call go on that it holds before it is carried out: what the API server answers that one.
    pub(crate) async fn answer(&self) -> StatusCode {
        self.open();
        let mut seen = self.0.subscribe();
        let answered = timeout(PATIENCE, seen.wait_for(|state| state.answer.is_some())).await;
        let answered = answered.expect("the late call is answered").unwrap().answer;
        answered.unwrap()
    }

    pub(super) fn answered(&self, status: StatusCode) {
        self.0.send_modify(|state| state.answer = Some(status));
    }

    pub(super) async fn is_open(&self) {
        let mut seen = self.0.subscribe();
        // It fails only when nobody can open it any more.
        let _ = seen.wait_for(|state| state.open).await;
    }
}

/// What an API server answers that refuses a call.
pub(super) fn refusal(code: u16) -> Answer {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected: {reason}"), "reason": reason, "code": code,
    });
    let mut answer = Response::new(full(status.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    if code == 429 {
        answer.headers_mut().insert(RETRY_AFTER, "1".parse().unwrap());
    }
    answer
}
