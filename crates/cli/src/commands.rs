//! One command per file; what several share is here.

pub(crate) mod apply;
mod by_hand;
mod change;
pub(crate) mod completions;
pub(crate) mod destroy;
pub(crate) mod engine;
pub(crate) mod fmt;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod lock;
pub(crate) mod output;
mod place;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod runner;
mod selection;
pub(crate) mod server;
pub(crate) mod state;
pub(crate) mod token;
pub(crate) mod validate;

use control::Control;
use control::home::{Home, Opened, Settings, Use};
use control::projects::{self, OpenProject, OpenProjectError};
use model::diagnostic::{Finding, Severity};
use model::project::Project;

use crate::args::Global;
use crate::view::{Look, errors, findings};
use crate::{CommandError, ExitStatus, Process, report};

/// Finds and reads the project, whatever is wrong with it.
pub(crate) fn read_project(
    global: &Global,
    process: &Process,
) -> Result<OpenProject, CommandError> {
    let start = global
        .project
        .as_ref()
        .map_or_else(|| process.cwd.clone(), |dir| process.cwd.join(dir));
    let open = projects::find_root(&start).and_then(|root| projects::open(&root, &process.env));
    open.map_err(|err| {
        let shown = CommandError::from_error(&err);
        match err {
            OpenProjectError::NotFound { .. } => shown
                .hint("`terrane init` reads a repository and proposes one")
                .hint("or name the project's directory: `--project DIR`"),
            OpenProjectError::Path { .. } | OpenProjectError::Git(_) => shown,
        }
    })
}

/// Reads the project and goes on only if it is sound. Warnings are shown, notes are left to `validate`.
pub(crate) fn sound_project(
    global: &Global,
    process: &Process,
) -> Result<(OpenProject, Project), CommandError> {
    let open = read_project(global, process)?;
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
            report::json(&findings::findings_json(&worth))?;
        } else {
            report::say(&findings::render(&worth, &open.loaded.texts, look))?;
        }
        return Err(CommandError::said(ExitStatus::Failed));
    }
    let Some(project) = open.loaded.project.clone() else {
        return Err(CommandError::new("the project is empty"));
    };
    Ok((open, project))
}

/// Opens the project's home.
pub(crate) async fn open_home(
    settings: &Settings,
    open: &OpenProject,
    process: &Process,
    look: Look,
) -> Result<Control, CommandError> {
    open_control(settings.home_of(&open.identity.id), settings, process, look).await
}

/// Opens a home, and speaks up if a master key was made.
pub(crate) async fn open_control(
    home: Home,
    settings: &Settings,
    process: &Process,
    look: Look,
) -> Result<Control, CommandError> {
    open_control_for(Use::Brief, home, settings, process, look).await
}

pub(crate) async fn open_control_for(
    how: Use,
    home: Home,
    settings: &Settings,
    process: &Process,
    look: Look,
) -> Result<Control, CommandError> {
    let Opened {
        store,
        home,
        new_key,
    } = home
        .open_for(how)
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    if let Some(path) = new_key {
        report::say(&errors::render_warning(
            &format!("made a new master key: `{}`", path.display()),
            &["back it up: without it no state can be read any more".to_owned()],
            look,
        ))?;
    }
    Ok(Control {
        store,
        home,
        program: process.program.clone(),
        cache: settings.cache_dir.clone(),
    })
}
