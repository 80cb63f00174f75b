//! Credentials: the token that a request carries, as the password of HTTP Basic, which both engines can send, or as a
//! Bearer token. The user name is ignored.
//!
//! Not here: what a token allows (`control`).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::base::secret::Secret;

/// The token of one run's endpoint. It is as short-lived as the endpoint.
#[derive(Clone, Debug)]
pub struct RunToken(Secret);

impl RunToken {
    pub fn new(token: Secret) -> Self {
        Self(token)
    }

    pub fn secret(&self) -> &Secret {
        &self.0
    }

    /// Whether these headers carry the token, compared in constant time.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        credential(headers).is_some_and(|given| {
            verify_slices_are_equal(&given, self.0.expose().as_bytes()).is_ok()
        })
    }
}

/// What these headers carry in place of a token, valid or not.
pub(crate) fn credential(headers: &HeaderMap) -> Option<Vec<u8>> {
    let header = headers.get(AUTHORIZATION)?.as_bytes();
    let space = header.iter().position(|byte| *byte == b' ')?;
    let (scheme, given) = (&header[..space], header[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(given.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let mut decoded = STANDARD.decode(given).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded.split_off(colon + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, admitted: bool) {
        let token = RunToken(Secret::new("s3cret"));
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        assert_eq!(token.admits(&headers), admitted, "{header}");
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", STANDARD.encode(credentials))
    }

    #[test]
    fn only_the_token_admits() {
        check(&basic("run:s3cret"), true);
        check(&basic(":s3cret"), true);
        check(&basic("run:s3cre"), false);
        check(&basic("run:s3cret "), false);
        check(&basic("s3cret"), false);
        check("Bearer s3cret", true);
        check("bearer  s3cret", true);
        check("Bearer s3cre", false);
        check("Digest s3cret", false);
        check("Basic ???", false);
        assert!(!RunToken(Secret::new("s3cret")).admits(&HeaderMap::new()));
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = RunToken::new(Secret::new("s3cret"));
        assert_eq!(format!("{token:?}"), "RunToken([secret])");
    }
}
