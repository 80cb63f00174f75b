//! `terrane runner`: carries out one stage of one run. Only terrane itself starts it.

use std::path::PathBuf;

use control::home::master_keys::KeySource;
use control::home::{Home, HomeLocation};
use control::runner::{Endpoint, note_usage};
use control::schedule::runner_process;
use control::schedule::scheduler::WAIT;
use control::secrets::caller_env::CallerEnv;
use control::state::run_access::StateAccess;
use control::{Control, ProcessKind};
use model::base::ids::RunId;
use model::base::secret::Secret;
use model::run::Stage;
use server::http::RunToken;
use server::state::RunEndpoint;
use tokio::net::TcpListener;

use crate::{CommandError, ExitStatus};

/// Carry out one stage of a run
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct RunnerArgs {
    #[arg(long)]
    run: String,
    #[arg(long)]
    stage: String,
    /// Without one, where the store is comes with the asker's values.
    #[arg(long)]
    store: Option<PathBuf>,
    #[arg(long)]
    work: PathBuf,
    /// Without one, the master key comes with the asker's values.
    #[arg(long)]
    key: Option<PathBuf>,
    #[arg(long)]
    id: String,
    #[arg(long)]
    cache: PathBuf,
}

/// Called first: a Ctrl-C in the requester's terminal must not reach the runner.
pub(crate) fn leave_terminal() -> Result<(), CommandError> {
    runner_process::leave_terminal().map_err(|err| CommandError::from_error(&err))
}

pub(crate) async fn runner(args: RunnerArgs) -> Result<ExitStatus, CommandError> {
    let run: RunId = args
        .run
        .parse()
        .map_err(|err| CommandError::from_error(&err))?;
    let stage = match args.stage.as_str() {
        "apply" => Stage::Applying,
        "publish" => Stage::Publishing,
        "bootstrap" => Stage::Bootstrapping,
        "verify" => Stage::Verifying,
        _ => Stage::Planning,
    };
    let asker = CallerEnv::receive(std::io::stdin())
        .map_err(|err| CommandError::because("could not read the asker's values", &err))?;
    let key = args.key.map(KeySource::File).or_else(|| asker.key());
    let key = key.ok_or_else(|| CommandError::new("no master key was handed over"))?;
    let store = args.store.map(HomeLocation::Directory);
    let store = store.or_else(|| asker.store());
    let store = store.ok_or_else(|| CommandError::new("no home was handed over"))?;
    let home = Home::at(store, args.work, key, args.id);
    let program = std::env::current_exe()
        .map_err(|err| CommandError::because("could not find this program", &err))?;
    let opened = Control::open(home, ProcessKind::Client, program, args.cache).await;
    let (control, _) = opened.map_err(|err| CommandError::from_error(&err))?;
    let done = if args.stage == WAIT {
        runner_process::wait(&control, run, &asker).await
    } else {
        runner_process::run(&control, run, stage, &asker, endpoint).await
    };
    note_usage("runner");
    done.map_err(|err| CommandError::from_error(&err))?;
    Ok(ExitStatus::Done)
}

/// The state endpoint of one run, which `control` does not depend on.
pub(super) fn endpoint(
    access: StateAccess,
    listener: TcpListener,
    token: Secret,
) -> std::io::Result<Endpoint> {
    let endpoint = RunEndpoint::new(access, RunToken::new(token));
    let environment = endpoint.environment(listener.local_addr()?);
    let serving = async move {
        // It ends with the stage, when it is dropped. The engine reports requests without an answer.
        endpoint.serve(listener, std::future::pending()).await;
    };
    Ok(Endpoint {
        environment,
        serving: Box::pin(serving),
    })
}
