//! A person's reason, as it is kept: without what the states it is about hold in secret. It stays in records, and is
//! committed for others to read.

use model::ids::{ChangeSetId, RunId};
use model::masking::Mask;
use model::state::StateName;
use store::StoreError;

use crate::locks::held::Reason;
use crate::{Control, hidden};

/// The text without values that these states call sensitive. A state that cannot be read has none to look for.
pub async fn without_secrets(control: &Control, states: &[StateName], text: &str) -> String {
    let mut text = text.to_owned();
    for state in states {
        if let Ok(Some(mask)) = mask_of(control, state).await {
            text = mask.mask_text(&text);
        }
    }
    text
}

/// The same for the states of runs.
pub(crate) async fn without_secrets_of(control: &Control, runs: &[RunId], text: &str) -> String {
    let mut states = Vec::new();
    for run in runs {
        if let Ok(spec) = control.store.run_spec(*run).await {
            states.push(control.state_name(&spec.stack.state));
        }
    }
    without_secrets(control, &states, text).await
}

/// The same for the states of a change set.
pub async fn without_secrets_of_set(control: &Control, set: ChangeSetId, text: &str) -> String {
    let runs = control.store.run_list(set).await.unwrap_or_default();
    let runs: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    without_secrets_of(control, &runs, text).await
}

impl Reason {
    /// As it is kept about a state.
    pub(crate) async fn kept(&self, control: &Control, state: &StateName) -> Self {
        let states = std::slice::from_ref(state);
        Self {
            actor: self.actor.clone(),
            text: without_secrets(control, states, &self.text).await,
        }
    }
}

async fn mask_of(control: &Control, state: &StateName) -> Result<Option<Mask>, StoreError> {
    let Some(head) = control.store.state_head(state).await? else {
        return Ok(None);
    };
    let document = hidden::document(control, &head).await?;
    Ok(document.ok().map(|document| document.mask()))
}
