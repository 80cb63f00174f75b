//! `terrane destroy`

use std::num::NonZeroUsize;

use model::changeset::Action;

use super::change::{self, Change};
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

/// Destroy what the stacks made, dependents first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane destroy web+\n  terrane destroy layer:apps")]
pub(crate) struct DestroyArgs {
    /// Stacks to destroy; `NAME+` includes everything that depends on it
    selectors: Vec<String>,
    /// Destroy without asking; protected stacks still want their name
    #[arg(long)]
    auto_approve: bool,
    /// Show every attribute
    #[arg(long)]
    full: bool,
    /// Engines at once [default: the project's `parallelism`, else the number of cores]
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = change::jobs)]
    jobs: Option<NonZeroUsize>,
}

pub(crate) async fn destroy(
    args: DestroyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let change = Change {
        action: Action::Destroy,
        selectors: args.selectors,
        auto_approve: args.auto_approve,
        destroy: true,
        refresh_only: false,
        pinned: None,
        detailed_exitcode: false,
        full: args.full,
        jobs: args.jobs,
        policy_override: None,
    };
    change::carry_out(change, global, process).await
}
