//! The gates of a stack, with the values that its state and the asker's environment give them.

use std::collections::BTreeMap;
use std::path::Path;

use drivers::process::engine_environment;
use model::config::resolve::{self, ResolveError};
use model::diagnostic::Location;
use model::gate::{Asked, Gate, RecordKind, SettingError};
use model::masking::Mask;
use model::project::{Project, Stack};
use model::stage::{Ask, StageBlock};

use crate::asker::Asker;
use crate::facts::{self, AnswerFactsError};
use crate::stages::{Side, StackValues, StageValuesError};
use crate::{Control, changesets};

/// What is ready to be looked at.
#[derive(Debug)]
pub struct StackGates {
    pub gates: Vec<Gate>,
    /// Hides what is sensitive in the stack's state.
    pub mask: Mask,
}

#[derive(Debug, thiserror::Error)]
pub enum StackGatesError {
    #[error(transparent)]
    Values(#[from] StageValuesError),
    #[error(transparent)]
    Facts(#[from] AnswerFactsError),
    /// All that is wrong with the gates, none of which was looked at.
    #[error("the gates of stack `{stack}` cannot be looked at")]
    Settings {
        stack: String,
        problems: Vec<Problem>,
        /// It has no outputs yet, which may explain the rest.
        is_bare: bool,
    },
}

/// One thing that is wrong with a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub hint: Option<String>,
    pub at: Location,
}

/// The gates of a stack as it was last applied. `env` is the asker's, `root` the project's.
pub async fn of_stack(
    control: &Control,
    project: &Project,
    stack: &Stack,
    env: &BTreeMap<String, String>,
    root: &Path,
) -> Result<StackGates, StackGatesError> {
    let blocks = &stack.stages.gates;
    let asker = Asker::of_environment(env);
    let side = Side {
        asker: &asker,
        root,
        env: &engine_environment(env, project.targets[&stack.target].is_open()),
    };
    let is_ours = changesets::is_ours(project, &stack.name);
    let mut values = StackValues::gather(control, stack, is_ours, blocks, &side).await?;
    facts::answer(control, &side, &project.facts, blocks, &mut values).await?;
    match read(blocks, &mut values) {
        Ok(gates) => Ok(StackGates {
            gates,
            mask: values.mask(),
        }),
        Err(problems) => Err(StackGatesError::Settings {
            stack: stack.name.to_string(),
            problems,
            is_bare: values.outputs().is_empty(),
        }),
    }
}

/// The gates that blocks stand for, or everything that is wrong with them. What the world must be asked for,
/// a gate asks at each look; what was published must be among the values already.
pub fn read(blocks: &[StageBlock], values: &mut StackValues) -> Result<Vec<Gate>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut resolved = Vec::new();
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
            Ok(blocks) => resolved.extend(blocks),
            Err(err) => problems.push(Problem::unresolved(block, &err)),
        }
    }
    let gates = Gate::read_all(&resolved).unwrap_or_else(|wrong| {
        problems.extend(wrong.into_iter().map(Problem::from));
        Vec::new()
    });
    if problems.is_empty() {
        Ok(gates)
    } else {
        Err(problems)
    }
}

/// What a gate asks for itself.
pub fn asked(ask: &Ask) -> Option<Asked> {
    match ask {
        Ask::Dns { name, record } => Some(Asked::Dns {
            name: name.clone(),
            record: RecordKind::read(record)?,
        }),
        Ask::Kubernetes { object, field } => Some(Asked::Kubernetes {
            object: object.clone(),
            field: field.clone(),
        }),
        Ask::Fact { .. } => None,
    }
}

impl Problem {
    fn unresolved(block: &StageBlock, err: &ResolveError) -> Self {
        let why = match err {
            ResolveError::Value {
                attribute, source, ..
            } => format!("`{attribute}` has no value: {source}"),
            ResolveError::Asks { asks } => {
                let asks: Vec<String> = asks.iter().map(|ask| format!("`{ask}`")).collect();
                format!("{} is not published", asks.join(", "))
            }
            ResolveError::Each { .. } => {
                "`for_each` is neither an object nor a list of strings".to_owned()
            }
        };
        Self {
            message: format!("gate `{}`: {why}", block.name),
            hint: None,
            at: block.at.clone(),
        }
    }
}

impl From<SettingError> for Problem {
    fn from(err: SettingError) -> Self {
        Self {
            message: err.to_string(),
            hint: err.hint,
            at: err.at,
        }
    }
}
