//! Lanes: one change set at a time changes a target. All that a change set needs, or none, in the order
//! in which they were asked for.

use jiff::Timestamp;
use model::changeset::ChangeSet;
use model::ids::ChangeSetId;

use crate::change_sets::ChangeSetError;
use crate::db::{DbError, Tx};

/// Stands in line.
pub(crate) async fn queue(tx: &mut Tx, set: ChangeSetId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO lane_wait (change_set, since) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[set.into(), now.as_microsecond().into()],
    )
    .await?;
    Ok(())
}

/// Takes all lanes of a change set or none; says behind whom it stands if it is none.
pub(crate) async fn take(
    tx: &mut Tx,
    set: &ChangeSet,
    now: Timestamp,
) -> Result<Option<ChangeSetId>, ChangeSetError> {
    for lane in &set.request.lanes {
        let row = tx
            .fetch_optional(
                "SELECT change_set FROM lane
                 WHERE name = $1 AND change_set IS NOT NULL AND change_set <> $2",
                &[set.request.lane_key(lane).into(), set.id.into()],
            )
            .await?;
        if let Some(row) = row {
            return Ok(Some(ChangeSetId(row.int(0)?)));
        }
        // Whoever asked earlier for the same lane goes first, even if it is free at this moment.
        let rows = tx
            .fetch_all(
                "SELECT w.change_set, c.request FROM lane_wait w JOIN change_set c ON c.id = w.change_set
                 WHERE w.change_set < $1 ORDER BY w.change_set",
                &[set.id.into()],
            )
            .await?;
        for row in rows {
            let earlier = ChangeSetId(row.int(0)?);
            let request: model::changeset::Request =
                crate::change_sets::from_json(row.text(1)?, || format!("change set `{earlier}`"))?;
            if request.project == set.request.project && request.lanes.contains(lane) {
                return Ok(Some(earlier));
            }
        }
    }
    for lane in &set.request.lanes {
        tx.execute(
            "INSERT INTO lane (name, change_set, epoch, since) VALUES ($1, $2, 1, $3)
             ON CONFLICT (name) DO UPDATE
             SET change_set = $2, epoch = lane.epoch + 1, since = $3",
            &[
                set.request.lane_key(lane).into(),
                set.id.into(),
                now.as_microsecond().into(),
            ],
        )
        .await?;
    }
    tx.execute(
        "DELETE FROM lane_wait WHERE change_set = $1",
        &[set.id.into()],
    )
    .await?;
    Ok(None)
}

/// Gives up what a change set holds or waits for.
pub(crate) async fn release(tx: &mut Tx, set: ChangeSetId) -> Result<(), DbError> {
    tx.execute(
        "UPDATE lane SET change_set = NULL WHERE change_set = $1",
        &[set.into()],
    )
    .await?;
    tx.execute("DELETE FROM lane_wait WHERE change_set = $1", &[set.into()])
        .await?;
    Ok(())
}
