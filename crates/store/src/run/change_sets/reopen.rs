//! Reopens runs of a stopped change set with the current source.

use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::{ChangeSet, Reopen, Request, SetEvent, reopen};
use model::run::{Run, RunEvent, RunSpec, RunState};

use super::{ValueOverride, get, record};
use crate::Store;
use crate::db::Tx;
use crate::run::records::{ChangeSetError, to_json};
use crate::run::runs;

impl Store {
    /// Decides again inside the transaction what to reopen: fails if another caller has just reopened it.
    pub async fn change_set_reopen(
        &self,
        id: ChangeSetId,
        what: &Reopen,
        request: &Request,
        specs: &[RunSpec],
        by: &Actor,
        now: Timestamp,
    ) -> Result<ChangeSet, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let mut set = get(&mut tx, id).await?;
        let mut members = runs::list(&mut tx, id).await?;
        for again in reopen(&set, &members, what)? {
            let run = again.run;
            let stack = members.iter().find(|member| member.id == run);
            let spec =
                stack.and_then(|member| specs.iter().find(|spec| spec.stack.name == member.stack));
            if let Some(spec) = spec {
                runs::renew(&mut tx, run, spec).await?;
                let moved = again.moved;
                let event = RunEvent::Reopened { moved };
                runs::record(&mut tx, &mut members, run, event, now).await?;
            }
        }
        let mut askers = set.request.author_actors();
        set.request = request.clone();
        askers.retain(|asker| !set.request.is_author(&asker.name));
        set.request.earlier_askers = askers;
        // Facts and gates of applied runs need no confirmation; the plans that follow do.
        let is_applied = |run: &Run| matches!(run.state, RunState::Applied { .. });
        let is_said = request.auto_approve && request.approvals.is_empty();
        set.request.goes_on_with_stages = !is_said && members.iter().any(is_applied);
        tx.execute(
            "UPDATE change_set SET request = $2 WHERE id = $1",
            &[id.into(), to_json(&set.request, "a change set")?.into()],
        )
        .await?;
        let event = SetEvent::Reopened {
            by: Some(by.clone()),
            confirmed: is_said || set.request.goes_on_with_stages,
        };
        record(&mut tx, &mut set, event, now).await?;
        tx.commit().await?;
        Ok(set)
    }
}

/// Records that a run was planned with other values. The person who provided them becomes an author; another
/// person with the same values does not. Idempotent.
pub(super) async fn planned_with(
    tx: &mut Tx,
    set: &mut ChangeSet,
    run: RunId,
    brought: &ValueOverride,
) -> Result<(), ChangeSetError> {
    let mut spec = runs::spec(tx, run).await?;
    spec.asked_with.clone_from(&brought.values);
    if !set.request.is_author(&brought.by.name) {
        set.request.earlier_askers.push(brought.by.clone());
    }
    tx.execute(
        "UPDATE change_set SET request = $2 WHERE id = $1",
        &[set.id.into(), to_json(&set.request, "a change set")?.into()],
    )
    .await?;
    tx.execute(
        "UPDATE run SET spec = $2 WHERE id = $1",
        &[run.into(), to_json(&spec, "a run")?.into()],
    )
    .await?;
    Ok(())
}
