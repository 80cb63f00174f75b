//! Identity tokens of CI jobs: requested where a job must request one, and verified against the keys that their
//! issuer publishes.
//!
//! Not here: which claims are sufficient (`model::project::identity`), what follows from them (`control::access::writers`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use model::base::secret::Secret;
use model::project::identity::{self, Claims, UntrustedAddress, check_place};
use serde::Deserialize;
use serde::de::DeserializeOwned;

mod keys;

use keys::KeySet;

/// Limits for a token and for a document of an issuer.
const MAX_TOKEN: usize = 16 << 10;
const MAX_DOCUMENT: usize = 512 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
/// Tolerated difference between clocks, in seconds.
const LEEWAY: u64 = 30;

/// Keys are fetched again after this time, so that a withdrawn key is not trusted forever.
const KEYS_LAST: Duration = Duration::from_hours(1);
/// Keys of at most this many issuers are cached.
const MOST_ISSUERS: usize = 16;

/// A client for issuers that caches their keys; clones share the cache. It follows no redirects: only the named
/// address may answer.
#[derive(Clone, Debug)]
pub struct Oidc {
    client: reqwest::Client,
    known: Arc<Mutex<BTreeMap<String, KnownKeys>>>,
}

#[derive(Clone, Debug)]
struct KnownKeys {
    keys: Arc<KeySet>,
    since: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Place(#[from] UntrustedAddress),
    #[error("could not reach `{place}`")]
    Send {
        place: String,
        source: reqwest::Error,
    },
    #[error("`{place}` answered {status}")]
    Status { place: String, status: u16 },
    #[error("`{place}` answered more than {MAX_DOCUMENT} bytes")]
    TooLong { place: String },
    #[error("cannot parse the response of `{place}`")]
    Document {
        place: String,
        source: serde_json::Error,
    },
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum VerifyTokenError {
    #[error("it is not a signed token")]
    Shape,
    #[error("it is signed with `{seen}`, but only `RS256` and `ES256` are accepted")]
    Algorithm { seen: String },
    #[error("its header has `crit`, but terrane supports no token extensions")]
    Critical,
    #[error("it does not name the key that signed it")]
    NoKey,
    #[error("it comes from `{seen}`, not from `{expected}`")]
    Issuer { expected: String, seen: String },
    #[error("the issuer `{issuer}` reports its name as `{seen}`")]
    OtherName { issuer: String, seen: String },
    #[error("cannot fetch the keys of `{issuer}`")]
    Keys { issuer: String, source: FetchError },
    #[error("`{issuer}` has no key `{key}` for `{algorithm}`")]
    UnknownKey {
        issuer: String,
        key: String,
        algorithm: &'static str,
    },
    #[error("its signature does not match the issuer's key")]
    Signature,
    #[error("it is for `{seen}`, not for `{expected}`")]
    Audience { expected: String, seen: String },
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("it has no `{claim}`")]
    Missing { claim: String },
    #[error("it cannot be read")]
    Unreadable(#[source] jsonwebtoken::errors::Error),
}

impl Oidc {
    pub fn new() -> Result<Self, FetchError> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(PATIENCE / 2)
            .timeout(PATIENCE)
            .user_agent(concat!("terrane/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(FetchError::Client)?;
        Ok(Self {
            client,
            known: Arc::default(),
        })
    }

    /// Requests the token of the GitHub job in which this runs.
    pub async fn token_of_github_job(
        &self,
        address: &str,
        bearer: &Secret,
        audience: &str,
    ) -> Result<Secret, FetchError> {
        #[derive(Deserialize)]
        struct IdTokenResponse {
            value: String,
        }
        check_place(address)?;
        let mark = if address.contains('?') { '&' } else { '?' };
        let whole = format!("{address}{mark}audience={}", escaped(audience));
        let request = self.client.get(whole).bearer_auth(bearer.expose());
        // The query of the address may be confidential.
        let place = address.split('?').next().unwrap_or_default();
        let answer: IdTokenResponse = fetch(place, request).await?;
        Ok(Secret::new(answer.value))
    }

    /// The claims of a token, if this issuer signed it for this audience and it is valid now.
    pub async fn verify(
        &self,
        token: &Secret,
        issuer: &str,
        audience: &str,
    ) -> Result<Claims, VerifyTokenError> {
        let unverified = Unverified::read(token.expose())?;
        let algorithm = unverified.algorithm()?;
        let key = unverified
            .header
            .kid
            .clone()
            .ok_or(VerifyTokenError::NoKey)?;
        if unverified.issuer() != issuer {
            return Err(VerifyTokenError::Issuer {
                expected: issuer.to_owned(),
                seen: unverified.issuer(),
            });
        }
        let known = self.known_keys(issuer);
        let mut found = known.and_then(|keys| keys.find(&key, algorithm));
        if found.is_none() {
            // The key is not cached: the issuer may have published it since the last fetch.
            found = self.fetch_keys(issuer).await?.find(&key, algorithm);
        }
        let key = found.ok_or_else(|| VerifyTokenError::UnknownKey {
            issuer: issuer.to_owned(),
            key,
            algorithm: name_of(algorithm),
        })?;
        let mut rules = Validation::new(algorithm);
        rules.set_issuer(&[issuer]);
        rules.set_audience(&[audience]);
        rules.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        rules.validate_nbf = true;
        rules.leeway = LEEWAY;
        let read = jsonwebtoken::decode::<Claims>(token.expose(), &key, &rules);
        read.map(|read| read.claims)
            .map_err(|err| unverified.refused(err, issuer, audience))
    }

    fn known_keys(&self, issuer: &str) -> Option<Arc<KeySet>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(issuer)?;
        (found.since.elapsed() < KEYS_LAST).then(|| Arc::clone(&found.keys))
    }

    async fn fetch_keys(&self, issuer: &str) -> Result<Arc<KeySet>, VerifyTokenError> {
        let keys = Arc::new(self.keys_of(issuer).await?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_ISSUERS {
            known.clear();
        }
        let since = Instant::now();
        let fresh = KnownKeys {
            keys: Arc::clone(&keys),
            since,
        };
        known.insert(issuer.to_owned(), fresh);
        Ok(keys)
    }

    async fn keys_of(&self, issuer: &str) -> Result<KeySet, VerifyTokenError> {
        #[derive(Deserialize)]
        struct Discovery {
            issuer: String,
            jwks_uri: String,
        }
        let failed = |source| VerifyTokenError::Keys {
            issuer: issuer.to_owned(),
            source,
        };
        let base = issuer.trim_end_matches('/');
        let place = format!("{base}/.well-known/openid-configuration");
        let found: Discovery = self.get(&place).await.map_err(failed)?;
        if found.issuer != issuer {
            return Err(VerifyTokenError::OtherName {
                issuer: issuer.to_owned(),
                seen: cut(&found.issuer),
            });
        }
        self.get(&found.jwks_uri).await.map_err(failed)
    }

    async fn get<T: DeserializeOwned>(&self, place: &str) -> Result<T, FetchError> {
        check_place(place)?;
        fetch(place, self.client.get(place)).await
    }
}

async fn fetch<T: DeserializeOwned>(
    place: &str,
    request: reqwest::RequestBuilder,
) -> Result<T, FetchError> {
    let send = |source: reqwest::Error| FetchError::Send {
        place: place.to_owned(),
        source: source.without_url(),
    };
    let mut answer = request.send().await.map_err(send)?;
    if !answer.status().is_success() {
        return Err(FetchError::Status {
            place: place.to_owned(),
            status: answer.status().as_u16(),
        });
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(send)? {
        if body.len() + part.len() > MAX_DOCUMENT {
            return Err(FetchError::TooLong {
                place: place.to_owned(),
            });
        }
        body.extend_from_slice(&part);
    }
    serde_json::from_slice(&body).map_err(|source| FetchError::Document {
        place: place.to_owned(),
        source,
    })
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

/// A token before its signature is checked; used to choose the key and to explain errors.
#[derive(Debug)]
struct Unverified {
    header: Header,
    claims: Claims,
}

impl Unverified {
    fn read(token: &str) -> Result<Self, VerifyTokenError> {
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, _signature] = parts[..] else {
            return Err(VerifyTokenError::Shape);
        };
        if token.len() > MAX_TOKEN {
            return Err(VerifyTokenError::Shape);
        }
        let header = part(header).ok_or(VerifyTokenError::Shape)?;
        let claims = part(claims).ok_or(VerifyTokenError::Shape)?;
        Ok(Self { header, claims })
    }

    /// Only asymmetric algorithms: a public key must never serve as a shared secret, and `none` is refused.
    fn algorithm(&self) -> Result<Algorithm, VerifyTokenError> {
        // `crit` names extensions that a verifier must understand; we support none.
        if self.header.rest.contains_key("crit") {
            return Err(VerifyTokenError::Critical);
        }
        match self.header.alg.as_str() {
            "RS256" => Ok(Algorithm::RS256),
            "ES256" => Ok(Algorithm::ES256),
            other => Err(VerifyTokenError::Algorithm { seen: cut(other) }),
        }
    }

    fn issuer(&self) -> String {
        self.claim("iss")
    }

    fn claim(&self, name: &str) -> String {
        let value = self.claims.get(name).and_then(identity::shown);
        value.unwrap_or_else(|| "(none)".to_owned())
    }

    fn refused(
        &self,
        err: jsonwebtoken::errors::Error,
        issuer: &str,
        audience: &str,
    ) -> VerifyTokenError {
        match err.kind() {
            ErrorKind::InvalidSignature => VerifyTokenError::Signature,
            ErrorKind::ExpiredSignature => VerifyTokenError::Expired,
            ErrorKind::ImmatureSignature => VerifyTokenError::NotYet,
            ErrorKind::InvalidAudience => VerifyTokenError::Audience {
                expected: audience.to_owned(),
                seen: self.claim("aud"),
            },
            ErrorKind::InvalidIssuer => VerifyTokenError::Issuer {
                expected: issuer.to_owned(),
                seen: self.issuer(),
            },
            ErrorKind::MissingRequiredClaim(claim) => VerifyTokenError::Missing {
                claim: claim.clone(),
            },
            _ => VerifyTokenError::Unreadable(err),
        }
    }
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Percent-encodes a text for a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

fn name_of(algorithm: Algorithm) -> &'static str {
    if algorithm == Algorithm::ES256 {
        "ES256"
    } else {
        "RS256"
    }
}

#[cfg(test)]
mod tests;
