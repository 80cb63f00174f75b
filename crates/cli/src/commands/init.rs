//! `terrane init`

use crate::args::Global;
use crate::{CommandError, ExitStatus, Process};

/// Read a repository and propose a project file
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {}

pub(crate) fn init(
    _args: &InitArgs,
    _global: &Global,
    _process: &Process,
) -> Result<ExitStatus, CommandError> {
    Ok(ExitStatus::Done)
}
