//! Checks before a plan that rendered files are up to date. The check only compares digests: it needs no key and
//! renders nothing.

use std::path::Path;

use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::base::ids::StackName;
use model::project::Project;
use model::render::is_secret_name;

use super::inputs::Inputs;
use super::{RenderError, open, read_manifest};

/// Why a stack cannot be planned yet.
#[derive(Debug, thiserror::Error)]
pub enum StaleRender {
    #[error("stack `{stack}` is made by `render \"{render}\"`, and {why}")]
    Stale {
        stack: StackName,
        render: String,
        why: String,
        edited: Edited,
    },
    #[error("cannot determine whether the files of stack `{stack}` are rendered")]
    Unknown {
        stack: StackName,
        render: String,
        source: Box<RenderError>,
    },
}

/// Whether a rendered file was edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    No,
    Plain,
    /// An encrypted file.
    Secret,
}

impl Explain for StaleRender {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let (render, edited) = match self {
            Self::Stale { render, edited, .. } => (render, *edited),
            Self::Unknown { source, render, .. } => {
                return match &**source {
                    RenderError::Wrong { .. } => vec![command(
                        format!("render {render} --check"),
                        "shows what is wrong",
                    )],
                    _ => Vec::new(),
                };
            }
        };
        let diff = format!("render {render} --diff");
        let overwrite = format!("render {render} --overwrite");
        match edited {
            Edited::Secret => vec![
                command(
                    diff,
                    "names the values that differ, or says why it cannot decrypt them",
                ),
                command(
                    overwrite,
                    "replaces them, once they are in the file that they come from",
                ),
            ],
            Edited::Plain => vec![
                command(diff, "shows the edit"),
                command(overwrite, "reverts it"),
            ],
            Edited::No => vec![
                command(format!("render {render}"), "renders it"),
                command(diff, "shows what changes"),
            ],
        }
    }
}

/// Refuses a stack whose rendered files do not match its templates and data.
pub fn check_fresh(root: &Path, project: &Project, name: &StackName) -> Result<(), StaleRender> {
    let Some(render) = project.stacks[name]
        .render
        .as_ref()
        .and_then(|render| project.renders.get(render))
    else {
        return Ok(());
    };
    let look = || -> Result<Option<(String, Edited)>, RenderError> {
        let disk = open(root)?;
        let Some(manifest) = read_manifest(&disk, render)? else {
            return Ok(Some(("it was never rendered".to_owned(), Edited::No)));
        };
        if !manifest.writing.is_empty() {
            return Ok(Some((
                "its last rendering did not end".to_owned(),
                Edited::No,
            )));
        }
        if Inputs::read(&disk, project, render)?.digest() != manifest.inputs {
            let why = "its templates or data changed since it was rendered";
            return Ok(Some((why.to_owned(), Edited::No)));
        }
        for (path, digest) in &manifest.files {
            match disk.look(path)? {
                None => {
                    return Ok(Some((
                        format!("`{path}` is gone since it was rendered"),
                        Edited::No,
                    )));
                }
                Some((facts, _)) if facts.digest != *digest => {
                    let why = format!("`{path}` was edited since it was rendered");
                    let edited = if is_secret_name(path) {
                        Edited::Secret
                    } else {
                        Edited::Plain
                    };
                    return Ok(Some((why, edited)));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    };
    match look() {
        Ok(None) => Ok(()),
        Ok(Some((why, edited))) => Err(StaleRender::Stale {
            stack: name.clone(),
            render: render.name.clone(),
            why,
            edited,
        }),
        Err(source) => Err(StaleRender::Unknown {
            stack: name.clone(),
            render: render.name.clone(),
            source: Box::new(source),
        }),
    }
}
