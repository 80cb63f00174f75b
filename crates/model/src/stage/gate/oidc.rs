//! `gate "oidc"`: sign-in works, as far as this can be checked without signing in.

use serde::{Deserialize, Serialize};

use super::http::leads_to;
use super::settings::{Reader, cut};
use super::{CheckResult, Evidence, GateMismatch, quoted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcGate {
    pub issuer: String,
    pub client_id: Option<String>,
    /// Where an application starts its sign-in.
    pub login_url: Option<String>,
    pub ca: Option<String>,
}

/// The findings. For a part that could not be read, `failed` contains the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OidcEvidence {
    pub issuer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<Discovery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<OidcKey>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_failed: Option<String>,
    /// The URLs of the sign-in redirects, without query values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<String>,
    /// The final URL, without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_failed: Option<String>,
}

/// The relevant part of an issuer's discovery document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    pub issuer: String,
    pub jwks_uri: String,
    #[serde(default)]
    pub authorization_endpoint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OidcKey {
    #[serde(default)]
    pub kid: Option<String>,
    pub kty: String,
    #[serde(default)]
    pub alg: Option<String>,
}

impl OidcGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let issuer = reader.url("issuer").unwrap_or_default();
        if reader.value("issuer").is_none() {
            reader.wrong(
                "issuer",
                "has no value: an output that is null, or not there",
            );
        }
        let client_id = reader.text("client_id");
        let login_url = reader.url("login_url");
        if client_id.is_some() && reader.value("login_url").is_none() {
            reader.wrong(
                "client_id",
                "requires `login_url`: it is seen in the redirect from there",
            );
        }
        Self {
            issuer,
            client_id,
            login_url,
            ca: reader.pem("ca"),
        }
    }

    /// The URL of the discovery document.
    pub fn discovery_url(&self) -> String {
        let base = self.issuer.trim_end_matches('/');
        format!("{base}/.well-known/openid-configuration")
    }

    pub fn judge(&self, seen: OidcEvidence) -> CheckResult {
        let mut misses = Vec::new();
        match (&seen.discovery, &seen.discovery_failed) {
            (Some(found), _) => {
                if found.issuer != self.issuer {
                    let mut miss = GateMismatch::new("issuer", &self.issuer, cut(&found.issuer));
                    if found.issuer.trim_end_matches('/') == self.issuer.trim_end_matches('/') {
                        miss =
                            miss.also("they differ by a `/` at the end: clients compare exactly");
                    }
                    misses.push(miss);
                }
            }
            (None, why) => {
                let why = why.clone().unwrap_or_else(|| "nothing".to_owned());
                misses.push(GateMismatch::new("discovery", self.discovery_url(), why));
            }
        }
        if let Some(found) = &seen.discovery {
            let keys = seen.keys.as_deref().unwrap_or_default();
            if keys.is_empty() {
                let why = seen.keys_failed.clone();
                let why = why.unwrap_or_else(|| "a document without keys".to_owned());
                misses.push(GateMismatch::new(
                    "keys",
                    format!("keys at {}", found.jwks_uri),
                    why,
                ));
            }
        }
        misses.extend(self.login_misses(&seen));
        CheckResult::judged(Evidence::Oidc(seen), misses)
    }

    fn login_misses(&self, seen: &OidcEvidence) -> Vec<GateMismatch> {
        let (Some(_), Some(found)) = (&self.login_url, &seen.discovery) else {
            return Vec::new();
        };
        let mut misses = Vec::new();
        let Some(endpoint) = &found.authorization_endpoint else {
            return vec![GateMismatch::new(
                "sign-in",
                "an authorization endpoint",
                "the issuer names none",
            )];
        };
        if let Some(why) = &seen.login_failed {
            return vec![GateMismatch::new(
                "sign-in",
                format!("a redirect to {endpoint}"),
                why,
            )];
        }
        let arrived = seen.arrived.as_deref().unwrap_or("nowhere");
        if !leads_to(arrived, endpoint) {
            misses.push(GateMismatch::new(
                "sign-in",
                format!("a redirect to {endpoint}"),
                arrived,
            ));
        }
        if let Some(wanted) = &self.client_id
            && seen.client_id.as_ref() != Some(wanted)
        {
            let shown = seen.client_id.as_deref().unwrap_or("none");
            misses.push(GateMismatch::new("client_id", wanted, shown));
        }
        misses
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let mut lines = vec![format!("curl {}", quoted(&self.discovery_url()))];
        if let Some(url) = &self.login_url {
            lines.push(format!("curl --include {}", quoted(url)));
        }
        lines
    }
}

/// A URL whose query only keeps the parameters that identify the parties. Others, such as the state of a sign-in, are
/// removed.
pub fn withheld_query(url: &str) -> String {
    const SHOWN: [&str; 4] = ["client_id", "redirect_uri", "response_type", "scope"];
    let (url, fragment) = match url.split_once('#') {
        Some((url, _)) => (url, "#…"),
        None => (url, ""),
    };
    let Some((base, query)) = url.split_once('?') else {
        return format!("{url}{fragment}");
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if SHOWN.contains(&name) => pair.to_owned(),
        Some((name, _)) => format!("{name}=…"),
        None => pair.to_owned(),
    });
    let pairs: Vec<String> = pairs.collect();
    format!("{base}?{}{fragment}", pairs.join("&"))
}
