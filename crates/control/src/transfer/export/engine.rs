//! Exports a state into a backend of the engine: the one of its stack's target, where it then stays, or the
//! one that its source names. The state is locked here meanwhile, and a state there is replaced only if it is
//! known to be older.
//!
//! Not here: running the engine with that backend (`changeset::backends`), other destinations
//! (`transfer::export`).

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use model::base::actor::Actor;
use model::base::ids::StackName;
use model::project::Backend;
use model::state::{Contents, ExpectedHead, StateFacts, StateVersion, with_identity};
use serde_json::Value;
use store::{AcquireLockError, StoreError};

use super::{ExportError, Exported, newer_words};
use crate::Control;
use crate::changeset::backends::{BackendChoice, BackendEngine, BackendError};
use crate::project::open::ProjectContext;
use crate::state::http_backend_lock::{HttpLockError, told_to_stop};
use crate::state::queries::{self, ReadStateError};
use crate::transfer::import::lock_info;

/// Writes the newest version there, unless it is already there. A copy from an earlier place is written to an
/// empty backend only with `of_copy`.
pub async fn export(
    control: &Control,
    context: ProjectContext<'_>,
    stack: &StackName,
    who: &Actor,
    of_copy: bool,
) -> Result<Exported, ExportError> {
    let ProjectContext { open, project, env } = context;
    let state = control.state_name(&project.stacks[stack].state);
    let (version, body) = queries::read(control, &state, None).await?;
    let target = &project.targets[&project.stacks[stack].target];
    let (which, place) = match &target.backend {
        Backend::Terrane => (
            BackendChoice::Source,
            "the backend that the source names".to_owned(),
        ),
        Backend::Engine { .. } => (
            BackendChoice::Target,
            format!("the backend of target `{}`", target.name),
        ),
    };
    let ours = OutgoingVersion {
        control,
        stack,
        which,
        place: &place,
        version: &version,
        body: &body,
        of_copy,
    };
    let mut told_to_stop = pin!(told_to_stop());
    let lock = ours.lock(who).await?;
    let bring = async {
        let look = async {
            let seat = BackendEngine::open(control, open, project, stack, env, which).await?;
            let there = seat.pull().await?;
            Ok::<_, BackendError>((seat, there))
        };
        let (seat, there) = tokio::select! {
            looked = look => looked?,
            () = &mut told_to_stop => return Err(ExportError::Held(HttpLockError::Interrupted)),
        };
        // Do not interrupt from here on: an engine that is killed while it writes leaves its lock there.
        let (there, was_there) = match ours.way(there).await? {
            ExportAction::There(there) => (there, true),
            ExportAction::Write(body) => (seat.push(&body, false).await?, false),
        };
        Ok((seat, there, was_there))
    };
    let brought = Box::pin(bring).await;
    // Unlock first: a copy cannot be stored under any lock, not even ours. A write before that is not lost:
    // the next export finds that the state in the backend is older.
    let freed = ours.unlock(lock).await;
    let (seat, there, was_there) = brought?;
    freed?;
    let serial = StateFacts::read(&there).map_or(version.serial, |facts| facts.serial);
    if which == BackendChoice::Target {
        // From now on the state is in that backend, and the version here is a copy.
        let kept = seat.keep_copy(control, &state.name, there).await;
        kept.map_err(|source| ExportError::NoCopy(Box::new(source)))?;
    }
    Ok(Exported {
        secret_paths: super::count_secret_paths(control, &version).await?,
        version,
        place,
        serial,
        was_there,
        locked_by: None,
    })
}

/// What to do with the state in the backend.
enum ExportAction<'a> {
    /// Keep it: it is this version, or a later one.
    There(Vec<u8>),
    /// Write this over it, or into an empty backend.
    Write(Cow<'a, [u8]>),
}

/// The newest version here, to be exported.
struct OutgoingVersion<'a> {
    control: &'a Control,
    stack: &'a StackName,
    which: BackendChoice,
    place: &'a str,
    version: &'a StateVersion,
    body: &'a [u8],
    of_copy: bool,
}

impl<'a> OutgoingVersion<'a> {
    /// Locks the state, so that no run is writing it here, now or meanwhile. A copy is not written here and
    /// needs no lock.
    async fn lock(&self, who: &Actor) -> Result<Option<String>, ExportError> {
        if self.version.is_copy() {
            return Ok(None);
        }
        let state = &self.version.state;
        let info = lock_info(who, "migration source state");
        let expected = ExpectedHead::Exactly(Some(self.version.version));
        let store = &self.control.store;
        let locked = store.lock_acquire(state, &info, None, expected).await;
        locked.map_err(|err| match err {
            AcquireLockError::Held { holder, .. } => ExportError::Locked {
                stack: self.stack.clone(),
                holder,
            },
            err => ExportError::Lock {
                stack: self.stack.clone(),
                source: Box::new(err),
            },
        })?;
        Ok(Some(info.id))
    }

    async fn unlock(&self, lock: Option<String>) -> Result<(), ExportError> {
        let Some(id) = lock else {
            return Ok(());
        };
        let freed = self.control.store.lock_release(&self.version.state, &id);
        freed.await.map_err(|source| ExportError::Unlock {
            stack: self.stack.clone(),
            source: Box::new(source),
        })?;
        Ok(())
    }

    /// Decides by content. Serials are not enough: both sides may have increased them, and an empty backend
    /// counts the first push twice.
    async fn way(&self, there: Option<Vec<u8>>) -> Result<ExportAction<'a>, ExportError> {
        let as_it_is = ExportAction::Write(Cow::Borrowed(self.body));
        let Some(there) = there else {
            // Others may have written where the copy was seen.
            if self.version.is_copy() && !self.of_copy {
                return Err(ExportError::OfCopy {
                    stack: self.stack.clone(),
                    place: self.place.to_owned(),
                    seen_at: self.version.created_at,
                });
            }
            return Ok(as_it_is);
        };
        if holds_the_same(&there, self.body) {
            return Ok(ExportAction::There(there));
        }
        // The engine itself refuses another lineage or an unreadable state.
        let (Ok(seen), Ok(own)) = (StateFacts::read(&there), StateFacts::read(self.body)) else {
            return Ok(as_it_is);
        };
        if seen.lineage != own.lineage {
            return Ok(as_it_is);
        }
        // An engine overwrites a newer state if that has no resources.
        let Some(what) = newer_words(&seen, &own) else {
            return Ok(as_it_is);
        };
        let versions = self.control.store.state_version_list(&self.version.state);
        let versions = versions.await.map_err(|source| self.unread(source))?;
        if self.is_followed_by(&seen, &versions).await? {
            return Ok(ExportAction::There(there));
        }
        if own.contents != Contents::Encrypted
            && self.was_ours(&there, &seen, &versions).await?
            && let Ok(next) = with_identity(self.body, seen.serial + 1, &own.lineage)
        {
            return Ok(ExportAction::Write(Cow::Owned(next)));
        }
        Err(ExportError::InTheWay {
            place: self.place.to_owned(),
            what,
            stack: (self.which == BackendChoice::Target).then(|| self.stack.clone()),
        })
    }

    /// Whether the newer state there follows the version here. A copy was seen there. So was a version that
    /// was imported from a copy, until it is changed here.
    async fn is_followed_by(
        &self,
        seen: &StateFacts,
        versions: &[StateVersion],
    ) -> Result<bool, ExportError> {
        if self.which == BackendChoice::Source {
            return Ok(false);
        }
        if self.version.is_copy() {
            return Ok(true);
        }
        let [.., copy, newest] = versions else {
            return Ok(false);
        };
        Ok(copy.is_copy()
            && newest.version == self.version.version
            && seen.serial > newest.serial
            && holds_the_same(&self.body_of(copy).await?, self.body))
    }

    /// Whether the state there was once written here, so that replacing it loses nothing.
    async fn was_ours(
        &self,
        there: &[u8],
        seen: &StateFacts,
        versions: &[StateVersion],
    ) -> Result<bool, ExportError> {
        let may_be = versions.iter().rev().filter(|one| {
            !one.is_copy()
                && one.lineage == seen.lineage
                && one.contents == seen.contents
                && one.serial <= seen.serial
        });
        for one in may_be {
            if holds_the_same(there, &self.body_of(one).await?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn body_of(&self, version: &StateVersion) -> Result<Arc<Vec<u8>>, ExportError> {
        let body = self.control.store.state_version_bytes(version).await;
        body.map_err(|source| self.unread(source))
    }

    fn unread(&self, source: StoreError) -> ExportError {
        ExportError::Read(ReadStateError::Store {
            state: self.version.state.clone(),
            source: Box::new(source),
        })
    }
}

/// Whether two states have the same lineage, resources and outputs. False for states that a client encrypted,
/// which cannot be compared.
pub(crate) fn holds_the_same(there: &[u8], ours: &[u8]) -> bool {
    let read = |body: &[u8]| -> Option<(String, Value, Value)> {
        let mut state: Value = serde_json::from_slice(body).ok()?;
        if state.get("encryption_version").is_some() {
            return None;
        }
        let lineage = state["lineage"].as_str()?.to_owned();
        Some((lineage, state["resources"].take(), state["outputs"].take()))
    };
    let (there, ours) = (read(there), read(ours));
    there.is_some() && there == ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(there: &str, ours: &str, expected: bool) {
        assert_eq!(holds_the_same(there.as_bytes(), ours.as_bytes()), expected);
    }

    #[test]
    fn states_are_one_by_what_they_hold() {
        let state = r#"{"version":4,"serial":2,"lineage":"l","outputs":{},"resources":[1]}"#;
        check(state, state, true);
        check(&state.replace(":2", ":3"), state, true);
        check(&state.replace("[1]", "[2]"), state, false);
        check(&state.replace("\"l\"", "\"m\""), state, false);
        check("", "", false);
        let sealed = r#"{"encryption_version":"v0","serial":2,"lineage":"l","encrypted_data":"a"}"#;
        check(sealed, &sealed.replace("\"a\"", "\"b\""), false);
    }
}
