//! What an engine that is gone had done, and no state knows: its words compared with the state that is stored.

use model::engine_event::EngineEvent;
use model::ids::RunId;
use model::import_proposal::{self, Left, Stored};
use model::run::RunSpec;
use model::state::resources::{Document, Opaque};

use crate::Control;

/// To be asked when everything that could be delivered was. A home that does not answer is no reason to lose
/// what the engine said: then nothing is taken for stored.
pub(crate) async fn look(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    events: &[EngineEvent],
    died: bool,
) -> Option<Box<Left>> {
    let state = control.state_name(&spec.stack.state);
    let head = control.store.state_head(&state).await.ok().flatten();
    let bytes = match &head {
        Some(head) => control.store.state_version_read(head).await.ok(),
        None => None,
    };
    let document = bytes.as_deref().map(Document::read);
    let kept_aside = control.store.kept_aside_list_run(run).await;
    let stored = Stored {
        serial: head.as_ref().map(|head| head.serial),
        at: head
            .as_ref()
            .filter(|head| head.run == Some(run))
            .map(|head| head.created_at),
        document: document
            .as_ref()
            .and_then(|document| document.as_ref().ok()),
        is_opaque: matches!(document, Some(Err(Opaque::Encrypted))),
        kept_aside: kept_aside.is_ok_and(|kept| !kept.is_empty()),
    };
    import_proposal::left(events, stored, died).map(Box::new)
}
