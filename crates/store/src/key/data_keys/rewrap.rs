//! Wraps data keys again after the master key was replaced. What they seal is not touched.
//!
//! Each key is one file that is replaced once the new one is durable. It may be interrupted anywhere: the rest still
//! opens with the old master key, and running it again finishes.

use model::state::StateName;

use super::{KeyError, KeyScope, Keys, WRAPPED_FORMAT, wrap};
use crate::blob::state_of_dir;
use crate::{Store, StoreError, blocking};

const DIR: &str = "keys";

/// A data key's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrappedKey {
    /// Relative to the home.
    pub file: String,
    /// The master key that opens it.
    pub master: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrapped {
    pub done: usize,
    /// How many are still wrapped by another master key than the first.
    pub left: usize,
}

impl Store {
    /// Every data key, by file.
    pub async fn key_list(&self) -> Result<Vec<WrappedKey>, StoreError> {
        let keys = self.keys.clone();
        blocking(move || keys.list()).await
    }

    /// Wraps data keys under the first master key, at most `limit` of them.
    pub async fn key_rewrap(&self, limit: usize) -> Result<Rewrapped, StoreError> {
        let states = self.state_list().await?;
        let states: Vec<StateName> = states.into_iter().map(|row| row.name).collect();
        let keys = self.keys.clone();
        blocking(move || keys.rewrap(&states, limit)).await
    }
}

impl Store {
    /// Sets where the master keys are read again when a data key needs another one. Called on threads that may block.
    pub fn key_renew_from(
        &self,
        source: impl Fn() -> Option<crate::Keyring> + Send + Sync + 'static,
    ) {
        self.keys.keyring.renew_from(Box::new(source));
    }
}

impl Keys {
    fn list(&self) -> Result<Vec<WrappedKey>, StoreError> {
        let mut found = Vec::new();
        for owner in self.blobs.list(DIR)? {
            for generation in self.blobs.list(&format!("{DIR}/{owner}"))? {
                let file = format!("{DIR}/{owner}/{generation}");
                let text = self.blobs.read(&file)?;
                let text = String::from_utf8_lossy(&text);
                let words: Vec<&str> = text.split_whitespace().collect();
                let [WRAPPED_FORMAT, master, _] = words[..] else {
                    let path = self.blobs.path(&file);
                    return Err(KeyError::Shape { path }.into());
                };
                let master = master.to_owned();
                found.push(WrappedKey { file, master });
            }
        }
        Ok(found)
    }

    fn rewrap(&self, states: &[StateName], limit: usize) -> Result<Rewrapped, StoreError> {
        let masters = self.keyring.get();
        let mut done = 0;
        let mut old = self.list()?;
        old.retain(|key| key.master != masters.id());
        let left = old.len();
        for key in old.into_iter().take(limit) {
            let path = || self.blobs.path(&key.file);
            let mut parts = key.file.split('/').skip(1);
            let owner = parts.next().unwrap_or_default();
            let generation = parts.next().and_then(|number| number.parse().ok());
            let generation = generation.ok_or_else(|| KeyError::Shape { path: path() })?;
            let scope = owner_of(owner, states);
            let scope = scope.ok_or_else(|| KeyError::NoOwner { path: path() })?;
            let text = self.blobs.read(&key.file)?;
            let plain = self.unwrap_as(&scope, generation, &text, path())?;
            let line = wrap(&masters, &scope, generation, &plain)?;
            self.blobs.write(&key.file, line.as_bytes())?;
            done += 1;
        }
        let left = left - done;
        Ok(Rewrapped { done, left })
    }
}

/// The owner of a key: from the directory's name, or, if that was shortened, from the states of the database.
fn owner_of(dir: &str, states: &[StateName]) -> Option<KeyScope> {
    let mut scopes = std::iter::once(KeyScope::Project)
        .chain(states.iter().cloned().map(KeyScope::State))
        .chain(state_of_dir(dir).map(KeyScope::State));
    scopes.find(|scope| scope.dir() == dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestHome, body, network};
    use crate::{Keyring, StateWriter};

    async fn open(home: &TestHome, keyring: &Keyring) -> Store {
        let path = home.path().join("home");
        Store::open(&path, keyring.clone()).await.unwrap()
    }

    #[tokio::test]
    async fn a_rotation_may_end_anywhere_and_be_finished() {
        let home = TestHome::new();
        let old = Keyring::generate().unwrap();
        let names = ["network", "Ünï code/..", &"x".repeat(300)];
        let states = names.map(|name| StateName::new("p", name));
        let store = open(&home, &old).await;
        for state in &states {
            let writer = StateWriter::default();
            let write = store.state_version_append(state, &writer, body(1));
            write.await.unwrap();
        }
        let count = store.key_list().await.unwrap().len();
        assert_eq!(
            count,
            states.len() + 1,
            "one for each state and the project's"
        );
        drop(store);

        let new = Keyring::generate().unwrap();
        let both = new.clone().followed_by(&old);
        for step in 1..=count {
            // Each time as if the process had been killed after one key.
            let store = open(&home, &both).await;
            let (done, left) = (1, count - step);
            assert_eq!(store.key_rewrap(1).await.unwrap(), Rewrapped { done, left });
            for state in &states {
                let head = store.state_head(state).await.unwrap().unwrap();
                assert_eq!(store.state_version_read(&head).await.unwrap(), body(1));
            }
        }
        let store = open(&home, &new).await;
        let nothing = Rewrapped { done: 0, left: 0 };
        assert_eq!(store.key_rewrap(9).await.unwrap(), nothing);
        for state in &states {
            let head = store.state_head(state).await.unwrap().unwrap();
            assert_eq!(store.state_version_read(&head).await.unwrap(), body(1));
        }
        let store = open(&home, &old).await;
        let head = store.state_head(&states[0]).await.unwrap().unwrap();
        let err = store.state_version_read(&head).await.unwrap_err();
        assert!(matches!(err, StoreError::Key(KeyError::OtherMaster { .. })));
    }

    #[tokio::test]
    async fn who_has_the_home_open_meanwhile_goes_on() {
        let home = TestHome::new();
        let path = home.path().join("kept.key");
        let old = Keyring::generate().unwrap();
        old.write(&path).unwrap();
        let serving = open(&home, &old).await;
        let source = path.clone();
        serving.key_renew_from(move || Keyring::open(&source).ok());
        let state = |name| StateName::new("p", name);
        let read = async |name| {
            let head = serving.state_head(&state(name)).await.unwrap().unwrap();
            serving.state_version_read(&head).await.unwrap()
        };
        let write = async |store: &Store, name| {
            let (state, writer) = (state(name), StateWriter::default());
            let write = store.state_version_append(&state, &writer, body(1));
            write.await.unwrap();
        };
        write(&serving, "read before").await;
        // Written by another process, so the serving one does not have this key in memory.
        write(&open(&home, &old).await, "not read before").await;

        let new = Keyring::generate().unwrap().followed_by(&old);
        new.write(&path).unwrap();
        let rotating = open(&home, &new).await;
        rotating.key_rewrap(usize::MAX).await.unwrap();

        assert_eq!(read("read before").await, body(1));
        assert_eq!(read("not read before").await, body(1));
        write(&serving, "new").await;
        let wrapped = serving.key_list().await.unwrap();
        assert_eq!(wrapped.len(), 4);
        assert!(
            wrapped.iter().all(|key| key.master == new.id()),
            "{wrapped:?}"
        );
    }

    #[test]
    fn owners_by_directory() {
        let check = |state: StateName| {
            let dir = KeyScope::State(state.clone()).dir();
            assert_eq!(owner_of(&dir, &[]), Some(KeyScope::State(state)));
        };
        check(network());
        check(StateName::new("", "a%b~c"));
        check(StateName::new("", ""));
        assert_eq!(owner_of("@project", &[]), Some(KeyScope::Project));
    }
}
