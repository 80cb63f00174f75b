//! Lanes: one change set at a time changes a target. A change set takes all lanes that it needs or none, in queue
//! order.

use jiff::Timestamp;
use model::base::ids::ChangeSetId;
use model::run::changeset::{ChangeSet, LaneBlocker, Request};
use model::run::hold::Hold;

use crate::Store;
use crate::db::{DbError, Row, Tx, Value};
use crate::run::records::{ChangeSetError, from_json};

/// The epochs of the lanes that a run acts under. Epochs rise each time lanes are taken: an older epoch means that the
/// lanes were lost, even if the same change set holds them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    set: ChangeSetId,
    epochs: Vec<(String, i64)>,
}

impl Store {
    /// The present epochs of a change set's lanes; `None` unless it holds all of them.
    pub async fn lane_fence(&self, set: &ChangeSet) -> Result<Option<Fence>, ChangeSetError> {
        let mut epochs = Vec::new();
        for lane in &set.request.lanes {
            let name = set.request.lane_key(lane);
            let row = self
                .db
                .fetch_optional(
                    "SELECT epoch FROM lane WHERE name = $1 AND change_set = $2",
                    &[name.as_str().into(), set.id.into()],
                )
                .await?;
            let Some(row) = row else {
                return Ok(None);
            };
            epochs.push((name, row.int(0)?));
        }
        let fence = Fence {
            set: set.id,
            epochs,
        };
        Ok((!fence.epochs.is_empty()).then_some(fence))
    }

    /// Refuses a caller whose lanes were lost.
    pub async fn lane_check(&self, fence: &Fence) -> Result<(), ChangeSetError> {
        for args in fence.args() {
            fence.expect(self.db.fetch_optional(HELD, &args).await?)?;
        }
        Ok(())
    }
}

const HELD: &str = "SELECT 1 FROM lane WHERE name = $1 AND change_set = $2 AND epoch = $3";

impl Fence {
    /// Arguments of [`HELD`], for each lane.
    fn args(&self) -> impl Iterator<Item = [Value; 3]> {
        let epochs = self.epochs.iter();
        epochs.map(|(name, epoch)| [name.as_str().into(), self.set.into(), (*epoch).into()])
    }

    fn expect(&self, held: Option<Row>) -> Result<(), ChangeSetError> {
        let lost = ChangeSetError::LaneLost { set: self.set };
        held.map(|_| ()).ok_or(lost)
    }
}

/// The same within a transaction that depends on it.
pub(crate) async fn check(tx: &mut Tx, fence: &Fence) -> Result<(), ChangeSetError> {
    for args in fence.args() {
        fence.expect(tx.fetch_optional(HELD, &args).await?)?;
    }
    Ok(())
}

/// Adds a change set to the queue.
pub(crate) async fn queue(tx: &mut Tx, set: ChangeSetId, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "INSERT INTO lane_wait (change_set, since) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[set.into(), now.as_microsecond().into()],
    )
    .await?;
    Ok(())
}

/// Takes all lanes of a change set or none. Returns what blocks it if it is none.
pub(crate) async fn take(
    tx: &mut Tx,
    set: &ChangeSet,
    holds: &[Hold],
    now: Timestamp,
) -> Result<Option<LaneBlocker>, ChangeSetError> {
    if let Some(front) = front(tx, set, holds).await? {
        return Ok(Some(front));
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

/// What blocks a change set from its lanes.
pub(crate) async fn front(
    tx: &mut Tx,
    set: &ChangeSet,
    holds: &[Hold],
) -> Result<Option<LaneBlocker>, ChangeSetError> {
    for lane in &set.request.lanes {
        let held = holds.iter().find(|hold| hold.on.covers_lane(lane));
        if let Some(hold) = held {
            return Ok(Some(LaneBlocker::Hold(Box::new(hold.clone()))));
        }
        let before = earlier(tx, set, lane).await?;
        let first = before.first().copied();
        if let Some(front) = holder(tx, set, lane, before).await? {
            return Ok(Some(front));
        }
        if let Some(first) = first {
            return Ok(Some(LaneBlocker::Earlier {
                lane: lane.to_owned(),
                set: first,
            }));
        }
    }
    Ok(None)
}

async fn holder(
    tx: &mut Tx,
    set: &ChangeSet,
    lane: &str,
    before: Vec<ChangeSetId>,
) -> Result<Option<LaneBlocker>, ChangeSetError> {
    let key = set.request.lane_key(lane);
    // A target's own lane and the lanes of its stacks exclude each other.
    let target = lane.split_once('/').map_or(lane, |(target, _)| target);
    let row = tx
        .fetch_optional(
            "SELECT l.change_set,
             (SELECT COUNT(*) FROM run r WHERE r.change_set = l.change_set
              AND r.state LIKE '{\"stage\":\"finished\"%'),
             (SELECT COUNT(*) FROM run r WHERE r.change_set = l.change_set)
             FROM lane l
             WHERE (l.name = $1 OR l.name = $3 OR substr(l.name, 1, length($4)) = $4)
             AND l.change_set IS NOT NULL AND l.change_set <> $2",
            &[
                key.as_str().into(),
                set.id.into(),
                set.request.lane_key(target).into(),
                format!("{key}/").into(),
            ],
        )
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    Ok(Some(LaneBlocker::Holder {
        lane: lane.to_owned(),
        set: ChangeSetId(row.int(0)?),
        done: count(row.int(1)?),
        of: count(row.int(2)?),
        before,
    }))
}

/// An earlier request for the same lane goes first, even if the lane is free at the moment.
async fn earlier(
    tx: &mut Tx,
    set: &ChangeSet,
    lane: &str,
) -> Result<Vec<ChangeSetId>, ChangeSetError> {
    let mut before = Vec::new();
    let rows = tx
        .fetch_all(
            "SELECT w.change_set, c.request FROM lane_wait w JOIN change_set c ON c.id = w.change_set
             JOIN lane_wait own ON own.change_set = $1
             WHERE w.since < own.since OR (w.since = own.since AND w.change_set < $1)
             ORDER BY w.since, w.change_set",
            &[set.id.into()],
        )
        .await?;
    for row in rows {
        let earlier = ChangeSetId(row.int(0)?);
        let request: Request = from_json(row.text(1)?, || format!("change set `{earlier}`"))?;
        if request.project == set.request.project && request.contends_for(lane) {
            before.push(earlier);
        }
    }
    Ok(before)
}

/// Releases the lanes that a change set holds or waits for; returns whether there were any.
pub(crate) async fn release(tx: &mut Tx, set: ChangeSetId) -> Result<bool, DbError> {
    let held = tx
        .execute(
            "UPDATE lane SET change_set = NULL WHERE change_set = $1",
            &[set.into()],
        )
        .await?;
    let waited = tx
        .execute("DELETE FROM lane_wait WHERE change_set = $1", &[set.into()])
        .await?;
    Ok(held + waited > 0)
}
