//! A separate tree for a source that is rewritten before it is planned. No other engine may see that source.

use std::io;

use drivers::snapshot::Slot;

use super::{TreeLocks, Workspace, WorkspaceRequest, artifacts, settled};
use crate::home::make_private;
use crate::run::lock::try_lock;
use crate::runner::{Failure, StageJob};

impl Workspace {
    /// Takes a whole tree with the run's source unpacked. Files that its last user wrote are removed.
    pub(in crate::runner) async fn prepare_apart(job: &StageJob<'_>) -> Result<Self, Failure> {
        let mut taking = WorkspaceRequest::of(job)?;
        taking.spec.slot = format!("_{}.preview", job.spec.target.name);
        let slots = job.control.home.slots(&taking.spec.slot);
        make_private(&slots).map_err(|err| Failure::because("could not create a slot", &err))?;
        let work = tokio::task::spawn_blocking(move || taking.take_alone());
        let (number, slot, locks) = settled(job, work).await?;
        Self::at(job, &slot, number, locks, false).await
    }
}

impl WorkspaceRequest {
    fn take_alone(&self) -> io::Result<(usize, Slot, TreeLocks)> {
        let slots = self.control.home.slots(&self.spec.slot);
        for number in 0..Self::MOST {
            let Some(tree) = try_lock(&slots.join(format!("{number}.lock")))? else {
                continue;
            };
            let slot = self.control.home.slot(&self.spec.slot, number);
            let slot = slot.map_err(io::Error::other)?;
            self.runtime
                .block_on(artifacts::settle_all(&self.control, &slot, number))?;
            self.lay_out(&slot)?;
            let stack = tree.try_clone()?;
            return Ok((number, slot, TreeLocks { tree, stack }));
        }
        let most = Self::MOST;
        Err(io::Error::other(format!(
            "the limit of {most} previews at once is reached"
        )))
    }
}
