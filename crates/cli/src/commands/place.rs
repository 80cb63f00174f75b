//! Where a command about states works: the home of the project here, or, outside a project, a home that
//! is named (`--data`, `TERRANE_HOME`), as a server has it.

use control::Control;
use model::project::Project;
use model::state::StateName;

use super::{open_control, open_home, read_project, selection};
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

/// A home that was opened, and the project it was opened for, if there is one.
pub(crate) struct Place {
    pub(crate) control: Control,
    pub(crate) project: Option<Project>,
}

impl Place {
    pub(crate) async fn open(global: &Global, process: &Process) -> Result<Self, CommandError> {
        let settings = process.settings(global)?;
        let look = process.look(global);
        match read_project(global, process) {
            Ok(open) => {
                let control = open_home(&settings, &open, process, look).await?;
                let project = open.loaded.project;
                Ok(Self { control, project })
            }
            Err(err) if global.project.is_some() => Err(err),
            Err(err) => {
                let Some(home) = settings.bare_home() else {
                    return Err(err.hint("or name a home: `--data DIR`"));
                };
                let control = open_control(home, &settings, process, look).await?;
                let project = None;
                Ok(Self { control, project })
            }
        }
    }

    /// The state that is meant: of a stack of the project here, or by `PROJECT/NAME`; outside a project a
    /// name alone is a state of no project.
    pub(crate) fn state(&self, word: &str) -> Result<StateName, CommandError> {
        if let Some(project) = &self.project {
            if let Some(stack) = project
                .stacks
                .iter()
                .find(|(name, _)| name.as_str() == word)
            {
                return Ok(self.control.state_name(&stack.1.state));
            }
            if !word.contains('/') {
                let stack = selection::one(word, project)?;
                return Ok(self.control.state_name(&project.stacks[stack].state));
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
}
