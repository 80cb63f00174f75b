//! The use cases and the loops: the only crate that knows both `store` and `drivers`. It owns order,
//! retries and liveness.
//!
//! Not here: SQL (`store`), processes and Git (`drivers`), decisions (`model`), words for people (`cli`).

pub mod abandoned;
pub mod applied;
pub mod approval_policy;
pub mod artifacts;
pub mod asker;
pub mod backends;
pub mod bootstrap;
pub mod bundle;
mod cadence;
pub mod cancel_requests;
pub mod cancelling;
pub mod changed;
pub mod changesets;
pub mod cleanup;
pub mod cluster;
pub mod contracts;
pub mod drain;
mod engine_words;
pub mod engines;
mod error_text;
mod exec_args;
pub mod fact_readers;
pub mod facts;
mod failure;
pub mod formatting;
pub mod gates;
pub mod held_backend;
pub mod holds;
pub mod home;
pub mod ignored;
pub mod in_force;
pub mod kept_aside;
mod keyed_digests;
pub mod keys;
mod last_words;
mod last_write;
mod left_behind;
pub mod liveness;
pub mod lock_admin;
pub mod locks;
pub mod memory;
pub mod outputs;
pub mod patience;
pub mod policy;
pub mod presence;
pub mod projects;
pub mod proposals;
pub mod providers;
pub mod query;
pub mod reasons;
pub mod recovery;
pub mod run_logs;
pub mod runner;
pub mod runner_process;
pub mod runs;
pub mod secret_files;
mod secret_paths;
pub mod secret_references;
mod settled;
pub mod sinks;
pub mod spool;
mod stage_files;
pub mod stages;
pub mod state;
pub mod state_export;
pub mod state_import;
pub mod state_service;
pub mod states;
pub mod stragglers;
pub mod surgery;
pub mod tokens;
pub mod upstreams;
pub mod validation;
pub mod worker;
pub mod writers;

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
