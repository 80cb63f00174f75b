//! Facts outside of Git: objects in clusters and files of the project. They are written, compared, and
//! withdrawn when their stack is destroyed. A file that no block names any more is removed as well. An object
//! that no block names is reported once and stays: how to reach its cluster is not recorded.
//!
//! Not here: one object in a cluster (`crate::stage::sinks`), one file (`project_files`).

use std::collections::BTreeMap;
use std::fmt;

use model::base::error::one_line;
use model::stage::bootstrap::ObjectOutcome;
use model::stage::facts::{
    Encrypt, FactFile, FactLocation, FieldDifference, SinkObject, field_differences, file_header,
};
use model::stage::sink::{Sink, SinkSettingError};
use model::stage::{ResolvedBlock, StageBlock};
use serde::Serialize;

use super::{Publication, PublishFactsError, project_files};
use crate::Control;
use crate::stage::sinks::{self, SinkDifference, SinkError};

/// The kind of `sink` that is a file of the project.
const FILE: &str = "file";

/// A `sink` in a cluster, of one file of facts.
#[derive(Clone, Debug)]
pub struct ClusterSink {
    /// The `facts` block that the file goes to.
    place: String,
    path: String,
    /// The kind as the block spells it.
    kind: String,
    sink: Sink,
}

impl ClusterSink {
    fn object(&self) -> SinkObject {
        SinkObject {
            sink: self.kind.clone(),
            namespace: self.sink.namespace.clone(),
            name: self.sink.name.clone(),
            server: self.sink.kubeconfig.server.clone(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read a `sink` ({}:{})", at.file, at.line)]
pub struct ReadSinkError {
    at: Box<model::base::diagnostic::Location>,
    source: SinkSettingError,
}

/// Whether publishing contacts clusters, to write facts there or to withdraw them.
pub(crate) fn reaches_clusters(blocks: &[StageBlock], locations: &[FactLocation]) -> bool {
    let is_object = |location: &FactLocation| matches!(location, FactLocation::Object { .. });
    blocks.iter().any(|block| !block.blocks.is_empty()) || locations.iter().any(is_object)
}

/// The sinks in clusters that `publish` blocks name.
pub fn sinks_of(blocks: &[ResolvedBlock]) -> Result<Vec<ClusterSink>, ReadSinkError> {
    let mut found = Vec::new();
    for block in blocks {
        let key = block.each.as_ref().map(|key| format!("-{key}"));
        let name = key.and_then(|key| block.name.strip_suffix(&key));
        let path = block.attrs.get("path").and_then(|path| path.as_str());
        for inner in block.blocks.iter().filter(|inner| inner.kind != FILE) {
            let sink = Sink::read(inner).map_err(|source| ReadSinkError {
                at: Box::new(inner.at.clone()),
                source,
            })?;
            found.push(ClusterSink {
                place: name.unwrap_or(&block.name).to_owned(),
                path: path.unwrap_or_default().to_owned(),
                kind: inner.kind.clone(),
                sink,
            });
        }
    }
    Ok(found)
}

/// What happened to facts outside of Git.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SinkOutcome {
    pub what: String,
    /// A short text.
    pub outcome: String,
    /// Facts are left there that terrane no longer manages: a warning.
    pub is_left: bool,
    #[serde(skip)]
    pub is_changed: bool,
}

impl SinkOutcome {
    fn new(what: &dyn fmt::Display, outcome: &dyn fmt::Display, is_changed: bool) -> Self {
        Self {
            what: what.to_string(),
            outcome: outcome.to_string(),
            is_left: false,
            is_changed,
        }
    }

    /// A file of the project.
    pub(super) fn file(path: &str, is_new: bool) -> Self {
        let outcome = if is_new { "written" } else { "unchanged" };
        Self::new(&format!("file `{path}`"), &outcome, is_new)
    }

    fn withdrawn(what: &dyn fmt::Display, was_there: bool) -> Self {
        let outcome = if was_there {
            "withdrawn"
        } else {
            "was already gone"
        };
        Self::new(what, &outcome, was_there)
    }

    fn left(what: &dyn fmt::Display, why: &str) -> Self {
        Self {
            is_left: true,
            ..Self::new(
                what,
                &format!("left there, remove it yourself: {why}"),
                false,
            )
        }
    }
}

const UNNAMED: &str = "the project no longer names it";

/// How facts outside of Git compare with what a stack would publish.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkState {
    Agrees,
    Differs(Vec<FieldDifference>),
    Missing,
    /// The project no longer names it.
    Left,
    /// It could not be read.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SinkComparison {
    pub what: String,
    pub found: SinkState,
}

type Files = BTreeMap<String, Vec<FactFile>>;

fn file_of<'f>(files: &'f Files, sink: &ClusterSink) -> Option<&'f FactFile> {
    let mut there = files.get(&sink.place)?.iter();
    there.find(|file| file.path == sink.path)
}

/// Puts facts into clusters. A location is recorded before anything is written there.
pub(super) async fn put(
    control: &Control,
    publication: &Publication<'_>,
    files: &Files,
) -> Result<Vec<SinkOutcome>, PublishFactsError> {
    let (project, stack) = (control.home.project(), publication.stack.as_str());
    let mut done = Vec::new();
    for sink in publication.sinks {
        let Some(file) = file_of(files, sink) else {
            continue;
        };
        let object = sink.object();
        let location = FactLocation::Object {
            object: object.clone(),
        };
        let store = &control.store;
        store.fact_location_put(project, stack, &location).await?;
        let sensitive = file.sensitive_paths();
        let cluster = publication.cluster;
        let put = |take_over| sinks::put(&sink.sink, &file.values, &sensitive, take_over, cluster);
        let outcome = match put(false).await {
            Err(SinkError::Foreign { .. }) if publication.take_over.is_some() => {
                let recorded = publication.record_take_over(control, object.to_string());
                recorded.await?;
                put(true).await?
            }
            outcome => outcome?,
        };
        let is_changed = outcome != ObjectOutcome::Same;
        done.push(SinkOutcome::new(&object, &outcome, is_changed));
    }
    Ok(done)
}

/// Withdraws what the stack no longer publishes, and forgets it. `keys` are the branches that the project names.
pub(super) async fn withdraw(
    control: &Control,
    publication: &Publication<'_>,
    keys: &[String],
) -> Result<Vec<SinkOutcome>, PublishFactsError> {
    let mut done = Vec::new();
    for location in publication.locations {
        if publication.names(location, keys) {
            continue;
        }
        done.push(match location {
            FactLocation::File { path, digest } => {
                withdraw_file(control, publication, path, digest).await?
            }
            FactLocation::Object { object } => match publication.sink_of(object) {
                Some(sink) => match sinks::withdraw(&sink.sink, publication.cluster).await {
                    Ok(was_there) => SinkOutcome::withdrawn(object, was_there),
                    // The cluster may have been destroyed with the stack.
                    Err(err) => SinkOutcome::left(object, &one_line(&err)),
                },
                None => SinkOutcome::left(object, UNNAMED),
            },
            FactLocation::Branch { .. } => SinkOutcome::left(location, UNNAMED),
        });
        let (project, stack) = (control.home.project(), publication.stack.as_str());
        let (store, identity) = (&control.store, location.identity());
        store
            .fact_location_remove(project, stack, &identity)
            .await?;
    }
    Ok(done)
}

async fn withdraw_file(
    control: &Control,
    publication: &Publication<'_>,
    path: &str,
    digest: &str,
) -> Result<SinkOutcome, PublishFactsError> {
    let what = format!("file `{path}`");
    let Some(bytes) = project_files::read(publication.root, path)? else {
        return Ok(SinkOutcome::withdrawn(&what, false));
    };
    let digester = control.store.keyed_digester("facts").await?;
    if digester.digest(&bytes) != digest {
        let outcome = "not changed: another writer changed it";
        return Ok(SinkOutcome::new(&what, &outcome, false));
    }
    project_files::remove(publication.root, path)?;
    Ok(SinkOutcome::withdrawn(&what, true))
}

impl Publication<'_> {
    /// Whether a location belongs to what the stack publishes now.
    fn names(&self, location: &FactLocation, keys: &[String]) -> bool {
        match location {
            FactLocation::Branch { key, .. } => keys.contains(key),
            FactLocation::File { path, .. } => self.blocks.iter().any(|it| it.files.contains(path)),
            FactLocation::Object { object } => !self.is_destroyed && self.sink_of(object).is_some(),
        }
    }

    fn sink_of(&self, object: &SinkObject) -> Option<&ClusterSink> {
        self.sinks.iter().find(|sink| sink.object() == *object)
    }
}

/// Compares files of the project and objects in clusters with what a stack would publish; nothing is changed.
pub(super) async fn compare(
    control: &Control,
    publication: &Publication<'_>,
    files: &Files,
    keys: &[String],
) -> Result<Vec<SinkComparison>, PublishFactsError> {
    let mut all = Vec::new();
    for block in publication.blocks {
        let mut there = files.get(&block.place).into_iter().flatten();
        let Some(file) = there.find(|file| file.path == block.path) else {
            continue;
        };
        for path in &block.files {
            let found = compare_file(control, publication, file, path).await?;
            let what = format!("file `{path}`");
            all.push(SinkComparison { what, found });
        }
    }
    for sink in publication.sinks {
        if let Some(file) = file_of(files, sink) {
            all.push(SinkComparison {
                what: sink.object().to_string(),
                found: compare_object(publication, sink, file).await?,
            });
        }
    }
    for location in publication.locations {
        if publication.names(location, keys) {
            continue;
        }
        let found = match location {
            FactLocation::File { path, .. } => {
                if project_files::read(publication.root, path)?.is_none() {
                    continue;
                }
                SinkState::Left
            }
            FactLocation::Object { object } => match publication.sink_of(object) {
                Some(sink) => match sinks::is_there(&sink.sink, publication.cluster).await {
                    Ok(false) => continue,
                    Ok(true) => SinkState::Left,
                    Err(err) => SinkState::Unknown(one_line(&err)),
                },
                None => SinkState::Left,
            },
            FactLocation::Branch { .. } => SinkState::Left,
        };
        let what = location.to_string();
        all.push(SinkComparison { what, found });
    }
    Ok(all)
}

async fn compare_object(
    publication: &Publication<'_>,
    sink: &ClusterSink,
    file: &FactFile,
) -> Result<SinkState, PublishFactsError> {
    let sensitive = file.sensitive_paths();
    let compared = sinks::compare(&sink.sink, &file.values, &sensitive, publication.cluster);
    let differences = match compared.await {
        Ok(differences) => differences,
        Err(err @ SinkError::Values(_)) => return Err(err.into()),
        Err(err) => return Ok(SinkState::Unknown(one_line(&err))),
    };
    let mut fields = Vec::new();
    for difference in differences {
        match difference {
            SinkDifference::Missing => return Ok(SinkState::Missing),
            SinkDifference::Field(field) => fields.push(field),
        }
    }
    Ok(if fields.is_empty() {
        SinkState::Agrees
    } else {
        SinkState::Differs(fields)
    })
}

async fn compare_file(
    control: &Control,
    publication: &Publication<'_>,
    file: &FactFile,
    path: &str,
) -> Result<SinkState, PublishFactsError> {
    let Some(bytes) = project_files::read(publication.root, path)? else {
        return Ok(SinkState::Missing);
    };
    let agrees = if file.encrypt == Encrypt::Nothing {
        let header = file_header(publication.stack.as_str(), control.home.project());
        bytes == project_files::bytes(file, &[], path, &header)
    } else {
        // Encrypted files are compared with what was written last.
        let digester = control.store.keyed_digester("facts").await?;
        let digest = digester.digest(&bytes);
        let path = path.to_owned();
        let written = FactLocation::File { path, digest };
        publication.locations.contains(&written)
    };
    Ok(if agrees {
        SinkState::Agrees
    } else {
        SinkState::Differs(field_differences(&bytes, file))
    })
}
