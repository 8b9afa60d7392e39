//! Whether an action may have been asked for without a known answer: from then on no failure says that nothing was changed.

use std::cell::Cell;

use tonic::Status;

use crate::failure::{Failure, reason};

/// The requests for one action, all under one key.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// A request has left, and the service has not refused it.
    open: Cell<bool>,
}

impl Attempts {
    /// Awaits the answer to one request, which leaves now.
    pub(crate) async fn once<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        let earlier = self.open.replace(true);
        answer.await.map_err(|status| {
            // The service's own refusal is one of this request alone: an earlier one may have been accepted.
            if !reason(&status).is_empty() {
                self.open.set(earlier);
            }
            Failure::from(status)
        })
    }

    /// What a failure means, given what was asked for until now.
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
                failure.to_string().contains("may have been carried out"),
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
