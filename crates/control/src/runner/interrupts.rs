//! Requests to stop, remembered from the start, also between two engine calls.
//!
//! SIGTERM is meant for this process, whatever it does. SIGINT is meant for a run, and its sender has
//! recorded a cancel request in the store before. A late SIGINT, which arrives when this process already
//! carries out another run, is ignored.

use std::io;

use model::base::ids::RunId;
use model::run::changeset::Status;
use store::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::changeset::cancel_requests;

pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// The run whose cancel requests count. If none, every signal counts.
    of: Option<(Store, RunId)>,
    /// A signal arrived, and it is not known yet whether it was meant for this run.
    nudged: bool,
    terminated: bool,
    came: bool,
}

impl Interrupts {
    /// Installs the handlers. From here on neither signal ends this process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            of: None,
            nudged: false,
            terminated: false,
            came: false,
        })
    }

    /// From here on, signals are checked for this run.
    pub(crate) fn begin(&mut self, store: &Store, run: RunId) {
        self.of = Some((store.clone(), run));
        self.came = false;
    }

    /// Waits for a request to stop. The future may be dropped at any time.
    pub(super) async fn next(&mut self) {
        loop {
            if !self.nudged {
                tokio::select! {
                    _ = self.interrupt.recv() => {}
                    _ = self.terminate.recv() => self.terminated = true,
                }
                self.nudged = true;
            }
            if self.is_meant().await {
                return;
            }
        }
    }

    /// Whether a request to stop has already arrived.
    pub(super) async fn came(&mut self) -> bool {
        if !self.came && !self.nudged {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => (self.nudged, self.terminated) = (true, true),
                _ = self.interrupt.recv() => self.nudged = true,
                () = std::future::ready(()) => {}
            }
        }
        self.came || (self.nudged && self.is_meant().await)
    }

    /// Whether this process must end, not only its run.
    pub(crate) fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Checks the signal that arrived.
    async fn is_meant(&mut self) -> bool {
        let meant = match &self.of {
            Some((store, run)) if !self.terminated => is_wanted(store, *run).await,
            _ => true,
        };
        self.nudged = false;
        self.came |= meant;
        meant
    }
}

/// Whether this run should end. Also true if the store does not answer.
async fn is_wanted(store: &Store, run: RunId) -> bool {
    if cancel_requests::find(store, run).await.is_some() {
        return true;
    }
    let Ok(Some(run)) = store.run_get(run).await else {
        return true;
    };
    let set = store.change_set_get(run.change_set).await;
    set.map_or(true, |set| {
        set.status == Status::Interrupting || set.status.is_over()
    })
}
