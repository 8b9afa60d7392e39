//! What a sidecar reports of the program beside it.

use serde::{Deserialize, Serialize};

/// Path of the report on a pod's program: [`Running`] as JSON.
pub const CONFIG_PATH: &str = "/config";
/// Path at which a pod answers 200 once a configuration is written, and the program may start.
pub const STARTED_PATH: &str = "/started";
/// Path at which a pod answers with the SHA-256, in hexadecimal digits, of the configuration that the program reads when it starts; 404
/// while the program runs, or where that is not certain. It has a path of its own: an agent that is older than the sidecar does not
/// ask, and a sidecar that is older than the agent answers 404.
pub const STARTS_WITH_PATH: &str = "/starts-with";

/// The configuration that a program runs.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// SHA-256, in hexadecimal digits, of the text of the configuration that applies to every new connection; `None` while none does. For
    /// HAProxy, in addition, none of its processes has a connection to a server that is not in that configuration. So it is `None` while HAProxy
    /// does not run, is behind, or still uses such servers. For sshd: the configuration that it has read last.
    pub running: Option<String>,
    /// Why the newest configuration does not run and will not until somebody acts; for people.
    pub failed: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_configuration_is_reported_in_two_fields() {
        let running = Running {
            running: Some("00ff".to_owned()),
            failed: None,
        };
        let json = serde_json::to_string(&running).unwrap();
        assert_eq!(json, r#"{"running":"00ff","failed":null}"#);
        assert_eq!(serde_json::from_str::<Running>(&json).unwrap(), running);
    }
}
