//! Asks for one page and follows nothing.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use model::gate::{BODY_LIMIT, HttpAnswer, HttpGate, Look, Unanswered};
use reqwest::{Client, Method, RequestBuilder, Response, Url, Version};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs as provider;
use tokio::time::{Instant, timeout};

use super::{Deadline, Probes, io_words};

/// As much of a body as is read where nobody asked for it, and for how long.
const GLIMPSE: usize = 16 << 10;
const GLIMPSE_TIME: Duration = Duration::from_secs(1);
/// A body up to here needs no room of the shared one.
const SMALL_BODY: usize = 64 << 10;

pub async fn look(probes: &Probes, gate: &HttpGate, limit: Duration) -> Look {
    let deadline = Deadline::after(limit);
    let client = match probes.client(gate.ca.as_deref()) {
        Ok(client) => client,
        Err(why) => return Look::impossible(why),
    };
    let Ok(url) = Url::parse(&gate.url) else {
        return Look::impossible("`url` cannot be read as an address of the web");
    };
    let Ok(method) = Method::from_bytes(gate.method.as_bytes()) else {
        return Look::impossible(format!("there is no method `{}`", gate.method));
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

/// Where an answer leads, if it is a redirect.
pub(super) fn target(from: &Url, answer: &HttpAnswer) -> Option<Url> {
    let is_redirect = (300..400).contains(&answer.status);
    let location = answer.header("location");
    let location = location.first().filter(|_| is_redirect)?;
    from.join(location).ok()
}

impl Probes {
    /// Follows no redirect and keeps no connection.
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
            // Another may have been faster; either will do.
            drop(self.shared.client.set(client.clone()));
        }
        Ok(client)
    }

    /// Sends a request and reads at most [`BODY_LIMIT`] of what comes, or a glimpse of it if no body is wanted.
    pub(super) async fn fetch(
        &self,
        request: RequestBuilder,
        wants_body: bool,
        deadline: Deadline,
    ) -> Result<HttpAnswer, Unanswered> {
        let began = Instant::now();
        let mut response = match timeout(deadline.left(), request.send()).await {
            Err(_) => return Err(Unanswered::TooSlow(deadline.words())),
            Ok(Err(err)) => return Err(unanswered(&err)),
            Ok(Ok(response)) => response,
        };
        let headers = response.headers().iter();
        let mut answer = HttpAnswer {
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
                return Err(Unanswered::TooSlow(words));
            }
        } else {
            // For the record only: what it does not say in time is not waited for.
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
        answer: &mut HttpAnswer,
    ) -> Result<(), Unanswered> {
        read(response, answer, SMALL_BODY).await?;
        if !answer.cut {
            return Ok(());
        }
        // Many long bodies at once would not fit; who has a place always comes to its end.
        let _room = self.shared.bodies.acquire().await;
        read(response, answer, BODY_LIMIT).await
    }
}

/// Reads on until the body is longer than this, or at its end.
async fn read(
    response: &mut Response,
    answer: &mut HttpAnswer,
    most: usize,
) -> Result<(), Unanswered> {
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

/// What went wrong, without the address: it may hold a secret.
fn unanswered(err: &reqwest::Error) -> Unanswered {
    let mut cause = err.source();
    let mut last = String::new();
    while let Some(one) = cause {
        last = one.to_string();
        if let Some(io) = one.downcast_ref::<std::io::Error>() {
            if let Some(tls) = tls_error(io) {
                return Unanswered::Untrusted(tls.to_string());
            }
            last = io_words(io);
        }
        cause = one.source();
    }
    if err.is_timeout() {
        return Unanswered::TooSlow("timed out".to_owned());
    }
    if err.is_connect() {
        return Unanswered::NoListener(last);
    }
    Unanswered::Broken(last)
}

/// An error of TLS travels inside one of input and output, sometimes inside several.
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
