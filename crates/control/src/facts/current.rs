//! The facts of a stack as its state says them now: for who shows, compares or publishes them by hand.
//!
//! Not here: the run that does it after an apply (`runner`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use drivers::git::GitError;
use drivers::process::engine_environment;
use jiff::Timestamp;
use model::config::resolve::ResolveError;
use model::facts::{Publish, ReadPublishError, StateMark};
use model::ids::StackName;
use model::project::Project;
use model::state::Contents;
use store::StoreError;

use super::{Place, Publication, ReadPlaceError, TakeOver, own_remote, place_inputs};
use crate::Control;
use crate::asker::Asker;
use crate::changesets::is_ours;
use crate::outputs::Output;
use crate::projects::OpenProject;
use crate::stages::{Side, StackValues, StageValuesError};

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
    #[error(transparent)]
    Values(#[from] StageValuesError),
    #[error("could not read the state of stack `{stack}`")]
    State {
        stack: StackName,
        source: StoreError,
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
            Self::Values(_) | Self::State { .. } | Self::Publish(_) => None,
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
        let target = &project.targets[&declared.target];
        let side = Side {
            asker: &Asker::of_environment(asker),
            root: &open.root,
            env: &engine_environment(asker, target.is_open()),
        };
        let publish = &declared.stages.publish;
        let mut values = StackValues::gather(control, declared, is_ours, publish, &side).await?;
        let places = place_inputs(&project.facts);
        values.add_secrets(places, &side).await?;
        let state = control.state_name(&declared.state);
        let head = control.store.state_head(&state).await;
        let head = head.map_err(|source| CurrentFactsError::State {
            stack: stack.clone(),
            source,
        })?;
        let head = head.filter(|head| head.is_copy() != is_ours);
        let has_resources = |contents: Contents| contents != Contents::Nothing;
        let is_applied = !values.outputs().is_empty()
            || head
                .as_ref()
                .is_some_and(|head| has_resources(head.contents));
        let mut all = project.facts.values();
        let own = if all.all(|place| place.repository.is_some()) {
            None
        } else {
            own_remote(asker, &open.root)?
        };
        let places = Place::read_all(&project.facts, &values, own.as_deref())?;
        let mut blocks = Vec::new();
        if is_applied {
            let resolved = values.resolve(publish);
            let resolved = resolved.map_err(|source| CurrentFactsError::Resolve {
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
            stacks: at_one_branch(&publishers(project), &places),
            places,
            outputs: values.outputs().clone(),
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
    publishers: &BTreeMap<String, BTreeSet<String>>,
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
