//! Continues change sets after a hold was released.

use model::run::hold::HoldOn;

use super::{DecidingUser, DecisionError};
use crate::Control;
use crate::changeset::explain::ChangeSetDetails;
use crate::changeset::{holds, prepare};
use crate::project::open::OpenProject;
use crate::run::liveness;
use crate::schedule::scheduler;

/// A change set that waited for the hold.
#[derive(Debug)]
pub struct Waiter {
    pub details: ChangeSetDetails,
    /// Whether it continues now. Otherwise `details` has the reason.
    pub is_started: bool,
}

/// Continues change sets that waited for a hold, if the user who released it may apply them and has their values.
pub async fn continue_waiters(
    control: &Control,
    decider: DecidingUser<'_>,
    open: &OpenProject,
    on: &HoldOn,
) -> Result<Vec<Waiter>, DecisionError> {
    let mut waiters = Vec::new();
    for details in holds::waiters(control, on).await? {
        let set = details.set.id;
        let is_here = !liveness::is_elsewhere(control, &details.set);
        let may = is_here && decider.check_writer(control, set).await.is_ok();
        let values = prepare::gather_again(control, open, decider.env, set).await?;
        let overrides = match &values {
            Some(caller) => prepare::overrides_values(control, set, caller).await?,
            None => false,
        };
        let values = values.filter(|_| may && !overrides && details.goes_on());
        let is_started = values.is_some();
        if let Some(caller) = values {
            scheduler::advance(control, set, None, &caller, None).await?;
        }
        waiters.push(Waiter {
            details,
            is_started,
        });
    }
    Ok(waiters)
}
