//! Describes the last write of a state, for the message that a plan is out of date.

use model::run::seal::{SealedHead, VersionAuthor};
use model::state::StateVersion;

use crate::Control;

/// Who wrote the head of a state, and when, as far as it is known.
pub(crate) async fn describe(control: &Control, head: &StateVersion) -> String {
    let store = &control.store;
    let brief = match head.run {
        Some(run) => store.run_summary(run).await.ok(),
        None => None,
    };
    let request = brief.map(|brief| brief.set.request);
    let by = request.as_ref().and_then(|request| request.asker.clone());
    let by = by.or_else(|| Some(head.actor.clone()));
    let written = VersionAuthor {
        serial: SealedHead::of(head).serial,
        run: head.run,
        commit: request.and_then(|request| request.commit),
        by: by.filter(|by| !by.name.is_empty()),
        at: head.created_at,
    };
    written.words(control.now())
}
