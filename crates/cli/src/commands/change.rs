//! What plan, apply and destroy have in common: from words to a change set, watched until it rests, asked
//! about once, and told how it ended.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, Write as _};

use control::changesets::{self, PrepareError, Wanted};
use control::projects::OpenProject;
use control::{Control, engines, recovery};
use model::changeset::{Action, ChangeSet};
use model::ids::StackName;
use model::project::Project;

use super::{open_home, selection, sound_project};
use crate::args::Global;
use crate::view::{Look, errors};
use crate::watch::{Rest, Watcher};
use crate::{CommandError, ExitStatus, Process, report};

mod ending;
mod planned;

pub(crate) struct Change {
    pub(crate) action: Action,
    pub(crate) selectors: Vec<String>,
    pub(crate) auto_approve: bool,
    pub(crate) destroy: bool,
    pub(crate) refresh_only: bool,
    /// For a plan from an older version of the state.
    pub(crate) pinned: Option<i64>,
    pub(crate) detailed_exitcode: bool,
    pub(crate) full: bool,
    pub(crate) jobs: Option<usize>,
}

pub(crate) async fn carry_out(
    change: Change,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = sound_project(global, process)?;
    let stacks = selection::resolve(&change.selectors, &open, &project, process)?;
    let look = process.look(global);
    if stacks.is_empty() {
        report::say("Nothing is selected, so there is nothing to do.\n")?;
        return Ok(ExitStatus::Done);
    }
    if change.action == Action::Destroy {
        type_protected_names(&project, &stacks, process)?;
    }
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, look).await?;
    look_after_the_past(&control, look).await?;
    if settings.is_ci && settings.named_home.is_none() && change.action != Action::Plan {
        let said = "no home is named: lanes and history reach no further than this job";
        report::say(&errors::render_warning(said, &[], look))?;
    }
    let wanted = Wanted {
        action: change.action,
        auto_approve: change.auto_approve,
        parallelism: change.jobs.or(project.parallelism).unwrap_or_else(cores),
        destroy: change.destroy,
        refresh_only: change.refresh_only,
        pinned: change.pinned,
        asker: process.actor(),
        may_keep_state: !settings.is_ci || settings.named_home.is_some(),
        stacks,
    };
    let mut watcher = start(&control, &open, &project, &wanted, global, process).await?;
    let status = follow(&mut watcher, &change, &project, global, process).await;
    if status.is_ok() {
        recovery::tidy_after(&control, watcher.set(), watcher.runs()).await;
    }
    control::runner::note_usage("terminal");
    status
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Stores the change set, or attaches to one that does the same right now.
async fn start<'a>(
    control: &'a Control,
    open: &OpenProject,
    project: &Project,
    wanted: &Wanted,
    global: &Global,
    process: &Process,
) -> Result<Watcher<'a>, CommandError> {
    let failed = |err: &dyn std::error::Error| CommandError::from_error(err);
    if wanted.action != Action::Plan
        && let Some(set) = changesets::find_same(control, open, project, wanted)
            .await
            .map_err(|err| prepare_error(&err))?
    {
        report::say(&format!(
            "Attached to change set {}, which is already under way.\n",
            set.id
        ))?;
        let asker = changesets::gather_again(control, open, &process.env, set.id)
            .await
            .map_err(|err| failed(&err))?;
        return Watcher::attach(control, set.id, asker, global, process)
            .map_err(|err| failed(&err));
    }
    let wishes = changesets::requirements(project, &wanted.stacks);
    let path = process.env.get("PATH").map(std::ffi::OsStr::new);
    let engines = engines::find(wishes, path, &control.cache)
        .map_err(|err| CommandError::from_error(&err).hint(err.hint()))?;
    let begun = changesets::begin(control, open, project, &engines, &process.env, wanted)
        .await
        .map_err(|err| prepare_error(&err))?;
    for link in &begun.left_out {
        let said = format!("the link `{link}` leads out of the project and is left out");
        report::say(&errors::render_warning(&said, &[], process.look(global)))?;
    }
    Ok(Watcher::drive(control, begun, global, process))
}

/// Watches until nothing goes on by itself, asks when it must, and tells the end.
async fn follow(
    watcher: &mut Watcher<'_>,
    change: &Change,
    project: &Project,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    loop {
        let rest = watcher.until_rest().await?;
        match rest {
            Rest::Over => break,
            Rest::Detached => return Ok(ExitStatus::Interrupted),
            Rest::AwaitsConfirm => {
                let set = planned::plan_set(watcher, project).await?;
                planned::show(&set, change.full, global, process)?;
                match confirm(change.action, watcher.set(), process).await? {
                    Answer::Yes => watcher.confirm().await?,
                    answer => {
                        watcher.discard().await?;
                        if ending::something_was_applied(watcher.runs()) {
                            ending::tell(watcher, global, process).await?;
                            return Ok(ExitStatus::Waits);
                        }
                        return unconfirmed(answer);
                    }
                }
            }
        }
    }
    if change.action == Action::Plan {
        let set = planned::plan_set(watcher, project).await?;
        planned::show(&set, change.full, global, process)?;
        return Ok(ending::plan_status(
            watcher.runs(),
            change.detailed_exitcode,
        ));
    }
    ending::tell(watcher, global, process).await
}

/// What came of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Ctrl-C at the prompt.
    Interrupted,
    /// There is nobody to ask.
    Nobody,
}

async fn confirm(
    action: Action,
    set: &ChangeSet,
    process: &Process,
) -> Result<Answer, CommandError> {
    if !process.stdin_is_terminal {
        return Ok(Answer::Nobody);
    }
    let deed = match action {
        Action::Destroy => "Destroy all of this?",
        Action::Plan | Action::Apply => "Apply this?",
    };
    report::say(&format!(
        "\n{deed} Only `yes` starts change set {}: ",
        set.id
    ))?;
    // A thread of its own: one that still reads does not keep the process from ending.
    let (answer, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || answer.send(read_line()));
    tokio::select! {
        line = heard => {
            let line = line.unwrap_or_else(|_| Ok(String::new()))?;
            Ok(if line == "yes" { Answer::Yes } else { Answer::No })
        }
        _ = tokio::signal::ctrl_c() => Ok(Answer::Interrupted),
    }
}

fn unconfirmed(answer: Answer) -> Result<ExitStatus, CommandError> {
    match answer {
        Answer::Nobody => Err(
            CommandError::new("nothing was applied: nobody is here to say yes")
                .hint("`--auto-approve` applies without asking")
                .status(ExitStatus::Waits),
        ),
        Answer::Interrupted => {
            report::say("\nNothing was applied.\n")?;
            Ok(ExitStatus::Interrupted)
        }
        Answer::Yes | Answer::No => {
            report::say("Nothing was applied.\n")?;
            Ok(ExitStatus::Done)
        }
    }
}

/// A protected stack is destroyed only by who types its name.
fn type_protected_names(
    project: &Project,
    stacks: &BTreeSet<StackName>,
    process: &Process,
) -> Result<(), CommandError> {
    for name in stacks.iter().filter(|name| project.stacks[*name].protected) {
        let refused = |why: &str| {
            CommandError::new(format!("stack `{name}` is protected: {why}"))
                .hint(format!(
                    "leave it out with `!{name}`, or set `protected = false` first"
                ))
                .status(ExitStatus::Refused)
        };
        if !process.stdin_is_terminal {
            return Err(refused(
                "its name must be typed, and nobody is here to type it",
            ));
        }
        report::say(&format!(
            "Stack `{name}` is protected. Type its name to destroy it: "
        ))?;
        if read_line()? != name.as_str() {
            return Err(refused("its name was not typed"));
        }
    }
    Ok(())
}

fn read_line() -> Result<String, CommandError> {
    let mut line = String::new();
    io::stderr()
        .flush()
        .map_err(|err| CommandError::because("could not ask", &err))?;
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|err| CommandError::because("could not read the answer", &err))?;
    Ok(line.trim().to_owned())
}

/// Ends what a crash left open, and says so.
async fn look_after_the_past(control: &Control, look: Look) -> Result<(), CommandError> {
    let failed = |err: &dyn std::error::Error| {
        CommandError::because("could not look after earlier change sets", err)
    };
    for set in recovery::release_abandoned(control)
        .await
        .map_err(|err| failed(&err))?
    {
        let runs = control
            .store
            .run_list(set.id)
            .await
            .map_err(|err| failed(&err))?;
        for run in runs {
            if let Some(text) = ending::unknown(&run) {
                report::say(&errors::render_warning(&text, &[], look))?;
            }
        }
    }
    Ok(())
}

fn prepare_error(err: &PrepareError) -> CommandError {
    let status = if err.is_refusal() {
        ExitStatus::Refused
    } else {
        ExitStatus::Failed
    };
    let shown = CommandError::from_error(err).status(status);
    err.hint().into_iter().fold(shown, CommandError::hint)
}
