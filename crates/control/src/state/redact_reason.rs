//! Removes secrets from a person's reason before it is stored: sensitive values of the affected states, and
//! secrets that the project names. Reasons stay in records, and are committed for others to read.

use std::collections::BTreeMap;
use std::time::Duration;

use drivers::process::engine_environment;
use drivers::secrets::{SecretReference, read_from_caller};
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::run::RunSpec;
use model::run::exception::Exceptions;
use model::state::StateName;
use store::StoreError;

use crate::Control;
use crate::project::open::OpenProject;
use crate::secrets::caller_env::{self, CallerEnv};
use crate::state::secret_paths;

/// A service that does not respond must not delay an emergency.
const PATIENCE: Duration = Duration::from_secs(10);

/// Masks the secrets of this project that this machine can read, and variables whose names indicate a secret.
/// A secret that cannot be read here is assumed to be unknown to the user.
pub fn without_secrets_here(
    project: Option<&OpenProject>,
    env: &BTreeMap<String, String>,
    text: &str,
) -> String {
    let mut secrets: Vec<Secret> = CallerEnv::of_environment(env).named_secrets().collect();
    if let Some(open) = project {
        let references = open.loaded.secrets.keys();
        let references =
            references.filter_map(|reference| reference.parse::<SecretReference>().ok());
        secrets.extend(
            references
                .filter_map(|parsed| read_from_caller(&parsed, env, &open.root).ok().flatten()),
        );
    }
    Mask::new(&secrets).mask_text(text)
}

/// The reasons for exceptions and for a policy override, as they are stored.
pub(crate) async fn redact_exceptions(
    control: &Control,
    asker: &CallerEnv,
    specs: &[RunSpec],
    mut exceptions: Option<Exceptions>,
    mut policy_override: Option<String>,
) -> (Option<Exceptions>, Option<String>) {
    let reasons = exceptions.iter_mut().map(|them| &mut them.reason);
    for reason in reasons.chain(&mut policy_override) {
        let states = specs.iter().map(|spec| &spec.stack.state);
        let states: Vec<StateName> = states.map(|state| control.state_name(state)).collect();
        let text = without_secrets_of_specs(asker, specs, reason).await;
        *reason = without_secrets(control, &states, &text).await;
    }
    (exceptions, policy_override)
}

/// Masks the secrets of these runs, including those from services.
async fn without_secrets_of_specs(asker: &CallerEnv, specs: &[RunSpec], text: &str) -> String {
    let mut secrets = asker.secrets(specs);
    let asking = async {
        for spec in specs {
            let env = engine_environment(asker.env(), spec.target.is_open());
            for reference in caller_env::secrets_of(spec) {
                let found = asker.secret(reference, spec.root.as_ref(), &env).await;
                secrets.extend(found.ok().flatten());
            }
        }
    };
    // Only secrets that were read in time are masked.
    drop(tokio::time::timeout(PATIENCE, asking).await);
    Mask::new(&secrets).mask_text(text)
}

/// Masks the values that these states mark as sensitive. A state that cannot be read is skipped.
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

/// The reason that a person gives for an exceptional action.
#[derive(Clone, Debug)]
pub struct BreakGlassReason {
    pub actor: Actor,
    pub text: String,
}

impl BreakGlassReason {
    /// The reason as it is stored for a state.
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
    let document = secret_paths::document(&control.store, &head).await?;
    Ok(document.ok().map(|document| document.mask()))
}
