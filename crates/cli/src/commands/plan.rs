//! `terrane plan`

use std::num::NonZeroUsize;
use std::path::PathBuf;

use model::run::changeset::Action;

use super::change::{self, ChangeOptions};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Show what an apply would change
///
/// Plans take no lock and wait for no other change set. A stack that needs a value that does not exist yet is
/// deferred: a preview shows what is known, and the stack is planned once its upstream is applied.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane plan\n  terrane plan changed:main\n  terrane plan +web --full\n  \
    terrane plan --detailed-exitcode   # 2 if there are changes\n  \
    terrane plan --out plan.terrane    # for another job to apply"
)]
pub(crate) struct PlanArgs {
    /// Stacks to plan: `NAME`, `web-*`, `target:T`, `layer:L`, `label:L`, `changed:REF`, `+NAME`, `NAME+`, `!NAME`
    selectors: Vec<String>,
    /// Plan to destroy everything
    #[arg(long, conflicts_with = "refresh_only")]
    destroy: bool,
    /// Only show changes made outside of terrane
    #[arg(long)]
    refresh_only: bool,
    /// Read no state: everything shows as new. For a review where the backend cannot be reached
    #[arg(long, conflicts_with_all = ["destroy", "refresh_only", "out"])]
    no_state: bool,
    /// Exit with 2 if there are changes
    #[arg(long)]
    detailed_exitcode: bool,
    /// Write the plans into FILE, sealed, to be applied by `terrane apply FILE`
    #[arg(long, value_name = "FILE", conflicts_with = "destroy")]
    out: Option<PathBuf>,
    /// Also plan stacks that are unchanged and consume no changed values
    #[arg(long)]
    all: bool,
    /// Begin a new project although this checkout was last used with another `project.id`
    #[arg(long)]
    new_project: bool,
    /// Show every attribute
    #[arg(long)]
    full: bool,
    /// Engines at once [default: the project's `parallelism`, else the number of cores]
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = change::jobs)]
    jobs: Option<NonZeroUsize>,
}

pub(crate) async fn plan(
    args: PlanArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let change = ChangeOptions {
        selectors: args.selectors,
        all: args.all,
        destroy: args.destroy,
        refresh_only: args.refresh_only,
        no_state: args.no_state,
        detailed_exitcode: args.detailed_exitcode,
        full: args.full,
        jobs: args.jobs,
        out: args.out,
        new_project: args.new_project,
        ..ChangeOptions::of(Action::Plan)
    };
    Box::pin(change::carry_out(change, global, process)).await
}
