//! Changes of a dead engine that no state records: compares the engine's events with the stored state.

use model::base::ids::RunId;
use model::run::RunSpec;
use model::run::engine_event::EngineEvent;
use model::run::import_proposal::{self, StateAfterRun, UnrecordedResources};
use model::state::resources::{OpaqueState, StateDocument};

use crate::Control;

/// Call this after all deliverable states were delivered. If the home does not respond, nothing counts as
/// stored, so that no event of the engine is lost.
pub(crate) async fn look(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    events: &[EngineEvent],
    died: bool,
) -> Option<Box<UnrecordedResources>> {
    let state = control.state_name(&spec.stack.state);
    let head = control.store.state_head(&state).await.ok().flatten();
    let bytes = match &head {
        Some(head) => control.store.state_version_read(head).await.ok(),
        None => None,
    };
    let document = bytes.as_deref().map(StateDocument::read);
    let kept_aside = control.store.quarantine_list_run(run).await;
    let stored = StateAfterRun {
        serial: head.as_ref().map(|head| head.serial),
        at: head
            .as_ref()
            .filter(|head| head.run == Some(run))
            .map(|head| head.created_at),
        document: document
            .as_ref()
            .and_then(|document| document.as_ref().ok()),
        is_opaque: matches!(document, Some(Err(OpaqueState::Encrypted))),
        kept_aside: kept_aside.is_ok_and(|kept| !kept.is_empty()),
    };
    import_proposal::left(events, stored, died).map(Box::new)
}
