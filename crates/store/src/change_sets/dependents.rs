//! Which dependents of a destroy's stacks stand now.

use std::collections::BTreeSet;

use model::changeset::ChangeSet;
use model::ids::StackName;
use model::state::Contents;

use super::ChangeSetError;
use crate::db::Tx;

/// Those whose state holds something, or whose apply is under way and will store a state that does.
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
