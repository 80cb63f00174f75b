//! Who may talk to an endpoint: whoever has a token for it. It travels as the password of HTTP Basic,
//! the one credential both engines can send, or as a Bearer token; the user name is free.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use model::secret::Secret;

/// The token of one endpoint: made for it, gone with it.
#[derive(Clone, Debug)]
pub struct RunToken(Secret);

#[derive(Debug, thiserror::Error)]
#[error("the system gave no random bytes for a token")]
pub struct MakeTokenError;

impl RunToken {
    pub fn random() -> Result<Self, MakeTokenError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| MakeTokenError)?;
        Ok(Self(Secret::new(URL_SAFE_NO_PAD.encode(bytes))))
    }

    pub fn secret(&self) -> &Secret {
        &self.0
    }

    /// Whether these headers carry it. Takes as long for a wrong token as for the right one.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        credential(headers).is_some_and(|given| {
            verify_slices_are_equal(&given, self.0.expose().as_bytes()).is_ok()
        })
    }
}

/// The token in these headers, whether it is one or not.
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
    fn tokens_differ_and_are_not_shown() {
        let (a, b) = (RunToken::random().unwrap(), RunToken::random().unwrap());
        assert_ne!(a.secret().expose(), b.secret().expose());
        assert_eq!(format!("{a:?}"), "RunToken([secret])");
    }
}
