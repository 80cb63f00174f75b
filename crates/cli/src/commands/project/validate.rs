//! `terrane validate`

use control::project::open::{OpenProject, ProjectIdSource};
use control::{policy, validation};
use model::base::diagnostic::Finding;
use serde_json::json;

use crate::commands::{check_project_id, open_control, read_project, warn_removed_stacks};
use crate::global::Global;
use crate::view::{errors, findings};
use crate::{CommandError, ExitStatus, Process, report};

/// Check the project file, the graph, and the values passed along it
///
/// All problems are reported at once. No program runs and no service is contacted, unless `--engine`
/// is given.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane validate\n  terrane validate --engine   # also check each module with the engine\n  \
    terrane validate --json | jq '.findings[].message'"
)]
pub(crate) struct ValidateArgs {
    /// Let the engine check every root module too, in a copy of the source
    #[arg(long)]
    engine: bool,
}

pub(crate) async fn validate(
    args: &ValidateArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let mut open = read_project(global, process)?;
    validation::check_stages(&mut open);
    policy::check(&mut open.loaded);
    if args.engine {
        ask_the_engine(&mut open, global, process).await?;
    }
    if let Some(project) = open.loaded.project.clone() {
        open.note(control::project::providers::findings(&open, &project));
        let ignored = control::project::ignored::findings(&open, &project);
        open.note(ignored.map_err(|err| CommandError::from_error(&err))?);
    }
    control::project::secret_references::check(&mut open.loaded, &open.root);
    if !open.loaded.has_errors() {
        let root = open.root.clone();
        policy::check_deeply(&mut open.loaded, &process.program, &root)
            .await
            .map_err(|err| CommandError::from_error(&err))?;
    }
    say_lost_states(&open, global, process).await?;
    let loaded = &open.loaded;
    let mut all = loaded.findings.clone();
    if loaded.project.is_some() {
        all.extend(identity_note(open.identity.from));
    }
    let status = if loaded.has_errors() {
        ExitStatus::Failed
    } else {
        ExitStatus::Done
    };
    if global.json {
        let mut document = findings::findings_json(&all);
        if let Some(project) = &loaded.project {
            document["project"] = json!(project.name);
            document["stacks"] = json!(project.stacks.len());
        }
        report::json(&document)?;
        return Ok(status);
    }
    report::say(&findings::render(&all, &loaded.texts, process.look(global)))?;
    if status == ExitStatus::Done
        && let Some(project) = &loaded.project
    {
        let edges: usize = project.stacks.values().map(|stack| stack.edges.len()).sum();
        report::data(&format!(
            "Project `{}` is valid: {}, {}, {}.\n",
            project.name,
            count(project.stacks.len(), "stack"),
            count(edges, "edge"),
            count(project.layers.len(), "layer"),
        ))?;
    }
    Ok(status)
}

/// Adds the engine's findings. Does nothing if the project file has errors: the engine of each stack is then
/// unknown.
async fn ask_the_engine(
    open: &mut OpenProject,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let Some(project) = open.loaded.project.clone() else {
        return Ok(());
    };
    if open.loaded.has_errors() {
        return Ok(());
    }
    let settings = process.settings(global)?;
    let opinion = validation::by_engine(open, &project, &process.env, &settings.cache_dir)
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    open.loaded.findings.extend(opinion.findings);
    open.loaded.texts.extend(opinion.texts);
    Ok(())
}

/// Warns about states that the project no longer uses, as it is written now.
async fn say_lost_states(
    open: &OpenProject,
    global: &Global,
    process: &Process,
) -> Result<(), CommandError> {
    let Some(project) = &open.loaded.project else {
        return Ok(());
    };
    let settings = process.settings(global)?;
    let look = process.look(global);
    let home = settings.home_of(&open.identity.id);
    if let Err(changed) = check_project_id(&settings, open).await {
        report::say(&errors::render_warning(
            &changed.message,
            &changed.hints,
            look,
        ))?;
    }
    if !home.is_used() {
        return Ok(());
    }
    // Commands that need the home report that it cannot be opened.
    match open_control(home, &settings, process, look).await {
        Ok(control) => warn_removed_stacks(&control, project, look).await,
        Err(_) => Ok(()),
    }
}

/// A note about which home the project has, if its id is not written down.
fn identity_note(from: ProjectIdSource) -> Option<Finding> {
    let what = match from {
        ProjectIdSource::Written => return None,
        ProjectIdSource::GitDirectory => "only worktrees of this clone share one home",
        ProjectIdSource::Path => "its home is tied to this directory",
    };
    Some(
        Finding::note("no-project-id", format!("the project has no `id`: {what}"))
            .hint("before the first apply, add a unique `id = \"…\"` to the project block"),
    )
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
