//! Programs of the project that run before and after a stage, in the environment of the stack's engine.
//!
//! If a hook before a stage fails, the stage does not begin. Hooks after a stage run however it ended, and
//! get its outcome. A hook holds no lock. At its time limit or at Ctrl-C it is interrupted, then killed. It
//! never outlives its runner.
//!
//! Not here: which hooks there are (`model::project::context`), their values (`inputs`).

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::process::{
    ChildProcess, ChildSpec, Environment, Exit, ProcessGroupGuard, find_program, kill_group,
};
use model::base::duration;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::project::context::{HookStage, HookTiming};
use model::run::EngineDiagnostic;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::inputs::{Inputs, ReadyHook};
use super::interrupts::Interrupts;
use super::workspace::Workspace;
use super::{Failure, StageJob};
use log::HookLog;

mod log;
mod stage;

pub(super) use stage::{after_apply, around_part};

/// How long a hook may take to exit after an interrupt.
const GRACE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(100);
/// How many lines of a hook's output are shown with its failure.
const SHOWN_LINES: usize = 10;

/// The hooks of a run's stack, and what they run with.
pub(super) struct Hooks<'a> {
    job: &'a StageJob<'a>,
    ready: Vec<ReadyHook>,
    environment: Environment,
    mask: Mask,
    tree: PathBuf,
    dir: PathBuf,
    plan: Option<PathBuf>,
    /// The limit of the stage, including its hooks.
    limit: Option<Deadline>,
}

/// How a stage ended, as passed to `after` hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageResult {
    Succeeded,
    Failed,
    Interrupted,
}

impl StageResult {
    fn of(failure: &Failure) -> Self {
        if failure.interrupted {
            Self::Interrupted
        } else {
            Self::Failed
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

impl<'a> Hooks<'a> {
    pub(super) fn of(
        job: &'a StageJob<'a>,
        workspace: &Workspace,
        inputs: &Inputs,
        mask: &Mask,
        plan: Option<PathBuf>,
        limit: Option<Deadline>,
    ) -> Self {
        Self {
            job,
            ready: inputs.hooks.clone(),
            environment: inputs.environment.clone(),
            mask: mask.clone(),
            tree: workspace.tree().to_owned(),
            dir: workspace.dir.clone(),
            plan,
            limit,
        }
    }

    /// Runs a stage with all its hooks.
    pub(super) async fn around<T>(
        &self,
        stage: HookStage,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let done = self.before_and(stage, work).await?;
        self.after(stage, StageResult::Succeeded).await?;
        Ok(done)
    }

    /// Runs a stage with its `before` hooks. Its `after` hooks run now only if it fails; otherwise the caller
    /// runs them later. The work is boxed at once, because its future is large and would be part of the
    /// caller's.
    pub(super) fn before_and<T>(
        &self,
        stage: HookStage,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, Failure>> {
        let work = Box::pin(work);
        async move {
            let done = match self.all(HookTiming::Before, stage, None).await {
                Ok(()) => work.await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = &done {
                self.after_failure(stage, StageResult::of(failure)).await;
            }
            done
        }
    }

    /// Runs the hooks after a stage that did not succeed. Their failures are only warnings.
    pub(super) async fn after_failure(&self, stage: HookStage, ending: StageResult) {
        if let Err(also) = self.after(stage, ending).await {
            self.job.warn(&self.mask.mask_text(&also.message));
        }
    }

    /// Runs the hooks after a stage. All of them run; the first failure counts.
    pub(super) async fn after(&self, stage: HookStage, ending: StageResult) -> Result<(), Failure> {
        self.all(HookTiming::After, stage, Some(ending)).await
    }

    async fn all(
        &self,
        when: HookTiming,
        stage: HookStage,
        ending: Option<StageResult>,
    ) -> Result<(), Failure> {
        let mut worst = Ok(());
        let wanted = self.ready.iter();
        for hook in wanted.filter(|hook| hook.when == when && hook.stage == stage) {
            let ended = self.run(hook, ending).await;
            match when {
                HookTiming::Before => ended?,
                HookTiming::After => worst = worst.and(ended),
            }
        }
        worst
    }

    async fn run(&self, hook: &ReadyHook, ending: Option<StageResult>) -> Result<(), Failure> {
        let (run, stage) = (self.job.run, hook.stage.of_run());
        let name = format!(
            "hook {} {} of context `{}`",
            hook.when.word(),
            hook.stage.word(),
            hook.context
        );
        let mut interrupts = self.job.interrupts.lock().await;
        // After an interrupt, no `before` hook starts. `after` hooks still clean up.
        if hook.when == HookTiming::Before && interrupts.came().await {
            return Err(Failure::interrupted());
        }
        let limit = self.limit.filter(|_| is_counted(ending));
        if let Some(over) = limit.filter(|limit| limit.is_over()) {
            return Err(Failure::too_late(over, &format!("the {name}")));
        }
        let environment = self.environment_of(hook, ending);
        let (program, args) = self.program(hook, &environment).map_err(|failure| {
            let message = format!("{name}: {}", failure.message);
            Failure { message, ..failure }
        })?;
        let failed = |err: &dyn std::error::Error| {
            Failure::because(&format!("could not run the {name}"), err)
        };
        let home = &self.job.control.home;
        let raw = home.hook_output(run);
        let mut log = HookLog::open(&raw, &home.engine_events(run, stage), &name, &self.mask)
            .map_err(|err| failed(&err))?;
        log.say(&format!("{name}: {}", hook.run.join(" ")));
        let spec = ChildSpec {
            program: &program,
            args: &args,
            dir: &self.dir,
            env: &environment,
            stdout: &raw,
            stderr: &raw,
            inherit: &[],
        };
        let group = ProcessGroupGuard::new().map_err(|err| failed(&err))?;
        let mut running = group.start(&spec).map_err(|err| failed(&err))?;
        // `run cancel --kill` finds a hook in the same way as an engine.
        self.job.note_engine(running.group());
        // The hook's own limit, or the rest of its stage's limit.
        let own = Instant::now() + hook.limit;
        let limit = limit.filter(|limit| limit.until < own);
        let until = limit.map_or(own, |limit| limit.until);
        // A hook that cleans up after an interrupt is not ended by a repeated interrupt.
        let heeds = ending != Some(StageResult::Interrupted);
        let ended = supervise(&mut running, &mut interrupts, heeds, until, &mut log).await;
        self.job.note_engine(None);
        group.ended();
        let said = log.finish();
        let ended = ended.map_err(|err| failed(&err))?;
        judge(&name, hook, limit, &ended, &said)
    }

    /// The engine's environment, the hook's own variables, and variables that describe the run.
    fn environment_of(&self, hook: &ReadyHook, ending: Option<StageResult>) -> Environment {
        let (job, mut env) = (self.job, self.environment.clone());
        for (name, value) in &hook.env {
            env.set_secret(name.clone(), value.clone());
        }
        let spec = job.spec;
        env.set("TERRANE_STACK", spec.stack.name.as_str());
        env.set("TERRANE_TARGET", spec.target.name.as_str());
        env.set("TERRANE_STAGE", hook.stage.word());
        env.set("TERRANE_RUN", job.run.to_string());
        env.set("TERRANE_CHANGE_SET", job.set.id.to_string());
        env.set("TERRANE_ROOT", self.tree.to_string_lossy());
        env.set(
            "TERRANE_DESTROY",
            if spec.destroy { "true" } else { "false" },
        );
        if let Some(ending) = ending {
            env.set("TERRANE_OUTCOME", ending.word());
        }
        if let Some(plan) = self.plan.as_ref().filter(|plan| plan.is_file()) {
            env.set("TERRANE_PLAN", plan.to_string_lossy());
        }
        env
    }

    /// A program of the project comes from the planned source. Any other program is searched in `PATH`.
    fn program(
        &self,
        hook: &ReadyHook,
        env: &Environment,
    ) -> Result<(PathBuf, Vec<OsString>), Failure> {
        let (name, args) = hook
            .run
            .split_first()
            .ok_or_else(|| Failure::new("no program is named"))?;
        let found = if name.contains('/') {
            Some(self.tree.join(name)).filter(|program| program.is_file())
        } else {
            let path = env.get("PATH").map(Secret::expose).unwrap_or_default();
            find_program(name, path.as_ref())
        };
        let program = found.ok_or_else(|| {
            let hint = if Path::new(name).is_absolute() || !name.contains('/') {
                "it must exist on the machine that carries out the run"
            } else {
                "write its path from the project's root; Git must not ignore the program"
            };
            Failure::new(format!("there is no program `{name}`")).hint(hint)
        })?;
        Ok((program, args.iter().map(OsString::from).collect()))
    }
}

/// The result of a hook. A failure contains the last lines of its output.
fn judge(
    name: &str,
    hook: &ReadyHook,
    limit: Option<Deadline>,
    ended: &HookExit,
    said: &[String],
) -> Result<(), Failure> {
    let (message, interrupted) = match ended {
        HookExit::Exit(Exit::Code(0)) => return Ok(()),
        HookExit::Exit(exit) => (
            format!("{name} failed: `{}` ended with {exit}", hook.run[0]),
            false,
        ),
        HookExit::TimedOut => {
            let length = duration::seconds(hook.limit);
            let why = limit.map_or_else(
                || format!("it did not finish within {length}"),
                |limit| format!("the time limit `{limit}` was reached, the hook was ended"),
            );
            (format!("{name} failed: {why}"), false)
        }
        HookExit::Interrupted => (format!("{name}: interrupted"), true),
    };
    let mut failure = Failure::new(message.clone());
    failure.interrupted = interrupted;
    let lines = &said[said.len().saturating_sub(SHOWN_LINES)..];
    if !lines.is_empty() {
        failure.diagnostics.push(EngineDiagnostic {
            severity: "error".to_owned(),
            summary: message,
            detail: lines.join("\n"),
            address: None,
            file: None,
            line: None,
        });
    }
    Err(failure)
}

/// Whether a hook counts towards its stage's limit. A hook that cleans up after a failed stage does not,
/// because the limit may be the cause.
fn is_counted(ending: Option<StageResult>) -> bool {
    matches!(ending, None | Some(StageResult::Succeeded))
}

enum HookExit {
    Exit(Exit),
    TimedOut,
    Interrupted,
}

/// Waits for a hook and copies its output. The limit ends it, and so does the first request to stop if
/// `heeds` is set. The hook is interrupted first, then killed.
async fn supervise(
    running: &mut ChildProcess,
    interrupts: &mut Interrupts,
    heeds: bool,
    until: Instant,
    log: &mut HookLog,
) -> std::io::Result<HookExit> {
    let deadline = tokio::time::sleep_until(until);
    let grace = tokio::time::sleep(Duration::MAX);
    tokio::pin!(deadline, grace);
    let mut ticks = tokio::time::interval(TICK);
    let kill_all = |running: &ChildProcess| running.group().map_or(Ok(()), kill_group);
    let mut why: Option<HookExit> = None;
    loop {
        tokio::select! {
            exit = running.wait() => {
                let exit = exit?;
                if why.is_some() {
                    // Processes that the hook started may have missed the interrupt.
                    kill_all(running)?;
                }
                return Ok(why.unwrap_or(HookExit::Exit(exit)));
            }
            () = interrupts.next(), if why.is_none() && heeds => {
                why = Some(HookExit::Interrupted);
                grace.as_mut().reset(Instant::now() + GRACE);
                running.interrupt()?;
            }
            () = &mut deadline, if why.is_none() => {
                why = Some(HookExit::TimedOut);
                grace.as_mut().reset(Instant::now() + GRACE);
                running.interrupt()?;
            }
            () = &mut grace, if why.is_some() => {
                kill_all(running)?;
                grace.as_mut().reset(Instant::now() + GRACE);
            }
            _ = ticks.tick() => log.follow(),
        }
    }
}
