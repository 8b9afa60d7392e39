//! Tracks whether the service may have accepted an action whose answer is not known. After that no failure may state that nothing was changed.

use std::cell::Cell;

use tonic::Status;

use crate::failure::{Failure, reason};

/// The requests for one action, all under one idempotency key.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Whether a request was sent that the service has not refused.
    open: Cell<bool>,
}

impl Attempts {
    /// Sends one request, and awaits its answer.
    pub(crate) async fn once<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        let earlier = self.open.replace(true);
        answer.await.map_err(|status| {
            // A refusal by the service concerns this request only: it may have accepted an earlier one.
            if !reason(&status).is_empty() {
                self.open.set(earlier);
            }
            Failure::from(status)
        })
    }

    /// The failure to report, given the requests until now: [`Failure::Lost`] where one may have been accepted.
    pub(crate) fn judge(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Ended(_) | Failure::Lost(_) => failure,
            failure if self.open.get() => Failure::Lost(Box::new(failure)),
            failure => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, process::ExitCode};

    use tonic::Code;
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn refused(code: Code, reason: &str) -> Status {
        let details = ErrorDetails::with_error_info(reason, "sip.airshipit.org", HashMap::new());
        Status::with_error_details(code, "x", details)
    }

    fn is_code(failure: &Failure, code: u8) -> bool {
        format!("{:?}", failure.exit_code()) == format!("{:?}", ExitCode::from(code))
    }

    async fn request(attempts: &Attempts, answer: Result<(), Status>) -> Failure {
        attempts.judge(attempts.once(async { answer }).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_first_request_that_the_service_refuses_has_changed_nothing() {
        let attempts = Attempts::default();
        for (code, reason, exit) in [
            (Code::Unavailable, "STANDBY", 4),
            (Code::NotFound, "NOT_A_MEMBER", 3),
            (Code::ResourceExhausted, "OVERLOADED", 4),
        ] {
            let failure = request(&attempts, Err(refused(code, reason))).await;
            assert!(is_code(&failure, exit), "{failure:?}");
        }
    }

    #[tokio::test]
    async fn after_a_lost_answer_the_outcome_stays_unknown() {
        let attempts = Attempts::default();
        let failure = request(&attempts, Err(Status::internal("reset"))).await;
        assert!(is_code(&failure, 6), "{failure:?}");
        for failure in [
            request(&attempts, Err(refused(Code::NotFound, "NOT_A_MEMBER"))).await,
            request(&attempts, Err(refused(Code::Unauthenticated, "TOKEN_REFUSED"))).await,
            attempts.judge(Failure::NotServed {
                address: "a".to_owned(),
                last: "gone".to_owned(),
            }),
            attempts.judge(Failure::Output(std::io::Error::other("full"))),
        ] {
            assert!(is_code(&failure, 6), "{failure:?}");
            assert!(
                failure.to_string().contains("may have been executed"),
                "{failure}"
            );
        }
    }

    #[tokio::test]
    async fn how_the_action_itself_ended_is_known() {
        let attempts = Attempts::default();
        attempts.once(async { Ok(()) }).await.unwrap();
        let failure = attempts.judge(Failure::Ended(Box::new(refused(Code::Unavailable, "BMC_FAILED"))));
        assert!(is_code(&failure, 5), "{failure:?}");
        let failure = attempts.judge(Failure::from(Status::unavailable("the answer has no end")));
        assert!(is_code(&failure, 6), "{failure:?}");
    }
}
