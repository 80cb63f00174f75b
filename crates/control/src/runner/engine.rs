//! Calls the engine and waits for it. The state endpoint is up meanwhile, and the engine's output is copied
//! without secrets. One interrupt is passed on. A time limit interrupts, and never kills an engine that
//! changes something.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::engine::{CallSite, Engine, EngineCall, EngineOrigin};
use drivers::process::{ChildProcess, Environment, Exit, ForegroundOutput};
use model::base::masking::{Mask, MaskStream};
use model::project::Backend;
use model::run::engine_event::{EngineEvent, EventKind, EventReader, Level};
use model::run::{EngineDiagnostic, EnginePin, RunSpec, Stage};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::deadline::Deadline;
use super::engine_permits::EnginePermit;
use super::inputs::Inputs;
use super::interrupts::Interrupts;
use super::logs::LogCopy;
use super::workspace::Workspace;
use super::{Failure, StageJob};
use crate::program_output::engine_messages::strip_ansi;
use crate::state::run_access::StateAccess;

/// Everything an engine call of this run needs.
pub(super) struct EngineSession<'a> {
    job: &'a StageJob<'a>,
    engine: Engine,
    workspace: &'a Workspace,
    environment: Environment,
    access: StateAccess,
    endpoint: Option<tokio::task::JoinHandle<()>>,
    /// Masks what must not be in any log.
    log_mask: Mask,
    /// Masks the secrets that the engine is given.
    mask: Mask,
}

/// How often the engine's output is copied for attached clients. Most calls end earlier.
const COPY: Duration = Duration::from_millis(250);

/// How long an engine that changes nothing may take to react to its interrupt. A backend that never answers
/// would block it forever, and killing it loses nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a call ended.
pub(super) struct EngineResult {
    pub(super) exit: Exit,
    /// What it wrote to standard output.
    pub(super) output: Vec<u8>,
    pub(super) interrupted: bool,
    /// Whether it did not react to the interrupt and was killed.
    pub(super) killed: bool,
    /// The time limit that was reached.
    pub(super) timed_out: Option<Deadline>,
    /// What it wrote to standard error.
    pub(super) complaint: String,
}

impl Drop for EngineSession<'_> {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.abort();
        }
    }
}

impl<'a> EngineSession<'a> {
    /// Starts the state endpoint if terrane stores the state, and passes its address to the engine.
    pub(super) async fn new(
        job: &'a StageJob<'a>,
        workspace: &'a Workspace,
        inputs: &Inputs,
        access: StateAccess,
    ) -> Result<Self, Failure> {
        let mut environment = inputs.environment.clone();
        let mut endpoint = None;
        if job.spec.target.backend == Backend::Terrane {
            let failed = |err: std::io::Error| Failure::because("could not serve the state", &err);
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
            let up = (job.serve)(access.clone(), listener, job.token.clone()).map_err(failed)?;
            for (name, value) in up.environment {
                // Some commands only read, but lock anyway and have no option against it.
                let is_lock = matches!(name, "TF_HTTP_LOCK_ADDRESS" | "TF_HTTP_UNLOCK_ADDRESS");
                if is_lock && job.spec.only_reads() {
                    continue;
                }
                environment.set_secret(name, value);
            }
            endpoint = Some(tokio::spawn(up.serving));
        }
        let engine = engine_of(&job.spec.engine)?;
        Ok(Self {
            job,
            engine,
            workspace,
            environment,
            access,
            endpoint,
            log_mask: inputs.log_mask.clone(),
            mask: inputs.mask.clone(),
        })
    }

    pub(super) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The engine's access to a state that terrane stores.
    pub(super) fn access(&self) -> &StateAccess {
        &self.access
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn spec(&self) -> &RunSpec {
        self.job.spec
    }

    /// Calls the engine. Its events go to the run's log file for `stage`, which attached clients read.
    pub(super) async fn call(
        &self,
        call: &EngineCall<'_>,
        stage: Stage,
        limit: Option<Deadline>,
    ) -> Result<EngineResult, Failure> {
        self.call_logged(call, stage, &self.environment, limit)
            .await
    }

    /// Like `call`, with another environment.
    pub(super) async fn call_logged(
        &self,
        call: &EngineCall<'_>,
        stage: Stage,
        environment: &Environment,
        limit: Option<Deadline>,
    ) -> Result<EngineResult, Failure> {
        let (home, run) = (&self.job.control.home, self.job.run);
        let raw = home.engine_output(run, stage);
        let copy = home.engine_events(run, stage);
        let is_durable = stage == Stage::Applying;
        let log = LogCopy::of_events(raw, &copy, self.log_mask.clone(), is_durable)
            .map_err(|err| Failure::because("could not begin a log", &err))?;
        self.call_with(
            call,
            OutputTarget::Logged(Box::new(log)),
            environment,
            limit,
        )
        .await
    }

    pub(super) fn environment(&self) -> Environment {
        self.environment.clone()
    }

    /// Calls the engine on this process's terminal. Ctrl-C there reaches the engine directly, and SIGTERM to
    /// this process interrupts it. The engine's output is masked if a mask is given.
    pub(super) async fn attend(
        &self,
        call: &EngineCall<'_>,
        mask: Option<&Mask>,
    ) -> Result<Exit, Failure> {
        let failed =
            |err: &dyn std::error::Error| Failure::because("could not run the engine", err);
        let mut terminated = signal(SignalKind::terminate()).map_err(|err| failed(&err))?;
        let (dir, env) = (&self.workspace.dir, &self.environment);
        let prints = match mask {
            Some(_) => ForegroundOutput::ToUs,
            None => ForegroundOutput::There,
        };
        let mut running = self
            .engine
            .start_in_front(call, dir, env, &self.inherited(None), prints)
            .map_err(|err| failed(&err))?;
        let printed = running.printed().zip(mask);
        let passed_on = async {
            if let Some(((out, err), mask)) = printed {
                tokio::join!(
                    pass_on(out, mask, std::io::stdout()),
                    pass_on(err, mask, std::io::stderr()),
                );
            }
        };
        let ended = async {
            loop {
                tokio::select! {
                    exit = running.wait() => return exit.map_err(|err| failed(&err)),
                    _ = terminated.recv() => running.interrupt().map_err(|err| failed(&err))?,
                }
            }
        };
        let ((), exit) = tokio::join!(passed_on, ended);
        exit
    }

    /// Locks that stay held until the engine has exited too.
    fn inherited<'p>(&'p self, place: Option<&'p EnginePermit>) -> Vec<BorrowedFd<'p>> {
        let locks = &self.workspace.locks;
        let place = place.map(|place| place.file().as_fd());
        let locks = [
            self.job.lock.file().as_fd(),
            locks.tree.as_fd(),
            locks.stack.as_fd(),
        ];
        locks.into_iter().chain(place).collect()
    }

    /// Calls the engine for a document, which goes to its own file and not into a log.
    pub(super) async fn call_to(
        &self,
        call: &EngineCall<'_>,
        stdout: &Path,
        limit: Option<Deadline>,
    ) -> Result<EngineResult, Failure> {
        if stdout.exists() {
            fs::remove_file(stdout)
                .map_err(|err| Failure::because("could not clear an old file", &err))?;
        }
        let output = OutputTarget::Document(stdout.to_owned());
        self.call_with(call, output, &self.environment, limit).await
    }

    async fn call_with(
        &self,
        call: &EngineCall<'_>,
        mut output: OutputTarget,
        environment: &Environment,
        limit: Option<Deadline>,
    ) -> Result<EngineResult, Failure> {
        let mut interrupts = self.job.interrupts.lock().await;
        if interrupts.came().await {
            return Err(Failure::interrupted());
        }
        if let Some(over) = limit.filter(|limit| limit.is_over()) {
            return Err(Failure::too_late(over, "the engine"));
        }
        let (home, run) = (&self.job.control.home, self.job.run);
        let copy = home.engine_complaints(run);
        let mut complaints = LogCopy::new(
            home.engine_complaints_raw(run),
            &copy,
            self.log_mask.clone(),
        )
        .map_err(|err| Failure::because("could not begin a log", &err))?;
        let place = self.job.place.lock().await;
        let inherit = self.inherited(place.as_ref());
        let site = CallSite {
            dir: &self.workspace.dir,
            env: environment,
            stdout: output.path(),
            stderr: complaints.raw(),
            inherit: &inherit,
        };
        let mut running = self
            .engine
            .start(call, &site)
            .map_err(|err| Failure::because("could not start the engine", &err))?;
        self.job.note_engine(running.group());
        let mut logs: Vec<&mut LogCopy> = match &mut output {
            OutputTarget::Logged(log) => vec![log, &mut complaints],
            OutputTarget::Document(_) => vec![&mut complaints],
        };
        let supervision = Supervision {
            limit,
            patience: call.only_reads().then_some(PATIENCE),
            note: home.run_waits(run),
        };
        let waited = supervision
            .keep(&mut running, &mut interrupts, &mut logs)
            .await;
        self.job.note_engine(None);
        let EngineExit {
            exit,
            timed_out,
            killed,
        } = waited.map_err(|err| Failure::because("could not wait for the engine", &err))?;
        let heard =
            |err: std::io::Error| Failure::because("could not read the engine's output", &err);
        let complaint = complaints.finish().map_err(heard)?;
        Ok(EngineResult {
            exit,
            output: match output {
                OutputTarget::Logged(log) => log.finish().map_err(heard)?,
                OutputTarget::Document(path) => fs::read(path).map_err(heard)?,
            },
            interrupted: running.was_interrupted(),
            killed,
            timed_out: limit.filter(|_| timed_out),
            complaint: strip_ansi(&String::from_utf8_lossy(&complaint)),
        })
    }
}

/// Where an engine's output goes.
enum OutputTarget {
    Logged(Box<LogCopy>),
    Document(PathBuf),
}

impl OutputTarget {
    fn path(&self) -> &Path {
        match self {
            Self::Logged(log) => log.raw(),
            Self::Document(path) => path,
        }
    }
}

/// Copies a stream through the mask. Ends when the receiver is closed.
async fn pass_on(mut from: impl AsyncRead + Unpin, mask: &Mask, mut to: impl Write) {
    let mut stream = MaskStream::new(mask.clone());
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let masked = stream.push(&bytes[..length]);
        if to.write_all(&masked).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
    drop(to.write_all(&stream.finish()).and_then(|()| to.flush()));
}

fn engine_of(pin: &EnginePin) -> Result<Engine, Failure> {
    let version = pin
        .version
        .parse()
        .map_err(|err| Failure::because("could not read the engine's version", &err))?;
    let program = PathBuf::from(&pin.program);
    if !program.is_file() {
        return Err(
            Failure::new(format!("the engine `{}` no longer exists", pin.program))
                .hint("`terrane engine install` brings it back"),
        );
    }
    Ok(Engine {
        flavor: pin.flavor,
        version,
        program,
        origin: EngineOrigin::Cache,
    })
}

/// How a running engine is supervised.
struct Supervision {
    limit: Option<Deadline>,
    /// How long the engine may take to react to its interrupt; none for no limit.
    patience: Option<Duration>,
    /// The file in which attached clients read what the run waits for.
    note: PathBuf,
}

/// How an engine ended.
struct EngineExit {
    exit: Exit,
    timed_out: bool,
    killed: bool,
}

impl Supervision {
    /// Waits for the engine and copies its output. The first request to stop, or the time limit, interrupts
    /// the engine once and writes a note. An engine that changes nothing is killed if it does not react.
    async fn keep(
        &self,
        running: &mut ChildProcess,
        interrupts: &mut Interrupts,
        logs: &mut [&mut LogCopy],
    ) -> std::io::Result<EngineExit> {
        let at = async |until: Option<Instant>| match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        };
        let mut ticks = tokio::time::interval_at(Instant::now() + COPY, COPY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut deadline = self.limit.map(|limit| limit.until);
        let mut end = None;
        let (mut timed_out, mut killed) = (false, false);
        let exit = loop {
            let why = tokio::select! {
                exit = running.wait() => break exit,
                () = interrupts.next() => None,
                () = at(deadline) => self.limit,
                () = at(end) => {
                    (end, killed) = (None, true);
                    running.end()?;
                    continue;
                }
                _ = ticks.tick() => {
                    for log in &mut *logs {
                        // Output that cannot be copied now is copied at the end.
                        drop(log.follow());
                    }
                    continue;
                }
            };
            if running.was_interrupted() {
                continue; // the first of both reasons counts
            }
            deadline = None;
            timed_out = why.is_some();
            running.interrupt()?;
            end = self.patience.map(|patience| Instant::now() + patience);
            self.say(why);
        };
        if running.was_interrupted() {
            drop(fs::remove_file(&self.note));
        }
        Ok(EngineExit {
            exit: exit?,
            timed_out,
            killed,
        })
    }

    /// Notes the interrupt for attached clients. A failure to write the note is ignored.
    fn say(&self, why: Option<Deadline>) {
        let until = match self.patience {
            Some(_) => "its engine is ended if it does not react",
            None => "its engine finishes its current work and saves its state",
        };
        let words = match why {
            Some(limit) => {
                format!("is being interrupted: the time limit `{limit}` was reached; {until}")
            }
            None => format!("is being interrupted: {until}"),
        };
        drop(fs::write(&self.note, words));
    }
}

impl EngineResult {
    /// The engine's output as events.
    pub(super) fn events(&self) -> Vec<EngineEvent> {
        let mut reader = EventReader::default();
        let mut events = reader.push(&self.output);
        events.extend(reader.finish());
        events
    }

    /// The same without secrets, because stored events must not contain any.
    pub(super) fn masked_events(&self, mask: &Mask) -> Vec<EngineEvent> {
        let mut stream = MaskStream::new(mask.clone());
        let mut masked = stream.push(&self.output);
        masked.extend(stream.finish());
        EventReader::read_all(&masked)
    }

    /// Whether the engine ended without an exit code.
    pub(super) fn died(&self) -> bool {
        self.exit.code().is_none()
    }

    /// The failure, with what the engine reported.
    pub(super) fn failure(&self, action: &str) -> Failure {
        let message = if let Some(limit) = self.timed_out {
            let how = if self.killed {
                "did not react to its interrupt and was ended"
            } else {
                "was interrupted"
            };
            format!("{action}: the time limit `{limit}` was reached, the engine {how}")
        } else if self.interrupted && (self.killed || !self.died()) {
            format!("{action}: interrupted")
        } else {
            format!("{action}: the engine ended with {}", self.exit)
        };
        let mut failure = Failure::new(message.clone());
        failure.interrupted = self.interrupted && self.timed_out.is_none();
        failure.diagnostics = self.diagnostics();
        failure.hint = failure.diagnostics.iter().find_map(read_of_a_state);
        let words = self.words();
        if failure.diagnostics.is_empty() && !words.is_empty() {
            failure.diagnostics.push(EngineDiagnostic {
                severity: "error".to_owned(),
                summary: message,
                detail: words,
                address: None,
                file: None,
                line: None,
            });
        }
        failure
    }

    /// Other text from the engine: its standard error, else error messages without a diagnostic, else the
    /// last lines that are not events.
    fn words(&self) -> String {
        const MOST: usize = 10;
        if !self.complaint.trim().is_empty() {
            return self.complaint.trim().to_owned();
        }
        let events = self.events();
        let errors = events.iter().filter(|event| event.level == Level::Error);
        let errors: Vec<&str> = errors.map(|event| event.message.as_str()).collect();
        if !errors.is_empty() {
            return strip_ansi(&errors.join("\n"));
        }
        let texts = events.iter().filter(|event| event.kind == EventKind::Text);
        let lines: Vec<&str> = texts.map(|event| event.message.as_str()).collect();
        strip_ansi(&lines[lines.len().saturating_sub(MOST)..].join("\n"))
    }

    fn diagnostics(&self) -> Vec<EngineDiagnostic> {
        let mut all: Vec<EngineDiagnostic> = self
            .events()
            .iter()
            .filter_map(EngineEvent::as_diagnostic)
            .filter(|diagnostic| diagnostic.is_error())
            .map(|diagnostic| EngineDiagnostic {
                severity: "error".to_owned(),
                summary: diagnostic.summary.clone(),
                detail: diagnostic.detail.clone(),
                address: diagnostic.address.clone(),
                file: diagnostic.file(),
                line: diagnostic.line(),
            })
            .collect();
        // An interrupted engine repeats the same diagnostic for each place where it stops.
        all.dedup();
        all
    }
}

/// A hint for a data source that reads the state of another stack.
fn read_of_a_state(diagnostic: &EngineDiagnostic) -> Option<String> {
    const KIND: &str = "data.terraform_remote_state.";
    let address = diagnostic.address.as_deref()?;
    let at = address.find(KIND)?;
    Some(format!(
        "if terrane keeps that state, pass its outputs as inputs instead: replace `{}` with a variable, and set \
         `inputs = {{ KEY = stack.NAME.output.KEY }}` in the stack",
        &address[at..]
    ))
}
