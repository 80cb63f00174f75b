//! `terrane completions`

use clap::CommandFactory as _;

use crate::{Args, CommandError, ExitStatus, Process, report};

/// Print completions for a shell
///
/// Put the output where the shell looks for it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane completions bash > ~/.local/share/bash-completion/completions/terrane\n  \
    terrane completions zsh > ~/.zfunc/_terrane\n  terrane completions fish > ~/.config/fish/completions/terrane.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn completions(
    args: &CompletionsArgs,
    _process: &Process,
) -> Result<ExitStatus, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "terrane", &mut script);
    report::data(&String::from_utf8_lossy(&script))?;
    Ok(ExitStatus::Done)
}
