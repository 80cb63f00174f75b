//! A wish to stop, remembered from the first moment on: also between two engine calls.
//!
//! SIGTERM is meant for this process, whatever it does. SIGINT is meant for a run, and whoever sends it has noted the
//! wish in the store before: one that comes late, when this process has gone on with another run, is none of its own.

use std::io;

use model::changeset::Status;
use model::ids::RunId;
use store::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::changeset::cancel_requests;

pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Whose wishes count; every one, if this is nothing.
    of: Option<(Store, RunId)>,
    /// A signal came, and it is not known yet whether it was meant.
    nudged: bool,
    terminated: bool,
    came: bool,
}

impl Interrupts {
    /// From here on neither signal ends this process.
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

    /// From here on it is about this run.
    pub(crate) fn begin(&mut self, store: &Store, run: RunId) {
        self.of = Some((store.clone(), run));
        self.came = false;
    }

    /// Waits for the wish. May be dropped at any moment.
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

    /// Whether it has come already.
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

    /// Whether this process, not only its run, is to come to its end.
    pub(crate) fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Judges the signal that came.
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

/// Whether somebody wants this run to end. A store that does not answer is no reason to go on.
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
