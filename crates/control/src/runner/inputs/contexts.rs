//! What contexts provide besides environment and variables: files, and hooks around stages.

use std::collections::BTreeMap;
use std::time::Duration;

use model::base::secret::Secret;
use model::project::Context;
use model::project::context::{HookStage, HookTiming, hooks_around};
use model::run::RunSpec;
use serde_json::Value;

use crate::runner::Failure;
use crate::stage::values::text_of;
use crate::values::FetchedValues;

/// A hook with all its values.
#[derive(Clone)]
pub(in crate::runner) struct ReadyHook {
    pub(in crate::runner) when: HookTiming,
    pub(in crate::runner) stage: HookStage,
    pub(in crate::runner) context: String,
    pub(in crate::runner) run: Vec<String>,
    pub(in crate::runner) env: Vec<(String, Secret)>,
    pub(in crate::runner) limit: Duration,
}

const LIMIT: Duration = Duration::from_mins(10);

/// The files of a stack by path; the stronger context wins.
pub(super) fn files(
    spec: &RunSpec,
    known: &FetchedValues<'_>,
) -> Result<BTreeMap<String, Secret>, Failure> {
    let mut files = BTreeMap::new();
    for context in &spec.contexts {
        for (path, input) in &context.files {
            let what = format!("the file `{path}` of context `{}`", context.name);
            let Value::String(text) = known.evaluate(input, &what)? else {
                return Err(Failure::new(format!("{what} is not text")));
            };
            files.insert(path.clone(), Secret::new(text));
        }
    }
    Ok(files)
}

/// The hooks of a stack, in the order they run.
pub(super) fn hooks(spec: &RunSpec, known: &FetchedValues<'_>) -> Result<Vec<ReadyHook>, Failure> {
    let contexts: Vec<&Context> = spec.contexts.iter().collect();
    let mut ready = Vec::new();
    for stage in HookStage::ALL {
        for when in [HookTiming::Before, HookTiming::After] {
            for (context, hook) in hooks_around(&contexts, when, stage) {
                let what = format!("the hook {hook} of context `{}`", context.name);
                let run = match known.evaluate(&hook.run, &what)? {
                    Value::Array(words) => words.iter().map(text_of).collect(),
                    _ => return Err(Failure::new(format!("{what} is not a list of strings"))),
                };
                let mut env = Vec::new();
                for (name, input) in &hook.env {
                    let value = known.evaluate(input, &format!("`{name}` of {what}"))?;
                    env.push((name.clone(), Secret::new(text_of(&value))));
                }
                ready.push(ReadyHook {
                    when,
                    stage,
                    context: context.name.clone(),
                    run,
                    env,
                    limit: hook.timeout.unwrap_or(LIMIT),
                });
            }
        }
    }
    Ok(ready)
}
