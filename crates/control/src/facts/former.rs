//! Where a stack's facts stand from before, and nothing names them any more: what it takes to get there once again.

use std::collections::BTreeMap;
use std::fmt;

use model::facts::{Publish, Standing, StandingObject};
use model::ids::StackName;
use model::sink::Sink;
use model::stage::StageBlock;
use store::StoreError;

use super::elsewhere::{ClusterSink, sinks_of};
use super::{Place, chain, place_key};
use crate::Control;
use crate::stages::{Side, StackValues};

/// A place that is to be left. Why it cannot be reached is a sentence: it stops nobody.
#[derive(Clone, Debug)]
pub enum Former {
    Branch {
        key: String,
        place: Result<Box<Place>, String>,
    },
    File {
        path: String,
        digest: String,
    },
    Object {
        object: StandingObject,
        sink: Result<Box<Sink>, String>,
    },
}

impl fmt::Display for Former {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch { key, .. } => {
                let (url, branch) = key.rsplit_once('#').unwrap_or((key, ""));
                write!(f, "branch `{branch}` of {url}")
            }
            Self::File { path, .. } => write!(f, "file `{path}`"),
            Self::Object { object, .. } => object.fmt(f),
        }
    }
}

impl Former {
    fn identity(&self) -> String {
        match self {
            Self::Branch { key, .. } => format!("branch {key}"),
            Self::File { path, .. } => format!("file {path}"),
            Self::Object { object, .. } => format!("object {object}"),
        }
    }

    /// Nobody goes there again.
    pub(super) async fn forget(
        &self,
        control: &Control,
        stack: &StackName,
    ) -> Result<(), StoreError> {
        let (project, identity) = (control.home.project(), self.identity());
        let store = &control.store;
        store
            .fact_standing_remove(project, stack.as_str(), &identity)
            .await
    }
}

/// What is named now, and by whom.
pub struct Searching<'a> {
    pub control: &'a Control,
    pub side: &'a Side<'a>,
    pub stack: &'a StackName,
    pub places: &'a BTreeMap<String, Place>,
    pub blocks: &'a [Publish],
    pub sinks: &'a [ClusterSink],
    /// The project's own repository, for places that name none.
    pub own: Option<&'a str>,
}

/// Of all the places where a stack's facts stand, those that nothing names any more.
pub async fn find_former(
    standing: &[Standing],
    searching: &Searching<'_>,
    values: &mut StackValues,
) -> Vec<Former> {
    let mut found = Vec::new();
    for standing in standing {
        let former = match standing {
            Standing::Branch { key, place, .. } => {
                if searching.names(key) {
                    continue;
                }
                let secrets = values.add_secrets(standing.inputs().into_iter(), searching.side);
                let place = match secrets.await {
                    Ok(()) => Place::read(place, values, searching.own)
                        .map(Box::new)
                        .map_err(|err| chain(&err)),
                    Err(err) => Err(chain(&err)),
                };
                let former = Former::Branch {
                    key: key.clone(),
                    place,
                };
                // A place that is named, under the name it had when its path led elsewhere: nothing is taken from it.
                if searching.is_named(&former) {
                    drop(former.forget(searching.control, searching.stack).await);
                    continue;
                }
                former
            }
            Standing::File { path, digest } => {
                if searching.blocks.iter().any(|it| it.files.contains(path)) {
                    continue;
                }
                Former::File {
                    path: path.clone(),
                    digest: digest.clone(),
                }
            }
            Standing::Object {
                object,
                block,
                state,
                version,
            } => {
                if searching.sinks.iter().any(|it| it.object() == *object) {
                    continue;
                }
                let blocks = std::slice::from_ref(&**block);
                let sink = searching.sink(object, blocks, state, *version).await;
                Former::Object {
                    object: object.clone(),
                    sink: sink.map(Box::new),
                }
            }
        };
        found.push(former);
    }
    found
}

impl Searching<'_> {
    fn names(&self, key: &str) -> bool {
        let root = self.side.root;
        let mut named = self.places.values();
        named.any(|place| place_key(root, place).is_ok_and(|named| named == key))
    }

    fn is_named(&self, former: &Former) -> bool {
        let Former::Branch {
            place: Ok(place), ..
        } = former
        else {
            return false;
        };
        place_key(self.side.root, place).is_ok_and(|key| self.names(&key))
    }

    /// The sink as it was: its kubeconfig may have been an output that the stack has no more.
    async fn sink(
        &self,
        object: &StandingObject,
        blocks: &[StageBlock],
        state: &str,
        version: Option<i64>,
    ) -> Result<Sink, String> {
        let (control, names) = (self.control, (self.stack.as_str(), state));
        let values = StackValues::gather_at(control, names, version, blocks, self.side).await;
        let values = values.map_err(|err| chain(&err))?;
        let resolved = values.resolve(blocks).map_err(|err| chain(&err))?;
        let sinks = sinks_of(&resolved, blocks).map_err(|err| chain(&err))?;
        let mut sinks = sinks.into_iter();
        let found = sinks.find(|sink| sink.object() == *object);
        found
            .map(|found| found.sink)
            .ok_or_else(|| "its kubeconfig is not known any more".to_owned())
    }
}
