//! The facts of a stack according to its current state, for `terrane facts`.
//!
//! Not here: the publication by a run after its apply (`runner`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use drivers::git::GitError;
use drivers::process::engine_environment;
use jiff::Timestamp;
use model::base::error::{Explain, NextStep, command};
use model::base::ids::StackName;
use model::project::config::resolve::ResolveError;
use model::project::context;
use model::project::{Project, Stack};
use model::run::RunSpec;
use model::stage::contract::PlannedFields;
use model::stage::facts::FactsBranch;
use model::stage::facts::{FactLocation, Publish, ReadPublishError, StateMark};
use model::state::break_glass::BreakGlassAction;
use model::state::{Contents, StateName};
use serde_json::{Map, Value};
use store::{NewBreakGlass, StoreError};

use super::{
    ClusterSink, Destination, Publication, ReadDestinationError, ReadSinkError, TakeOver,
    own_remote, reaches_clusters, sinks_of,
};
use crate::Control;
use crate::project::contracts::{BreakingChanges, CheckPlanError, PlanCheck, check_plan};
use crate::project::fact_readers::reliance;
use crate::project::open::OpenProject;
use crate::secrets::caller_env::CallerEnv;
use crate::stage::cluster::ClusterContext;
use crate::stage::values::{CallerContext, StackValues, StageEnvironment, StageValuesError};
use crate::state::outputs::OutputValue;

/// Everything that a publication of one stack needs. No `Debug`: it holds secrets.
pub struct FactsSnapshot {
    root: PathBuf,
    asker: BTreeMap<String, String>,
    stack: StackName,
    state_name: String,
    places: BTreeMap<String, Destination>,
    blocks: Vec<Publish>,
    outputs: BTreeMap<String, OutputValue>,
    state: Option<StateMark>,
    source: Option<String>,
    at: Timestamp,
    stacks: BTreeMap<String, BTreeSet<String>>,
    sinks: Vec<ClusterSink>,
    locations: Vec<FactLocation>,
    around: StageEnvironment,
    cache: PathBuf,
    is_applied: bool,
    /// The project no longer has the stack.
    is_removed: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadFactsError {
    #[error(transparent)]
    Values(#[from] StageValuesError),
    #[error("cannot read the state of stack `{stack}`")]
    State {
        stack: StackName,
        source: StoreError,
    },
    #[error("cannot evaluate the facts of stack `{stack}`")]
    Resolve {
        stack: StackName,
        source: ResolveError,
    },
    #[error("cannot read where the facts of stack `{stack}` were published")]
    Locations {
        stack: StackName,
        source: StoreError,
    },
    #[error(transparent)]
    Publish(#[from] ReadPublishError),
    #[error(transparent)]
    Sink(#[from] ReadSinkError),
    #[error(transparent)]
    Destination(#[from] ReadDestinationError),
    #[error(transparent)]
    Git(#[from] GitError),
}

impl Explain for ReadFactsError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Destination(err) => err.next_steps(),
            Self::Resolve { stack, .. } => {
                vec![command(format!("apply {stack}"), "applies it again")]
            }
            Self::Git(err) => err.next_steps(),
            _ => Vec::new(),
        }
    }
}

impl FactsSnapshot {
    /// Reads a stack's state, and what its `publish` blocks name. A stack that was never applied, was destroyed, or was
    /// removed from the project has no facts to publish.
    pub async fn read(
        control: &Control,
        open: &OpenProject,
        project: &Project,
        stack: &StackName,
        asker: &BTreeMap<String, String>,
    ) -> Result<Self, ReadFactsError> {
        let own = own_remote(asker, &open.root, project.facts.values())?;
        let declared = project.stacks.get(stack);
        let is_open = declared.is_none_or(|it| project.targets[&it.target].is_open());
        let env = engine_environment(asker, is_open);
        let side = CallerContext {
            asker: &CallerEnv::of_environment(asker),
            root: &open.root,
            env: &env,
        };
        let mut snapshot = Self {
            root: open.root.clone(),
            asker: asker.clone(),
            stack: stack.clone(),
            state_name: declared.map_or_else(|| stack.to_string(), |it| it.state.clone()),
            places: BTreeMap::new(),
            blocks: Vec::new(),
            outputs: BTreeMap::new(),
            state: None,
            source: match &open.git {
                Some(git) => git.head()?,
                None => None,
            },
            at: control.now(),
            stacks: BTreeMap::new(),
            sinks: Vec::new(),
            locations: locations(control, stack).await?,
            cache: control.cache.clone(),
            is_applied: false,
            is_removed: declared.is_none(),
            around: StageEnvironment::bare(env.clone()),
        };
        let mut values = match declared {
            Some(declared) => {
                if reaches_clusters(&declared.stages.publish, &snapshot.locations) {
                    let contexts = context::contexts_of(project, declared);
                    snapshot.around = StageEnvironment::read(&contexts, &side).await?;
                }
                let is_ours = project.is_on_terrane_backend(stack);
                snapshot
                    .read_stack(control, declared, is_ours, &side)
                    .await?
            }
            None => StackValues::of_nothing(&side),
        };
        let inputs = project.facts.values().flat_map(FactsBranch::inputs);
        values.add_secrets(inputs, &side).await?;
        snapshot.places = Destination::read_all(&project.facts, &values, own.as_deref())?;
        snapshot.stacks = at_one_branch(&publishers(project), &snapshot.places);
        Ok(snapshot)
    }

    /// Adds the outputs in the state, and the blocks with their values.
    async fn read_stack(
        &mut self,
        control: &Control,
        declared: &Stack,
        is_ours: bool,
        side: &CallerContext<'_>,
    ) -> Result<StackValues, ReadFactsError> {
        let publish = &declared.stages.publish;
        let values = StackValues::gather(control, declared, is_ours, publish, side).await?;
        let head = control.store.state_head(&self.state(control)).await;
        let head = head.map_err(|source| ReadFactsError::State {
            stack: self.stack.clone(),
            source,
        })?;
        let head = head.filter(|head| head.is_copy() != is_ours);
        let has_resources = head
            .as_ref()
            .is_some_and(|head| head.contents != Contents::Nothing);
        self.is_applied = has_resources || !values.outputs().is_empty();
        self.outputs = values.outputs().clone();
        self.state = head.map(|head| StateMark {
            serial: head.serial,
            lineage: head.lineage,
        });
        if self.is_applied {
            let resolved = values.resolve(publish);
            let resolved = resolved.map_err(|source| ReadFactsError::Resolve {
                stack: self.stack.clone(),
                source,
            })?;
            let blocks = resolved.iter().map(Publish::read);
            self.blocks = blocks.collect::<Result<_, _>>()?;
            self.sinks = sinks_of(&resolved)?;
        } else {
            let before =
                StackValues::gather_before_destroy(control, declared, is_ours, publish, side);
            // Without the old values, the objects are reported as left.
            let resolved = before.await?.resolve(publish).unwrap_or_default();
            self.sinks = sinks_of(&resolved).unwrap_or_default();
        }
        Ok(values)
    }

    /// What a publication would withdraw although it has known readers; a plan is refused for the same. A
    /// destroyed stack is not checked: its destroy was confirmed.
    pub fn takes_away(&self, project: &Project) -> Result<BreakingChanges, CheckPlanError> {
        if !self.is_applied && !self.is_removed {
            return Ok(BreakingChanges::default());
        }
        let declared = project.stacks.get(&self.stack);
        let blocks = declared.map(|stack| stack.stages.publish.as_slice());
        let outputs = self.outputs.iter();
        let values: Map<String, Value> = outputs
            .map(|(name, output)| (name.clone(), output.value.clone()))
            .collect();
        let sensitive = self.outputs.iter().filter(|(_, output)| output.sensitive);
        let planned = PlannedFields {
            sensitive: sensitive.map(|(name, _)| name.clone()).collect(),
            ..PlannedFields::known(values.clone())
        };
        let breaks = check_plan(PlanCheck {
            source: &self.root,
            root: &self.root,
            blocks: blocks.unwrap_or_default(),
            relied: &reliance(project, &self.stack),
            locations: &self.locations,
            before: &values,
            planned: &planned,
            env: &self.asker,
        })?;
        // The publication itself checks the contracts.
        Ok(BreakingChanges {
            problems: Vec::new(),
            ..breaks
        })
    }

    /// Records that facts are withdrawn although others read them.
    pub async fn record_withdrawal(
        &self,
        control: &Control,
        breaks: &BreakingChanges,
        by: &TakeOver,
    ) -> Result<(), StoreError> {
        let state = self.state(control);
        let record = NewBreakGlass {
            act: BreakGlassAction::FactsWithdrawn,
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
            locations: &self.locations,
            cluster: ClusterContext {
                source: &self.root,
                env: &self.around.env,
                hidden: &self.around.hidden,
                cache: &self.cache,
                held: None,
            },
            is_destroyed: !self.is_applied,
            stacks: &self.stacks,
            take_over,
        }
    }
}

async fn locations(
    control: &Control,
    stack: &StackName,
) -> Result<Vec<FactLocation>, ReadFactsError> {
    let (store, project) = (&control.store, control.home.project());
    let found = store.fact_location_list(project, stack.as_str()).await;
    found.map_err(|source| ReadFactsError::Locations {
        stack: stack.clone(),
        source,
    })
}

/// The stacks with published facts, also those that the project no longer has.
pub async fn stacks_with_facts(control: &Control) -> Result<BTreeSet<String>, StoreError> {
    let all = control.store.fact_location_list_all(control.home.project());
    Ok(all.await?.into_keys().collect())
}

/// Gives each run the locations of its stack's facts, and the places of the project that lead to them: a stack that no
/// longer publishes there withdraws its facts.
pub(crate) async fn add_locations(
    control: &Control,
    project: &Project,
    specs: &mut [RunSpec],
) -> Result<(), StoreError> {
    let all = control.store.fact_location_list_all(control.home.project());
    let mut all = all.await?;
    for spec in specs {
        spec.fact_locations = all.remove(spec.stack.name.as_str()).unwrap_or_default();
        for location in &spec.fact_locations {
            let FactLocation::Branch { place, .. } = location else {
                continue;
            };
            let is_there = |(_, it): &(&String, &FactsBranch)| {
                it.repository == place.repository && it.branch == place.branch
            };
            let named = spec.facts.iter().any(|named| is_there(&named));
            if let Some((name, place)) = project.facts.iter().find(is_there).filter(|_| !named) {
                spec.facts.insert(name.clone(), place.clone());
            }
        }
    }
    Ok(())
}

/// Whether the facts of a run's stack are on branches that the project names now, as far as the project file
/// shows.
pub(crate) fn are_on_named_branches(spec: &RunSpec) -> bool {
    spec.fact_locations.iter().all(|location| match location {
        FactLocation::Branch { place, .. } => {
            let mut named = spec.facts.values();
            named.any(|it| it.repository == place.repository && it.branch == place.branch)
        }
        // A change of its block changes the stack's definition.
        FactLocation::File { .. } | FactLocation::Object { .. } => true,
    })
}

/// Merges the publishers of blocks that name one branch.
fn at_one_branch(
    publishers: &BTreeMap<String, BTreeSet<String>>,
    places: &BTreeMap<String, Destination>,
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
