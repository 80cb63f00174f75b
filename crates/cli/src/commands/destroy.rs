//! `terrane destroy`, with its own prompts and refusals.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use control::changeset::removed_stacks::{self, RemovedStackError};
use control::project::open::OpenProject;
use model::base::ids::StackName;
use model::project::Project;
use model::run::changeset::Action;

use super::apply::policy_override;
use super::change::{self, ChangeOptions, DestroyOptions};
use super::exceptions::SkipGateArgs;
use super::{open_home, read_project};
use crate::global::Global;
use crate::view::{ViewOptions, errors};
use crate::{CommandError, ExitStatus, Process, report};

/// Destroy what the stacks made, dependents first
///
/// A stack that the project no longer has is destroyed with the code of the commit that last had it: `terrane destroy
/// NAME` finds that commit, and `--from COMMIT` destroys with it. The versions of its state stay.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane destroy web+\n  terrane destroy layer:apps\n  \
                  terrane destroy old --from 3f9c1e2\n  \
                  terrane destroy vault --auto-approve --confirm vault\n  \
                  terrane destroy web --override-policy --reason \"the account is closed today\"\n  \
                  terrane destroy web --skip-gate web/gone --reason \"the resolver caches for a day\"",
    group(clap::ArgGroup::new("emergency").multiple(true))
)]
pub(crate) struct DestroyArgs {
    /// Stacks to destroy; `NAME+` includes everything that depends on it
    selectors: Vec<String>,
    /// Destroy without confirmation; protected stacks still require their name
    #[arg(long)]
    auto_approve: bool,
    /// The name of a protected stack, in place of typing it; may be repeated
    #[arg(long, value_name = "NAME")]
    confirm: Vec<String>,
    /// Use the code of COMMIT, for a stack that the project no longer has
    #[arg(long, value_name = "COMMIT", requires = "selectors")]
    from: Option<String>,
    /// Show every attribute
    #[arg(long)]
    full: bool,
    /// Override policy denials; break-glass, recorded with the reason
    #[arg(long, requires = "reason", group = "emergency")]
    override_policy: bool,
    #[command(flatten)]
    skipped: SkipGateArgs,
    /// Why, in a sentence
    #[arg(long, value_name = "TEXT", requires = "emergency")]
    reason: Option<String>,
    /// Engines at once [default: the project's `parallelism`, else the number of cores]
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = change::jobs)]
    jobs: Option<NonZeroUsize>,
}

pub(crate) async fn destroy(
    args: DestroyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    if args.from.is_none() {
        propose_commit(&args.selectors, global, process).await?;
    }
    let change = ChangeOptions {
        exceptions: args.skipped.read(args.reason.as_deref(), global, process)?,
        selectors: args.selectors,
        auto_approve: args.auto_approve,
        destroy: true,
        full: args.full,
        policy_override: policy_override(args.override_policy, args.reason, global, process)?,
        jobs: args.jobs,
        destroying: DestroyOptions {
            confirm: args.confirm,
            from: args.from,
        },
        ..ChangeOptions::of(Action::Destroy)
    };
    Box::pin(change::carry_out(change, global, process)).await
}

/// The project as of a commit.
pub(super) fn as_of(
    commit: &str,
    open: OpenProject,
    project: &Project,
    process: &Process,
) -> Result<(OpenProject, Project), CommandError> {
    removed_stacks::open_at(open, project, &process.env, commit)
        .map_err(|err| abandoned_error(&err))
}

/// Checks before planning: stacks of an older commit, and the names of protected stacks.
pub(super) fn check(
    destroying: &DestroyOptions,
    open: &OpenProject,
    project: &Project,
    stacks: &BTreeSet<StackName>,
    process: &Process,
    look: ViewOptions,
) -> Result<(), CommandError> {
    let mut protected: BTreeSet<&StackName> = stacks
        .iter()
        .filter(|name| project.stacks[*name].protected)
        .collect();
    if let Some(from) = &open.commit {
        removed_stacks::check_absent(project, &from.now, stacks)
            .map_err(|err| abandoned_error(&err))?;
        for name in stacks {
            // The state is what gets destroyed, and its stack may have been renamed since.
            let state = &project.stacks[name].state;
            let last = removed_stacks::last_commit(open, &from.now, &process.env, state);
            let Some(last) = last.map_err(|err| abandoned_error(&err))? else {
                continue;
            };
            removed_stacks::check_rules(project, name, &last)
                .map_err(|err| abandoned_error(&err))?;
            if last.protected {
                protected.insert(name);
            }
            if last.commit != from.id {
                let said = format!(
                    "commit {} (\"{}\") is the last that has `{}`; `--from` names another",
                    last.short_commit(),
                    last.subject,
                    last.stack
                );
                report::say(&errors::render_warning(&said, &[], look))?;
            }
        }
    }
    type_protected_names(&protected, &destroying.confirm, process)
}

/// Requires the name of each protected stack, typed or given with `--confirm`.
fn type_protected_names(
    protected: &BTreeSet<&StackName>,
    given: &[String],
    process: &Process,
) -> Result<(), CommandError> {
    for name in protected {
        if given.iter().any(|given| given == name.as_str()) {
            continue;
        }
        let refused = |why: &str| {
            CommandError::new(format!("stack `{name}` is protected: {why}"))
                .hint(format!(
                    "give it with `--confirm {name}`, or exclude the stack with `!{name}`"
                ))
                .status(ExitStatus::Refused)
        };
        if !process.stdin_is_terminal {
            return Err(refused("its name must be typed, and there is no terminal"));
        }
        change::forget_input();
        report::say(&format!(
            "Stack `{name}` is protected. Type its name to destroy it: "
        ))?;
        if change::read_line()? != name.as_str() {
            return Err(refused("its name was not typed"));
        }
    }
    Ok(())
}

/// Checks whether an unknown stack name belongs to a removed stack whose state still holds resources. Then
/// finds the commit that last had the stack.
async fn propose_commit(
    words: &[String],
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let open = read_project(global, process)?;
    let Some(project) = &open.loaded.project else {
        return Ok(()); // its errors are reported later
    };
    let is_unknown = |word: &&String| {
        word.parse::<StackName>()
            .is_ok_and(|name| !project.stacks.contains_key(&name))
    };
    let Some(word) = words.iter().find(is_unknown) else {
        return Ok(());
    };
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let states = control::state::queries::abandoned(&control, project).await;
    let states = states.map_err(|err| CommandError::from_error(&err))?;
    if states.is_empty() {
        return Ok(());
    }
    let seen = match removed_stacks::last_commit(&open, project, &process.env, word) {
        Err(RemovedStackError::NoRepository) => return Ok(()),
        seen => seen.map_err(|err| abandoned_error(&err))?,
    };
    let Some(seen) = seen else {
        return Ok(());
    };
    let commit = seen.short_commit();
    Err(CommandError::new(format!(
        "stack `{word}` is no longer in the project; commit {commit} (\"{}\") is the last one with it",
        seen.subject
    ))
    .hint(format!(
        "`terrane destroy {} --from {commit}` destroys it with the code of that commit",
        seen.stack
    ))
    .status(ExitStatus::Refused))
}

fn abandoned_error(err: &RemovedStackError) -> CommandError {
    CommandError::from_error(err)
}
