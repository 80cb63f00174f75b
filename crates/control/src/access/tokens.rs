//! Tokens of the state server: creates, lists, revokes and checks them.
//!
//! The secret is 32 random bytes, shown once; only its SHA-256 is stored. A secret of that size cannot be
//! guessed, so a slow hash would only slow down requests.
//!
//! Not here: where a token is in a request (`server::auth`), what it may do (`model::state::token`).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::Explain;
use model::base::secret::Secret;
use model::state::token::{Lifetime, StatePattern, Token, TokenScope};
use store::{NewToken, Store, StoreError, StoredToken, TokenError};

use crate::Control;

/// Identifies the secret as a terrane token, for people and for secret scanners.
const PREFIX: &str = "terrane_";

/// Maximum age of the cached tokens. A revoked token stops working within this time.
const STALE_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct TokenRequest {
    pub name: String,
    pub states: StatePattern,
    pub scope: TokenScope,
    pub lifetime: Option<Lifetime>,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateTokenError {
    #[error("cannot get random bytes for a token from the system")]
    Random,
    #[error("the name of a token is 1 to 64 letters, digits, `-`, `_`, `.` or `@`")]
    Name,
    #[error("cannot create token `{name}`")]
    Store { name: String, source: TokenError },
}

impl Explain for CreateTokenError {}

/// 32 random bytes, base64url-encoded.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Creates a token. The returned value is the only copy of its secret.
pub async fn create(
    control: &Control,
    actor: &Actor,
    wish: &TokenRequest,
) -> Result<Secret, CreateTokenError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if !(1..=64).contains(&wish.name.len()) || !wish.name.bytes().all(is_plain) {
        return Err(CreateTokenError::Name);
    }
    let random = random().map_err(|_| CreateTokenError::Random)?;
    let secret = format!("{PREFIX}{random}");
    let new = NewToken {
        name: &wish.name,
        digest: sha256(secret.as_bytes()),
        states: &wish.states,
        scope: wish.scope,
        expires_at: wish.lifetime.map(|lifetime| Timestamp::now() + lifetime.0),
        by: actor,
    };
    let stored = control.store.token_insert(&new).await;
    stored.map_err(|source| CreateTokenError::Store {
        name: wish.name.clone(),
        source,
    })?;
    Ok(Secret::new(secret))
}

/// All tokens, including revoked and expired ones, oldest first.
pub async fn list(control: &Control) -> Result<Vec<Token>, StoreError> {
    let tokens = control.store.token_list().await?;
    Ok(tokens.into_iter().map(|stored| stored.token).collect())
}

pub async fn revoke(control: &Control, actor: &Actor, name: &str) -> Result<(), TokenError> {
    control.store.token_revoke(name, actor).await
}

/// Short-lived cache of the tokens that are not revoked.
#[derive(Debug)]
pub struct TokenCheck {
    store: Store,
    known: RwLock<Arc<TokenCache>>,
    /// Lets one task query the database while the others wait for its result.
    asking: tokio::sync::Mutex<()>,
}

/// Tokens by the first bytes of their digest; the rest is compared in constant time.
#[derive(Debug, Default)]
struct TokenCache {
    since: Option<Instant>,
    tokens: HashMap<[u8; 8], Vec<(StoredDigest, Arc<Token>)>>,
}

type StoredDigest = [u8; 32];

impl TokenCheck {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            known: RwLock::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the valid token with this secret. An unknown token may be new: `ask_again` decides whether to
    /// query the database again.
    pub async fn find(
        &self,
        secret: &[u8],
        ask_again: bool,
    ) -> Result<Option<Arc<Token>>, StoreError> {
        let digest = sha256(secret);
        let began = Instant::now();
        let fresh = began.checked_sub(STALE_AFTER);
        let known = self.known_since(fresh).await?;
        let mut found = known.find(&digest);
        if found.is_none() && ask_again && known.since < Some(began) {
            found = self.known_since(Some(began)).await?.find(&digest);
        }
        Ok(found.filter(|token| token.is_valid(Timestamp::now())))
    }

    /// Returns cached tokens that were read no earlier than `earliest`, or reads them again.
    async fn known_since(&self, earliest: Option<Instant>) -> Result<Arc<TokenCache>, StoreError> {
        let is_fresh = |known: &TokenCache| known.since.is_some() && known.since >= earliest;
        let known = self.known();
        if is_fresh(&known) {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        let known = self.known();
        if is_fresh(&known) {
            return Ok(known);
        }
        let since = Instant::now();
        let known = Arc::new(TokenCache::new(since, self.store.token_list_live().await?));
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known);
        Ok(known)
    }

    fn known(&self) -> Arc<TokenCache> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TokenCache {
    fn new(since: Instant, live: Vec<StoredToken>) -> Self {
        let mut tokens: HashMap<_, Vec<_>> = HashMap::new();
        for StoredToken { digest, token } in live {
            let places = tokens.entry(first_bytes(&digest)).or_default();
            places.push((digest, Arc::new(token)));
        }
        Self {
            since: Some(since),
            tokens,
        }
    }

    fn find(&self, digest: &StoredDigest) -> Option<Arc<Token>> {
        let (_, token) = self
            .tokens
            .get(&first_bytes(digest))?
            .iter()
            .find(|(known, _)| verify_slices_are_equal(known, digest).is_ok())?;
        Some(Arc::clone(token))
    }
}

fn first_bytes(digest: &StoredDigest) -> [u8; 8] {
    digest.first_chunk().copied().unwrap_or_default()
}

fn sha256(bytes: &[u8]) -> StoredDigest {
    let mut sum = StoredDigest::default();
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use store::Keyring;

    use super::*;
    use crate::home::master_keys::KeySource;
    use crate::home::{Home, HomeLocation};

    fn me() -> Actor {
        Actor::named("me")
    }

    async fn control(dir: &std::path::Path) -> Control {
        let keyring = Keyring::open_or_create(&dir.join("master.key")).unwrap();
        let store = Store::open(&dir.join("home"), keyring).await.unwrap();
        let place = HomeLocation::Directory(dir.to_owned());
        let key = KeySource::File(dir.join("master.key"));
        let home = Home::at(place, dir.to_owned(), key, String::new());
        Control::new(store, home, PathBuf::new(), PathBuf::new())
    }

    fn wish(name: &str) -> TokenRequest {
        TokenRequest {
            name: name.to_owned(),
            states: "**".parse().unwrap(),
            scope: TokenScope::Write,
            lifetime: None,
        }
    }

    #[tokio::test]
    async fn a_token_works_at_once_and_ends_when_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let control = control(dir.path()).await;
        let check = TokenCheck::new(control.store.clone());
        assert_eq!(check.find(b"nothing", true).await.unwrap(), None);

        let secret = create(&control, &me(), &wish("ci")).await.unwrap();
        let secret = secret.expose().as_bytes();
        let found = check.find(secret, true).await.unwrap().unwrap();
        assert_eq!(found.name, "ci");
        assert_eq!(check.find(&secret[1..], true).await.unwrap(), None);

        revoke(&control, &me(), "ci").await.unwrap();
        let taken_back = Instant::now();
        while check.find(secret, false).await.unwrap().is_some() {
            assert!(taken_back.elapsed() < Duration::from_secs(30));
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_check_costs_less_than_fifty_microseconds() {
        let dir = tempfile::tempdir().unwrap();
        let control = control(dir.path()).await;
        let check = TokenCheck::new(control.store.clone());
        let secret = create(&control, &me(), &wish("ci")).await.unwrap();
        check.find(secret.expose().as_bytes(), true).await.unwrap();
        // Take the fastest of many calls, so that other load on the machine is not measured.
        let mut quickest = Duration::MAX;
        for _ in 0..1000 {
            let begun = Instant::now();
            let found = check.find(secret.expose().as_bytes(), true).await.unwrap();
            quickest = quickest.min(begun.elapsed());
            assert!(found.is_some());
        }
        assert!(quickest < Duration::from_micros(50), "{quickest:?}");
    }

    #[tokio::test]
    async fn names_are_plain_words() {
        let dir = tempfile::tempdir().unwrap();
        let control = control(dir.path()).await;
        for wrong in ["", "a b", "a\n", &"x".repeat(65)] {
            assert!(
                create(&control, &me(), &wish(wrong)).await.is_err(),
                "{wrong:?}"
            );
        }
        create(&control, &me(), &wish("ci@example.io"))
            .await
            .unwrap();
    }
}
