//! The command line: every command, one variant each. A command's doc comment is its help.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    access::hold::HoldArgs, access::key::KeyArgs, access::lock::LockArgs, access::token::TokenArgs,
    apply::ApplyArgs, completions::CompletionsArgs, destroy::DestroyArgs, exec::ExecArgs,
    output::OutputArgs, plan::PlanArgs, policy::PolicyArgs, project::context::ContextArgs,
    project::engine::EngineArgs, project::fmt::FmtArgs, project::graph::GraphArgs,
    project::init::InitArgs, project::render::RenderArgs, project::validate::ValidateArgs,
    run::RunArgs, runner::RunnerArgs, secret::SecretArgs, server::ServerArgs,
    stage::facts::FactsArgs, stage::verify::VerifyArgs, state::StateArgs,
};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// A control plane for OpenTofu and Terraform: ordered stacks, kept state, sealed plans
#[derive(Debug, Parser)]
#[command(
    name = "terrane",
    version,
    after_help = "Examples:\n  terrane plan                  # what would change, in all stacks\n  \
                  terrane apply network         # one stack\n  \
                  terrane run list              # active and waiting runs, and why they wait\n\n\
                  Start with `terrane init` in a repository, or see examples/quickstart.\n\
                  Exit codes: 0 done, 1 failed, 2 changes present (`plan --detailed-exitcode`, `state import`) or \
                  files differ (`fmt --check`, `render --check`, `facts diff`), 3 waits for a person, 4 refused by a \
                  rule, 5 a gate did not pass, 64 wrong usage, 130 interrupted."
)]
pub struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Validate(ValidateArgs),
    Graph(GraphArgs),
    Plan(PlanArgs),
    Apply(ApplyArgs),
    Destroy(DestroyArgs),
    Output(OutputArgs),
    Verify(VerifyArgs),
    Exec(ExecArgs),
    State(StateArgs),
    Server(ServerArgs),
    Token(TokenArgs),
    Lock(LockArgs),
    Hold(HoldArgs),
    Run(RunArgs),
    Policy(PolicyArgs),
    Facts(FactsArgs),
    Context(ContextArgs),
    Key(KeyArgs),
    Secret(SecretArgs),
    Render(RenderArgs),
    Fmt(FmtArgs),
    Engine(EngineArgs),
    Completions(CompletionsArgs),
    Runner(RunnerArgs),
}

impl Command {
    /// Whether `--json` prints a stream of events whose last one is the outcome.
    pub(crate) fn tells_events(&self) -> bool {
        match self {
            Self::Plan(_) | Self::Apply(_) | Self::Destroy(_) | Self::Exec(_) => true,
            Self::Run(args) => args.tells_events(),
            _ => false,
        }
    }

    /// Names of the commands that always print events; see [`Self::tells_events`].
    const TELLING: [&str; 4] = ["plan", "apply", "destroy", "exec"];
}

impl Args {
    /// Parses the arguments. For help or an error, prints it and exits.
    pub fn parse_from_process(_process: &Process) -> Self {
        if let Some(alone) = parse_runner() {
            return alone;
        }
        Self::try_parse().unwrap_or_else(|err| {
            let status = if err.use_stderr() {
                ExitStatus::Usage
            } else {
                ExitStatus::Done
            };
            // If the terminal is gone, the error cannot be shown to anyone.
            drop(err.print());
            if let Some(hint) = std::env::args().find_map(|word| two_dashes(&word)) {
                drop(report::say(&format!("\n{hint}\n")));
            }
            if status == ExitStatus::Usage && wants_events(std::env::args()) {
                let message = err.render().to_string();
                let message = message.lines().next().unwrap_or_default();
                let message = message.strip_prefix("error: ").unwrap_or(message);
                let said = CommandError::new(message).status(status);
                drop(said.events().iter().try_for_each(report::json_line));
            }
            std::process::exit(i32::from(status.code()))
        })
    }
}

/// Whether an invalid command line seems to request a stream of events. A reader of such a stream waits for
/// the last event.
fn wants_events(words: impl Iterator<Item = String>) -> bool {
    let ours: Vec<String> = words.skip(1).take_while(|word| word != "--").collect();
    let command = ours.iter().find(|word| !word.starts_with('-'));
    let tells = command.is_some_and(|word| Command::TELLING.contains(&word.as_str()));
    tells && ours.iter().any(|word| word == "--json")
}

/// Parses `runner` without building the tree of all commands: a runner is started for every run.
fn parse_runner() -> Option<Args> {
    #[derive(Parser)]
    struct RunnerCli {
        #[command(flatten)]
        args: RunnerArgs,
    }
    let words = || std::env::args_os().skip(1);
    if words().next()? != "runner" {
        return None;
    }
    // The full command tree reports errors.
    let RunnerCli { args } = RunnerCli::try_parse_from(words()).ok()?;
    Some(Args {
        global: Global::default(),
        command: Command::Runner(args),
    })
}

/// A hint for a long option with one dash, as engines accept it.
fn two_dashes(word: &str) -> Option<String> {
    let name = word
        .strip_prefix('-')
        .filter(|rest| !rest.starts_with('-'))?;
    let name = name.split('=').next()?;
    let command = Args::command();
    let mut all = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    let known = name.len() > 1 && all.any(|arg| arg.get_long() == Some(name));
    known.then(|| format!("hint: long options begin with two dashes: `--{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_example(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string);
        if !help.is_some_and(|help| help.contains("Example")) {
            found.push(path.to_owned());
        }
        for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            without_example(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        let mut found = Vec::new();
        without_example(&Args::command(), "terrane", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
