//! The use cases and the loops: the only crate that knows both `store` and `drivers`. It owns order,
//! retries and liveness.
//!
//! Not here: SQL (`store`), processes and Git (`drivers`), decisions (`model`), words for people (`cli`).

pub mod access;
pub mod changeset;
pub mod home;
pub mod policy;
mod program_output;
pub mod project;
pub mod run;
pub mod runner;
pub mod schedule;
pub mod secrets;
pub mod stage;
pub mod state;
pub mod transfer;
pub mod validation;

use std::path::PathBuf;

use home::Home;
use jiff::Timestamp;
use model::state::StateName;
use store::Store;

/// What every use case needs: where things are kept, and how to start a runner.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) store: Store,
    pub home: Home,
    /// This program, to start runners from.
    pub program: PathBuf,
    /// Per user: engines and providers that may be fetched again.
    pub cache: PathBuf,
}

impl Control {
    /// `program` starts runners; `cache` has what may be fetched again.
    pub fn new(store: Store, home: Home, program: PathBuf, cache: PathBuf) -> Self {
        Self {
            store,
            home,
            program,
            cache,
        }
    }

    /// A state of this project.
    pub fn state_name(&self, name: &str) -> StateName {
        StateName::new(self.home.project(), name)
    }

    #[expect(
        clippy::unused_self,
        reason = "the one place the clock is read; tests will give it one"
    )]
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
