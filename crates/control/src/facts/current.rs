//! The facts of a stack as its state says them now: for who shows, compares or publishes them by hand.
//!
//! Not here: the run that does it after an apply (`runner`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use drivers::git::GitError;
use drivers::process::engine_environment;
use drivers::secrets::{self, Reference, SecretError, Surroundings};
use jiff::Timestamp;
use model::config::eval::Values;
use model::config::resolve::{ResolveError, StageValues, resolve};
use model::facts::{Publish, ReadPublishError, StateMark};
use model::ids::StackName;
use model::project::{FactsPlace, Input, Project};
use model::secret::Secret;
use model::stage::Ask;
use model::state::resources::Document;
use serde_json::Value;
use store::StoreError;

use super::{Place, Publication, ReadPlaceError, TakeOver};
use crate::Control;
use crate::changesets::is_ours;
use crate::outputs::{Output, OutputsError, of_state};
use crate::projects::OpenProject;

/// Everything that a publication of one stack needs. No `Debug`: it holds secrets.
pub struct Current {
    root: PathBuf,
    asker: BTreeMap<String, String>,
    stack: StackName,
    state_name: String,
    places: BTreeMap<String, Place>,
    blocks: Vec<Publish>,
    outputs: BTreeMap<String, Output>,
    state: Option<StateMark>,
    source: Option<String>,
    at: Timestamp,
    stacks: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum CurrentFactsError {
    #[error("could not read the outputs of stack `{stack}`")]
    Outputs {
        stack: StackName,
        source: OutputsError,
    },
    #[error("could not read the state of stack `{stack}`")]
    State {
        stack: StackName,
        source: StoreError,
    },
    #[error("could not resolve the secret `{reference}`")]
    Secret {
        reference: String,
        source: SecretError,
    },
    #[error("facts of stack `{stack}` have no values")]
    Resolve {
        stack: StackName,
        source: ResolveError,
    },
    #[error(transparent)]
    Publish(#[from] ReadPublishError),
    #[error(transparent)]
    Place(#[from] ReadPlaceError),
    #[error(transparent)]
    Git(#[from] GitError),
}

impl CurrentFactsError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Place(err) => err.hint(),
            Self::Resolve { stack, .. } => {
                Some(format!("`terrane apply {stack}` makes its outputs anew"))
            }
            Self::Git(err) => err.hint(),
            Self::Outputs { .. } | Self::State { .. } | Self::Secret { .. } | Self::Publish(_) => {
                None
            }
        }
    }
}

impl Current {
    /// Reads a stack's state, and what its `publish` blocks and their places say. A stack that was never applied, or
    /// was destroyed, has no facts.
    pub async fn read(
        control: &Control,
        open: &OpenProject,
        project: &Project,
        stack: &StackName,
        asker: &BTreeMap<String, String>,
    ) -> Result<Self, CurrentFactsError> {
        let declared = &project.stacks[stack];
        let is_ours = is_ours(project, stack);
        let outputs = of_state(control, &declared.state, is_ours).await;
        let outputs = outputs.map_err(|source| CurrentFactsError::Outputs {
            stack: stack.clone(),
            source,
        })?;
        let failed = |source| CurrentFactsError::State {
            stack: stack.clone(),
            source,
        };
        let state = control.state_name(&declared.state);
        let head = control.store.state_head(&state).await.map_err(failed)?;
        let head = head.filter(|head| head.is_copy() != is_ours);
        let document = match &head {
            Some(head) => {
                let body = control.store.state_version_read(head).await;
                Document::read(&body.map_err(failed)?).ok()
            }
            None => None,
        };
        let is_applied =
            !outputs.is_empty() || document.as_ref().is_some_and(|it| !it.instances.is_empty());
        let secrets = read_secrets(&project.facts, &open.root, asker).await?;
        let given = Given {
            outputs: &outputs,
            document: document.as_ref(),
            asker,
            secrets: &secrets,
        };
        let own_remote = match &open.git {
            Some(git)
                if project
                    .facts
                    .values()
                    .any(|place| place.repository.is_none()) =>
            {
                git.remote_url("origin")?
            }
            Some(_) | None => None,
        };
        let places = Place::read_all(&project.facts, &given, own_remote.as_deref())?;
        let mut blocks = Vec::new();
        for block in declared.stages.publish.iter().filter(|_| is_applied) {
            let resolved = resolve(block, &given).map_err(|source| CurrentFactsError::Resolve {
                stack: stack.clone(),
                source,
            })?;
            for block in &resolved {
                blocks.push(Publish::read(block)?);
            }
        }
        Ok(Self {
            root: open.root.clone(),
            asker: asker.clone(),
            stack: stack.clone(),
            state_name: declared.state.clone(),
            blocks,
            state: head.as_ref().map(|head| StateMark {
                serial: head.serial,
                lineage: head.lineage.clone(),
            }),
            at: head.map_or(Timestamp::UNIX_EPOCH, |head| head.created_at),
            source: match &open.git {
                Some(git) => git.head()?,
                None => None,
            },
            stacks: at_one_branch(publishers(project), &places),
            places,
            outputs,
        })
    }

    pub fn publication<'a>(&'a self, take_over: Option<&'a TakeOver>) -> Publication<'a> {
        Publication {
            root: &self.root,
            asker: &self.asker,
            places: &self.places,
            stack: &self.stack,
            state_name: &self.state_name,
            run: None,
            state: self.state.as_ref(),
            source: self.source.as_deref(),
            at: self.at,
            outputs: &self.outputs,
            blocks: &self.blocks,
            stacks: &self.stacks,
            take_over,
        }
    }
}

/// Two blocks that lead to one branch are one place: who publishes to either publishes there.
fn at_one_branch(
    publishers: BTreeMap<String, BTreeSet<String>>,
    places: &BTreeMap<String, Place>,
) -> BTreeMap<String, BTreeSet<String>> {
    let branch = |name: &str| {
        let place = places.get(name)?;
        Some((place.repository.as_str(), place.branch.as_str()))
    };
    let together = |name: &String| {
        let same = publishers
            .iter()
            .filter(|(other, _)| *other == name || branch(other) == branch(name));
        same.flat_map(|(_, stacks)| stacks.iter().cloned())
            .collect()
    };
    let names = publishers.keys();
    names.map(|name| (name.clone(), together(name))).collect()
}

/// By place, the stacks of a project that publish there.
pub fn publishers(project: &Project) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for place in project.facts.keys() {
        all.insert(place.clone(), BTreeSet::new());
    }
    for (name, stack) in &project.stacks {
        for block in &stack.stages.publish {
            let there = all.entry(block.name.clone()).or_default();
            there.insert(name.to_string());
        }
    }
    all
}

async fn read_secrets(
    places: &BTreeMap<String, FactsPlace>,
    root: &Path,
    asker: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Secret>, CurrentFactsError> {
    let env = engine_environment(asker, true);
    let around = Surroundings {
        asker,
        root,
        env: &env,
    };
    let mut secrets = BTreeMap::new();
    for place in places.values() {
        let Some(Input::Expression(expression)) = &place.credential else {
            continue;
        };
        for reference in &expression.needs.secrets {
            let failed = |source| CurrentFactsError::Secret {
                reference: reference.clone(),
                source,
            };
            let parsed: Reference = reference.parse().map_err(failed)?;
            let secret = secrets::resolve(&parsed, around).await.map_err(failed)?;
            secrets.insert(reference.clone(), secret);
        }
    }
    Ok(secrets)
}

struct Given<'a> {
    outputs: &'a BTreeMap<String, Output>,
    document: Option<&'a Document>,
    asker: &'a BTreeMap<String, String>,
    secrets: &'a BTreeMap<String, Secret>,
}

impl Values for Given<'_> {
    fn output(&self, _stack: &StackName, _key: &str) -> Option<(Value, bool)> {
        None
    }

    fn env(&self, name: &str) -> Option<String> {
        self.asker.get(name).cloned()
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        self.secrets.get(reference).cloned()
    }
}

impl StageValues for Given<'_> {
    fn output(&self, key: &str) -> Option<(Value, bool)> {
        let output = self.outputs.get(key)?;
        Some((output.value.clone(), output.sensitive))
    }

    fn resource(&self, address: &str) -> Option<(Value, bool)> {
        let mut instances = self.document?.instances.iter();
        let instance = instances.find(|instance| instance.address == address)?;
        let is_sensitive = instance.entry().leaves.iter().any(|leaf| leaf.is_sensitive);
        Some((instance.attributes.clone(), is_sensitive))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.asker.get(name).cloned()
    }

    fn secret(&self, reference: &str) -> Option<Secret> {
        self.secrets.get(reference).cloned()
    }

    fn answer(&self, _ask: &Ask) -> Option<Value> {
        None
    }
}
