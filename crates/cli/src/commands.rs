//! One command per file, and code that several commands share.

pub(crate) mod access;
pub(crate) mod apply;
mod change;
pub(crate) mod completions;
pub(crate) mod destroy;
pub(crate) mod exceptions;
pub(crate) mod exec;
pub(crate) mod home_args;
mod manual;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod project;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod secret;
mod selection;
pub(crate) mod server;
pub(crate) mod stage;
pub(crate) mod state;

use control::home::{Home, HomeSettings};
use control::project::open::{self, OpenProject, ProjectIdSource, checkouts};
use control::{Control, ProcessKind};
use model::base::diagnostic::{Finding, Severity};
use model::project::Project;

use crate::global::Global;
use crate::view::{ViewOptions, errors, findings};
use crate::{CommandError, ExitStatus, Process, report};

/// Finds and reads the project, even if it has errors.
pub(crate) fn read_project(
    global: &Global,
    process: &Process,
) -> Result<OpenProject, CommandError> {
    let start = global
        .project
        .as_ref()
        .map_or_else(|| process.cwd.clone(), |dir| process.cwd.join(dir));
    let open = open::find_root(&start).and_then(|root| open::open(&root, &process.env));
    open.map_err(|err| CommandError::from_error(&err))
}

/// Reads the project and fails if it has errors. Prints warnings; only `validate` prints notes.
pub(crate) fn valid_project(
    global: &Global,
    process: &Process,
) -> Result<(OpenProject, Project), CommandError> {
    valid_project_except(&[], global, process)
}

/// Like [`valid_project`], but ignores findings with one of these codes.
pub(crate) fn valid_project_except(
    codes: &[&str],
    global: &Global,
    process: &Process,
) -> Result<(OpenProject, Project), CommandError> {
    let mut open = read_project(global, process)?;
    control::validation::check_stages(&mut open);
    control::policy::check(&mut open.loaded);
    open.loaded
        .findings
        .retain(|finding| !codes.contains(&finding.code));
    let look = process.look(global);
    let worth: Vec<Finding> = open
        .loaded
        .findings
        .iter()
        .filter(|finding| match finding.severity {
            Severity::Error | Severity::Warning => true,
            Severity::Note => false,
        })
        .cloned()
        .collect();
    if open.loaded.has_errors() {
        if global.json {
            let document = findings::findings_json(&worth);
            return Err(CommandError::documented(ExitStatus::Failed, document));
        }
        report::say(&findings::render(&worth, &open.loaded.texts, look))?;
        return Err(CommandError::said(ExitStatus::Failed));
    }
    let Some(project) = open.loaded.project.clone() else {
        return Err(CommandError::new("the project is empty"));
    };
    Ok((open, project))
}

/// Refuses to create a master key in a CI job without a named home. The key would be lost with the job, and
/// all states that it encrypts with it.
pub(crate) fn refuse_new_key(settings: &HomeSettings) -> Result<(), CommandError> {
    if settings.is_ci && settings.named_home.is_none() && settings.key.is_to_be_made() {
        return Err(CommandError::new(
            "cannot create a master key: no home is named, and the key would be lost when this CI job ends",
        )
        .hint("name a home that outlives the job: `--data DIR` or `TERRANE_HOME`, and the key of its states: `TERRANE_KEY_FILE`")
        .status(ExitStatus::Refused));
    }
    Ok(())
}

/// Warns about states that hold resources but belong to no stack any more: no plan covers them.
pub(crate) async fn warn_removed_stacks(
    control: &Control,
    project: &Project,
    look: ViewOptions,
) -> Result<(), CommandError> {
    let found = control::state::queries::abandoned(control, project)
        .await
        .map_err(|err| CommandError::because("cannot check for abandoned states", &err))?;
    for state in found {
        let said = format!("state `{state}` contains resources, but no stack uses it any more");
        let hints = [
            format!("if its stack was renamed, set `state = \"{state}\"` in the stack's block"),
            format!(
                "if its stack was removed, `terrane destroy {state}` names the last commit with it, for `--from`"
            ),
            "`terrane state list` shows all states".to_owned(),
        ];
        report::say(&errors::render_warning(&said, &hints, look))?;
    }
    Ok(())
}

/// Refuses a project file whose errors may hide the project id. Another home would look as if nothing had
/// ever been applied.
fn is_known(settings: &HomeSettings, open: &OpenProject) -> Result<(), CommandError> {
    let is_told = open.identity.from == ProjectIdSource::Written || !open.loaded.has_errors();
    if is_told || settings.home_of(&open.identity.id).is_used() {
        return Ok(());
    }
    Err(
        CommandError::new("cannot determine this project's home: `terrane.hcl` has errors")
            .hint("`terrane validate` shows them"),
    )
}

/// Refuses a changed project id, under which all resources would be created again.
pub(crate) async fn check_project_id(
    settings: &HomeSettings,
    open: &OpenProject,
) -> Result<(), CommandError> {
    let checked = checkouts::check(settings, open).await;
    checked.map_err(|err| CommandError::from_error(&err))
}

/// Records at the user's request that this checkout is a new project.
pub(crate) fn declare_new_project(
    settings: &HomeSettings,
    open: &OpenProject,
) -> Result<(), CommandError> {
    checkouts::record(settings, open)
        .map_err(|err| CommandError::because("cannot record the new project", &err))
}

/// Opens the project's home.
pub(crate) async fn open_home(
    settings: &HomeSettings,
    open: &OpenProject,
    process: &Process,
    look: ViewOptions,
) -> Result<Control, CommandError> {
    is_known(settings, open)?;
    check_project_id(settings, open).await?;
    let control =
        open_control(settings.home_of(&open.identity.id), settings, process, look).await?;
    // Errors are ignored: a read-only home keeps its last record.
    drop(checkouts::record(settings, open));
    if let Some(project) = &open.loaded.project
        // Errors are ignored: commands that write to the home report them.
        && let Ok(Some(other)) = control.home.claim_for(&project.name)
    {
        let id = &open.identity.id;
        let said =
            format!("the id `{id}` is also that of project `{other}`: they share states and lanes");
        let hints = [
            format!(
                "give project `{}` an id of its own before its first apply",
                project.name
            ),
            format!(
                "if it was renamed, remove `{}`",
                control.home.project_name().display()
            ),
        ];
        report::say(&errors::render_warning(&said, &hints, look))?;
    }
    Ok(control)
}

/// Opens a home, and prints a notice if a master key was created.
pub(crate) async fn open_control(
    home: Home,
    settings: &HomeSettings,
    process: &Process,
    look: ViewOptions,
) -> Result<Control, CommandError> {
    open_control_for(ProcessKind::Client, home, settings, process, look).await
}

pub(crate) async fn open_control_for(
    kind: ProcessKind,
    home: Home,
    settings: &HomeSettings,
    process: &Process,
    look: ViewOptions,
) -> Result<Control, CommandError> {
    let (program, cache) = (process.program.clone(), settings.cache_dir.clone());
    let opened = Control::open(home, kind, program, cache).await;
    let (control, new_key) = opened.map_err(|err| CommandError::from_error(&err))?;
    if let Some(path) = new_key {
        report::say(&errors::render_warning(
            &format!("made a new master key: `{}`", path.display()),
            &["back it up: without it no state can be read any more".to_owned()],
            look,
        ))?;
    }
    Ok(control)
}
