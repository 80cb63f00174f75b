//! `terrane apply`

use std::num::NonZeroUsize;

use model::base::ids::ChangeSetId;
use model::run::changeset::{Action, Reopen};

use super::change::{self, ChangeOptions, bundle};
use super::exceptions::ExceptionArgs;
use super::manual::reason_text;
use super::read_project;
use super::run::{confirm_change_set, read_set};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// The value of `--resume` without a change set.
const NEWEST: &str = "newest";

/// Plan, ask once, and apply, in the order of the graph
///
/// The work continues if this terminal is closed; run the same command again to attach to it. Ctrl-C
/// interrupts the engines once and waits for them; a second Ctrl-C detaches.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane apply\n  terrane apply network cluster\n  terrane apply changed:main --auto-approve\n  \
    terrane apply 'target:local & !label:stateful'\n  terrane apply --resume c42\n  \
    terrane apply c42            # a planned change set that waits for confirmation\n  \
    terrane apply plan.terrane   # what `terrane plan --out plan.terrane` planned\n  \
    terrane apply k8s-prod --skip-gate k8s-prod/sso --reason \"the probe is wrong, see the ticket\"",
    group(clap::ArgGroup::new("emergency").multiple(true))
)]
pub(crate) struct ApplyArgs {
    /// Stacks to apply, or a change set that waits, or the file that `terrane plan --out FILE` wrote: `NAME`, `web-*`, `target:T`, `layer:L`, `label:L`, `changed:REF`, `+NAME`, `NAME+`, `!NAME`
    selectors: Vec<String>,
    /// Apply without asking
    #[arg(long)]
    auto_approve: bool,
    /// Continue a stopped change set with the current source [default: the newest]
    #[arg(long, value_name = "CHANGESET", num_args = 0..=1, default_missing_value = NEWEST)]
    #[arg(conflicts_with_all = ["selectors", "all"])]
    resume: Option<String>,
    /// Also plan stacks that are unchanged and consume no changed values
    #[arg(long)]
    all: bool,
    /// Begin a new project although this checkout was last used with another `project.id`
    #[arg(long, conflicts_with = "resume")]
    new_project: bool,
    /// Show every attribute
    #[arg(long)]
    full: bool,
    /// Override policy denials; break-glass, recorded with the reason
    #[arg(long, requires = "reason", group = "emergency")]
    override_policy: bool,
    #[command(flatten)]
    exceptions: ExceptionArgs,
    /// Why, in a sentence
    #[arg(long, value_name = "TEXT", requires = "emergency")]
    reason: Option<String>,
    /// Engines at once [default: the project's `parallelism`, else the number of cores]
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = change::jobs)]
    jobs: Option<NonZeroUsize>,
}

pub(crate) async fn apply(
    args: ApplyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let exceptions = args
        .exceptions
        .read(args.reason.as_deref(), global, process)?;
    let change = ChangeOptions {
        exceptions,
        selectors: args.selectors,
        all: args.all,
        auto_approve: args.auto_approve,
        full: args.full,
        jobs: args.jobs,
        new_project: args.new_project,
        policy_override: policy_override(args.override_policy, args.reason, global, process)?,
        ..ChangeOptions::of(Action::Apply)
    };
    if let Some(file) = bundle::named(&change.selectors, process)? {
        if change.all {
            return Err(CommandError::new(format!(
                "cannot use `--all` with the bundle `{}`: a bundle is applied as it was planned",
                file.display()
            ))
            .hint("`terrane plan --all --out FILE` plans all stacks into a new bundle")
            .status(ExitStatus::Usage));
        }
        return Box::pin(bundle::carry_out(&file, change, global, process)).await;
    }
    // A change set that waits for confirmation, unless a stack has that name.
    if let [word] = &*change.selectors
        && word.parse::<ChangeSetId>().is_ok()
        && !is_stack(word, global, process)
    {
        if change.changes_request() {
            return Err(CommandError::new(format!(
                "change set `{word}` is already planned; confirming it takes no options"
            ))
            .hint(format!("`terrane apply {word}` confirms it"))
            .status(ExitStatus::Usage));
        }
        return Box::pin(confirm_change_set(word, &[], global, process)).await;
    }
    match args.resume {
        None => Box::pin(change::carry_out(change, global, process)).await,
        Some(id) => {
            let id = (id != NEWEST).then(|| read_set(&id)).transpose()?;
            Box::pin(change::reopen_and_watch(
                id,
                Reopen::rest(),
                change,
                global,
                process,
            ))
            .await
        }
    }
}

fn is_stack(word: &str, global: &Global, process: &Process) -> bool {
    let open = read_project(global, process);
    let project = open.ok().and_then(|open| open.loaded.project);
    project.is_some_and(|project| project.stacks.keys().any(|name| name.as_str() == word))
}

pub(super) fn policy_override(
    wanted: bool,
    reason: Option<String>,
    global: &Global,
    process: &Process,
) -> Result<Option<String>, CommandError> {
    let reason = reason.filter(|_| wanted);
    reason
        .map(|said| reason_text(&said, global, process))
        .transpose()
}
