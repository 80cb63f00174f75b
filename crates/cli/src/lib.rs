//! The command line of terrane: arguments → request → view.
//!
//! Not here: the operations (`control`) and the domain (`model`).

pub mod args;
mod commands;
mod error;
mod exit;
mod global;
mod process;
mod report;
pub mod view;
mod watch;

pub use args::Args;
pub use error::CommandError;
pub use exit::ExitStatus;
pub use process::Process;

use args::Command;

/// Carries out one command line.
pub fn run(args: Args, process: &Process) -> Result<ExitStatus, CommandError> {
    let global = args.global.clone();
    let is_stream = global.json && args.command.tells_events();
    let ended = carry_out(args, process).map_err(|err| err.at_home(&global));
    if let Err(err) = &ended {
        if is_stream {
            err.events().iter().try_for_each(report::json_line)?;
        } else if let Some(document) = &err.document {
            report::json(document)?;
        }
    }
    ended
}

fn carry_out(args: Args, process: &Process) -> Result<ExitStatus, CommandError> {
    let global = &args.global;
    control::home::hardening::protect_memory();
    match args.command {
        Command::Completions(args) => commands::completions::completions(&args, process),
        Command::Graph(args) => commands::project::graph::graph(&args, global, process),
        Command::Context(args) => commands::project::context::context(&args, global, process),
        Command::Validate(args) => block_on(commands::project::validate::validate(
            &args, global, process,
        ))?,
        Command::Init(args) => commands::project::init::init(&args, global, process),
        Command::Engine(args) => {
            block_on(commands::project::engine::engine(args, global, process))?
        }
        Command::Fmt(args) => block_on(commands::project::fmt::fmt(&args, global, process))?,
        Command::Plan(args) => block_on(commands::plan::plan(args, global, process))?,
        Command::Apply(args) => block_on(commands::apply::apply(args, global, process))?,
        Command::Destroy(args) => block_on(commands::destroy::destroy(args, global, process))?,
        Command::Output(args) => block_on(commands::output::output(args, global, process))?,
        Command::Verify(args) => block_on(commands::stage::verify::verify(args, global, process))?,
        Command::Exec(args) => block_on(commands::exec::exec(args, global, process))?,
        Command::State(args) => block_on(commands::state::state(args, global, process))?,
        Command::Server(args) => block_on_all(commands::server::server(args, global, process))?,
        Command::Token(args) => block_on(commands::access::token::token(args, global, process))?,
        Command::Lock(args) => block_on(commands::access::lock::lock(args, global, process))?,
        Command::Policy(args) => block_on(commands::policy::policy(args, global, process))?,
        Command::Facts(args) => block_on(commands::stage::facts::facts(args, global, process))?,
        Command::Hold(args) => block_on(commands::access::hold::hold(args, global, process))?,
        Command::Run(args) => block_on(commands::run::run(args, global, process))?,
        Command::Key(args) => block_on(commands::access::key::key(args, global, process))?,
        Command::Render(args) => {
            block_on(commands::project::render::render(args, global, process))?
        }
        Command::Secret(args) => block_on(commands::secret::secret(args, global, process))?,
        Command::Runner(args) => {
            commands::runner::leave_terminal()?;
            block_on(commands::runner::runner(args))?
        }
    }
}

/// Uses one thread: the work is done in other processes.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    run_on(&mut tokio::runtime::Builder::new_current_thread(), work)
}

/// Uses all processors: a server does its work itself.
fn block_on_all<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    run_on(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

fn run_on<T>(
    builder: &mut tokio::runtime::Builder,
    work: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|err| CommandError::because("could not start", &err))?;
    let done = runtime.block_on(work);
    // A thread that still waits for a lock that is no longer needed must not keep the process alive.
    runtime.shutdown_background();
    Ok(done)
}
