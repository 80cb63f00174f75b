//! How claimed runs get to a runner.
//!
//! Not here: which runs are claimed (`schedule`), what a runner does (`runner`).

use tokio::sync::mpsc::UnboundedSender;

use super::lock::ClaimedRun;

#[derive(Clone, Debug, Default)]
pub enum RunnerLauncher {
    /// A detached process for each run, which outlives the client.
    #[default]
    Process,
    /// The receiver of this queue carries them out in its own process.
    Queue(UnboundedSender<ClaimedRun>),
}
