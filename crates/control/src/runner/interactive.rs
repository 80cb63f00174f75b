//! Runs an engine command that changes nothing on the requester's terminal. It runs in this process, because
//! it may be interactive. Killing it does no harm: it holds no lane and no lock, and its endpoint refuses
//! locks and writes.

use std::sync::atomic::AtomicBool;

use drivers::engine::EngineCall;
use drivers::process::Exit;
use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::base::ids::ChangeSetId;
use model::base::masking::Mask;
use model::project::Backend;
use model::run::exec::Exec;
use model::run::{RunEvent, Stage};
use model::state::StateVersion;
use tokio::sync::Mutex;

use super::deadline::Deadline;
use super::engine::EngineSession;
use super::hooks::Hooks;
use super::interrupts::Interrupts;
use super::plan::{EngineFiles, initialise};
use super::workspace::{ScratchDir, Workspace};
use super::{Failure, ServeFn, StageJob, failed, inputs, new_token};
use crate::Control;
use crate::changeset::exec_args;
use crate::run::lock::RunLock;
use crate::secrets::caller_env::CallerEnv;
use crate::state::run_access::StateAccess;

#[derive(Debug, thiserror::Error)]
pub enum InteractiveError {
    #[error("cannot read or update change set `{set}`")]
    Store {
        set: ChangeSetId,
        source: store::ChangeSetError,
    },
    #[error("cannot lock the run")]
    Lock(#[source] std::io::Error),
    #[error("cannot create a token for the run's engines")]
    Token(#[source] std::io::Error),
    #[error("another process already carries it out")]
    Taken,
    #[error("{message}")]
    Failed {
        message: String,
        hint: Option<String>,
        refused: bool,
    },
}

impl Explain for InteractiveError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Failed { refused: true, .. } => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Failed { hint, .. } => hint.clone().map(advice).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// Carries out the only run of a change set in this process. Returns how the engine exited.
pub async fn attend(
    control: &Control,
    set: ChangeSetId,
    asker: &CallerEnv,
    serve: ServeFn,
) -> Result<Exit, InteractiveError> {
    let store = |source| InteractiveError::Store { set, source };
    let runs = control.store.run_list(set).await.map_err(store)?;
    let run = runs.first().ok_or(InteractiveError::Taken)?.id;
    let lock = RunLock::try_take(&control.home, run).map_err(InteractiveError::Lock)?;
    let lock = lock.ok_or(InteractiveError::Taken)?;
    let interrupts = Interrupts::listen().map_err(InteractiveError::Lock)?;
    let interrupts = Mutex::new(interrupts);
    lock.sign(std::process::id())
        .map_err(InteractiveError::Lock)?;
    let mut claim = |claimed| claimed == run;
    let begun = control
        .store
        .change_set_advance(set, None, None, control.now(), &mut claim);
    if begun.await.map_err(store)?.starts.is_empty() {
        return Err(InteractiveError::Taken);
    }
    let brief = control.store.run_summary(run).await.map_err(store)?;
    let (whole, spec) = (brief.set, brief.spec);
    let job = StageJob {
        control,
        set: &whole,
        run,
        spec: &spec,
        asker,
        serve,
        token: new_token().map_err(InteractiveError::Token)?,
        lock,
        state: Mutex::new(brief.state),
        interrupts: &interrupts,
        carried: Mutex::new(None),
        place: Mutex::new(None),
        limit_of_apply: Mutex::new(None),
        fence: Mutex::new(None),
        holds_lanes: false,
        auto_approve: false,
        goes_on: false,
        has_other_values: AtomicBool::new(false),
        review: true,
    };
    let mut mask = Mask::default();
    let exec = spec.exec.as_ref().ok_or(InteractiveError::Taken)?;
    let ended = try_attend(&job, exec, &mut mask).await;
    let (event, answer) = match ended {
        Ok(exit) if exit.success() => {
            // The command only read. It did not check whether the stack matches its source.
            let read = RunEvent::NothingToChange {
                consumed: None,
                came_after: None,
                serial: None,
                lineage: None,
                then: None,
            };
            (read, Ok(exit))
        }
        Ok(exit) => {
            let failure = Failure::new(format!("the engine ended with {exit}"));
            (failed(failure, Stage::Planning, None, &mask), Ok(exit))
        }
        Err(failure) => {
            let event = failed(failure, Stage::Planning, None, &mask);
            let answer = words(&event);
            (event, Err(answer))
        }
    };
    let happened = Some((run, event));
    let mut none = |_| false;
    let ended = control
        .store
        .change_set_advance(set, None, happened, control.now(), &mut none);
    let turn = ended.await.map_err(store)?;
    crate::run::cleanup::remove_leftovers(control, &turn.set, &turn.runs).await;
    answer
}

/// The failure as shown to the requester, with the engine's own messages.
fn words(event: &RunEvent) -> InteractiveError {
    let RunEvent::Failed { problem } = event else {
        return InteractiveError::Taken;
    };
    let said = problem.diagnostics.iter().map(|said| match &said.detail {
        detail if detail.is_empty() => said.summary.clone(),
        detail => format!("{}: {detail}", said.summary),
    });
    let lines: Vec<String> = std::iter::once(problem.message.clone())
        .chain(said)
        .collect();
    InteractiveError::Failed {
        message: lines.join("\n"),
        hint: problem.hint.clone(),
        refused: problem.refused,
    }
}

async fn try_attend(job: &StageJob<'_>, exec: &Exec, mask: &mut Mask) -> Result<Exit, Failure> {
    let exec = &exec_args::opened(job.control, exec)
        .await
        .map_err(|err| Failure::because("nothing was done", &err))?;
    let state = job.control.state_name(&job.spec.stack.state);
    let store = job.control.store.clone();
    let access = StateAccess::for_plan(store, state, job.run).await;
    let access = access.map_err(|err| Failure::because("could not read the state", &err))?;
    let is_ours = job.spec.target.backend == Backend::Terrane;
    if is_ours && access.pinned().is_some_and(StateVersion::is_copy) {
        let stack = &job.spec.stack.name;
        let failure =
            Failure::new("its state is in a backend of the engine; the state here is a copy");
        let hint = format!(
            "`terrane state import {stack} --from …` imports it, `--from copy` imports the last copy of it"
        );
        return Err(failure.hint(hint).refused());
    }
    let limit = Deadline::from_now("plan", job.spec.stack.timeout_plan);
    let mut inputs = inputs::gather(job, limit).await?;
    *mask = inputs.mask.clone();
    let mut workspace = Workspace::prepare(job).await?;
    workspace.mount(&inputs.files)?;
    let workspace = workspace;
    let scratch = ScratchDir::open(job)?;
    scratch.hand_over(job, &inputs)?;
    let hooks = Hooks::of(job, &workspace, &inputs, mask, None, limit);
    // An interactive program needs the type of the terminal.
    if let Ok(kind) = std::env::var("TERM") {
        inputs.environment.set("TERM", kind);
    }
    let caller = EngineSession::new(job, &workspace, &inputs, access).await?;
    let var_files = workspace.var_files(job, &scratch);
    let files = EngineFiles {
        workspace: &workspace,
        inputs: &inputs,
        var_files: &var_files,
    };
    initialise(job, &caller, files, limit, &hooks).await?;
    let call = EngineCall::Exec {
        exec,
        var_files: &var_files,
    };
    // `console` prints directly to the terminal, and `state pull` returns the whole state: neither is masked.
    let is_whole = ["console", "state pull"].contains(&exec.command.join(" ").as_str());
    let shown = (!is_whole && !inputs.hidden.is_empty()).then_some(&*mask);
    let ended = caller.attend(&call, shown).await;
    scratch.remove();
    ended
}
