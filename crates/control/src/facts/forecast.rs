//! What an apply would do to a stack's facts, as far as its plan tells: without asking any repository, by what this home
//! remembers of its own publications. What is bound to be refused is refused here already.
//!
//! Not here: what others would miss (`contracts`), what a branch really holds (`facts diff`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::Environment;
use model::contract::Planned;
use model::facts::{
    Encrypt, FactFile, Forecast, ForecastChange, Outputs, PrepareFactsError, Publish,
    ReadPublishError, Standing, prepare, render,
};
use model::ids::RunId;
use model::project::FactsPlace;
use model::run::RunSpec;
use model::stage::StageBlock;
use serde_json::{Map, Value};
use store::{KeyedDigester, StoreError};

use super::branch::header;
use super::{SealFactsError, key_of, sealed};
use crate::Control;
use crate::asker::Asker;
use crate::contracts::{FindContractError, Foretold, find, foretell};
use crate::home::Home;
use crate::stages::Side;

/// What it is told from.
#[derive(Clone, Copy)]
pub(crate) struct Outlook<'a> {
    pub(crate) control: &'a Control,
    pub(crate) spec: &'a RunSpec,
    pub(crate) asker: &'a Asker,
    pub(crate) env: &'a Environment,
    /// The tree that is planned.
    pub(crate) tree: &'a Path,
    pub(crate) planned: &'a Planned,
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
    #[error("could not read what was published")]
    Store(#[from] StoreError),
}

impl ForecastError {
    /// Whether a rule would say no after the apply, too.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Read(_) | Self::Prepare(_) | Self::Seal { .. } => true,
            Self::Contract(_) | Self::Store(_) => false,
        }
    }

    /// The next step.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Prepare(err) => err.hint(),
            Self::Contract(err) => err.hint(),
            Self::Seal { source, .. } => source.hint(),
            Self::Read(_) | Self::Store(_) => None,
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
        let mut found = Vec::new();
        // By place, the paths that would be there; none: not all is known.
        let mut named: Option<BTreeMap<String, BTreeSet<String>>> = Some(BTreeMap::new());
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
            for file in files {
                if let Some(change) = self.change(&key, &file, &digester).await? {
                    found.push(Forecast {
                        place: place.name.clone(),
                        path: file.path.clone(),
                        change,
                    });
                }
                if let Some(named) = &mut named {
                    named.entry(key.clone()).or_default().insert(file.path);
                }
            }
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
            }));
        }
        Ok(found)
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
