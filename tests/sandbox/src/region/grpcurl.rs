//! grpcurl, as an operator uses it: with reflection, so without this project's proto files.

use serde_json::Value;

use super::{Error, Region};
use crate::{
    authority::Identity,
    process::Program,
    site::{Answer, run},
    tools,
};

/// How somebody calls a scheduler by grpcurl.
#[derive(Clone, Debug)]
pub struct Grpcurl {
    address: String,
    identity: Identity,
}

impl Grpcurl {
    /// Calls of somebody to the scheduler at `ADDRESS:PORT`, which must be a name or address in its certificate.
    #[must_use]
    pub fn new(address: String, identity: Identity) -> Self {
        Self { address, identity }
    }

    /// Runs it. `arguments` come after the address, such as `list`.
    ///
    /// # Errors
    /// When grpcurl cannot be run; that a call fails is for the caller to look at.
    pub async fn run(&self, arguments: &[&str]) -> Result<Answer, Error> {
        let program = Program::new("grpcurl", tools::path("grpcurl")?)
            .args(login(&self.identity))
            .arg(&self.address)
            .args(arguments);
        Ok(run(&program, "").await?)
    }

    /// Calls a method with a JSON request.
    ///
    /// # Errors
    /// When grpcurl cannot be run; that a call fails is for the caller to look at.
    pub async fn call(&self, method: &str, request: &Value) -> Result<Answer, Error> {
        let program = Program::new("grpcurl", tools::path("grpcurl")?)
            .args(login(&self.identity))
            .args(["-d".to_owned(), request.to_string()])
            .args([self.address.as_str(), method]);
        Ok(run(&program, "").await?)
    }

    /// The line that a person types for such a call: `None` for a call without a request, such as `list`.
    #[must_use]
    pub fn line(&self, method: &str, request: Option<&Value>) -> String {
        let grpcurl =
            tools::path("grpcurl").map_or_else(|_| "grpcurl".to_owned(), |path| path.display().to_string());
        let data = request
            .map(|request| format!(" -d '{request}'"))
            .unwrap_or_default();
        format!(
            "{grpcurl} {}{data} {} {method}",
            login(&self.identity).join(" "),
            self.address
        )
    }
}

impl Region {
    /// Runs grpcurl against the scheduler as somebody. `arguments` come after the address, such as `list`.
    ///
    /// # Errors
    /// As [`Grpcurl::run`].
    pub async fn grpcurl(&self, identity: &Identity, arguments: &[&str]) -> Result<Answer, Error> {
        Grpcurl::new(self.address(), identity.clone())
            .run(arguments)
            .await
    }

    /// Calls a method with a JSON request.
    ///
    /// # Errors
    /// As [`Grpcurl::call`].
    pub async fn call(&self, identity: &Identity, method: &str, request: &Value) -> Result<Answer, Error> {
        Grpcurl::new(self.address(), identity.clone())
            .call(method, request)
            .await
    }
}

fn login(identity: &Identity) -> [String; 6] {
    let path = |path: &std::path::Path| path.display().to_string();
    [
        "-cacert".to_owned(),
        path(&identity.authority),
        "-cert".to_owned(),
        path(&identity.certificate),
        "-key".to_owned(),
        path(&identity.key),
    ]
}
