//! Remarks on a jump host whose ssh works and something else does not. Pure.

use api::conditions::jump_host::{BMC_UNREACHABLE, NO_KEYS, POWER_SERVICE_UNAVAILABLE};
use kit::service::Remark;
use power::{Flaw, Unanswered};
use runtime::tls::rfc3339;

/// Hosts that a remark names at most.
const MAX_NAMED_HOSTS: usize = 5;

/// The first remark that applies. `power`: why the command `host` works on no jump host, or will stop working.
pub(crate) fn remark(
    nobody_may_log_in: bool,
    power: Option<&Flaw>,
    unanswered: &Unanswered,
) -> Option<Remark> {
    if nobody_may_log_in {
        return Some(Remark {
            reason: NO_KEYS,
            text: "the spec names no key and no CA, so no user can log in".into(),
        });
    }
    if let Some(flaw) = power {
        let text = match flaw {
            Flaw::Now(why) => format!("{why}; `host` does not work"),
            Flaw::Later(why, until) => {
                format!("{why}; `host` works until {} and not after that", rfc3339(*until))
            }
        };
        return Some(Remark {
            reason: POWER_SERVICE_UNAVAILABLE,
            text: text.into(),
        });
    }
    let hosts = &unanswered.hosts;
    if hosts.is_empty() {
        return None;
    }
    let mut named: Vec<String> = hosts
        .iter()
        .take(MAX_NAMED_HOSTS)
        .map(|(host, kind)| format!("{host} ({kind})"))
        .collect();
    if hosts.len() > MAX_NAMED_HOSTS {
        named.push(format!("{} more", hosts.len() - MAX_NAMED_HOSTS));
    }
    Some(Remark {
        reason: BMC_UNREACHABLE,
        text: format!(
            "the last call to these BMCs failed: {}; `host` may not work for these hosts",
            named.join(", ")
        )
        .into(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use kit::placement::{HostId, ObjectKey};

    use super::*;

    fn unanswered(hosts: usize) -> Unanswered {
        let host = |index: usize| {
            let key = ObjectKey {
                namespace: "metal".to_owned(),
                name: format!("h{index}"),
            };
            (HostId::new(key, index.to_string()), "slow")
        };
        Unanswered {
            hosts: (0..hosts).map(host).collect(),
            recheck_after: None,
        }
    }

    #[test]
    fn what_concerns_most_users_is_remarked() {
        let found = |nobody, power, hosts| remark(nobody, power, &unanswered(hosts));
        let reason = |nobody, power, hosts| found(nobody, power, hosts).map(|remark| remark.reason);
        let now = Flaw::Now("it is broken".to_owned());
        let later = Flaw::Later("it was not renewed".to_owned(), SystemTime::UNIX_EPOCH);
        assert_eq!(reason(true, Some(&now), 1), Some(NO_KEYS));
        for (flaw, expected) in [
            (&now, "it is broken; `host` does not work"),
            (
                &later,
                "it was not renewed; `host` works until Jan  1 00:00:00 1970 +00:00 and not after that",
            ),
        ] {
            assert_eq!(reason(false, Some(flaw), 1), Some(POWER_SERVICE_UNAVAILABLE));
            assert_eq!(found(false, Some(flaw), 1).unwrap().text, expected);
        }
        assert_eq!(reason(false, None, 1), Some(BMC_UNREACHABLE));
        assert_eq!(reason(false, None, 0), None);
        let text = found(false, None, 1).unwrap().text;
        assert!(text.contains("metal/h0 (slow)"), "{text}");
        assert!(!text.contains("more"), "{text}");
    }

    #[test]
    fn many_hosts_are_counted() {
        let text = remark(false, None, &unanswered(1_000)).unwrap().text;
        assert!(text.contains("metal/h4 (slow), 995 more"), "{text}");
    }
}
