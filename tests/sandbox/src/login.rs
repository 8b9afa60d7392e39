//! A person at a browser, and the program that they log in to: authorization code flow at an OIDC provider on loopback.

use std::net::SocketAddrV4;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Method, Request, Response, header};
use kube::client::Body;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

/// Where kubelogin listens.
pub const REDIRECT: &str = "http://localhost:8000";

/// Why a provider cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client for it.
    #[error("make a client of {0}")]
    Client(String),
    /// It does not answer, or not in the way of a provider.
    #[error("{target}: {reason}")]
    Answer {
        /// What was asked.
        target: String,
        /// What came.
        reason: String,
    },
}

/// A provider, as people and programs reach it.
#[derive(Clone)]
pub struct Provider {
    issuer: String,
    path: String,
    bundle: String,
    address: Option<SocketAddrV4>,
    client: kube::Client,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// An answer of a provider.
#[derive(Debug)]
struct Answer {
    status: u16,
    location: Option<String>,
    body: String,
}

/// How a login ended.
#[derive(Debug, PartialEq)]
pub enum Login {
    /// The program gets a code.
    Code(String),
    /// The person sees the form again.
    Again,
    /// The provider shows an error; its status and page.
    Error(u16, String),
}

/// A login form that somebody has open.
#[derive(Clone, Debug)]
pub struct Form {
    target: String,
    redirect: String,
}

/// A token, as its payload says.
#[derive(Debug)]
pub struct Token {
    /// What it says.
    pub claims: Value,
    /// Which key has signed it.
    pub key: String,
    /// What a new one is had for.
    pub refresh: Option<String>,
    /// The token itself.
    pub text: String,
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn form(fields: &[(&str, &str)]) -> String {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)));
    fields.collect::<Vec<_>>().join("&")
}

impl Provider {
    /// The provider with this issuer, whose certificate chains to these CAs (PEM).
    ///
    /// # Errors
    /// When there is no client for it.
    pub fn new(issuer: &str, bundle: &str) -> Result<Self, Error> {
        Self::reached(issuer, bundle, None)
    }

    /// The same at an address that nobody need find by the issuer's name.
    ///
    /// # Errors
    /// When there is no client for it.
    pub fn at(address: SocketAddrV4, issuer: &str, bundle: &str) -> Result<Self, Error> {
        Self::reached(issuer, bundle, Some(address))
    }

    fn reached(issuer: &str, bundle: &str, address: Option<SocketAddrV4>) -> Result<Self, Error> {
        let failed = |reason: &dyn std::fmt::Display| Error::Client(format!("{issuer}: {reason}"));
        let uri: http::Uri = issuer.parse().map_err(|error| failed(&error))?;
        let path = uri.path().trim_end_matches('/').to_owned();
        let server = issuer.strip_suffix(&path).unwrap_or(issuer);
        let server = address.map_or_else(|| server.to_owned(), |address| format!("https://{address}"));
        let mut config = kube::Config::new(server.parse().map_err(|error| failed(&error))?);
        config.proxy_url = None;
        if address.is_some() {
            config.tls_server_name = uri.host().map(str::to_owned);
        }
        let certificates = CertificateDer::pem_slice_iter(bundle.as_bytes());
        let certificates: Result<Vec<_>, _> =
            certificates.map(|found| found.map(|der| der.to_vec())).collect();
        config.root_cert = Some(certificates.map_err(|error| failed(&error))?);
        let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
        Ok(Self {
            issuer: issuer.to_owned(),
            path,
            bundle: bundle.to_owned(),
            address,
            client,
        })
    }

    /// The same for somebody else, with connections of their own.
    ///
    /// # Errors
    /// As [`Provider::new`].
    pub fn anew(&self) -> Result<Self, Error> {
        Self::reached(&self.issuer, &self.bundle, self.address)
    }

    /// Asks for a path below the issuer's.
    ///
    /// # Errors
    /// When there is no answer, or it is an error.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        let target = format!("{}{path}", self.path);
        let answer = self.request(&target, None).await?;
        serde_json::from_str(&answer.body).map_err(|_| Error::Answer {
            target,
            reason: format!("{}: {}", answer.status, answer.body),
        })
    }

    /// Ids of the keys that it signs with.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn keys(&self) -> Result<Vec<String>, Error> {
        let keys = self.get("/keys").await?;
        let keys = keys["keys"].as_array().into_iter().flatten();
        Ok(keys
            .filter_map(|key| key["kid"].as_str().map(str::to_owned))
            .collect())
    }

    /// The address at which a login with these parameters begins.
    #[must_use]
    pub fn authorization(&self, parameters: &[(&str, &str)]) -> String {
        format!("{}/auth?{}", self.issuer, form(parameters))
    }

    /// Logs in by the form, for a program that waits at `redirect`; `more`: parameters of the request besides the usual ones.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn log_in(
        &self,
        client: &str,
        to: (&str, &[(&str, &str)]),
        person: (&str, &str),
    ) -> Result<Login, Error> {
        match self.form(client, to).await? {
            Ok(form) => self.submit(&form, person).await,
            Err(refused) => Ok(refused),
        }
    }

    /// Opens the form of a login; `Err`: the provider shows an error instead.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn form(
        &self,
        client: &str,
        (redirect, more): (&str, &[(&str, &str)]),
    ) -> Result<Result<Form, Login>, Error> {
        let usual = [
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", redirect),
            ("scope", "openid email profile groups offline_access"),
            ("state", "xyz"),
        ];
        let fields: Vec<_> = usual.iter().chain(more).copied().collect();
        let target = format!("{}/auth?{}", self.path, form(&fields));
        let answer = self.request(&target, None).await?;
        let (page, target) = self.follow(answer, target).await?;
        if page.status != 200 || !page.has_form() {
            return Ok(Err(Login::Error(page.status, page.body)));
        }
        Ok(Ok(Form {
            target,
            redirect: redirect.to_owned(),
        }))
    }

    /// Types name and password into a form.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn submit(&self, form: &Form, (name, password): (&str, &str)) -> Result<Login, Error> {
        let typed = self::form(&[("login", name), ("password", password)]);
        let answer = self.request(&form.target, Some(&typed)).await?;
        let (answer, target) = self.follow(answer, form.target.clone()).await?;
        let code = target
            .strip_prefix(&form.redirect)
            .filter(|back| back.contains("state=xyz"));
        let code = code.and_then(|back| back.split_once("code=")?.1.split('&').next());
        Ok(match code {
            Some(code) => Login::Code(code.to_owned()),
            None if answer.status < 500 && answer.has_form() => Login::Again,
            None => Login::Error(answer.status, answer.body),
        })
    }

    /// Logs in at an address to which a program has sent a person, and returns the one to which the provider sends them back.
    ///
    /// # Errors
    /// When it does not answer, or does not let the person in.
    pub async fn visit(&self, authorization: &str, (name, password): (&str, &str)) -> Result<String, Error> {
        let target = authorization.strip_prefix(&self.issuer).unwrap_or_default();
        let target = format!("{}{target}", self.path);
        let answer = self.request(&target, None).await?;
        let (_, target) = self.follow(answer, target).await?;
        let typed = form(&[("login", name), ("password", password)]);
        let answer = self.request(&target, Some(&typed)).await?;
        let (answer, back) = self.follow(answer, target).await?;
        if back.starts_with('/') {
            return Err(Error::Answer {
                target: back,
                reason: format!("{}: {}", answer.status, answer.body),
            });
        }
        Ok(back)
    }

    /// What the program gets for a code; `Err` is the provider's answer.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn redeem(
        &self,
        client: &str,
        redirect: &str,
        code: &str,
        more: &[(&str, &str)],
    ) -> Result<Result<Token, String>, Error> {
        let usual = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("client_id", client),
        ];
        let fields: Vec<_> = usual.iter().chain(more).copied().collect();
        self.token(&fields).await
    }

    /// What the program gets for a refresh token; `Err` is the provider's answer.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn refresh(&self, client: &str, refresh: &str) -> Result<Result<Token, String>, Error> {
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh),
            ("client_id", client),
        ];
        self.token(&fields).await
    }

    async fn token(&self, fields: &[(&str, &str)]) -> Result<Result<Token, String>, Error> {
        let target = format!("{}/token", self.path);
        let answer = self.request(&target, Some(&form(fields))).await?;
        if answer.status != 200 {
            return Ok(Err(answer.body));
        }
        let token = Token::read(&answer.body);
        token.map(Ok).ok_or(Error::Answer {
            target,
            reason: answer.body,
        })
    }

    /// Follows redirects within the provider.
    async fn follow(&self, mut answer: Answer, mut target: String) -> Result<(Answer, String), Error> {
        while let Some(next) = answer.location.take() {
            let own = next.strip_prefix(&self.issuer);
            let own = own.map(|rest| format!("{}{rest}", self.path));
            target = match own {
                Some(own) => own,
                None if next.starts_with('/') => next,
                None => return Ok((answer, next)),
            };
            answer = self.request(&target, None).await?;
        }
        Ok((answer, target))
    }

    async fn request(&self, target: &str, form: Option<&str>) -> Result<Answer, Error> {
        let failed = |reason: &dyn std::fmt::Display| Error::Answer {
            target: target.to_owned(),
            reason: reason.to_string(),
        };
        let method = if form.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(target);
        if form.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let body = Body::from(form.unwrap_or_default().as_bytes().to_vec());
        let request = request.body(body).map_err(|error| failed(&error))?;
        let answer: Response<Body> = self.client.send(request).await.map_err(|error| failed(&error))?;
        let (parts, body) = answer.into_parts();
        let location = parts.headers.get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let body = body.collect_bytes().await.map_err(|error| failed(&error))?;
        Ok(Answer {
            status: parts.status.as_u16(),
            location: location.map(str::to_owned),
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

impl Answer {
    fn has_form(&self) -> bool {
        self.body.contains("name=\"password\"")
    }
}

impl Token {
    fn read(answer: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(answer).ok()?;
        let token = body["id_token"].as_str()?;
        let part = |index: usize| -> Option<Value> {
            let part = URL_SAFE_NO_PAD.decode(token.split('.').nth(index)?).ok()?;
            serde_json::from_slice(&part).ok()
        };
        Some(Self {
            claims: part(1)?,
            key: part(0)?["kid"].as_str()?.to_owned(),
            refresh: body["refresh_token"].as_str().map(str::to_owned),
            text: token.to_owned(),
        })
    }
}
