//! Requests one page, without following redirects.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use model::stage::gate::{BODY_LIMIT, CheckResult, HttpFailure, HttpGate, HttpReply};
use reqwest::{Client, Method, RequestBuilder, Response, Url, Version};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs as provider;
use tokio::time::{Instant, timeout};

use super::{Deadline, Probes, io_words};

/// How much of a body is read, and for how long, if the gate does not check the body.
const GLIMPSE: usize = 16 << 10;
const GLIMPSE_TIME: Duration = Duration::from_secs(1);
/// A body up to this size needs no permit.
const SMALL_BODY: usize = 64 << 10;

pub async fn look(probes: &Probes, gate: &HttpGate, limit: Duration) -> CheckResult {
    let deadline = Deadline::after(limit);
    let client = match probes.client(gate.ca.as_deref()) {
        Ok(client) => client,
        Err(why) => return CheckResult::impossible(why),
    };
    let Ok(url) = Url::parse(&gate.url) else {
        return CheckResult::impossible("`url` cannot be read as an address of the web");
    };
    let Ok(method) = Method::from_bytes(gate.method.as_bytes()) else {
        return CheckResult::impossible(format!("there is no method `{}`", gate.method));
    };
    let mut request = client.request(method, url.clone());
    for (name, value) in &gate.headers {
        request = request.header(name, value.expose());
    }
    match probes.fetch(request, gate.wants_body(), deadline).await {
        Ok(answer) => {
            let target = target(&url, &answer);
            gate.judge(&answer, target.as_ref().map(Url::as_str))
        }
        Err(why) => gate.judge_failure(why),
    }
}

/// The target of a redirect, if the answer is one.
pub(super) fn target(from: &Url, answer: &HttpReply) -> Option<Url> {
    let is_redirect = (300..400).contains(&answer.status);
    let location = answer.header("location");
    let location = location.first().filter(|_| is_redirect)?;
    from.join(location).ok()
}

impl Probes {
    /// A client that follows no redirects and keeps no connections.
    pub(super) fn client(&self, ca: Option<&str>) -> Result<Client, String> {
        if ca.is_none()
            && let Some(client) = self.shared.client.get()
        {
            return Ok(client.clone());
        }
        let roots = self.roots(ca)?;
        let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|err| err.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|err| err.to_string())?;
        if ca.is_none() {
            // Another task may have set it first; either client will do.
            drop(self.shared.client.set(client.clone()));
        }
        Ok(client)
    }

    /// Sends a request and reads at most [`BODY_LIMIT`] of the body, or only its beginning if no body is needed.
    pub(super) async fn fetch(
        &self,
        request: RequestBuilder,
        wants_body: bool,
        deadline: Deadline,
    ) -> Result<HttpReply, HttpFailure> {
        let began = Instant::now();
        let mut response = match timeout(deadline.left(), request.send()).await {
            Err(_) => return Err(HttpFailure::TooSlow(deadline.words())),
            Ok(Err(err)) => return Err(unanswered(&err)),
            Ok(Ok(response)) => response,
        };
        let headers = response.headers().iter();
        let mut answer = HttpReply {
            peer: response.remote_addr().map(|peer| peer.to_string()),
            took_ms: 0,
            version: version(response.version()),
            status: response.status().as_u16(),
            headers: headers
                .map(|(name, value)| {
                    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    (name.to_string(), value)
                })
                .collect(),
            body: Vec::new(),
            cut: false,
        };
        if wants_body {
            let whole = timeout(deadline.left(), self.read_whole(&mut response, &mut answer)).await;
            if let Ok(read) = whole {
                read?;
            } else {
                let so_far = answer.body.len();
                let words = format!("no whole body: {so_far} bytes, then {}", deadline.words());
                return Err(HttpFailure::TooSlow(words));
            }
        } else {
            // This body is only for the record, so a slow one is not waited for.
            let patience = deadline.left().min(GLIMPSE_TIME);
            drop(timeout(patience, read(&mut response, &mut answer, GLIMPSE)).await);
        }
        answer.body.truncate(BODY_LIMIT);
        answer.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(answer)
    }

    async fn read_whole(
        &self,
        response: &mut Response,
        answer: &mut HttpReply,
    ) -> Result<(), HttpFailure> {
        read(response, answer, SMALL_BODY).await?;
        if !answer.cut {
            return Ok(());
        }
        // Limits the memory for long bodies. A task with a permit always finishes and releases it.
        let _room = self.shared.bodies.acquire().await;
        read(response, answer, BODY_LIMIT).await
    }
}

/// Reads until the end of the body, or until it is longer than this.
async fn read(
    response: &mut Response,
    answer: &mut HttpReply,
    most: usize,
) -> Result<(), HttpFailure> {
    answer.cut = false;
    while let Some(part) = response.chunk().await.map_err(|err| unanswered(&err))? {
        answer.body.extend_from_slice(&part);
        if answer.body.len() > most {
            answer.cut = true;
            break;
        }
    }
    Ok(())
}

/// The error without the address, which may hold a secret.
fn unanswered(err: &reqwest::Error) -> HttpFailure {
    let mut cause = err.source();
    let mut last = String::new();
    while let Some(one) = cause {
        last = one.to_string();
        if let Some(io) = one.downcast_ref::<std::io::Error>() {
            if let Some(tls) = tls_error(io) {
                return HttpFailure::Untrusted(tls.to_string());
            }
            last = io_words(io);
        }
        cause = one.source();
    }
    if err.is_timeout() {
        return HttpFailure::TooSlow("timed out".to_owned());
    }
    if err.is_connect() {
        return HttpFailure::NoListener(last);
    }
    HttpFailure::Broken(last)
}

/// A TLS error may be wrapped in several I/O errors.
fn tls_error(err: &std::io::Error) -> Option<&rustls::Error> {
    let inner = err.get_ref()?;
    match inner.downcast_ref::<std::io::Error>() {
        Some(inner) => tls_error(inner),
        None => inner.downcast_ref(),
    }
}

fn version(version: Version) -> String {
    format!("{version:?}")
}
