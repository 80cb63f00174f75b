//! What an apply would do to a stack's facts, as far as its plan tells: without asking any repository, by what this home
//! remembers of its own publications. What is bound to be refused is refused here already.
//!
//! Not here: what others would miss (`contracts`), what a branch really holds (`facts diff`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::Environment;
use model::contract::Planned;
use model::facts::{
    Clash, Encrypt, FactFile, Forecast, ForecastChange, Outputs, Owner, PrepareFactsError, Publish,
    ReadPublishError, Standing, TakenPath, prepare, render,
};
use model::ids::{ChangeSetId, RunId, StackName};
use model::project::FactsPlace;
use model::run::{RunSpec, Upstream};
use model::stage::StageBlock;
use serde_json::{Map, Value};
use store::{ChangeSetError, KeyedDigester, StoreError};

use super::branch::header;
use super::claims::{Claimed, Claims};
use super::{PublishFactsError, SealFactsError, key_of, sealed};
use crate::Control;
use crate::asker::Asker;
use crate::contracts::{FindContractError, Foretold, find, foretell, foretell_sinks};
use crate::home::Home;
use crate::stages::Side;

/// What it is told from.
#[derive(Clone, Copy)]
pub(crate) struct Outlook<'a> {
    pub(crate) control: &'a Control,
    pub(crate) set: ChangeSetId,
    pub(crate) run: RunId,
    pub(crate) spec: &'a RunSpec,
    pub(crate) asker: &'a Asker,
    pub(crate) env: &'a Environment,
    /// The tree that is planned.
    pub(crate) tree: &'a Path,
    pub(crate) planned: &'a Planned,
}

/// The kind of a sink, and what it is called.
fn sink_of(standing: &Standing) -> Option<(String, String)> {
    match standing {
        Standing::Branch { .. } => None,
        Standing::File { path, .. } => Some(("file".to_owned(), path.clone())),
        Standing::Object { object, .. } => {
            let called = format!("{}/{}", object.namespace, object.name);
            Some((object.sink.clone(), called))
        }
    }
}

fn withdrawn_sink(kind: String, path: String) -> Forecast {
    Forecast {
        place: String::new(),
        path,
        change: ForecastChange::Withdrawn,
        sink: Some(kind),
        is_former: false,
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
    #[error("could not encrypt `{path}`")]
    Seal {
        path: String,
        source: SealFactsError,
    },
    #[error(transparent)]
    Taken(Box<PublishFactsError>),
    #[error("{}", both(.0))]
    Claimed(Claimed),
    #[error("could not read what was published")]
    Store(#[from] StoreError),
    #[error("could not read what others are about to publish")]
    Others(#[from] ChangeSetError),
}

fn both(claimed: &Claimed) -> String {
    let Claimed {
        path,
        there,
        how,
        stack,
    } = claimed;
    match how {
        Clash::Same => format!("stack `{stack}`, in the same change set, publishes `{path}`, too"),
        Clash::Directory | Clash::Case => format!(
            "`{path}` cannot lie beside `{there}`, which stack `{stack}` publishes in the same change set: {}",
            how.why()
        ),
    }
}

impl ForecastError {
    /// Whether a rule would say no after the apply, too.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Read(_)
            | Self::Prepare(_)
            | Self::Seal { .. }
            | Self::Taken(_)
            | Self::Claimed(_) => true,
            Self::Contract(_) | Self::Store(_) | Self::Others(_) => false,
        }
    }

    /// The next step.
    pub(crate) fn hint(&self, stack: &StackName) -> Option<String> {
        match self {
            Self::Taken(err) => err.hint(stack),
            Self::Prepare(err) => err.hint(),
            Self::Contract(err) => err.hint(),
            Self::Seal { source, .. } => source.hint(),
            Self::Claimed(_) => {
                Some("a file has one owner: publish one of them to another path".to_owned())
            }
            Self::Read(_) | Self::Store(_) | Self::Others(_) => None,
        }
    }
}

/// Keeps it beside the run's logs, for who looks at the plan. What is not kept is not shown: no reason to fail.
pub(crate) fn note_forecast(home: &Home, run: RunId, forecast: &[Forecast]) {
    let path = home.run_facts(run);
    if forecast.is_empty() {
        drop(std::fs::remove_file(path));
    } else if let Ok(bytes) = serde_json::to_vec(forecast) {
        drop(std::fs::write(path, bytes));
    }
}

/// What was told of a run's plan.
pub fn forecast_of(home: &Home, run: RunId) -> Vec<Forecast> {
    let bytes = std::fs::read(home.run_facts(run)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

impl Outlook<'_> {
    /// Files that would be written or withdrawn.
    pub(crate) async fn forecast(&self) -> Result<Vec<Forecast>, ForecastError> {
        let digester = self.control.store.keyed_digester("facts").await?;
        if self.spec.destroy {
            return Ok(self.all_withdrawn());
        }
        let mut found = Vec::new();
        // By place, the paths that would be there; none: not all is known.
        let mut named: Option<BTreeMap<String, BTreeSet<String>>> = Some(BTreeMap::new());
        let mut claims = Claims::default();
        for block in &self.spec.stack.stages.publish {
            let files = self.files(block)?;
            let place = self.spec.facts.get(&block.name);
            let key = match place {
                Some(place) => self.key(place).await,
                None => None,
            };
            let (Some(files), Some(place), Some(key)) = (files, place, key) else {
                named = None;
                continue;
            };
            let has_moved = self.has_moved(&place.name, &key);
            for file in files {
                if let Some((there, how)) = claims.add(&key, &file.path) {
                    let clash = PublishFactsError::Twice {
                        stack: self.spec.stack.name.clone(),
                        place: place.name.clone(),
                        path: file.path,
                        there,
                        how,
                    };
                    return Err(ForecastError::Taken(Box::new(clash)));
                }
                self.check_owner(&place.name, &key, &file.path).await?;
                let mut change = self.change(&key, &file, &digester).await?;
                if has_moved {
                    change = change.or(Some(ForecastChange::New));
                }
                if let Some(change) = change {
                    found.push(Forecast {
                        place: place.name.clone(),
                        path: file.path.clone(),
                        change,
                        sink: None,
                        is_former: false,
                    });
                }
                if let Some(named) = &mut named {
                    named.entry(key.clone()).or_default().insert(file.path);
                }
            }
        }
        if let Some(claimed) = claims.note(self.control, self.set, self.run).await? {
            return Err(ForecastError::Claimed(claimed));
        }
        for standing in &self.spec.standing {
            let (Standing::Branch { key, place, files }, Some(named)) = (standing, &named) else {
                continue;
            };
            let there = named.get(key);
            let is_named = |path: &&String| there.is_some_and(|there| there.contains(*path));
            let gone = files.keys().filter(|path| !is_named(path));
            found.extend(gone.map(|path| Forecast {
                place: place.name.clone(),
                path: path.clone(),
                change: ForecastChange::Withdrawn,
                sink: None,
                is_former: !named.contains_key(key) && self.spec.facts.contains_key(&place.name),
            }));
        }
        let sinks = self.sinks(&found);
        found.extend(sinks);
        Ok(found)
    }

    /// A destroy leaves nothing standing.
    fn all_withdrawn(&self) -> Vec<Forecast> {
        let mut found = Vec::new();
        for standing in &self.spec.standing {
            if let Standing::Branch { place, files, .. } = standing {
                found.extend(files.keys().map(|path| Forecast {
                    place: place.name.clone(),
                    path: path.clone(),
                    change: ForecastChange::Withdrawn,
                    sink: None,
                    is_former: false,
                }));
            }
            found.extend(sink_of(standing).map(|(kind, path)| withdrawn_sink(kind, path)));
        }
        found
    }

    /// Whether the stack has facts where a place led before, and none yet where it leads now.
    fn has_moved(&self, name: &str, now: &str) -> bool {
        let mut is_elsewhere = false;
        for standing in &self.spec.standing {
            match standing {
                Standing::Branch { key, .. } if key == now => return false,
                Standing::Branch { place, .. } => is_elsewhere |= place.name == name,
                Standing::File { .. } | Standing::Object { .. } => {}
            }
        }
        is_elsewhere
    }

    /// What would become of files of the project and of objects in clusters, once some were put there.
    fn sinks(&self, changed: &[Forecast]) -> Vec<Forecast> {
        let known: BTreeSet<_> = self.spec.standing.iter().filter_map(sink_of).collect();
        let mut found = Vec::new();
        let mut named = Some(BTreeSet::new());
        for block in &self.spec.stack.stages.publish {
            let (planned, env) = (self.planned, self.asker.env());
            let Some(resolved) = foretell_sinks(block, Foretold { planned, env }) else {
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
                        // Of a stack that never published anything, nothing is foretold.
                        (false, _) => {
                            (!self.spec.standing.is_empty()).then_some(ForecastChange::New)
                        }
                    };
                    found.extend(change.map(|change| Forecast {
                        place: block.name.clone(),
                        path: called,
                        change,
                        sink: Some(sink.kind.clone()),
                        is_former: false,
                    }));
                    if let Some(named) = &mut named {
                        named.insert(id);
                    }
                }
            }
        }
        if let Some(named) = named {
            let gone = known.into_iter().filter(|it| !named.contains(it));
            found.extend(gone.map(|(kind, path)| withdrawn_sink(kind, path)));
        }
        found
    }

    /// A file has one owner. One that is applied before, in the same change set, may let go of it.
    async fn check_owner(&self, place: &str, key: &str, path: &str) -> Result<(), ForecastError> {
        let (store, project) = (&self.control.store, self.control.home.project());
        let past = store.fact_file_history(project, key, path).await?;
        let last = past.iter().find(|past| past.is_pushed);
        let Some(owner) = last.map(|last| last.digest.stack.as_str()) else {
            return Ok(());
        };
        let is_first = |upstream: &Upstream| upstream.stack.as_str() == owner;
        if owner == self.spec.stack.name.as_str() || self.spec.upstreams.iter().any(is_first) {
            return Ok(());
        }
        let kept = store.fact_file_paths(project, key, owner).await?;
        if !kept.contains(path) {
            return Ok(());
        }
        Err(ForecastError::Taken(Box::new(PublishFactsError::Taken {
            place: place.to_owned(),
            source: Box::new(TakenPath {
                path: path.to_owned(),
                there: path.to_owned(),
                how: Clash::Same,
                owner: Owner {
                    project: project.to_owned(),
                    stack: owner.to_owned(),
                },
            }),
        })))
    }

    /// The files of a block; none if the plan does not tell them yet.
    fn files(&self, block: &StageBlock) -> Result<Option<Vec<FactFile>>, ForecastError> {
        let planned = self.planned;
        let env = self.asker.env();
        let wanted = ["path", "contract", "partial", "values", "plain"];
        let Some(resolved) = foretell(block, &wanted, Foretold { planned, env }) else {
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

    /// What the home calls the place; none if that cannot be told now.
    async fn key(&self, place: &FactsPlace) -> Option<String> {
        let root = Path::new(&self.spec.root);
        let side = Side {
            asker: self.asker,
            root,
            env: self.env,
        };
        key_of(place, &side).await.ok()
    }

    /// How a file differs from what was published last; none if it does not, or nobody here ever published there.
    async fn change(
        &self,
        key: &str,
        file: &FactFile,
        digester: &KeyedDigester,
    ) -> Result<Option<ForecastChange>, ForecastError> {
        let (store, project) = (&self.control.store, self.control.home.project());
        if store.fact_commit_last(project, key).await?.is_none() {
            return Ok(None);
        }
        let header = header(self.spec.stack.name.as_str(), project);
        let past = store.fact_file_history(project, key, &file.path).await?;
        let last = past.iter().find(|past| past.is_pushed);
        let last = last.filter(|past| !past.digest.bytes.is_empty());
        let Some(last) = last else {
            return Ok(Some(ForecastChange::New));
        };
        let is_same = match file.encrypt {
            Encrypt::Nothing => {
                let bytes = render(file.format, &file.values, Some(&header));
                last.digest.bytes == digester.digest(&bytes)
            }
            Encrypt::Leaves(_) | Encrypt::All => {
                let now = self.control.now();
                let (tree, env) = (self.tree, self.asker.env());
                // The digest is all that is wanted: nothing is encrypted.
                let sealed = sealed::seal(tree, env, file, &header, now, |plain| {
                    (digester.digest(plain), Some(Vec::new()))
                });
                let sealed = sealed.map_err(|source| ForecastError::Seal {
                    path: file.path.clone(),
                    source,
                })?;
                sealed.plain.is_some() && sealed.plain == last.digest.plain
            }
        };
        Ok((!is_same).then_some(ForecastChange::Changed))
    }
}
