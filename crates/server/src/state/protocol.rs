//! The HTTP backend protocol of OpenTofu and Terraform: the operation that a request names, and a response
//! that no client misreads. The endpoint of a run and the server share it.
//!
//! It sends no redirect, no body with a granted lock, and 404 only for "there is no state". Each of these
//! would lose a state or a lock.
//!
//! Not here: which state a path names (`path`), permissions (`control`), status codes (`http::error`).

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use control::state::client_access::{ClientAccess, WriteOutcome};
use control::state::run_access::StateAccess;
use control::state::spool::offload;
use flate2::Compression;
use flate2::write::GzEncoder;
use model::state::StateVersion;
use model::state::lock::LockInfo;
use model::state::token::TokenScope;
use serde::Deserialize;

use crate::http::{ApiError, BodyBudget, BodyError, CONTENT_MD5, StoredBytes, content_md5};

/// The operation that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Read,
    Write,
    Lock,
    Unlock,
    Delete,
}

/// The identity under which a request is executed.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// A run, at its own endpoint.
    Run(StateAccess),
    /// A client with a token, at the server.
    Client(ClientAccess),
}

/// The context of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) bodies: &'a BodyBudget,
    /// Whether the client is on another machine, so that compression is worth its time.
    pub(crate) is_remote: bool,
}

#[derive(Default, Deserialize)]
struct LockQuery {
    #[serde(rename = "ID")]
    id: Option<String>,
}

impl Operation {
    /// Determined by the method, and by whether the path names a lock: where a proxy does not pass LOCK and
    /// UNLOCK, clients send PUT or POST and DELETE to the lock's path.
    pub(crate) fn of(method: &Method, on_lock: bool) -> Option<Self> {
        match (method.as_str(), on_lock) {
            ("GET", false) => Some(Self::Read),
            ("POST" | "PUT", false) => Some(Self::Write),
            ("DELETE", false) => Some(Self::Delete),
            ("LOCK", _) | ("POST" | "PUT", true) => Some(Self::Lock),
            ("UNLOCK", _) | ("DELETE", true) => Some(Self::Unlock),
            _ => None,
        }
    }

    /// The scope that a token needs for it.
    fn scope(self) -> TokenScope {
        match self {
            Self::Read => TokenScope::Read,
            Self::Write | Self::Lock | Self::Unlock | Self::Delete => TokenScope::Write,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "GET",
            Self::Write => "POST",
            Self::Lock => "LOCK",
            Self::Unlock => "UNLOCK",
            Self::Delete => "DELETE",
        }
    }
}

pub(crate) async fn answer(
    access: &Access,
    operation: Operation,
    head: &Parts,
    body: Body,
    context: RequestContext<'_>,
) -> Result<Response, ApiError> {
    if let Access::Client(client) = access {
        client
            .check_scope(operation.as_str(), operation.scope())
            .await?;
    }
    match operation {
        Operation::Read => read(access, &head.headers, context).await,
        Operation::Write => write(access, head, body, context.bodies).await,
        Operation::Lock => lock(access, &head.headers, body, context.bodies).await,
        Operation::Unlock => unlock(access, head, body, context.bodies).await,
        Operation::Delete => delete(access, &head.uri).await,
    }
}

async fn read(
    access: &Access,
    headers: &HeaderMap,
    context: RequestContext<'_>,
) -> Result<Response, ApiError> {
    let found = match access {
        Access::Run(run) => run.read().await?,
        Access::Client(client) => client.read().await?,
    };
    let Some((version, body)) = found else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let gzip = context.is_remote && body.len() >= WORTH_COMPRESSING && accepts_gzip(headers);
    let made = offload(body.len() as u64, move || {
        state_response(&version, body, gzip)
    })
    .await;
    made.ok_or_else(ApiError::unavailable)
}

async fn write(
    access: &Access,
    head: &Parts,
    body: Body,
    bodies: &BodyBudget,
) -> Result<Response, ApiError> {
    let id = lock_id(access, Operation::Write, &head.uri).await?;
    let taken = match bodies.read_state(&head.headers, body).await {
        Ok(taken) => taken,
        Err(err) => return Err(refuse(access, Operation::Write, err).await?),
    };
    let bytes = taken.bytes.len();
    let written = match access {
        Access::Run(run) => run
            .write(id, Vec::from(taken.bytes))
            .await
            .map(|()| WriteOutcome::New)?,
        Access::Client(client) => client.write(id, Vec::from(taken.bytes)).await?,
    };
    let mut response = StatusCode::OK.into_response();
    if written == WriteOutcome::New {
        response.extensions_mut().insert(StoredBytes(bytes));
    }
    Ok(response)
}

async fn lock(
    access: &Access,
    headers: &HeaderMap,
    body: Body,
    bodies: &BodyBudget,
) -> Result<Response, ApiError> {
    let body = read_lock_body(access, Operation::Lock, headers, body, bodies).await?;
    let info = parse_lock(access, Operation::Lock, &body).await?;
    match access {
        Access::Run(run) => run.lock(&info).await?,
        Access::Client(client) => client.lock(&info).await?,
    }
    // Empty: engines do not read this body, and would have to open a new connection.
    Ok(StatusCode::OK.into_response())
}

async fn unlock(
    access: &Access,
    head: &Parts,
    body: Body,
    bodies: &BodyBudget,
) -> Result<Response, ApiError> {
    let body = read_lock_body(access, Operation::Unlock, &head.headers, body, bodies).await?;
    let id = lock_id(access, Operation::Unlock, &head.uri).await?;
    match access {
        Access::Run(run) if body.is_empty() => {
            let why = "an UNLOCK without an id would break any lock";
            return Err(run.forbid(Operation::Unlock.as_str(), why).await?.into());
        }
        Access::Run(run) => {
            let info = parse_lock(access, Operation::Unlock, &body).await?;
            run.unlock(&info.id).await?;
        }
        Access::Client(client) if body.is_empty() => match id {
            Some(id) => client.unlock_by_id(&id).await?,
            None => client.unlock(None).await?,
        },
        Access::Client(client) => {
            let info = parse_lock(access, Operation::Unlock, &body).await?;
            client.unlock(Some(&info)).await?;
        }
    }
    Ok(StatusCode::OK.into_response())
}

async fn delete(access: &Access, uri: &Uri) -> Result<Response, ApiError> {
    let id = lock_id(access, Operation::Delete, uri).await?;
    match access {
        Access::Run(run) => {
            let why = "a run does not delete states";
            return Err(run.forbid(Operation::Delete.as_str(), why).await?.into());
        }
        Access::Client(client) => client.delete(id.as_deref()).await?,
    }
    Ok(StatusCode::OK.into_response())
}

/// The id of the lock that the client claims to hold. Its address may have a query of its own, which is ignored.
async fn lock_id(
    access: &Access,
    operation: Operation,
    uri: &Uri,
) -> Result<Option<String>, ApiError> {
    match Query::<LockQuery>::try_from_uri(uri) {
        Ok(Query(LockQuery { id: Some(id) })) if id.contains('\0') => {
            Err(malformed(access, operation, "the lock id contains a NUL byte").await?)
        }
        Ok(Query(query)) => Ok(query.id),
        Err(_) => Err(malformed(access, operation, "the query cannot be parsed").await?),
    }
}

async fn read_lock_body(
    access: &Access,
    operation: Operation,
    headers: &HeaderMap,
    body: Body,
    bodies: &BodyBudget,
) -> Result<Bytes, ApiError> {
    match bodies.read_lock(headers, body).await {
        Ok(bytes) => Ok(bytes),
        Err(err) => Err(refuse(access, operation, err).await?),
    }
}

async fn parse_lock(
    access: &Access,
    operation: Operation,
    body: &[u8],
) -> Result<LockInfo, ApiError> {
    match LockInfo::from_json(body) {
        Ok(info) => Ok(info),
        Err(_) => Err(malformed(access, operation, "the body is not a lock description").await?),
    }
}

/// Records why a request body was refused.
async fn refuse(
    access: &Access,
    operation: Operation,
    err: BodyError,
) -> Result<ApiError, ApiError> {
    record(access, operation, err.to_string()).await?;
    Ok(ApiError::from(err))
}

async fn malformed(access: &Access, operation: Operation, why: &str) -> Result<ApiError, ApiError> {
    record(access, operation, why.to_owned()).await?;
    Ok(ApiError::bad_request().because(why.to_owned()))
}

async fn record(access: &Access, operation: Operation, reason: String) -> Result<(), ApiError> {
    match access {
        Access::Run(run) => run.record(operation.as_str(), reason, None).await?,
        Access::Client(client) => client.record(operation.as_str(), reason, None).await?,
    }
    Ok(())
}

/// A smaller response fits into a few packets anyway.
const WORTH_COMPRESSING: usize = 4096;

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
            name.trim().eq_ignore_ascii_case("gzip")
                && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
        })
}

/// The response to a read. Its `ETag` is strong, so the compressed form has another one.
fn state_response(version: &StateVersion, body: Arc<Vec<u8>>, gzip: bool) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (VARY, "accept-encoding"),
    ];
    if gzip && let Some(gzipped) = gzipped(&body) {
        let tag = format!("\"{}-gzip\"", version.content);
        return (
            headers,
            [(ETAG, tag)],
            [(CONTENT_ENCODING, "gzip")],
            gzipped,
        )
            .into_response();
    }
    let tag = format!("\"{}\"", version.content);
    let sum = content_md5(&body);
    let body = Bytes::from_owner(Shared(body));
    (headers, [(ETAG, tag)], [(CONTENT_MD5, sum)], body).into_response()
}

/// A body shared with concurrent requests and sent without a copy.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn gzipped(body: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write as _;
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    let gzipped = encoder.finish().ok()?;
    (gzipped.len() < body.len()).then_some(gzipped)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn methods_name_operations() {
        let mut table = Vec::new();
        for method in [
            "GET", "HEAD", "POST", "PUT", "DELETE", "LOCK", "UNLOCK", "PATCH",
        ] {
            let operation = |on_lock| {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                Operation::of(&method, on_lock).map_or("-", Operation::as_str)
            };
            table.push(format!("{method} {} {}", operation(false), operation(true)));
        }
        insta::assert_snapshot!(table.join("\n"), @r"
        GET GET -
        HEAD - -
        POST POST LOCK
        PUT POST LOCK
        DELETE DELETE UNLOCK
        LOCK LOCK LOCK
        UNLOCK UNLOCK UNLOCK
        PATCH - -
        ");
    }

    #[track_caller]
    fn check_gzip(header: &str, accepted: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, header.parse().unwrap());
        assert_eq!(accepts_gzip(&headers), accepted, "{header}");
    }

    #[test]
    fn gzip_is_negotiated() {
        check_gzip("gzip", true);
        check_gzip("br, GZIP;q=0.5", true);
        check_gzip("gzip;q=0", false);
        check_gzip("gzip; q=0.0", false);
        check_gzip("deflate", false);
    }

    #[test]
    fn gzip_round_trips_and_is_skipped_if_it_does_not_shrink() {
        let state = br#"{"version":4,"resources":[]}"#.repeat(1000);
        let gzipped = gzipped(&state).unwrap();
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(gzipped.as_slice());
        reader.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, state);
        assert_eq!(super::gzipped(b"x"), None);
    }
}
