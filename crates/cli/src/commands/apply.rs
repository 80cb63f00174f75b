//! `terrane apply`

use std::num::NonZeroUsize;

use model::changeset::{Action, Reopen};

use super::change::{self, Change, bundled};
use super::run::read_set;
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

/// Plan, ask once, and apply, in the order of the graph
///
/// The work goes on if this terminal is closed; the same command again attaches to it. Ctrl-C
/// interrupts the engines once and waits for them; a second Ctrl-C leaves them to it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane apply\n  terrane apply network cluster\n  terrane apply changed:main --auto-approve\n  \
    terrane apply 'target:local & !label:stateful'\n  terrane apply --resume c42\n  \
    terrane apply plan.terrane   # what `terrane plan --out plan.terrane` planned"
)]
pub(crate) struct ApplyArgs {
    /// Stacks to apply, or the file that `terrane plan --out FILE` wrote: `NAME`, `web-*`, `target:T`, `layer:L`, `label:L`, `changed:REF`, `+NAME`, `NAME+`, `!NAME`
    selectors: Vec<String>,
    /// Apply without asking
    #[arg(long)]
    auto_approve: bool,
    /// Go on with a change set that stopped, on the source as it is now [default: the newest]
    #[arg(long, value_name = "CHANGESET", num_args = 0..=1, conflicts_with = "selectors")]
    resume: Option<Option<String>>,
    /// Plan also stacks of which nothing changed, and nothing they consume
    #[arg(long)]
    all: bool,
    /// Show every attribute
    #[arg(long)]
    full: bool,
    /// Engines at once [default: the project's `parallelism`, else the number of cores]
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = change::jobs)]
    jobs: Option<NonZeroUsize>,
}

pub(crate) async fn apply(
    args: ApplyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let change = Change {
        selectors: args.selectors,
        all: args.all,
        auto_approve: args.auto_approve,
        full: args.full,
        jobs: args.jobs,
        ..Change::of(Action::Apply)
    };
    if let Some(file) = bundled::named(&change.selectors, process)? {
        return bundled::carry_out(&file, change, global, process).await;
    }
    match args.resume {
        None => change::carry_out(change, global, process).await,
        Some(id) => {
            let id = id.as_deref().map(read_set).transpose()?;
            change::go_on_with(id, |_| Reopen::Rest, &change, global, process).await
        }
    }
}
