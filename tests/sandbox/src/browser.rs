//! A real browser: Chromium without a window, driven over `WebDriver` by chromedriver.
//!
//! `WebDriver` is a W3C standard of a few JSON requests, so no client library is needed for those used here.

use std::{fs, io, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{Method, Request, header};
use kube::client::Body;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::parse_x509_certificate;

use crate::{
    port,
    process::{self, Group, Process, Program},
    readiness, tools,
};

/// Under this key `WebDriver` returns the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const PATIENCE: Duration = Duration::from_mins(1);

/// Why there is no browser, or a page is not as expected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Chromium or chromedriver is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// It did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// It is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// Its directory cannot be made, or there is no free port.
    #[error("prepare a browser")]
    Io(#[from] io::Error),
    /// The certificate whose key it has to trust cannot be read.
    #[error("read a certificate: {0}")]
    Certificate(String),
    /// A command failed.
    #[error("{command}: {reason}")]
    Command {
        /// Method and path of the command.
        command: String,
        /// What chromedriver answered.
        reason: String,
    },
}

/// A running browser with one window. It ends with its group.
pub struct Browser {
    /// The process of chromedriver, whose child is the browser.
    pub process: Process,
    driver: kube::Client,
    session: String,
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Browser {
    /// Starts a browser. Besides the CAs of the machine it trusts servers that show this certificate (PEM), or another with its key.
    ///
    /// # Errors
    /// When Chromium is not installed or does not start.
    pub async fn start(group: &Group, certificate: &str) -> Result<Self, Error> {
        let home = group.directory().join("browser");
        fs::create_dir_all(&home)?;
        let port = port::reserve()?;
        let mut process = group.spawn(
            Program::new("chromedriver", tools::path("chromedriver")?)
                .env("HOME", &home)
                .flag("--port", port.to_string()),
        )?;
        readiness::http(&mut process, port, "/status", PATIENCE).await?;
        let mut browser = Self {
            process,
            driver: driver(port)?,
            session: String::new(),
        };
        let arguments = [
            "--headless=new".to_owned(),
            // It opens pages of this machine only, and containers often forbid what its sandbox is made of.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-proxy-server".to_owned(),
            format!("--user-data-dir={}", home.join("profile").display()),
            format!("--ignore-certificate-errors-spki-list={}", pin(certificate)?),
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "timeouts": {"implicit": PATIENCE.as_secs() * 1000},
            "goog:chromeOptions": {"binary": tools::path("chromium")?, "args": arguments},
        }}});
        let session = browser
            .send(Method::POST, "/session", Some(&capabilities))
            .await?;
        session["sessionId"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut browser.session);
        Ok(browser)
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub async fn open(&self, url: &str) -> Result<(), Error> {
        self.window(Method::POST, "url", Some(&json!({ "url": url })))
            .await
            .map(drop)
    }

    /// Types into the field of a page that a CSS selector names.
    ///
    /// # Errors
    /// When the page has no such field.
    pub async fn fill(&self, selector: &str, text: &str) -> Result<(), Error> {
        self.element(selector, "value", &json!({ "text": text })).await
    }

    /// Empties a field that a CSS selector names.
    ///
    /// # Errors
    /// When the page has no such field.
    pub async fn clear(&self, selector: &str) -> Result<(), Error> {
        self.element(selector, "clear", &json!({})).await
    }

    /// Waits until the page has what a CSS selector names.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn shows(&self, selector: &str) -> Result<(), Error> {
        self.find(selector).await.map(drop)
    }

    /// Clicks on what a CSS selector names. The page that follows may not be there yet: wait for what only that one has.
    ///
    /// # Errors
    /// When the page has no such element.
    pub async fn click(&self, selector: &str) -> Result<(), Error> {
        self.element(selector, "click", &json!({})).await
    }

    /// The URL of the page.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn url(&self) -> Result<String, Error> {
        let url = self.window(Method::GET, "url", None).await?;
        Ok(url.as_str().unwrap_or_default().to_owned())
    }

    async fn find(&self, selector: &str) -> Result<String, Error> {
        let named = json!({"using": "css selector", "value": selector});
        match self.window(Method::POST, "element", Some(&named)).await {
            Ok(found) => Ok(found[ELEMENT].as_str().unwrap_or_default().to_owned()),
            Err(Error::Command { command, reason }) => {
                let page = self.described().await;
                Err(Error::Command {
                    command,
                    reason: format!("{reason}; the page is {page}"),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Where it is, and what the page shows; for people.
    async fn described(&self) -> String {
        let script = json!({"script": "return location.href + ': ' + document.body.innerText", "args": []});
        match self.window(Method::POST, "execute/sync", Some(&script)).await {
            Ok(page) => page.as_str().unwrap_or_default().chars().take(600).collect(),
            Err(error) => error.to_string(),
        }
    }

    async fn element(&self, selector: &str, action: &str, body: &Value) -> Result<(), Error> {
        let id = self.find(selector).await?;
        self.window(Method::POST, &format!("element/{id}/{action}"), Some(body))
            .await
            .map(drop)
    }

    async fn window(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        self.send(method, &format!("/session/{}/{path}", self.session), body)
            .await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let command = format!("{method} {path}");
        let failed = |reason: &dyn std::fmt::Display| Error::Command {
            command: command.clone(),
            reason: reason.to_string(),
        };
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.into_bytes()))
            .map_err(|error| failed(&error))?;
        let answer = self.driver.send(request).await.map_err(|error| failed(&error))?;
        let (parts, body) = answer.into_parts();
        let body = body.collect_bytes().await.map_err(|error| failed(&error))?;
        let mut body: Value = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
        if !parts.status.is_success() {
            return Err(failed(&body["value"]["message"]));
        }
        Ok(body["value"].take())
    }
}

fn driver(port: u16) -> Result<kube::Client, Error> {
    let failed = |reason: &dyn std::fmt::Display| Error::Command {
        command: format!("connect to 127.0.0.1:{port}"),
        reason: reason.to_string(),
    };
    let server: http::Uri = format!("http://127.0.0.1:{port}")
        .parse()
        .map_err(|error| failed(&error))?;
    let mut config = kube::Config::new(server);
    config.proxy_url = None;
    // A command ends when its page is loaded, or its element found.
    config.read_timeout = Some(PATIENCE * 2);
    kube::Client::try_from(config).map_err(|error| failed(&error))
}

/// SHA-256 of the certificate's public key, as Chromium wants it.
fn pin(certificate: &str) -> Result<String, Error> {
    let failed = |reason: &dyn std::fmt::Display| Error::Certificate(reason.to_string());
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| failed(&error))?;
    let (_, parsed) = parse_x509_certificate(&der).map_err(|error| failed(&error))?;
    Ok(BASE64.encode(Sha256::digest(parsed.public_key().raw)))
}
