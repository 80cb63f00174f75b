//! The HTTP backend protocol of OpenTofu and Terraform: what a request asks for, and the answer that no
//! client of the field misreads. One way for the endpoint of a run and for the server.
//!
//! No redirect, no body on a granted lock, no 404 but for "there is no state": each of these loses
//! state or a lock.
//!
//! Not here: which state is meant (`routes`), who may do what (`control`), status codes (`error`).

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use control::state::StateAccess;
use control::state_service::{ClientAccess, Written, work};
use flate2::Compression;
use flate2::write::GzEncoder;
use model::lock::LockInfo;
use model::state::StateVersion;
use model::token::TokenScope;
use serde::Deserialize;

use crate::body::{CONTENT_MD5, Room, TakeError, md5_of};
use crate::error::ApiError;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Read,
    Write,
    Lock,
    Unlock,
    Delete,
}

/// Who is behind a request.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// A run, at an endpoint of its own.
    Run(StateAccess),
    /// Somebody with a token, at the server.
    Client(ClientAccess),
}

/// One request's surroundings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) room: &'a Room,
    /// Whether the way to the client is long enough for compression to be worth its time.
    pub(crate) is_remote: bool,
}

/// Rides on an answer to a write that made a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionMade {
    pub(crate) bytes: usize,
}

#[derive(Default, Deserialize)]
struct LockQuery {
    #[serde(rename = "ID")]
    id: Option<String>,
}

impl Deed {
    /// By method, and by whether the path is that of a lock: where LOCK and UNLOCK do not get through,
    /// clients send PUT or POST and DELETE there.
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

    /// What a token must be allowed for it.
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

/// Does what is asked for.
pub(crate) async fn answer(
    access: &Access,
    deed: Deed,
    head: &Parts,
    body: Body,
    setting: Setting<'_>,
) -> Result<Response, ApiError> {
    if let Access::Client(client) = access {
        client.check_scope(deed.as_str(), deed.scope()).await?;
    }
    match deed {
        Deed::Read => read(access, &head.headers, setting).await,
        Deed::Write => write(access, head, body, setting.room).await,
        Deed::Lock => lock(access, &head.headers, body, setting.room).await,
        Deed::Unlock => unlock(access, head, body, setting.room).await,
        Deed::Delete => delete(access, &head.uri).await,
    }
}

async fn read(
    access: &Access,
    headers: &HeaderMap,
    setting: Setting<'_>,
) -> Result<Response, ApiError> {
    let found = match access {
        Access::Run(run) => run.read().await?,
        Access::Client(client) => client.read().await?,
    };
    let Some((version, body)) = found else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let gzip = setting.is_remote && body.len() >= WORTH_COMPRESSING && accepts_gzip(headers);
    let made = work(body.len() as u64, move || {
        state_answer(&version, body, gzip)
    })
    .await;
    made.ok_or_else(ApiError::unavailable)
}

async fn write(
    access: &Access,
    head: &Parts,
    body: Body,
    room: &Room,
) -> Result<Response, ApiError> {
    let id = lock_id(access, Deed::Write, &head.uri).await?;
    let taken = match room.state(&head.headers, body).await {
        Ok(taken) => taken,
        Err(err) => return Err(refuse(access, Deed::Write, err).await?),
    };
    let bytes = taken.bytes.len();
    let written = match access {
        Access::Run(run) => run
            .write(id, Vec::from(taken.bytes))
            .await
            .map(|()| Written::New)?,
        Access::Client(client) => client.write(id, Vec::from(taken.bytes)).await?,
    };
    let mut response = StatusCode::OK.into_response();
    if written == Written::New {
        response.extensions_mut().insert(VersionMade { bytes });
    }
    Ok(response)
}

async fn lock(
    access: &Access,
    headers: &HeaderMap,
    body: Body,
    room: &Room,
) -> Result<Response, ApiError> {
    let body = small(access, Deed::Lock, headers, body, room).await?;
    let info = described(access, Deed::Lock, &body).await?;
    match access {
        Access::Run(run) => run.lock(&info).await?,
        Access::Client(client) => client.lock(&info).await?,
    }
    // Empty: a body is not read, and costs the client its connection.
    Ok(StatusCode::OK.into_response())
}

async fn unlock(
    access: &Access,
    head: &Parts,
    body: Body,
    room: &Room,
) -> Result<Response, ApiError> {
    let body = small(access, Deed::Unlock, &head.headers, body, room).await?;
    let id = lock_id(access, Deed::Unlock, &head.uri).await?;
    match access {
        Access::Run(run) if body.is_empty() => {
            let why = "an UNLOCK without an id breaks whatever lock there is";
            return Err(run.forbid(Deed::Unlock.as_str(), why).await?.into());
        }
        Access::Run(run) => {
            let info = described(access, Deed::Unlock, &body).await?;
            run.unlock(&info.id).await?;
        }
        Access::Client(client) if body.is_empty() => match id {
            Some(id) => client.unlock_by_id(&id).await?,
            None => client.unlock(None).await?,
        },
        Access::Client(client) => {
            let info = described(access, Deed::Unlock, &body).await?;
            client.unlock(Some(&info)).await?;
        }
    }
    Ok(StatusCode::OK.into_response())
}

async fn delete(access: &Access, uri: &Uri) -> Result<Response, ApiError> {
    let id = lock_id(access, Deed::Delete, uri).await?;
    match access {
        Access::Run(run) => {
            let why = "a run deletes no state";
            return Err(run.forbid(Deed::Delete.as_str(), why).await?.into());
        }
        Access::Client(client) => client.delete(id.as_deref()).await?,
    }
    Ok(StatusCode::OK.into_response())
}

/// The lock a client says it holds. Its address may have a query of its own, which is not ours to read.
async fn lock_id(access: &Access, deed: Deed, uri: &Uri) -> Result<Option<String>, ApiError> {
    match Query::<LockQuery>::try_from_uri(uri) {
        Ok(Query(LockQuery { id: Some(id) })) if id.contains('\0') => {
            Err(unreadable(access, deed, "there is a NUL in its lock's id").await?)
        }
        Ok(Query(query)) => Ok(query.id),
        Err(_) => Err(unreadable(access, deed, "its query is not readable").await?),
    }
}

async fn small(
    access: &Access,
    deed: Deed,
    headers: &HeaderMap,
    body: Body,
    room: &Room,
) -> Result<Bytes, ApiError> {
    match room.lock(headers, body).await {
        Ok(bytes) => Ok(bytes),
        Err(err) => Err(refuse(access, deed, err).await?),
    }
}

async fn described(access: &Access, deed: Deed, body: &[u8]) -> Result<LockInfo, ApiError> {
    match LockInfo::from_json(body) {
        Ok(info) => Ok(info),
        Err(_) => Err(unreadable(access, deed, "its body is not a lock").await?),
    }
}

/// Records that a body was not taken, and says so.
async fn refuse(access: &Access, deed: Deed, err: TakeError) -> Result<ApiError, ApiError> {
    record(access, deed, err.to_string()).await?;
    Ok(ApiError::from(err))
}

async fn unreadable(access: &Access, deed: Deed, why: &str) -> Result<ApiError, ApiError> {
    record(access, deed, why.to_owned()).await?;
    Ok(ApiError::bad_request().because(why.to_owned()))
}

async fn record(access: &Access, deed: Deed, reason: String) -> Result<(), ApiError> {
    match access {
        Access::Run(run) => run.record(deed.as_str(), reason, None).await?,
        Access::Client(client) => client.record(deed.as_str(), reason, None).await?,
    }
    Ok(())
}

/// Below this, an answer fits into a few packets anyway.
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

/// A state on its way out. Its tag is strong: the compressed form has one of its own.
fn state_answer(version: &StateVersion, body: Arc<Vec<u8>>, gzip: bool) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (VARY, "accept-encoding"),
    ];
    if gzip && let Some(packed) = packed(&body) {
        let tag = format!("\"{}-gzip\"", version.content);
        return (headers, [(ETAG, tag)], [(CONTENT_ENCODING, "gzip")], packed).into_response();
    }
    let tag = format!("\"{}\"", version.content);
    let sum = md5_of(&body);
    let body = Bytes::from_owner(Shared(body));
    (headers, [(ETAG, tag)], [(CONTENT_MD5, sum)], body).into_response()
}

/// A body that others read at the same time: it is sent without a copy.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn packed(body: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write as _;
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < body.len()).then_some(packed)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_methods_mean() {
        let mut table = Vec::new();
        for method in [
            "GET", "HEAD", "POST", "PUT", "DELETE", "LOCK", "UNLOCK", "PATCH",
        ] {
            let told = |on_lock| {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                Deed::of(&method, on_lock).map_or("-", Deed::as_str)
            };
            table.push(format!("{method} {} {}", told(false), told(true)));
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
    fn who_takes_gzip() {
        check_gzip("gzip", true);
        check_gzip("br, GZIP;q=0.5", true);
        check_gzip("gzip;q=0", false);
        check_gzip("gzip; q=0.0", false);
        check_gzip("deflate", false);
    }

    #[test]
    fn what_is_packed_comes_out_the_same_and_what_does_not_shrink_stays() {
        let state = br#"{"version":4,"resources":[]}"#.repeat(1000);
        let packed = packed(&state).unwrap();
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(packed.as_slice());
        reader.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, state);
        assert_eq!(super::packed(b"x"), None);
    }
}
