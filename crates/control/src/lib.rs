//! Use cases and loops: the only crate that uses both `store` and `drivers`. It is responsible for order,
//! retries and liveness.
//!
//! Not here: SQL (`store`), processes and Git (`drivers`), decisions (`model`), text for people (`cli`).

pub mod access;
pub mod changeset;
pub mod clock;
pub mod decision;
pub mod home;
pub mod policy;
mod program_output;
pub mod project;
pub mod request;
pub mod run;
pub mod runner;
pub mod schedule;
pub mod secrets;
pub mod stage;
pub mod state;
pub mod transfer;
pub mod validation;
mod values;

use std::path::PathBuf;

use clock::Clock;
use home::{Home, OpenHomeError};
use jiff::Timestamp;
use model::state::StateName;
use run::launcher::RunnerLauncher;
use store::{OpenMode, Store};

/// What every use case needs: the store and the home, and the program to start runners.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) store: Store,
    pub home: Home,
    /// The path of this program, to start runners.
    pub program: PathBuf,
    /// The user's cache of engines and providers, which can be downloaded again.
    pub cache: PathBuf,
    pub clock: Clock,
    pub launcher: RunnerLauncher,
}

/// The kind of process that opens a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// A command or a runner: it lives for seconds and does one thing at a time.
    Client,
    Server,
}

impl Control {
    /// Opens a home. Also returns the path of its master key if the key was created now.
    pub async fn open(
        home: Home,
        kind: ProcessKind,
        program: PathBuf,
        cache: PathBuf,
    ) -> Result<(Self, Option<PathBuf>), OpenHomeError> {
        let mode = match kind {
            ProcessKind::Client => OpenMode::Cli,
            ProcessKind::Server => OpenMode::Server,
        };
        let opened = home.open_for(mode).await?;
        let control = Self::new(opened.store, opened.home, program, cache);
        Ok((control, opened.new_key))
    }

    pub fn new(store: Store, home: Home, program: PathBuf, cache: PathBuf) -> Self {
        Self {
            store,
            home,
            program,
            cache,
            clock: Clock::System,
            launcher: RunnerLauncher::Process,
        }
    }

    /// The full name of a state of this project.
    pub fn state_name(&self, name: &str) -> StateName {
        StateName::new(self.home.project(), name)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
