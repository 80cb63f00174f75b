//! One request to a secret service and its answer: limited in time and size, without redirects, TLS with the
//! system's roots. Errors never show what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use model::base::masking::Mask;
use model::base::secret::Secret;
use model::project::identity::check_place;
use reqwest::{Certificate, Client, ClientBuilder, Method, NoProxy, Proxy, redirect};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::{ExchangeError, LARGEST, SecretError};

const PATIENCE: Duration = Duration::from_secs(20);
/// Metadata services answer from the machine itself, so a short limit is enough.
const NEARBY: Duration = Duration::from_secs(1);

/// The settings in the caller's environment: addresses and credentials. An empty value counts as unset.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'a> Settings<'a> {
    pub(super) fn get(self, name: &str) -> Option<&'a str> {
        let value = self.0.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// The first of these names that is set.
    pub(super) fn any(self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| self.get(name))
    }

    pub(super) fn secret(self, name: &str) -> Option<Secret> {
        self.get(name).map(Secret::new)
    }

    /// The token of the GitHub job in which this runs; `None` elsewhere.
    pub(super) async fn token_of_github_job(
        self,
        audience: &str,
    ) -> Result<Option<Secret>, ExchangeError> {
        let (Some(address), Some(bearer)) = (
            self.get("ACTIONS_ID_TOKEN_REQUEST_URL"),
            self.secret("ACTIONS_ID_TOKEN_REQUEST_TOKEN"),
        ) else {
            return Ok(None);
        };
        let oidc = crate::oidc::Oidc::new().map_err(ExchangeError::Job)?;
        let token = oidc.token_of_github_job(address, &bearer, audience).await;
        token.map(Some).map_err(ExchangeError::Job)
    }
}

/// One request.
pub(super) struct Call<'a> {
    method: Method,
    address: String,
    headers: Vec<(&'static str, Secret)>,
    body: Option<Secret>,
    /// Values that must not appear in error messages.
    hidden: Vec<&'a Secret>,
}

impl<'a> Call<'a> {
    pub(super) fn get(address: impl Into<String>) -> Self {
        Self::new(Method::GET, address)
    }

    pub(super) fn post(
        address: impl Into<String>,
        content_type: &'static str,
        body: Secret,
    ) -> Self {
        let mut call = Self::new(Method::POST, address).header("content-type", content_type);
        call.body = Some(body);
        call
    }

    pub(super) fn new(method: Method, address: impl Into<String>) -> Self {
        Self {
            method,
            address: address.into(),
            headers: Vec::new(),
            body: None,
            hidden: Vec::new(),
        }
    }

    pub(super) fn header(self, name: &'static str, value: impl Into<String>) -> Self {
        self.secret_header(name, Secret::new(value))
    }

    pub(super) fn secret_header(mut self, name: &'static str, value: Secret) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn hiding(mut self, secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        self.hidden.extend(secrets);
        self
    }

    /// The address without its query, which may be confidential.
    fn place(&self) -> String {
        let place = self.address.split('?').next().unwrap_or_default();
        place.to_owned()
    }
}

/// An answer of any status.
pub(super) struct HttpResponse {
    place: String,
    pub(super) status: u16,
    body: Zeroizing<Vec<u8>>,
    said: Mask,
}

impl HttpResponse {
    /// Parses the body of a successful answer.
    pub(super) fn read<'b, T: Deserialize<'b>>(&'b self) -> Result<T, ExchangeError> {
        let text = self.text()?;
        serde_json::from_str(text).map_err(|_| self.unreadable())
    }

    pub(super) fn text(&self) -> Result<&str, ExchangeError> {
        if !(200..300).contains(&self.status) {
            return Err(ExchangeError::Status {
                place: self.place.clone(),
                status: self.status,
                said: self.words(),
            });
        }
        std::str::from_utf8(&self.body).map_err(|_| self.unreadable())
    }

    pub(super) fn unreadable(&self) -> ExchangeError {
        ExchangeError::Document {
            place: self.place.clone(),
        }
    }

    /// The reason for a refusal in one line, from the formats of Vault, Azure and AWS.
    fn words(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let said = match serde_json::from_str::<Value>(text) {
            Ok(refusal) => {
                let at = |path: &str| refusal.pointer(path)?.as_str().map(str::to_owned);
                // The last part of a type name is the readable one.
                let kind = at("/__type");
                let kind = kind.and_then(|kind| Some(kind.rsplit('#').next()?.to_owned()));
                let words = at("/errors/0")
                    .or_else(|| at("/error_description"))
                    .or_else(|| at("/error/message"))
                    .or_else(|| at("/error"))
                    .or_else(|| at("/message"))
                    .or_else(|| at("/Message"));
                let words: Vec<String> = kind.into_iter().chain(words).collect();
                words.join(": ")
            }
            Err(_) => element(text, "Message")?.to_owned(),
        };
        let said = self.said.mask_text(&said);
        let mut lines = said.trim_start().lines();
        let first = lines.next()?;
        // Vault formats even a single error as a list.
        let said = if first.ends_with(" occurred:") {
            let items = lines.map(|line| line.trim_start_matches(['\t', ' ', '*']).trim());
            let items: Vec<&str> = items.filter(|line| !line.is_empty()).collect();
            items.join(", ")
        } else {
            first.trim().to_owned()
        };
        let line: String = said.chars().take(200).collect();
        (!line.is_empty()).then_some(line)
    }
}

/// The text of an XML element without nested markup.
pub(super) fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner)
}

/// An HTTP client for secret services.
pub(super) struct Exchange {
    client: Client,
    nearby: Client,
}

impl Exchange {
    /// `authority` is the variable that names a file with further CA certificates.
    pub(super) fn new(
        settings: Settings<'_>,
        authority: &'static str,
    ) -> Result<Self, ExchangeError> {
        let mut builder = bare().connect_timeout(PATIENCE / 2).timeout(PATIENCE);
        for name in [authority, "SSL_CERT_FILE"] {
            if let Some(path) = settings.get(name) {
                let read = std::fs::read(path).ok();
                let read = read.and_then(|pem| Certificate::from_pem_bundle(&pem).ok());
                let certificates = read.ok_or(ExchangeError::Certificates { name })?;
                builder = builder.tls_certs_merge(certificates);
            }
        }
        // A runner has no such variables of its own: the proxies come from the caller's environment.
        let except = settings.any(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        let proxies = [
            (["HTTPS_PROXY", "https_proxy"], true),
            (["ALL_PROXY", "all_proxy"], false),
        ];
        for (names, for_https) in proxies {
            if let Some(address) = settings.any(&names) {
                let proxy = if for_https {
                    Proxy::https(address)
                } else {
                    Proxy::all(address)
                };
                let proxy = proxy.map_err(ExchangeError::Client)?;
                let except = format!("localhost,127.0.0.0/8,::1,{except}");
                builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&except)));
            }
        }
        let nearby = bare().connect_timeout(NEARBY).timeout(NEARBY * 5);
        Ok(Self {
            client: builder.build().map_err(ExchangeError::Client)?,
            nearby: nearby.build().map_err(ExchangeError::Client)?,
        })
    }

    /// Sends a request: over TLS, or to this machine.
    pub(super) async fn send(&self, call: Call<'_>) -> Result<HttpResponse, ExchangeError> {
        check(&call.address)?;
        send(&self.client, call).await
    }

    /// Queries a metadata service of this machine. `None` if there is none, after a short wait.
    pub(super) async fn ask_nearby(
        &self,
        call: Call<'_>,
    ) -> Result<Option<HttpResponse>, ExchangeError> {
        if !is_nearby(&call.address) {
            check(&call.address)?;
        }
        match send(&self.nearby, call).await {
            Ok(answer) => Ok(Some(answer)),
            Err(ExchangeError::Send { .. }) => Ok(None),
            Err(err) => Err(err),
        }
    }
}

/// Checks that a secret may be sent there. The error shows the address without credentials.
fn check(address: &str) -> Result<(), ExchangeError> {
    if address.contains('@') {
        return Err(ExchangeError::Credentials);
    }
    let place = address.split('?').next().unwrap_or_default();
    Ok(check_place(place)?)
}

fn bare() -> ClientBuilder {
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")))
}

/// Whether an address never leaves the machine or its host.
fn is_nearby(address: &str) -> bool {
    ["http://169.254.", "http://[fd00:ec2::23]"]
        .iter()
        .any(|start| address.starts_with(start))
}

async fn send(client: &Client, call: Call<'_>) -> Result<HttpResponse, ExchangeError> {
    let place = call.place();
    let failed = |source: reqwest::Error| ExchangeError::Send {
        place: place.clone(),
        source: source.without_url(),
    };
    let mut request = client.request(call.method, &call.address);
    for (name, value) in &call.headers {
        request = request.header(*name, value.expose());
    }
    if let Some(body) = &call.body {
        request = request.body(body.expose().to_owned());
    }
    let mut answer = request.send().await.map_err(failed)?;
    // Allocate the whole buffer at once: a growing buffer leaves copies in memory.
    let expected = answer.content_length().unwrap_or(0);
    let expected = usize::try_from(expected).unwrap_or(LARGEST).min(LARGEST);
    let mut body = Zeroizing::new(Vec::with_capacity(expected.max(16 << 10)));
    while let Some(part) = answer.chunk().await.map_err(failed)? {
        if body.len() + part.len() > LARGEST {
            return Err(ExchangeError::TooLong { place });
        }
        body.extend_from_slice(&part);
    }
    let hidden = call.hidden.into_iter().cloned();
    let hidden = hidden.chain(call.headers.into_iter().map(|(_, value)| value));
    let hidden: Vec<Secret> = hidden.filter(|value| value.expose().len() > 15).collect();
    Ok(HttpResponse {
        place,
        status: answer.status().as_u16(),
        body,
        said: Mask::new(&hidden),
    })
}

/// Percent-encodes a text for a path or a query; `/` stays if `keep_slash`.
pub(super) fn escaped(text: &str, keep_slash: bool) -> String {
    let is_plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/')
    };
    let escape = |byte: u8| match byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// A form-encoded body.
pub(super) fn form(fields: &[(&str, &str)]) -> Secret {
    let pairs: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value, false)))
        .collect();
    Secret::new(pairs.join("&"))
}

pub(super) const FORM: &str = "application/x-www-form-urlencoded";
pub(super) const JSON: &str = "application/json";

/// The failed action with its next step.
pub(super) fn failed(
    action: impl Into<String>,
    remedy: impl FnOnce(&ExchangeError) -> Option<String>,
) -> impl FnOnce(ExchangeError) -> SecretError {
    let action = action.into();
    move |source| {
        let remedy = remedy(&source);
        SecretError::Exchange {
            action,
            source,
            remedy,
        }
    }
}
