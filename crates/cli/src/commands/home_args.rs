//! The home that a state command uses: that of the current project, or, outside a project, a named one
//! (`--data`, `TERRANE_HOME`) such as a server's.

use std::path::PathBuf;

use control::Control;
use control::project::open::OpenProject;
use model::project::Project;
use model::state::StateName;

use super::{manual, open_control, open_home, read_project, selection};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process};

/// Refuses to store a state in a home that is lost when the CI job ends.
pub(crate) fn require_durable_home(global: &Global, process: &Process) -> Result<(), CommandError> {
    let settings = process.settings(global)?;
    if !settings.is_ci || settings.named_home.is_some() {
        return Ok(());
    }
    Err(CommandError::new(
        "the state would be on the disk of this CI job, which is lost when the job ends",
    )
    .hint("name a home that outlives the job: `--data DIR` or `TERRANE_HOME`")
    .status(ExitStatus::Refused))
}

/// An open home, and its project if there is one.
pub(crate) struct HomeHandle {
    pub(crate) control: Control,
    pub(crate) project: Option<Project>,
    /// The files that the project was read from.
    pub(crate) open: Option<OpenProject>,
    /// The project's root, else the current directory.
    pub(crate) root: PathBuf,
}

impl HomeHandle {
    pub(crate) async fn open(global: &Global, process: &Process) -> Result<Self, CommandError> {
        let settings = process.settings(global)?;
        let look = process.look(global);
        match read_project(global, process) {
            Ok(open) => {
                let control = open_home(&settings, &open, process, look).await?;
                Ok(Self {
                    control,
                    project: open.loaded.project.clone(),
                    root: open.root.clone(),
                    open: Some(open),
                })
            }
            Err(err) if global.project.is_some() => Err(err),
            Err(err) => {
                let Some(home) = settings.bare_home() else {
                    return Err(err.hint("or name a home: `--data DIR`"));
                };
                let control = open_control(home, &settings, process, look).await?;
                Ok(Self {
                    control,
                    project: None,
                    open: None,
                    root: process.cwd.clone(),
                })
            }
        }
    }

    /// Publishes the break-glass records to Git.
    pub(crate) async fn tell_git(
        &self,
        global: &Global,
        process: &Process,
    ) -> Result<(), CommandError> {
        let project = self.project.as_ref();
        manual::tell_git(&self.control, &self.root, project, global, process).await
    }

    /// Opens the home for one state. Refuses an impossible name before it creates a home or a key.
    pub(crate) async fn open_state(
        global: &Global,
        process: &Process,
        word: &str,
    ) -> Result<(Self, StateName), CommandError> {
        if let Ok(open) = read_project(global, process) {
            let id = &open.identity.id;
            let named = state_named(word, open.loaded.project.as_ref(), id);
            // In a home that is used, the name may be that of a removed stack.
            if !process.settings(global)?.home_of(id).is_used() {
                named?;
            }
        }
        let place = Self::open(global, process).await?;
        let state = place.state(word).await?;
        Ok((place, state))
    }

    /// Finds a state: that of a stack of this project, of a removed stack, or `PROJECT/NAME`. Outside a
    /// project, a bare name is a state without a project.
    pub(crate) async fn state(&self, word: &str) -> Result<StateName, CommandError> {
        let project = self.control.home.project();
        let named = state_named(word, self.project.as_ref(), project);
        let kept = StateName::new(project, word);
        let is_kept = async || {
            let head = self.control.state_head(&kept).await;
            head.is_ok_and(|head| head.is_some())
        };
        match named {
            Err(_) if is_kept().await => Ok(kept),
            Err(err) => {
                let of_none = StateName::new("", word);
                let head = self.control.state_head(&of_none).await;
                let is_there = head.is_ok_and(|head| head.is_some());
                let hint = format!("`/{word}` is the state of no project that has this name");
                Err(if is_there { err.hint(hint) } else { err })
            }
            Ok(named) => Ok(named),
        }
    }
}

fn state_named(word: &str, project: Option<&Project>, id: &str) -> Result<StateName, CommandError> {
    if let Some(project) = project {
        if let Some(stack) = project
            .stacks
            .iter()
            .find(|(name, _)| name.as_str() == word)
        {
            return Ok(StateName::new(id, &stack.1.state));
        }
        if !word.contains('/') {
            let stack = selection::one(word, project)?;
            return Ok(StateName::new(id, &project.stacks[stack].state));
        }
    }
    match word.split_once('/') {
        Some((project, name)) if !name.is_empty() => Ok(StateName::new(project, name)),
        None if !word.is_empty() => Ok(StateName::new("", word)),
        _ => Err(
            CommandError::new(format!("`{word}` is not the name of a state"))
                .hint("write `NAME`, or `PROJECT/NAME`")
                .status(ExitStatus::Usage),
        ),
    }
}
