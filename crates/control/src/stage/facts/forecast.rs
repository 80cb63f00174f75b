//! What an apply would do to a stack's facts, as far as its plan shows. No repository is contacted: the store
//! contains what this home published. What an apply would certainly refuse is refused here.
//!
//! Not here: what readers of facts would lose (`contracts`), what a branch really holds (`facts diff`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::Environment;
use model::base::error::{ErrorKind, Explain, NextStep};
use model::base::ids::RunId;
use model::run::RunSpec;
use model::stage::StageBlock;
use model::stage::contract::PlannedFields;
use model::stage::facts::FactsBranch;
use model::stage::facts::{
    Encrypt, FactFile, FactLocation, Forecast, ForecastChange, Outputs, PathClash, PathMap,
    PrepareFactsError, Publish, ReadPublishError, file_header, prepare, render,
};
use serde_json::{Map, Value};
use store::StoreError;

use super::{PublishFactsError, SealFactsError, encrypt, foreign, key_of};
use crate::Control;
use crate::home::Home;
use crate::project::contracts::{
    FindContractError, PlannedValues, find, resolve_planned, resolve_planned_sinks,
};
use crate::secrets::caller_env::CallerEnv;
use crate::stage::values::CallerContext;

/// What a forecast is made from.
#[derive(Clone, Copy)]
pub(crate) struct ForecastContext<'a> {
    pub(crate) control: &'a Control,
    pub(crate) spec: &'a RunSpec,
    pub(crate) asker: &'a CallerEnv,
    pub(crate) env: &'a Environment,
    /// The tree that is planned.
    pub(crate) tree: &'a Path,
    pub(crate) planned: &'a PlannedFields,
}

const FILE: &str = "file";

/// The kind of a sink and its name.
fn sink_of(location: &FactLocation) -> Option<(String, String)> {
    match location {
        FactLocation::Branch { .. } => None,
        FactLocation::File { path, .. } => Some((FILE.to_owned(), path.clone())),
        FactLocation::Object { object } => {
            let name = format!("{}/{}", object.namespace, object.name);
            Some((object.sink.clone(), name))
        }
    }
}

fn of_sink((kind, path): (String, String), change: ForecastChange) -> Forecast {
    Forecast {
        place: String::new(),
        path,
        change,
        sink: Some(kind),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ForecastError {
    #[error(transparent)]
    Read(#[from] ReadPublishError),
    #[error(transparent)]
    Prepare(#[from] PrepareFactsError),
    #[error(transparent)]
    Contract(#[from] FindContractError),
    #[error("cannot encrypt `{path}`")]
    Seal {
        path: String,
        source: SealFactsError,
    },
    #[error(transparent)]
    Taken(Box<PublishFactsError>),
    #[error("cannot read what was published")]
    Store(#[from] StoreError),
}

impl Explain for ForecastError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read(_) | Self::Prepare(_) | Self::Seal { .. } | Self::Taken(_) => {
                ErrorKind::Refused
            }
            Self::Contract(_) | Self::Store(_) => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Taken(err) => err.next_steps(),
            Self::Prepare(err) => err.next_steps(),
            Self::Contract(err) => err.next_steps(),
            Self::Seal { source, .. } => source.next_steps(),
            Self::Read(_) | Self::Store(_) => Vec::new(),
        }
    }
}

/// Stores the forecast beside the run's logs, for the view of the plan. A failure is ignored: the view then
/// lacks it.
pub(crate) fn note_forecast(home: &Home, run: RunId, forecast: &[Forecast]) {
    let path = home.run_facts(run);
    if forecast.is_empty() {
        drop(std::fs::remove_file(path));
    } else if let Ok(bytes) = serde_json::to_vec(forecast) {
        drop(std::fs::write(path, bytes));
    }
}

/// The forecast of a run.
pub fn forecast_of(home: &Home, run: RunId) -> Vec<Forecast> {
    let bytes = std::fs::read(home.run_facts(run)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

impl ForecastContext<'_> {
    /// Files and objects that would be written or withdrawn.
    pub(crate) async fn forecast(&self) -> Result<Vec<Forecast>, ForecastError> {
        let mut keys = BTreeMap::new();
        for place in self.spec.facts.values() {
            keys.insert(place.name.as_str(), self.key(place).await);
        }
        let is_known = keys.values().all(Option::is_some);
        let named: BTreeSet<&String> = keys.values().flatten().collect();
        let is_named = |key: &String| !is_known || named.contains(key);
        if self.spec.destroy {
            return Ok(self.withdrawn(is_named, |_, _| false));
        }
        let mut found = Vec::new();
        // By branch, the paths that would be there.
        let mut wanted: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
        let mut is_complete = true;
        for block in &self.spec.stack.stages.publish {
            let files = self.files(block)?;
            let key = keys.get(block.name.as_str()).and_then(Option::as_ref);
            let (Some(files), Some(key)) = (files, key) else {
                is_complete = false;
                continue;
            };
            for file in files {
                let there = wanted.entry(key).or_default();
                self.check_beside(&block.name, there, &file.path)?;
                there.insert(file.path.clone());
                if let Some(change) = self.change(&block.name, key, &file).await? {
                    found.push(Forecast {
                        place: block.name.clone(),
                        path: file.path,
                        change,
                        sink: None,
                    });
                }
            }
        }
        if is_complete {
            found.extend(self.withdrawn(is_named, |key, path| {
                wanted.get(key).is_some_and(|there| there.contains(path))
            }));
        }
        let sinks = self.sinks(&found);
        found.extend(sinks);
        Ok(found)
    }

    /// Published files that would be withdrawn, or left where no block publishes any more; after a destroy
    /// also what sinks wrote.
    fn withdrawn(
        &self,
        is_named: impl Fn(&String) -> bool,
        stays: impl Fn(&String, &String) -> bool,
    ) -> Vec<Forecast> {
        let mut found = Vec::new();
        for location in &self.spec.fact_locations {
            if let FactLocation::Branch { key, place, files } = location {
                let change = if is_named(key) {
                    ForecastChange::Withdrawn
                } else {
                    ForecastChange::Left
                };
                let gone = files.keys().filter(|path| !stays(key, path));
                found.extend(gone.map(|path| Forecast {
                    place: place.name.clone(),
                    path: path.clone(),
                    change,
                    sink: None,
                }));
            }
            if self.spec.destroy {
                let sink = sink_of(location);
                found.extend(sink.map(|sink| of_sink(sink, ForecastChange::Withdrawn)));
            }
        }
        found
    }

    /// Refuses two paths of the stack that cannot be on one branch.
    fn check_beside(
        &self,
        place: &str,
        others: &BTreeSet<String>,
        path: &str,
    ) -> Result<(), ForecastError> {
        let mut paths = PathMap::default();
        for other in others {
            paths.add(other, ());
        }
        let Some((there, (), how)) = paths.clash(path) else {
            return Ok(());
        };
        Err(ForecastError::Taken(Box::new(PublishFactsError::Twice {
            stack: self.spec.stack.name.clone(),
            place: place.to_owned(),
            path: path.to_owned(),
            there: there.to_owned(),
            how,
        })))
    }

    /// What would happen to files of the project and to objects in clusters.
    fn sinks(&self, changed: &[Forecast]) -> Vec<Forecast> {
        let known: BTreeSet<_> = self
            .spec
            .fact_locations
            .iter()
            .filter_map(sink_of)
            .collect();
        let mut found = Vec::new();
        let mut named = Some(BTreeSet::new());
        for block in &self.spec.stack.stages.publish {
            let (planned, env) = (self.planned, self.asker.env());
            let Some(resolved) = resolve_planned_sinks(block, PlannedValues { planned, env })
            else {
                named = None;
                continue;
            };
            for one in &resolved {
                let path = one.attrs.get("path").and_then(Value::as_str);
                let is_changed = |it: &Forecast| {
                    it.place == block.name
                        && Some(it.path.as_str()) == path
                        && it.change == ForecastChange::Changed
                };
                let is_changed = changed.iter().any(is_changed);
                for sink in &one.blocks {
                    let text = |name: &str| sink.attrs.get(name).and_then(Value::as_str);
                    let called = match (text("path"), text("namespace"), text("name")) {
                        (Some(path), ..) => path.to_owned(),
                        (None, Some(namespace), Some(name)) => format!("{namespace}/{name}"),
                        (None, ..) => {
                            named = None;
                            continue;
                        }
                    };
                    let id = (sink.kind.clone(), called.clone());
                    let change = match (known.contains(&id), is_changed) {
                        (true, false) => None,
                        (true, true) => Some(ForecastChange::Changed),
                        // The plan reports nothing for a stack that never published anything.
                        (false, _) => {
                            (!self.spec.fact_locations.is_empty()).then_some(ForecastChange::New)
                        }
                    };
                    found.extend(change.map(|change| Forecast {
                        place: block.name.clone(),
                        path: called,
                        change,
                        sink: Some(sink.kind.clone()),
                    }));
                    if let Some(named) = &mut named {
                        named.insert(id);
                    }
                }
            }
        }
        if let Some(named) = named {
            let gone = known.into_iter().filter(|it| !named.contains(it));
            found.extend(gone.map(|sink| {
                // An object that no block names stays: its cluster is not recorded.
                let change = match sink.0.as_str() {
                    FILE => ForecastChange::Withdrawn,
                    _ => ForecastChange::Left,
                };
                of_sink(sink, change)
            }));
        }
        found
    }

    /// The files of a block; none if the plan does not contain their values yet.
    fn files(&self, block: &StageBlock) -> Result<Option<Vec<FactFile>>, ForecastError> {
        let planned = self.planned;
        let env = self.asker.env();
        let wanted = ["path", "contract", "partial", "values", "plain"];
        let Some(resolved) = resolve_planned(block, &wanted, PlannedValues { planned, env }) else {
            return Ok(None);
        };
        let Some(place) = self.spec.facts.get(&block.name) else {
            return Ok(None);
        };
        let known = planned.fields.iter().filter(|(_, value)| !value.is_null());
        let values: Map<String, Value> = known
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let outputs = Outputs {
            values: &values,
            sensitive: &planned.sensitive,
        };
        let mut files = Vec::new();
        for one in &resolved {
            let publish = Publish::read(one)?;
            let contract = match &publish.contract {
                Some(name) => Some(find(self.tree, name)?),
                None => None,
            };
            let fields = contract.as_ref().filter(|_| publish.values.is_none());
            let mut fields = fields.into_iter().flat_map(|contract| contract.fields());
            if fields.any(|field| planned.leaves_open(field)) {
                return Ok(None);
            }
            let (on_sensitive, all) = (place.sensitive, place.encrypt_all);
            let stack = self.spec.stack.name.as_str();
            let contract = contract.as_ref();
            files.push(prepare(
                &publish,
                stack,
                contract,
                outputs,
                on_sensitive,
                all,
            )?);
        }
        Ok(Some(files))
    }

    /// The identity of a branch in the store; none if it cannot be determined now.
    async fn key(&self, place: &FactsBranch) -> Option<String> {
        let side = CallerContext {
            asker: self.asker,
            root: Path::new(&self.spec.root),
            env: self.env,
        };
        key_of(place, &side).await.ok()
    }

    /// How a file differs from what was published last; none if it does not, or if the stack published nothing yet.
    /// Refuses a file that another stack of the project publishes.
    async fn change(
        &self,
        place: &str,
        key: &str,
        file: &FactFile,
    ) -> Result<Option<ForecastChange>, ForecastError> {
        let (store, project) = (&self.control.store, self.control.home.project());
        let past = store.fact_file_history(project, key, &file.path).await?;
        let stack = self.spec.stack.name.as_str();
        // A stack that is applied before this one may withdraw its file.
        let is_upstream = |owner: &str| {
            let mut upstreams = self.spec.upstreams.iter();
            upstreams.any(|upstream| upstream.stack.as_str() == owner)
        };
        if let Some(owner) = foreign::owner(&past).filter(|it| *it != stack && !is_upstream(it)) {
            let clash = (file.path.as_str(), file.path.as_str(), PathClash::Same);
            let taken = foreign::taken(project, place, clash, owner);
            return Err(ForecastError::Taken(Box::new(taken)));
        }
        let last = past.iter().find(|past| past.is_pushed);
        let Some(last) = last.filter(|past| !past.digest.bytes.is_empty()) else {
            let is_first = self.spec.fact_locations.is_empty()
                && store.fact_commit_last(project, key).await?.is_none();
            return Ok((!is_first).then_some(ForecastChange::New));
        };
        let digester = store.keyed_digester("facts").await?;
        let header = file_header(stack, project);
        let is_same = if file.encrypt == Encrypt::Nothing {
            let bytes = render(file.format, &file.values, Some(&header));
            last.digest.bytes == digester.digest(&bytes)
        } else {
            let (tree, env, now) = (self.tree, self.asker.env(), self.control.now());
            // Only the digest of the plaintext is needed: nothing is encrypted.
            let sealed = encrypt::seal(tree, env, file, &header, now, |plain| {
                (digester.digest(plain), Some(Vec::new()))
            });
            let sealed = sealed.map_err(|source| ForecastError::Seal {
                path: file.path.clone(),
                source,
            })?;
            sealed.plain.is_some() && sealed.plain == last.digest.plain
        };
        Ok((!is_same).then_some(ForecastChange::Changed))
    }
}
