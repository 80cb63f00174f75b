//! Which run starts when: one step of the scheduler, recovery after a crash, cancelling, and the process that
//! carries out runs.
//!
//! Not here: the stages of a run (`runner`), the decision itself (`model::run::changeset::next`).

pub mod cancel;
pub mod recovery;
pub mod runner_process;
pub mod scheduler;
pub mod supervisor;
