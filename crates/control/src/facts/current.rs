//! The facts of a stack as its state says them now: for who shows, compares or publishes them by hand.
//!
//! Not here: the run that does it after an apply (`runner`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use drivers::git::GitError;
use drivers::process::{Environment, engine_environment};
use jiff::Timestamp;
use model::break_glass::Act;
use model::config::resolve::ResolveError;
use model::contract::Planned;
use model::facts::{Publish, ReadPublishError, Standing, StateMark};
use model::ids::StackName;
use model::project::{FactsPlace, Project};
use model::run::RunSpec;
use model::state::{Contents, StateName};
use serde_json::{Map, Value};
use store::{NewBreakGlass, StoreError};

use super::{
    ClusterSink, Former, Place, Publication, ReadPlaceError, ReadSinkError, Searching, TakeOver,
    find_former, own_remote, place_inputs, sinks_of,
};
use crate::Control;
use crate::asker::Asker;
use crate::bootstrap::Ground;
use crate::changesets::is_ours;
use crate::contracts::{CheckPlanError, PlanBreaks, PlanCheck, check_plan, reliance};
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
    sinks: Vec<ClusterSink>,
    former: Vec<Former>,
    standing: Vec<Standing>,
    version: Option<i64>,
    env: Environment,
    cache: PathBuf,
    is_applied: bool,
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
    #[error("could not read where the facts of stack `{stack}` stand")]
    Standing {
        stack: StackName,
        source: StoreError,
    },
    #[error(transparent)]
    Publish(#[from] ReadPublishError),
    #[error(transparent)]
    Sink(#[from] ReadSinkError),
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
            Self::Values(_)
            | Self::State { .. }
            | Self::Standing { .. }
            | Self::Sink(_)
            | Self::Publish(_) => None,
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
        let (mut blocks, mut sinks) = (Vec::new(), Vec::new());
        if is_applied {
            let resolved = values.resolve(publish);
            let resolved = resolved.map_err(|source| CurrentFactsError::Resolve {
                stack: stack.clone(),
                source,
            })?;
            for block in &resolved {
                blocks.push(Publish::read(block)?);
            }
            sinks = sinks_of(&resolved, publish)?;
        }
        let searching = Searching {
            control,
            side: &side,
            stack,
            places: &places,
            blocks: &blocks,
            sinks: &sinks,
            own: own.as_deref(),
        };
        let standing = standing(control, project, stack).await?;
        let former = find_former(&standing, &searching, &mut values).await;
        Ok(Self {
            root: open.root.clone(),
            asker: asker.clone(),
            stack: stack.clone(),
            state_name: declared.state.clone(),
            blocks,
            sinks,
            former,
            standing,
            version: head.as_ref().map(|head| head.version),
            env: engine_environment(asker, target.is_open()),
            cache: control.cache.clone(),
            is_applied,
            state: head.as_ref().map(|head| StateMark {
                serial: head.serial,
                lineage: head.lineage.clone(),
            }),
            at: control.now(),
            source: match &open.git {
                Some(git) => git.head()?,
                None => None,
            },
            stacks: at_one_branch(&publishers(project), &places),
            places,
            outputs: values.outputs().clone(),
        })
    }

    /// What is left of a stack that the project no longer has: nothing of it is published any more.
    pub async fn of_removed(
        control: &Control,
        open: &OpenProject,
        project: &Project,
        stack: &StackName,
        asker: &BTreeMap<String, String>,
    ) -> Result<Self, CurrentFactsError> {
        let side = Side {
            asker: &Asker::of_environment(asker),
            root: &open.root,
            env: &engine_environment(asker, true),
        };
        let mut values = StackValues::of_nothing(&side);
        let own = own_remote(asker, &open.root)?;
        let searching = Searching {
            control,
            side: &side,
            stack,
            places: &BTreeMap::new(),
            blocks: &[],
            sinks: &[],
            own: own.as_deref(),
        };
        let standing = standing(control, project, stack).await?;
        let former = find_former(&standing, &searching, &mut values).await;
        Ok(Self {
            root: open.root.clone(),
            asker: asker.clone(),
            stack: stack.clone(),
            state_name: stack.to_string(),
            places: BTreeMap::new(),
            blocks: Vec::new(),
            outputs: BTreeMap::new(),
            state: None,
            source: None,
            at: control.now(),
            stacks: BTreeMap::new(),
            sinks: Vec::new(),
            former,
            standing,
            version: None,
            env: engine_environment(asker, true),
            cache: control.cache.clone(),
            is_applied: true,
        })
    }

    /// What a publication would take away from those who are known to use it, as a plan would be refused for. A stack
    /// that was destroyed has said so itself.
    pub fn takes_away(&self, project: &Project) -> Result<PlanBreaks, CheckPlanError> {
        if !self.is_applied {
            return Ok(PlanBreaks::default());
        }
        let declared = project.stacks.get(&self.stack);
        let blocks = declared.map(|stack| stack.stages.publish.as_slice());
        let outputs = self.outputs.iter();
        let values: Map<String, Value> = outputs
            .map(|(name, output)| (name.clone(), output.value.clone()))
            .collect();
        let sensitive = self.outputs.iter().filter(|(_, output)| output.sensitive);
        let planned = Planned {
            sensitive: sensitive.map(|(name, _)| name.clone()).collect(),
            ..Planned::known(values.clone())
        };
        let breaks = check_plan(PlanCheck {
            source: &self.root,
            root: &self.root,
            blocks: blocks.unwrap_or_default(),
            relied: &reliance(project, &self.stack),
            standing: &self.standing,
            before: &values,
            planned: &planned,
            env: &self.asker,
        })?;
        // Whether the contract is kept, the publication looks at itself.
        Ok(PlanBreaks {
            problems: Vec::new(),
            ..breaks
        })
    }

    /// Records that facts are withdrawn which others use.
    pub async fn record_withdrawal(
        &self,
        control: &Control,
        breaks: &PlanBreaks,
        by: &TakeOver,
    ) -> Result<(), StoreError> {
        let state = self.state(control);
        let record = NewBreakGlass {
            act: Act::FactsWithdrawn,
            state: &state,
            actor: &by.person,
            reason: Some(&by.reason),
            detail: breaks.names().join(", "),
        };
        control.store.break_glass_open(&record).await.map(drop)
    }

    /// The name of the stack's state.
    pub fn state(&self, control: &Control) -> StateName {
        control.state_name(&self.state_name)
    }

    pub fn publication<'a>(&'a self, take_over: Option<&'a TakeOver>) -> Publication<'a> {
        Publication {
            root: &self.root,
            tree: &self.root,
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
            sinks: &self.sinks,
            former: &self.former,
            version: self.version,
            ground: Ground {
                source: &self.root,
                env: &self.env,
                hidden: &[],
                cache: &self.cache,
                held: None,
            },
            is_destroyed: !self.is_applied,
            stacks: &self.stacks,
            take_over,
        }
    }
}

/// Where a stack's facts stand, with the credentials that the project names for those places now.
async fn standing(
    control: &Control,
    project: &Project,
    stack: &StackName,
) -> Result<Vec<Standing>, CurrentFactsError> {
    let all = control
        .store
        .fact_standing_list(control.home.project(), stack.as_str());
    let all = all.await.map_err(|source| CurrentFactsError::Standing {
        stack: stack.clone(),
        source,
    })?;
    Ok(all.into_iter().map(|it| as_declared(project, it)).collect())
}

/// The stacks whose facts stand anywhere, those that the project no longer has among them.
pub async fn stacks_standing(control: &Control) -> Result<BTreeSet<String>, StoreError> {
    let all = control.store.fact_standing_list_all(control.home.project());
    Ok(all.await?.into_keys().collect())
}

/// Tells runs where the facts of their stacks stand: what is named no more is withdrawn.
pub(crate) async fn add_standing(
    control: &Control,
    project: &Project,
    specs: &mut [RunSpec],
) -> Result<(), StoreError> {
    let all = control.store.fact_standing_list_all(control.home.project());
    let mut all = all.await?;
    for spec in specs {
        let standing = all.remove(spec.stack.name.as_str()).unwrap_or_default();
        let standing = standing.into_iter();
        spec.standing = standing.map(|it| as_declared(project, it)).collect();
    }
    Ok(())
}

/// Whether the facts of a run's stack are on the branches that it names now, as far as the project file tells.
pub(crate) fn stand_as_named(spec: &RunSpec) -> bool {
    spec.standing.iter().all(|standing| match standing {
        Standing::Branch { place, .. } => {
            let mut named = spec.facts.values();
            named.any(|it| it.repository == place.repository && it.branch == place.branch)
        }
        // Whose block is gone has another description, and is looked at for that.
        Standing::File { .. } | Standing::Object { .. } => true,
    })
}

/// A place that a block of the project leads to is reached as that block says.
fn as_declared(project: &Project, standing: Standing) -> Standing {
    match standing {
        Standing::Branch { key, place, files } => {
            let is_same = |other: &&FactsPlace| {
                other.repository == place.repository && other.branch == place.branch
            };
            let declared = project.facts.values().find(is_same).cloned();
            let place = declared.map_or(place, Box::new);
            Standing::Branch { key, place, files }
        }
        Standing::File { .. } | Standing::Object { .. } => standing,
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
