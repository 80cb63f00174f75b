//! What gates ask of published facts.

use std::collections::{BTreeMap, BTreeSet};

use drivers::git::GitError;
use model::config::resolve::{self, ResolveError};
use model::project::{FactsPlace, Input};
use model::stage::{Ask, StageBlock};
use serde_json::Value;

use super::{Place, PublishFactsError, ReadPlaceError, own_remote, read_file};
use crate::Control;
use crate::bootstrap::told;
use crate::stages::{Side, StackValues, StageValuesError};

#[derive(Debug, thiserror::Error)]
enum AnswerFactsError {
    #[error(transparent)]
    Place(#[from] ReadPlaceError),
    #[error(transparent)]
    Values(#[from] StageValuesError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("could not read the published facts")]
    Read(#[from] PublishFactsError),
}

/// The values that the blocks of places need.
pub fn place_inputs(places: &BTreeMap<String, FactsPlace>) -> impl Iterator<Item = &Input> {
    places.values().flat_map(inputs_of)
}

fn inputs_of(place: &FactsPlace) -> impl Iterator<Item = &Input> {
    let inputs = [&place.repository, &place.branch, &place.credential];
    inputs.into_iter().flatten()
}

/// Reads the published files that blocks refer to, and puts them among the values. What is not published, or is
/// encrypted, stays without an answer; what could not be read, with the reason.
pub async fn answer(
    control: &Control,
    side: &Side<'_>,
    places: &BTreeMap<String, FactsPlace>,
    blocks: &[StageBlock],
    values: &mut StackValues,
) {
    let mut asks = BTreeSet::new();
    for block in blocks {
        if let Err(ResolveError::Asks { asks: more }) = resolve::resolve(block, values) {
            asks.extend(more);
        }
    }
    for ask in asks {
        let Ask::Fact { facts, path } = &ask else {
            continue;
        };
        let Some(place) = places.get(facts) else {
            continue;
        };
        match published(control, side, place, path, values).await {
            Ok(Some(value)) => values.answer_with(ask, value),
            Ok(None) => {}
            Err(err) => values.leave_unanswered(ask, told(&err)),
        }
    }
}

async fn published(
    control: &Control,
    side: &Side<'_>,
    place: &FactsPlace,
    path: &str,
    values: &mut StackValues,
) -> Result<Option<Value>, AnswerFactsError> {
    values.add_secrets(inputs_of(place), side).await?;
    let own = match place.repository {
        Some(_) => None,
        None => own_remote(side.asker.env(), side.root)?,
    };
    let place = Place::read(place, values, own.as_deref())?;
    let (root, env) = (side.root, side.asker.env());
    Ok(read_file(control, root, env, &place, path).await?)
}
