//! Published facts that gates read: `fact.PLACE["PATH"]`.

use std::collections::{BTreeMap, BTreeSet};

use drivers::git::GitError;
use model::base::error::one_line;
use model::hcl::expression::ExternalQuery;
use model::project::config::resolve::{self, ResolveError};
use model::stage::StageBlock;
use model::stage::facts::FactsBranch;
use serde_json::Value;

use super::{Destination, PublishFactsError, ReadDestinationError, own_remote, read_file};
use crate::Control;
use crate::stage::values::{CallerContext, StackValues, StageValuesError};

#[derive(Debug, thiserror::Error)]
enum QueryFactsError {
    #[error(transparent)]
    Destination(#[from] ReadDestinationError),
    #[error(transparent)]
    Values(#[from] StageValuesError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("cannot read the published facts")]
    Read(#[from] PublishFactsError),
}

/// Reads the published files that blocks refer to, and adds them to the values. A file that does not exist or is
/// encrypted stays unanswered; a file that cannot be read, with the reason.
pub async fn answer(
    control: &Control,
    side: &CallerContext<'_>,
    places: &BTreeMap<String, FactsBranch>,
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
        let ExternalQuery::Fact { facts, path } = &ask else {
            continue;
        };
        let Some(place) = places.get(facts) else {
            continue;
        };
        match published(control, side, place, path, values).await {
            Ok(Some(value)) => values.answer_with(ask, value),
            Ok(None) => {}
            Err(err) => values.leave_unanswered(ask, one_line(&err)),
        }
    }
}

async fn published(
    control: &Control,
    side: &CallerContext<'_>,
    place: &FactsBranch,
    path: &str,
    values: &mut StackValues,
) -> Result<Option<Value>, QueryFactsError> {
    values.add_secrets(place.inputs(), side).await?;
    let own = own_remote(side.asker.env(), side.root, [place])?;
    let place = Destination::read(place, values, own.as_deref())?;
    let (root, env) = (side.root, side.asker.env());
    Ok(read_file(control, root, env, &place, path).await?)
}
