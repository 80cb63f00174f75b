//! Requests to cancel a run, as they are recorded with it.
//!
//! Not here: making a request and carrying it out (`schedule::cancel`).

use model::base::actor::Actor;
use model::base::ids::RunId;
use model::run::RunEvent;
use store::Store;

use crate::Control;

/// The person who cancels a run, and the reason, if there is one.
#[derive(Clone, Debug)]
pub struct CancelRequest {
    pub by: Actor,
    pub reason: Option<String>,
}

/// Adds the person who cancelled a run to the message of its failure.
pub(crate) async fn name_requester(control: &Control, id: RunId, happened: RunEvent) -> RunEvent {
    let RunEvent::Failed { mut problem } = happened else {
        return happened;
    };
    if let Some((CancelRequest { by, reason }, kill)) = find(&control.store, id).await
        && (kill || problem.interrupted)
    {
        let what = if kill { "killed" } else { "cancelled" };
        let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        problem.message = format!("{what} by {by}{why}");
    }
    RunEvent::Failed { problem }
}

/// The newest request to cancel a run since it was opened, and whether its engine is to be killed.
pub(crate) async fn find(store: &Store, id: RunId) -> Option<(CancelRequest, bool)> {
    let events = store.run_events(id).await.unwrap_or_default();
    let since_opened = events.into_iter().rev().map(|(_, event)| event);
    let mut since_opened =
        since_opened.take_while(|event| !matches!(event, RunEvent::Reopened { .. }));
    since_opened.find_map(|event| match event {
        RunEvent::CancelAsked { by, reason, kill } => Some((CancelRequest { by, reason }, kill)),
        _ => None,
    })
}
