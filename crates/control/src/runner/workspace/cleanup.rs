//! Cleans up trees after a lost runner: removes files of contexts, and stores artifacts before it removes
//! them.

use model::run::RunSpec;

use super::context_files::{note_path, sweep};
use super::{artifacts, open_lock};
use crate::Control;
use crate::run::lock::try_lock;

/// Skips directories in use, by an engine of this run or by the next run. What fails now is done when the
/// directory is next taken.
pub(crate) async fn clean_up_lost(control: &Control, spec: &RunSpec) {
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
