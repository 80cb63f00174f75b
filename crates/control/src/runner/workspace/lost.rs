//! What a run that lost its runner left in trees: files of contexts go, artifacts are stored and go.

use model::run::RunSpec;

use super::mounted::{note_path, sweep};
use super::{artifacts, open_lock};
use crate::Control;
use crate::run::lock::try_lock;

/// Leaves alone where somebody is at work: an engine of the run's own, or the next run. What cannot be done now is done
/// when the place is next taken.
pub(crate) async fn sweep_lost(control: &Control, spec: &RunSpec) {
    let slots = control.home.slots(&spec.slot);
    let stack = &spec.stack.name;
    for number in 0.. {
        let lock = slots.join(format!("{number}.{stack}.lock"));
        if !lock.exists() {
            break;
        }
        let Ok(Some(_held)) = try_lock(&lock) else {
            continue;
        };
        drop(sweep(&note_path(&slots, number, stack)));
        let Ok(tree) = open_lock(&slots.join(format!("{number}.lock"))) else {
            continue;
        };
        if let (Ok(()), Ok(slot)) = (
            tree.try_lock_shared(),
            control.home.slot(&spec.slot, number),
        ) {
            let note = artifacts::note_path(&slot, number, stack);
            drop(artifacts::settle(control, &slot, number, &note).await);
        }
    }
}
