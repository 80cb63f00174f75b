//! Plans in a file: written by `plan --out FILE`, applied by `apply FILE`.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use control::Control;
use control::access::writers::Caller;
use control::changeset::bundle::{self, Bundle, ReadBundleError};
use control::changeset::prepare::{BeginBundleError, ChangeSetRequest};
use control::project::open::{OpenProject, ProjectContext};
use control::request::{self, Requested};
use model::base::ids::StackName;
use model::project::Project;
use model::run::changeset::Action;
use serde_json::json;

use super::{
    ChangeOptions, cores, follow, look_after_the_past, record_branches, say_no_home,
    say_past_rules, say_warnings,
};
use crate::commands::{declare_new_project, open_home, valid_project};
use crate::global::Global;
use crate::watch::Watcher;
use crate::{CommandError, ExitStatus, Process, report};

/// The bundle that the arguments of an apply name, if any.
pub(crate) fn named(words: &[String], process: &Process) -> Result<Option<PathBuf>, CommandError> {
    for word in words {
        let path = process.cwd.join(word);
        let looks_like_file = !word.contains(':') && word.contains(['.', '/']);
        if path.is_file() && bundle::is_bundle(&path).unwrap_or(looks_like_file) {
            if words.len() > 1 {
                return Err(CommandError::new(format!(
                    "the bundle `{word}` is applied as a whole: nothing can be selected beside it"
                ))
                .status(ExitStatus::Usage));
            }
            return Ok(Some(PathBuf::from(word)));
        }
        if looks_like_file && path.is_file() {
            return Err(CommandError::new(format!("`{word}` is not a bundle"))
                .hint("`terrane plan --out FILE` makes one")
                .status(ExitStatus::Refused));
        }
        if looks_like_file && !path.exists() {
            return Err(CommandError::new(format!("there is no file `{word}`"))
                .hint("`terrane plan --out FILE` makes a bundle; stacks are named without `.` and `/`")
                .status(ExitStatus::Usage));
        }
    }
    Ok(None)
}

/// Checks before planning whether the file can be written.
pub(super) fn check_place(file: &Path, process: &Process) -> Result<(), CommandError> {
    let path = process.cwd.join(file);
    let dir = path.parent().unwrap_or(&process.cwd);
    let found = fs::metadata(&path).ok();
    let (why, hint) = match &found {
        Some(found) if found.is_dir() => ("it is a directory".to_owned(), "name a file in it"),
        // Do not overwrite a device or a file that is not a plan.
        Some(found) if !found.is_file() => ("it is not a file".to_owned(), "name a file"),
        Some(found) if found.len() > 0 && !bundle::is_bundle(&path).unwrap_or(false) => {
            let why = "the file exists and is not a plan of terrane".to_owned();
            (why, "name another, or remove it first")
        }
        Some(_) => return Ok(()),
        None if dir.is_dir() => return Ok(()),
        None => (
            format!("there is no directory `{}`", dir.display()),
            "make it first",
        ),
    };
    let file = file.display();
    let said = CommandError::new(format!("cannot write the plan to `{file}`: {why}"));
    Err(said.hint(hint))
}

/// Writes the plans of a finished change set to a file, and reports it.
pub(super) async fn write(
    watcher: &Watcher<'_>,
    file: &Path,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let (control, set, runs) = (watcher.control(), watcher.set(), watcher.runs());
    let path = process.cwd.join(file);
    let written = bundle::write(control, set, runs, &path).await;
    bundle::drop_kept_plans(control, set, runs).await;
    let written = match written {
        Ok(written) => written,
        Err(err) => {
            // An older bundle in this place must not be taken for the new one.
            if bundle::is_bundle(&path).unwrap_or(false) {
                drop(fs::remove_file(&path));
            }
            return Err(CommandError::from_error(&err));
        }
    };
    if global.json {
        return report::json_line(&json!({
            "event": "bundle", "file": file.display().to_string(), "bundle": written.id,
            "change_set": set.id.to_string(), "bytes": written.bytes,
            "stacks": written.stacks, "changing": written.changing, "deferred": written.deferred,
        }));
    }
    let file = file.display();
    let later = if written.deferred == 0 {
        ""
    } else {
        "; dependents of changing stacks are planned then"
    };
    report::say(&format!(
        "\nWrote `{file}`: `terrane apply {file}` applies exactly this, here or on another machine{later}.\n"
    ))
}

/// Applies the plans of a bundle, after the same prompt as any apply.
pub(crate) async fn carry_out(
    file: &Path,
    change: ChangeOptions,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    let look = process.look(global);
    let settings = process.settings(global)?;
    if settings.key.is_to_be_made() {
        return Err(CommandError::new(format!(
            "cannot open the bundle `{}`: it needs the master key it was sealed with, and there is none here",
            file.display()
        ))
        .hint(bundle::GIVE_KEY)
        .status(ExitStatus::Refused));
    }
    if change.new_project {
        declare_new_project(&settings, &open)?;
    }
    let control = open_home(&settings, &open, process, look).await?;
    look_after_the_past(&control, &open, look, process).await?;
    let bundle = bundle::read(&control, file).await;
    let bundle = bundle.map_err(|err| read_error(&err))?;
    let project = bundle.with_planned_rules(project);
    say_no_home(&settings, look)?;
    let stacks: BTreeSet<StackName> = bundle.stacks().cloned().collect();
    let wanted = ChangeSetRequest {
        action: Action::Apply,
        in_any_case: stacks.clone(),
        stacks,
        auto_approve: change.auto_approve,
        parallelism: change
            .jobs
            .map(NonZeroUsize::get)
            .or(project.parallelism)
            .unwrap_or_else(cores),
        destroy: false,
        refresh_only: false,
        pinned: None,
        no_state: false,
        keeps_plans: false,
        policy_override: change.policy_override.clone(),
        exceptions: change.exceptions.clone(),
        who: Caller::new(process.actor()),
        exec: None,
        may_keep_state: !settings.is_ci || settings.named_home.is_some(),
    };
    let here = BundleHere {
        control: &control,
        open: &open,
        project: &project,
        bundle: &bundle,
    };
    let mut watcher = start(here, wanted, global, process).await?;
    let status = follow(&mut watcher, &change, &project, global, process).await;
    for run in watcher.runs() {
        say_warnings(&control, run, look)?;
    }
    say_past_rules(&change, &watcher, global, process.look(global)).await?;
    watcher.say_missed_records()?;
    control::runner::note_usage("terminal");
    status
}

/// A bundle, and the project that it is applied to.
#[derive(Clone, Copy)]
struct BundleHere<'a> {
    control: &'a Control,
    open: &'a OpenProject,
    project: &'a Project,
    bundle: &'a Bundle,
}

/// Requests the bundle's change set, or joins the one that is applying it.
async fn start<'a>(
    here: BundleHere<'a>,
    wanted: ChangeSetRequest,
    global: &Global,
    process: &Process,
) -> Result<Watcher<'a>, CommandError> {
    let BundleHere {
        control,
        open,
        project,
        bundle,
    } = here;
    let records = record_branches(open, project, process);
    let context = ProjectContext {
        open,
        project,
        env: &process.env,
    };
    let requested = request::start_bundle(control, context, bundle, wanted).await;
    let begun = match requested.map_err(|err| begin_error(&err))? {
        Requested::New(begun) => begun,
        Requested::UnderWay(attached) => {
            report::say(&format!(
                "Attached to change set {}, which applies this bundle already.\n",
                attached.id
            ))?;
            return Ok(Watcher::join(control, attached, records, global, process));
        }
    };
    super::say_unseen(&begun.unseen, process.look(global))?;
    if !global.json {
        let origin = &bundle.origin;
        let by = origin.planned_by.as_ref();
        let by = by.map_or("somebody", |actor| &actor.name);
        let at = origin.planned_at.strftime("%F %H:%M UTC");
        report::say(&format!(
            "Plans of `{by}`, made as change set {} on {at}.\n",
            origin.planned_as
        ))?;
    }
    Ok(Watcher::drive(control, begun, records, global, process))
}

fn read_error(err: &ReadBundleError) -> CommandError {
    CommandError::from_error(err)
}

fn begin_error(err: &BeginBundleError) -> CommandError {
    CommandError::from_error(err)
}
