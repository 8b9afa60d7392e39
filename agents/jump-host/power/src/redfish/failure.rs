//! Why a BMC gave no usable answer.

use std::time::Duration;

/// Why a BMC gave no usable answer. No text holds a credential, and what a BMC wrote is cut off and without control characters.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("the BMC {bmc} cannot be reached")]
    Unreachable {
        /// Host and port.
        bmc: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The proxy makes no connection.
    #[error("the proxy {proxy} does not connect to the BMC {bmc}: {why}")]
    Proxy {
        /// Host and port of the proxy.
        proxy: String,
        /// Host and port of the BMC.
        bmc: String,
        /// The reason that the proxy states.
        why: String,
    },
    /// No TLS, or a certificate that is not trusted.
    #[error(
        "the TLS handshake with the BMC {bmc} failed; a certificate that no trusted CA has signed needs spec.bmc.disableCertificateVerification, or its CA in the agent's --bmc-ca"
    )]
    Tls {
        /// Host and port.
        bmc: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It took too long.
    #[error("the BMC {bmc} did not {what} within {within:?}")]
    Slow {
        /// Host and port.
        bmc: String,
        /// What it did not do.
        what: &'static str,
        /// How long it had.
        within: Duration,
    },
    /// The connection broke, or what came is not HTTP.
    #[error("the BMC {bmc} did not send a complete response")]
    Broken {
        /// Host and port.
        bmc: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is larger than any of its kind.
    #[error("the BMC {bmc} answered with more than {most} bytes")]
    TooLarge {
        /// Host and port.
        bmc: String,
        /// Bytes that an answer may have.
        most: usize,
    },
    /// The response does not follow Redfish.
    #[error("the BMC {bmc} answered {path} with {found}, which is not Redfish")]
    NotRedfish {
        /// Host and port.
        bmc: String,
        /// The requested path.
        path: String,
        /// What came.
        found: String,
    },
    /// The user or the password is wrong.
    #[error("the BMC {bmc} refuses the credentials of the host")]
    Unauthorized {
        /// Host and port.
        bmc: String,
    },
    /// It refuses the request.
    #[error("the BMC {bmc} answered {path} with status {status}{}", quoted(.message))]
    Status {
        /// Host and port.
        bmc: String,
        /// The requested path.
        path: String,
        /// Status code of HTTP.
        status: u16,
        /// Its message for users; empty when it has none.
        message: String,
    },
    /// It sends the client elsewhere.
    #[error(
        "the BMC {bmc} refers to {found:?}, which is not the host's own system; nothing was changed there"
    )]
    Elsewhere {
        /// Host and port.
        bmc: String,
        /// Where to, cut off.
        found: String,
    },
}

impl Failure {
    /// A short name for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Proxy { .. } => "proxy",
            Self::Tls { .. } => "tls",
            Self::Slow { .. } => "slow",
            Self::Broken { .. } => "broken",
            Self::TooLarge { .. } => "too-large",
            Self::NotRedfish { .. } => "not-redfish",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Status { .. } => "status",
            Self::Elsewhere { .. } => "elsewhere",
        }
    }
}

fn quoted(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message:?}")
    }
}

/// What a BMC wrote, for messages: at most so many characters, none of them a control character.
pub(super) fn printable(text: &str) -> String {
    const MAX_CHARACTERS: usize = 200;
    let visible = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(MAX_CHARACTERS).collect()
}
