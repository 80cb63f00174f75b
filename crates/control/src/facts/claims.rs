//! Which paths the stacks of one change set are about to publish, told beside their plans: a file has one owner, and
//! before anything was published nobody else knows.
//!
//! Not here: paths that were published before (`forecast`), and those that a branch really holds (`branch`).

use std::collections::{BTreeMap, BTreeSet};

use model::facts::{Clash, Paths};
use model::ids::{ChangeSetId, RunId};
use serde::{Deserialize, Serialize};
use store::ChangeSetError;

use crate::Control;

/// The paths of one stack, by what the home calls their place.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Claims(BTreeMap<String, BTreeSet<String>>);

/// What another stack is about to publish.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(super) path: String,
    pub(super) there: String,
    pub(super) how: Clash,
    pub(super) stack: String,
}

impl Claims {
    /// The one of our own that it cannot lie beside, if there is one.
    pub(super) fn add(&mut self, place: &str, path: &str) -> Option<(String, Clash)> {
        let own = self.0.entry(place.to_owned()).or_default();
        let clash = paths(own)
            .clash(path)
            .map(|(it, (), how)| (it.to_owned(), how));
        own.insert(path.to_owned());
        clash
    }

    /// Notes them first and looks then: of two that do so at once, one sees the other, or both do.
    pub(super) async fn note(
        &self,
        control: &Control,
        set: ChangeSetId,
        run: RunId,
    ) -> Result<Option<Claimed>, ChangeSetError> {
        if let Ok(bytes) = serde_json::to_vec(self) {
            // Without it, what clashes is found when it is published.
            drop(std::fs::write(control.home.run_claims(run), bytes));
        }
        if self.0.is_empty() {
            return Ok(None);
        }
        for other in control.store.run_list(set).await? {
            if other.id == run {
                continue;
            }
            let bytes = std::fs::read(control.home.run_claims(other.id)).unwrap_or_default();
            let Ok(Self(theirs)) = serde_json::from_slice(&bytes) else {
                continue;
            };
            for (place, own) in &self.0 {
                let theirs = theirs.get(place).map(paths).unwrap_or_default();
                let clash = own
                    .iter()
                    .find_map(|path| Some((path, theirs.clash(path)?)));
                if let Some((path, (there, (), how))) = clash {
                    return Ok(Some(Claimed {
                        path: path.clone(),
                        there: there.to_owned(),
                        how,
                        stack: other.stack.to_string(),
                    }));
                }
            }
        }
        Ok(None)
    }
}

fn paths(all: &BTreeSet<String>) -> Paths<()> {
    let mut paths = Paths::default();
    for path in all {
        paths.add(path, ());
    }
    paths
}
