//! Which dependents of a destroy's stacks are still deployed, and which stacks depend on one that is being
//! destroyed.

use std::collections::{BTreeMap, BTreeSet};

use model::base::ids::{ChangeSetId, StackName};
use model::run::changeset::ChangeSet;
use model::run::{Run, RunSpec};
use model::state::Contents;

use crate::db::Tx;
use crate::run::records::{ChangeSetError, expect_row, from_json};

/// The dependents whose state is not empty, or that are being applied.
pub(super) async fn standing(
    tx: &mut Tx,
    set: &ChangeSet,
) -> Result<BTreeSet<StackName>, ChangeSetError> {
    let mut standing = BTreeSet::new();
    for dependent in &set.request.dependents {
        let row = tx
            .fetch_optional(
                "SELECT 1 FROM state AS s JOIN state_version AS v ON v.state = s.id
                 WHERE s.project = $1 AND s.name = $2 AND v.version = s.head AND v.contents <> $3
                 UNION ALL
                 SELECT 1 FROM run AS r JOIN change_set AS c ON c.id = r.change_set
                 WHERE c.project = $1 AND r.stack = $4 AND c.is_over = 0 AND c.action = 'apply'
                 AND r.state LIKE '{\"stage\":\"applying\"%'
                 LIMIT 1",
                &[
                    set.request.project.as_str().into(),
                    dependent.state.as_str().into(),
                    Contents::Nothing.as_str().into(),
                    dependent.stack.as_str().into(),
                ],
            )
            .await?;
        if row.is_some() {
            standing.insert(dependent.stack.clone());
        }
    }
    Ok(standing)
}

/// The stacks of an apply that depend on a stack being destroyed, each with that stack and its change set.
pub(super) async fn being_destroyed(
    tx: &mut Tx,
    set: &ChangeSet,
    runs: &[Run],
) -> Result<BTreeMap<StackName, (StackName, ChangeSetId)>, ChangeSetError> {
    let mut found = BTreeMap::new();
    let rows = tx
        .fetch_all(
            "SELECT r.stack, c.id FROM change_set AS c JOIN run AS r ON r.change_set = c.id
             WHERE c.project = $1 AND c.is_over = 0 AND c.action = 'destroy'
             AND r.state LIKE '{\"stage\":\"applying\"%'",
            &[set.request.project.as_str().into()],
        )
        .await?;
    let mut going = BTreeMap::new();
    for row in &rows {
        going.insert(row.text(0)?.to_owned(), ChangeSetId(row.int(1)?));
    }
    for run in runs.iter().filter(|_| !going.is_empty()) {
        let sql = "SELECT spec FROM run WHERE id = $1";
        let row = expect_row(tx.fetch_optional(sql, &[run.id.into()]).await?)?;
        let spec: RunSpec = from_json(row.text(0)?, || format!("run `{}`", run.id))?;
        let mut upstreams = spec.stack.edges.iter().map(|edge| &edge.upstream);
        if let Some(on) = upstreams.find(|upstream| going.contains_key(upstream.as_str())) {
            found.insert(run.stack.clone(), (on.clone(), going[on.as_str()]));
        }
    }
    Ok(found)
}
