//! The only place that starts processes, in four ways:
//!
//! | way | for | output | ended by us |
//! |---|---|---|---|
//! | [`start`] | engines | append-only files | one interrupt, then waiting, never a kill, unless a person asks for it |
//! | [`start_in_front`] | interactive engines | our terminal, or pipes to us | as above |
//! | [`spawn_detached`] | `terrane runner` | a log file | never |
//! | [`capture`] | short helpers: git, versions, secret commands | bounded memory | killed at a time limit |
//!
//! [`remove_on_exit`] and [`ProcessGroupGuard`] are different: they start a shell that does nothing until our process
//! ends.
//!
//! A child gets exactly the given [`Environment`] and, of our descriptors, only those it is meant to inherit.
//! Output goes to files, so that an engine can outlive us: with a pipe, its first write after our death would kill
//! it by SIGPIPE, before it could save its state.
//!
//! Not here: which programs there are and their arguments (`engine`, `git`, `secrets`).

mod capture;
mod cleanup_guard;
mod environment;
mod memory;
mod open_files;
mod run_tail;
mod secret_program;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdout};

pub use capture::{Capture, CaptureError, Captured, capture, capture_blocking};
pub use cleanup_guard::{DirGuard, ProcessGroupGuard, remove_on_exit};
pub use environment::{Environment, engine_environment};
pub use memory::protect_memory;
pub use open_files::{FileHolder, has_open, holders};
pub use run_tail::{TailedOutput, run_with_tail};
pub(crate) use secret_program::complaint;
pub use secret_program::split_words;

/// Prepares a child with its own directory, exactly the given environment, and its own process group. A Ctrl-C in
/// the terminal therefore reaches us and not the child.
pub fn command(program: &Path, dir: &Path, env: &Environment) -> Command {
    let mut command = bare_command(program, env);
    command.current_dir(dir).process_group(0);
    command
}

#[expect(clippy::disallowed_methods, reason = "the one place a process is born")]
fn bare_command(program: &Path, env: &Environment) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(env.exposed());
    command
}

/// A long-lived child for [`start`].
#[derive(Clone, Debug)]
pub struct ChildSpec<'a> {
    pub program: &'a Path,
    pub args: &'a [OsString],
    pub dir: &'a Path,
    pub env: &'a Environment,
    /// Opened for appending; created with mode 0600 if missing.
    pub stdout: &'a Path,
    pub stderr: &'a Path,
    /// Descriptors that stay open in the child, such as a held `run.lock`: the lock is free only when both we and
    /// the child are gone.
    pub inherit: &'a [BorrowedFd<'a>],
}

/// Starts a child that writes to files and may outlive us. Requires a tokio runtime.
pub fn start(spec: &ChildSpec<'_>) -> Result<ChildProcess, StartError> {
    start_in(spec, None)
}

/// Starts it in an existing group, else in its own.
fn start_in(spec: &ChildSpec<'_>, group: Option<u32>) -> Result<ChildProcess, StartError> {
    let mut command = command(spec.program, spec.dir, spec.env);
    if let Some(group) = group.and_then(|group| i32::try_from(group).ok()) {
        command.process_group(group);
    }
    command
        .args(spec.args)
        .stdin(Stdio::null())
        .stdout(open_log(spec.stdout)?)
        .stderr(open_log(spec.stderr)?);
    let child = spawn(command, spec.program, spec.inherit)?;
    let pid = child.id().unwrap_or_default();
    Ok(ChildProcess {
        child,
        pid,
        group: Some(group.unwrap_or(pid)),
        is_script: is_script(spec.program),
        interrupted: false,
    })
}

/// Where a foreground child prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForegroundOutput {
    /// On our terminal.
    There,
    /// To pipes; see [`ChildProcess::printed`].
    ToUs,
}

/// Starts a child on our own descriptors and in our own group: it is interactive, and a Ctrl-C in the terminal
/// reaches it as well. Only for programs that hold no lock or state: it dies with the terminal. Requires a tokio
/// runtime.
pub fn start_in_front(
    program: &Path,
    args: &[OsString],
    dir: &Path,
    env: &Environment,
    inherit: &[BorrowedFd<'_>],
    prints: ForegroundOutput,
) -> Result<ChildProcess, StartError> {
    let mut command = bare_command(program, env);
    command.current_dir(dir).args(args);
    if prints == ForegroundOutput::ToUs {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let child = spawn(command, program, inherit)?;
    let pid = child.id().unwrap_or_default();
    Ok(ChildProcess {
        child,
        pid,
        group: None,
        is_script: false,
        interrupted: false,
    })
}

/// A started child. Dropping this neither kills nor interrupts it; the runtime reaps it when it ends.
#[derive(Debug)]
pub struct ChildProcess {
    child: tokio::process::Child,
    pid: u32,
    /// `None` if it is in ours.
    group: Option<u32>,
    is_script: bool,
    interrupted: bool,
}

impl ChildProcess {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The child's process group, if it is not ours.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Sends one SIGINT. Later calls do nothing: an engine treats a second SIGINT as an order to stop at once, and
    /// loses unsaved state.
    ///
    /// The signal goes to the child alone, not to its group. An engine that forks its first child at that moment
    /// counts a signal to the group twice: the fork briefly shares its memory and handlers. This happened in one
    /// of eight applies interrupted at the start of a provisioner, with both engines, and the state was lost.
    /// Engines stop their providers and provisioners themselves. Only a script, which does not forward the signal,
    /// gets it with its whole group.
    pub fn interrupt(&mut self) -> io::Result<()> {
        // `id` is empty once the child was reaped, when its PID may belong to another process.
        let Some(pid) = self.child.id().filter(|_| !self.interrupted) else {
            return Ok(());
        };
        self.interrupted = true;
        let Some(group) = self.group.filter(|_| self.is_script) else {
            return interrupt(pid);
        };
        match signal_group(group, Signal::INT) {
            Err(err) if err == rustix::io::Errno::SRCH => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Kills the child and everything that it started. Only for a child that changes nothing: unsaved data is
    /// lost.
    pub fn end(&mut self) -> io::Result<()> {
        if self.child.id().is_none() {
            return Ok(());
        }
        match self.group {
            Some(group) => kill_group(group),
            None => self.child.start_kill(),
        }
    }

    /// Standard output and error, if the child was started with pipes. Only the first call returns them.
    pub fn printed(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.child.stdout.take()?, self.child.stderr.take()?))
    }

    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Waits for the end. Safe to cancel (in `select!`) and call again.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        Ok(Exit::from(self.child.wait().await?))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Starts an independent program. It gets `input` on stdin and writes its errors to `log`. Its stdout is `stdout`,
/// the file of a lock, which therefore stays held without agreeing on a descriptor number. Returns when the
/// program has read all of its input. Requires a tokio runtime, which also reaps the child while we live.
///
/// The child stays in our process group until it calls [`become_session_leader`]: a group leader may not start a
/// session.
pub async fn spawn_detached(
    program: &Path,
    args: &[OsString],
    env: &Environment,
    stdin: &[u8],
    log: &Path,
    stdout: &File,
) -> Result<u32, StartError> {
    let inherited = |source| StartError::Inherit {
        program: program.to_owned(),
        source,
    };
    let mut command = bare_command(program, env);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(stdout.try_clone().map_err(inherited)?)
        .stderr(open_log(log)?);
    let mut child = spawn(command, program, &[])?;
    let pid = child.id().unwrap_or_default();
    if let Some(mut pipe) = child.stdin.take() {
        let written = async {
            pipe.write_all(stdin).await?;
            pipe.shutdown().await
        };
        written.await.map_err(|source| StartError::Feed {
            program: program.to_owned(),
            source,
        })?;
    }
    Ok(pid)
}

/// Pause between two checks of a child that has closed its output: it ends within microseconds, and there is no
/// event for that.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where a thread polls a child"
)]
fn pause_between_looks() {
    std::thread::sleep(Duration::from_micros(200));
}

/// Sends SIGINT to one process. No error if the process is already gone.
pub fn interrupt(pid: u32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    match rustix::process::kill_process(pid, Signal::INT) {
        Err(err) if err == rustix::io::Errno::SRCH => Ok(()),
        sent => Ok(sent?),
    }
}

/// Kills a process group. No error if it is already gone.
pub fn kill_group(group: u32) -> io::Result<()> {
    match signal_group(group, Signal::KILL) {
        Err(err) if err == rustix::io::Errno::SRCH => Ok(()),
        sent => Ok(sent?),
    }
}

/// Detaches from the terminal and its signals. A detached program calls this first.
pub fn become_session_leader() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not open `{}` for the output of a program", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("could not start `{}`", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("could not pass a descriptor on to `{}`", program.display())]
    Inherit { program: PathBuf, source: io::Error },
    #[error("cannot write the input of `{}`", program.display())]
    Feed { program: PathBuf, source: io::Error },
}

/// Held while a descriptor without close-on-exec exists, so that no other child inherits it.
static SPAWNING: Mutex<()> = Mutex::new(());

fn spawn(
    command: Command,
    program: &Path,
    inherit: &[BorrowedFd<'_>],
) -> Result<tokio::process::Child, StartError> {
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    let _passed_on = pass_on(inherit).map_err(|source| StartError::Inherit {
        program: program.to_owned(),
        source,
    })?;
    tokio::process::Command::from(command)
        .kill_on_drop(false)
        .spawn()
        .map_err(|source| StartError::Spawn {
            program: program.to_owned(),
            source,
        })
}

/// Starts a helper that uses pipes and exits at the end of its input.
pub(crate) fn spawn_helper(command: &mut Command) -> io::Result<std::process::Child> {
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Waits for the end of a helper without reaping it, so that a late signal cannot reach another process with the
/// same PID.
pub(crate) fn wait_unreaped(child: &std::process::Child) -> io::Result<()> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), ended) {
            Err(rustix::io::Errno::INTR) => {}
            waited => return Ok(waited.map(drop)?),
        }
    }
}

/// Whether a helper has ended; it keeps its PID until it is reaped.
fn has_ended(child: &std::process::Child) -> io::Result<bool> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Ok(true);
    };
    let now = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), now) {
            Err(rustix::io::Errno::INTR) => {}
            waited => return Ok(waited?.is_some()),
        }
    }
}

/// Copies of descriptors without close-on-exec. They share the lock of the originals, which keep the flag.
fn pass_on(descriptors: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
    let copy = |fd: &BorrowedFd<'_>| Ok(rustix::io::dup(fd)?);
    descriptors.iter().map(copy).collect()
}

fn open_log(path: &Path) -> Result<File, StartError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| StartError::Log {
            path: path.to_owned(),
            source,
        })
}

fn signal_group(group: u32, signal: Signal) -> rustix::io::Result<()> {
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    group.map_or(Ok(()), |group| {
        rustix::process::kill_process_group(group, signal)
    })
}

/// The first executable file called `program` in the directories of `path`.
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Whether the file is a script with an interpreter line. False if it cannot be read.
pub(crate) fn is_script(program: &Path) -> bool {
    let mut head = [0; 2];
    File::open(program)
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut head))
        .is_ok_and(|()| &head == b"#!")
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
