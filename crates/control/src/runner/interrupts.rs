//! A wish to stop, remembered from the first moment on: also between two engine calls.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    came: bool,
}

impl Interrupts {
    /// From here on neither signal ends this process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            came: false,
        })
    }

    /// Waits for the wish.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.came = true;
    }

    /// Whether it has come already.
    pub(super) async fn came(&mut self) -> bool {
        if !self.came {
            tokio::select! {
                biased;
                () = self.next() => {}
                () = std::future::ready(()) => {}
            }
        }
        self.came
    }
}
