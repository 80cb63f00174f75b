//! Facts outside of Git: objects in clusters and files of the project. Put there, compared with what is there, and
//! withdrawn when nothing names them any more.

use std::collections::BTreeMap;

use model::bootstrap::ObjectOutcome;
use model::facts::{
    Encrypt, FactFile, FieldDifference, Standing, StandingObject, field_differences,
};
use model::sink::{Sink, SinkSettingError};
use model::stage::{ResolvedBlock, StageBlock};
use serde::Serialize;

use super::{Former, Publication, PublishFactsError, chain, sinks as files_of_project};
use crate::Control;
use crate::sinks::{self, Difference};

/// The kind of `sink` that is a file of the project, and no object of a cluster.
const FILE: &str = "file";

/// A `sink` in a cluster, of one file of facts.
#[derive(Clone, Debug)]
pub struct ClusterSink {
    /// The `facts` block that the file goes to.
    place: String,
    path: String,
    /// As the block says it.
    kind: String,
    pub(super) sink: Sink,
    /// The `publish` block with nothing in it but this sink, before its values were known.
    block: StageBlock,
}

impl ClusterSink {
    pub(super) fn object(&self) -> StandingObject {
        StandingObject {
            sink: self.kind.clone(),
            namespace: self.sink.namespace.clone(),
            name: self.sink.name.clone(),
            server: self.sink.kubeconfig.server.clone(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("could not work out a `sink` ({}:{})", at.file, at.line)]
pub struct ReadSinkError {
    at: Box<model::diagnostic::Location>,
    source: SinkSettingError,
}

/// The sinks in clusters that `publish` blocks name; `blocks` are those that were resolved.
pub fn sinks_of(
    resolved: &[ResolvedBlock],
    blocks: &[StageBlock],
) -> Result<Vec<ClusterSink>, ReadSinkError> {
    let mut found = Vec::new();
    for one in resolved {
        let key = one.each.as_ref().map(|key| format!("-{key}"));
        let name = key.and_then(|key| one.name.strip_suffix(&key));
        let place = name.unwrap_or(&one.name).to_owned();
        let path = one.attrs.get("path").and_then(|path| path.as_str());
        let block = blocks.iter().find(|block| block.at == one.at);
        for inner in one.blocks.iter().filter(|inner| inner.kind != FILE) {
            let sink = Sink::read(inner).map_err(|source| ReadSinkError {
                at: Box::new(inner.at.clone()),
                source,
            })?;
            let Some(block) = block else {
                continue;
            };
            let only = block.blocks.iter().filter(|sink| sink.at == inner.at);
            found.push(ClusterSink {
                place: place.clone(),
                path: path.unwrap_or_default().to_owned(),
                kind: inner.kind.clone(),
                sink,
                block: StageBlock {
                    attrs: BTreeMap::new(),
                    blocks: only.cloned().collect(),
                    ..block.clone()
                },
            });
        }
    }
    Ok(found)
}

const WITHDRAWN: &str = "withdrawn";

/// What became of facts outside of Git.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    pub what: String,
    /// In a few words.
    pub outcome: String,
    /// It could not be withdrawn: somebody should hear of it.
    pub is_left: bool,
    /// It is otherwise than before.
    #[serde(skip)]
    pub is_changed: bool,
}

impl Elsewhere {
    /// A file of the project.
    pub(super) fn file(path: &str, is_new: bool) -> Self {
        let outcome = if is_new { "written" } else { "unchanged" };
        Self {
            what: format!("file `{path}`"),
            outcome: outcome.to_owned(),
            is_left: false,
            is_changed: is_new,
        }
    }

    pub(super) fn gone(what: String) -> Self {
        Self {
            what,
            outcome: "was gone already".to_owned(),
            is_left: false,
            is_changed: false,
        }
    }

    pub(super) fn left(what: String, why: &str, is_kept: bool) -> Self {
        let later = if is_kept {
            "the next publication tries again"
        } else {
            "it is let go"
        };
        Self {
            what,
            outcome: format!("could not be withdrawn ({later}): {why}"),
            is_left: true,
            is_changed: false,
        }
    }
}

/// What was found where facts should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standpoint {
    Agrees,
    Differs(Vec<FieldDifference>),
    /// It is not there.
    Missing,
    /// Nothing names it any more, and it is still there.
    Left,
    /// It could not be looked at.
    Unknown(String),
}

/// How a file or an object differs from what a stack says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedElsewhere {
    pub what: String,
    pub found: Standpoint,
}

impl ComparedElsewhere {
    pub(super) fn unknown(what: String, why: String) -> Self {
        Self {
            what,
            found: Standpoint::Unknown(why),
        }
    }
}

type Files = BTreeMap<String, Vec<FactFile>>;

fn file_of<'f>(files: &'f Files, sink: &ClusterSink) -> Option<&'f FactFile> {
    let mut there = files.get(&sink.place)?.iter();
    there.find(|file| file.path == sink.path)
}

/// Puts facts into clusters. Where they go is remembered before.
pub(super) async fn put(
    control: &Control,
    publication: &Publication<'_>,
    files: &Files,
) -> Result<Vec<Elsewhere>, PublishFactsError> {
    let (project, stack) = (control.home.project(), publication.stack.as_str());
    let mut done = Vec::new();
    for sink in publication.sinks {
        let Some(file) = file_of(files, sink) else {
            continue;
        };
        let object = sink.object();
        let standing = Standing::Object {
            object: object.clone(),
            block: Box::new(sink.block.clone()),
            state: publication.state_name.to_owned(),
            version: publication.version,
        };
        let known = control.store.fact_standing_list(project, stack).await?;
        if !known.contains(&standing) {
            let noted = control.store.fact_standing_put(project, stack, &standing);
            noted.await?;
        }
        let sensitive = file.sensitive_paths();
        let ground = publication.ground;
        let put = |take_over| sinks::put(&sink.sink, &file.values, &sensitive, take_over, ground);
        let outcome = match put(false).await {
            Err(sinks::SinkError::Foreign { .. }) if publication.take_over.is_some() => {
                let recorded = publication.record_take_over(control, object.to_string());
                recorded.await?;
                put(true).await?
            }
            outcome => outcome?,
        };
        done.push(Elsewhere {
            what: object.to_string(),
            outcome: outcome.to_string(),
            is_left: false,
            is_changed: outcome != ObjectOutcome::Same,
        });
    }
    Ok(done)
}

/// Takes away what nothing names any more. A cluster that cannot be reached stops nobody.
pub(super) async fn withdraw(
    control: &Control,
    publication: &Publication<'_>,
    former: &Former,
) -> Result<Elsewhere, PublishFactsError> {
    let what = former.to_string();
    let outcome = match former {
        Former::File { path, digest } => {
            let digester = control.store.keyed_digester("facts").await?;
            match files_of_project::read(publication.root, path)? {
                None => Ok("was gone already"),
                Some(bytes) if digester.digest(&bytes) == *digest => {
                    files_of_project::remove(publication.root, path)?;
                    Ok(WITHDRAWN)
                }
                Some(_) => Ok("left as it is: somebody changed it"),
            }
        }
        Former::Object { sink, .. } => match sink {
            Err(why) => Err(why.clone()),
            Ok(sink) => match sinks::withdraw(sink, publication.ground).await {
                Ok(true) => Ok(WITHDRAWN),
                Ok(false) => Ok("was gone already"),
                Err(err) => Err(chain(&err)),
            },
        },
        Former::Branch { .. } => Ok(WITHDRAWN),
    };
    // What stands elsewhere under the same name has moved with its cluster.
    let has_moved = match former {
        Former::Object { object, .. } => publication.sinks.iter().any(|sink| {
            let now = sink.object();
            let same = (&now.sink, &now.namespace, &now.name);
            same == (&object.sink, &object.namespace, &object.name)
        }),
        Former::Branch { .. } | Former::File { .. } => false,
    };
    let lets_go = publication.is_destroyed || has_moved || publication.take_over.is_some();
    if outcome.is_ok() || lets_go {
        former.forget(control, publication.stack).await?;
    }
    Ok(match outcome {
        Ok(outcome) => Elsewhere {
            what,
            outcome: outcome.to_owned(),
            is_left: false,
            is_changed: outcome == WITHDRAWN,
        },
        Err(why) => Elsewhere::left(what, &why, !lets_go),
    })
}

/// Compares files of the project and objects in clusters with what a stack says; nothing is changed.
pub(super) async fn compare(
    control: &Control,
    publication: &Publication<'_>,
    files: &Files,
) -> Result<Vec<ComparedElsewhere>, PublishFactsError> {
    let mut all = Vec::new();
    for block in publication.blocks {
        let mut there = files.get(&block.place).into_iter().flatten();
        let Some(file) = there.find(|file| file.path == block.path) else {
            continue;
        };
        for path in &block.files {
            let found = compare_file(control, publication, file, path).await?;
            let what = format!("file `{path}`");
            all.push(ComparedElsewhere { what, found });
        }
    }
    for sink in publication.sinks {
        let Some(file) = file_of(files, sink) else {
            continue;
        };
        let sensitive = file.sensitive_paths();
        let compared = sinks::compare(&sink.sink, &file.values, &sensitive, publication.ground);
        let found = match compared.await {
            Ok(differences) if differences.is_empty() => Standpoint::Agrees,
            Ok(differences) if differences.contains(&Difference::Missing) => Standpoint::Missing,
            Ok(differences) => Standpoint::Differs(
                differences
                    .into_iter()
                    .filter_map(|difference| match difference {
                        Difference::Missing => None,
                        Difference::Field(field) => Some(field),
                    })
                    .collect(),
            ),
            Err(err @ sinks::SinkError::Values(_)) => return Err(err.into()),
            Err(err) => Standpoint::Unknown(chain(&err)),
        };
        all.push(ComparedElsewhere {
            what: sink.object().to_string(),
            found,
        });
    }
    for former in publication.former {
        let found = match former {
            Former::Branch { .. } => continue,
            Former::File { path, .. } => match files_of_project::read(publication.root, path)? {
                Some(_) => Standpoint::Left,
                None => continue,
            },
            Former::Object { sink, .. } => match sink {
                Err(why) => Standpoint::Unknown(why.clone()),
                Ok(sink) => match sinks::is_there(sink, publication.ground).await {
                    Ok(true) => Standpoint::Left,
                    Ok(false) => continue,
                    Err(err) => Standpoint::Unknown(chain(&err)),
                },
            },
        };
        all.push(ComparedElsewhere {
            what: former.to_string(),
            found,
        });
    }
    Ok(all)
}

async fn compare_file(
    control: &Control,
    publication: &Publication<'_>,
    file: &FactFile,
    path: &str,
) -> Result<Standpoint, PublishFactsError> {
    let Some(bytes) = files_of_project::read(publication.root, path)? else {
        return Ok(Standpoint::Missing);
    };
    let (project, stack) = (control.home.project(), publication.stack.as_str());
    if file.encrypt == Encrypt::Nothing {
        let header = super::branch::header(stack, project);
        let wanted = files_of_project::bytes(file, &[], path, &header);
        if bytes == wanted {
            return Ok(Standpoint::Agrees);
        }
        return Ok(Standpoint::Differs(field_differences(&bytes, file)));
    }
    // What is encrypted is compared with what was written last.
    let digester = control.store.keyed_digester("facts").await?;
    let standing = Standing::File {
        path: path.to_owned(),
        digest: digester.digest(&bytes),
    };
    let known = control.store.fact_standing_list(project, stack).await?;
    Ok(if known.contains(&standing) {
        Standpoint::Agrees
    } else {
        Standpoint::Differs(field_differences(&bytes, file))
    })
}
