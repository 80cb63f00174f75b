//! The gates of a stack, with values from its state and the requester's environment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::{Environment, engine_environment};
use model::base::diagnostic::Location;
use model::base::error::Explain;
use model::base::masking::Mask;
use model::hcl::expression::ExternalQuery;
use model::hcl::expression::Input;
use model::project::config::resolve::{self, ResolveError};
use model::project::context;
use model::project::{Project, Stack};
use model::stage::StageBlock;
use model::stage::gate::{Gate, GateSettingError, ProbeQuery, RecordKind};
use model::state::Contents;
use serde_json::Value;

use crate::Control;
use crate::secrets::caller_env::CallerEnv;
use crate::stage::facts;
use crate::stage::values::{CallerContext, StackValues, StageEnvironment, StageValuesError};

/// Gates that are ready to run.
#[derive(Debug)]
pub struct StackGates {
    pub gates: Vec<Gate>,
    /// The environment of gate programs, in addition to the `env` of their gate.
    pub env: Environment,
    /// Masks sensitive values in the stack's state, and secrets in `env`.
    pub mask: Mask,
}

#[derive(Debug, thiserror::Error)]
pub enum StackGatesError {
    #[error(transparent)]
    Values(#[from] StageValuesError),
    /// Problems of the gates, none of which was checked.
    #[error("cannot check the gates of stack `{stack}`")]
    Settings {
        stack: String,
        problems: Vec<GateProblem>,
    },
}

impl Explain for StackGatesError {}

/// One problem of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateProblem {
    pub message: String,
    pub hint: Option<String>,
    pub at: Location,
}

/// The gates of a stack as it was last applied; if it was destroyed since, those that prove its absence.
/// `wanted` limits them to these gates and what they come after; empty means all. `env` is the requester's
/// environment, `root` the project's root.
pub async fn of_stack(
    control: &Control,
    project: &Project,
    stack: &Stack,
    wanted: &[String],
    env: &BTreeMap<String, String>,
    root: &Path,
) -> Result<StackGates, StackGatesError> {
    let state = control.state_name(&stack.state);
    let head = control.store.state_head(&state).await;
    let head = head.map_err(|source| StageValuesError::State {
        stack: stack.name.to_string(),
        source,
    })?;
    let is_gone = head.is_some_and(|head| head.contents == Contents::Nothing);
    let absence = stack.stages.gates_when(true);
    let is_gone = is_gone && !absence.is_empty();
    let blocks = if is_gone {
        absence
    } else {
        stack.stages.gates_when(false)
    };
    let blocks = &picked(blocks, wanted);
    let asker = CallerEnv::of_environment(env);
    let side = CallerContext {
        asker: &asker,
        root,
        env: &engine_environment(env, project.targets[&stack.target].is_open()),
    };
    let contexts = context::contexts_of(project, stack);
    let around = StageEnvironment::read(&contexts, &side).await?;
    let is_ours = project.is_on_terrane_backend(&stack.name);
    let mut values = if is_gone {
        StackValues::gather_before_destroy(control, stack, is_ours, blocks, &side).await?
    } else {
        StackValues::gather(control, stack, is_ours, blocks, &side).await?
    };
    facts::answer(control, &side, &project.facts, blocks, &mut values).await;
    match read(blocks, &mut values) {
        Ok(gates) => Ok(StackGates {
            gates,
            env: around.env,
            mask: values.mask(&around.hidden),
        }),
        Err(problems) => Err(StackGatesError::Settings {
            stack: stack.name.to_string(),
            problems,
        }),
    }
}

/// The gates that are requested by name, and those that they come after. Mistakes in other gates do not
/// matter.
fn picked(blocks: Vec<StageBlock>, wanted: &[String]) -> Vec<StageBlock> {
    if wanted.is_empty() {
        return blocks;
    }
    let mut names = wanted.to_vec();
    let mut kept = BTreeSet::new();
    while let Some(name) = names.pop() {
        for block in blocks.iter().filter(|block| block.is_named(&name)) {
            if kept.insert(block.name.clone())
                && let Some(Input::Known(Value::Array(after))) = block.attrs.get("after")
            {
                let after = after.iter().filter_map(Value::as_str);
                names.extend(after.map(str::to_owned));
            }
        }
    }
    let mut blocks = blocks;
    blocks.retain(|block| kept.contains(&block.name));
    blocks
}

/// Makes gates from blocks. A gate queries DNS and clusters itself at each check; published facts must be
/// among the values already. A gate without its values fails alone; an error concerns all gates.
pub fn read(
    blocks: &[StageBlock],
    values: &mut StackValues,
) -> Result<Vec<Gate>, Vec<GateProblem>> {
    let mut gates = Vec::new();
    for block in blocks {
        let mut result = resolve::resolve(block, values);
        if let Err(ResolveError::Asks { asks }) = &result {
            for ask in asks {
                if let Some(asked) = asked(ask) {
                    values.answer_with(ask.clone(), asked.to_value());
                }
            }
            result = resolve::resolve(block, values);
        }
        match result {
            Ok(resolved) => gates.extend(resolved.iter().map(Gate::read)),
            Err(err) => {
                let why = unresolved(&err, values);
                gates.push(Gate::unready(
                    &block.kind,
                    &block.name,
                    block.at.clone(),
                    why,
                ));
            }
        }
    }
    let problems: Vec<GateProblem> = Gate::check_order(&gates)
        .into_iter()
        .map(GateProblem::from)
        .collect();
    if problems.is_empty() {
        Ok(gates)
    } else {
        Err(problems)
    }
}

fn unresolved(err: &ResolveError, values: &StackValues) -> String {
    match err {
        ResolveError::Value {
            attribute, source, ..
        } if values.outputs().is_empty() => {
            format!(
                "`{attribute}` has no value: {source} (was the stack applied? it has no outputs)"
            )
        }
        ResolveError::Value {
            attribute, source, ..
        } => format!("`{attribute}` has no value: {source}"),
        ResolveError::Asks { asks } => {
            let asks = asks.iter().map(|ask| match values.unanswered(ask) {
                Some(why) => format!("`{ask}` could not be read: {why}"),
                None => format!("`{ask}` is not published"),
            });
            asks.collect::<Vec<_>>().join("; ")
        }
        ResolveError::Each { .. } => {
            "`for_each` is neither an object nor a list of strings".to_owned()
        }
        ResolveError::SecretEach { .. } => {
            "`for_each` uses a sensitive output or a secret, but its keys are visible to everyone"
                .to_owned()
        }
    }
}

/// A query that the gate makes itself.
pub fn asked(ask: &ExternalQuery) -> Option<ProbeQuery> {
    match ask {
        ExternalQuery::Dns { name, record } => Some(ProbeQuery::Dns {
            name: name.clone(),
            record: RecordKind::read(record)?,
        }),
        ExternalQuery::Kubernetes { object, field } => Some(ProbeQuery::Kubernetes {
            object: object.clone(),
            field: field.clone(),
        }),
        ExternalQuery::Fact { .. } => None,
    }
}

impl From<GateSettingError> for GateProblem {
    fn from(err: GateSettingError) -> Self {
        Self {
            message: err.to_string(),
            hint: err.hint,
            at: err.at,
        }
    }
}
