//! Tokens of the state server, by the digest of their secret. A revoked one stays as a row, because records name it.
//!
//! Not here: the secret (`control::access::tokens`), and what a token may do (`model::state::token`).

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::state::token::{StatePattern, Token, TokenScope};

use crate::db::read_time;
use crate::db::{DbError, Row, Value};
use crate::{Store, StoreError};

/// A token to be stored.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    pub name: &'a str,
    /// SHA-256 of the secret.
    pub digest: [u8; 32],
    pub states: &'a StatePattern,
    pub scope: TokenScope,
    pub expires_at: Option<Timestamp>,
    pub by: &'a Actor,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredToken {
    pub digest: [u8; 32],
    pub token: Token,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("token `{name}` already exists")]
    NameTaken { name: String },
    #[error("token `{name}` does not exist or is already revoked")]
    NotFound { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Explain for TokenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NameTaken { .. } => ErrorKind::Failed,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Store(err) => err.kind(),
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NotFound { .. } => vec![command("token list", "lists all tokens")],
            Self::NameTaken { .. } | Self::Store(_) => Vec::new(),
        }
    }
}

macro_rules! token_sql {
    ($rest:literal) => {
        concat!(
            "SELECT digest, name, states, scope, created_at, expires_at, revoked_at, \
             created_by, revoked_by FROM token ",
            $rest
        )
    };
}

impl Store {
    pub async fn token_insert(&self, new: &NewToken<'_>) -> Result<(), TokenError> {
        const INSERT: &str = "INSERT INTO token \
            (name, digest, states, scope, created_at, expires_at, created_by) \
            VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
        let args: [Value; 7] = [
            new.name.into(),
            new.digest.to_vec().into(),
            new.states.as_str().into(),
            new.scope.as_str().into(),
            Timestamp::now().into(),
            new.expires_at.map(Timestamp::as_microsecond).into(),
            new.by.to_text().into(),
        ];
        match self.db.execute(INSERT, &args).await.map_err(failed)? {
            0 => Err(TokenError::NameTaken {
                name: new.name.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    pub async fn token_revoke(&self, name: &str, by: &Actor) -> Result<(), TokenError> {
        const REVOKE: &str = "UPDATE token SET revoked_at = $2, revoked_by = $3 WHERE name = $1 AND revoked_at IS NULL";
        let args = [name.into(), Timestamp::now().into(), by.to_text().into()];
        match self.db.execute(REVOKE, &args).await.map_err(failed)? {
            0 => Err(TokenError::NotFound {
                name: name.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Every token, revoked ones included, oldest first.
    pub async fn token_list(&self) -> Result<Vec<StoredToken>, StoreError> {
        let rows = self.db.fetch_all(token_sql!("ORDER BY id"), &[]).await?;
        rows.iter().map(StoredToken::read).collect()
    }

    /// Tokens that were not revoked.
    pub async fn token_list_live(&self) -> Result<Vec<StoredToken>, StoreError> {
        let sql = token_sql!("WHERE revoked_at IS NULL ORDER BY id");
        let rows = self.db.fetch_all(sql, &[]).await?;
        rows.iter().map(StoredToken::read).collect()
    }
}

impl StoredToken {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let wrong = |found: &str, expected| StoreError::Row {
            found: found.to_owned(),
            expected,
        };
        let digest = row.bytes(0)?;
        let (states, scope) = (row.text(2)?, row.text(3)?);
        let known = TokenScope::ALL
            .into_iter()
            .find(|known| known.as_str() == scope);
        let time =
            |column| -> Result<_, StoreError> { row.opt_int(column)?.map(read_time).transpose() };
        Ok(Self {
            digest: digest
                .try_into()
                .map_err(|_| wrong("other bytes", "a digest"))?,
            token: Token {
                name: row.text(1)?.to_owned(),
                states: states
                    .parse()
                    .map_err(|_| wrong(states, "a pattern of states"))?,
                scope: known.ok_or_else(|| wrong(scope, "a scope"))?,
                created_at: read_time(row.int(4)?)?,
                expires_at: time(5)?,
                revoked_at: time(6)?,
                created_by: row.opt_text(7)?.map(Actor::from_text),
                revoked_by: row.opt_text(8)?.map(Actor::from_text),
            },
        })
    }
}

fn failed(err: DbError) -> TokenError {
    TokenError::Store(err.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestHome;

    #[tokio::test]
    async fn a_name_is_taken_until_its_token_is_revoked() {
        let home = TestHome::new();
        let store = home.open().await;
        let states = "shop/*".parse().unwrap();
        let me = Actor::named("me");
        let new = |digest| NewToken {
            name: "ci",
            digest: [digest; 32],
            states: &states,
            scope: TokenScope::Write,
            expires_at: None,
            by: &me,
        };
        store.token_insert(&new(1)).await.unwrap();
        let taken = store.token_insert(&new(2)).await.unwrap_err();
        assert_eq!(taken.to_string(), "token `ci` already exists");

        store.token_revoke("ci", &me).await.unwrap();
        let gone = store.token_revoke("ci", &me).await.unwrap_err();
        assert_eq!(
            gone.to_string(),
            "token `ci` does not exist or is already revoked"
        );
        store.token_insert(&new(2)).await.unwrap();

        let live = store.token_list_live().await.unwrap();
        assert_eq!(live.len(), 1);
        assert_eq!(live[0].digest, [2; 32]);
        assert_eq!(live[0].token.scope, TokenScope::Write);
        let all = store.token_list().await.unwrap();
        assert_eq!(all.len(), 2, "what was revoked is still known");
        assert!(all[0].token.revoked_at.is_some());
        assert_eq!(all[0].token.revoked_by, Some(me.clone()));
        assert_eq!(all[1].token.created_by, Some(me));
    }
}
