//! The one place a process is born, and the four ways one lives:
//!
//! | way | for | output | ended by us |
//! |---|---|---|---|
//! | [`start`] | engines | append-only files | one interrupt, then waiting, never a kill, unless a person wants one |
//! | [`start_in_front`] | engines that somebody talks to | our terminal, or us | as above |
//! | [`spawn_detached`] | `terrane runner` | a log file | never |
//! | [`capture`] | short helpers: git, versions, secret commands | bounded memory | killed at a time limit |
//!
//! [`remove_when_gone`] and [`KeptGroup`] are none of them: a shell that does nothing until we are gone.
//!
//! A child sees exactly the [`Environment`] it is given and, of our descriptors, exactly those it is
//! meant to inherit. Files instead of pipes are what lets an engine outlive us: with a pipe, its next
//! event after our death would kill it by SIGPIPE, before it could save its state.
//!
//! Not here: which programs there are and what they are told (`engine`, `git`, `secrets`).

mod capture;
mod ending;
mod environment;
mod holders;
mod keeper;
mod memory;
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
pub use ending::{Ended, run_to_end};
pub use environment::{Environment, engine_environment};
pub use holders::{FileHolder, has_open, holders};
pub use keeper::{Keeper, KeptGroup, remove_when_gone};
pub use memory::keep_to_ourselves;

/// Prepares a child with its own directory, exactly the given environment, and a process group of
/// its own, so that a Ctrl-C in the terminal reaches us and not the child.
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

/// A long-lived child as [`start`] takes it.
#[derive(Clone, Debug)]
pub struct ChildSpec<'a> {
    pub program: &'a Path,
    pub args: &'a [OsString],
    pub dir: &'a Path,
    pub env: &'a Environment,
    /// Appended to, made with mode 0600 if missing.
    pub stdout: &'a Path,
    pub stderr: &'a Path,
    /// Stay open in the child under a number of its own: a held `run.lock`, which then is free only
    /// when we and the child are both gone.
    pub inherit: &'a [BorrowedFd<'a>],
}

/// Starts a child that writes to files and outlives us if need be. Wants a tokio runtime.
pub fn start(spec: &ChildSpec<'_>) -> Result<Running, StartError> {
    start_in(spec, None)
}

/// In a group that is there, else in one of its own.
fn start_in(spec: &ChildSpec<'_>, group: Option<u32>) -> Result<Running, StartError> {
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
    Ok(Running {
        child,
        pid,
        group: Some(group.unwrap_or(pid)),
        is_script: is_script(spec.program),
        interrupted: false,
    })
}

/// Where a child in front prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prints {
    /// On our own terminal.
    There,
    /// To us; see [`Running::printed`].
    ToUs,
}

/// Starts a child on our own descriptors and in our own group: it can be talked to, and a Ctrl-C in the
/// terminal reaches it as well. Only for what holds nothing: it dies with the terminal. Wants a tokio runtime.
pub fn start_in_front(
    program: &Path,
    args: &[OsString],
    dir: &Path,
    env: &Environment,
    inherit: &[BorrowedFd<'_>],
    prints: Prints,
) -> Result<Running, StartError> {
    let mut command = bare_command(program, env);
    command.current_dir(dir).args(args);
    if prints == Prints::ToUs {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let child = spawn(command, program, inherit)?;
    let pid = child.id().unwrap_or_default();
    Ok(Running {
        child,
        pid,
        group: None,
        is_script: false,
        interrupted: false,
    })
}

/// A started child. Dropping it neither kills nor interrupts it; the runtime reaps it when it ends.
#[derive(Debug)]
pub struct Running {
    child: tokio::process::Child,
    pid: u32,
    /// Nothing if it is in ours.
    group: Option<u32>,
    is_script: bool,
    interrupted: bool,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The group that it is in, if that is not ours.
    pub fn group(&self) -> Option<u32> {
        self.group
    }

    /// Sends one SIGINT. Only the first call does: an engine takes a second SIGINT as the order to drop
    /// everything, unsaved state included.
    ///
    /// It goes to the child alone, not to its group. An engine that starts its first own child at that
    /// moment counts a signal to the group twice (the fork shares its memory and its handlers for an
    /// instant): seen in one of eight applies that were interrupted at the start of a provisioner, with
    /// both engines, and the state was lost. Engines stop their providers and provisioners themselves.
    /// Only a script, which would keep the signal to itself, gets it with its whole group.
    pub fn interrupt(&mut self) -> io::Result<()> {
        // `id` is empty once the child was waited for, when its number may belong to another.
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

    /// Ends it and all that it started, at once. Only for one that changes nothing: what it has not stored is lost.
    pub fn end(&mut self) -> io::Result<()> {
        if self.child.id().is_none() {
            return Ok(());
        }
        match self.group {
            Some(group) => kill_group(group),
            None => self.child.start_kill(),
        }
    }

    /// What it prints and what it complains, for the first who asks, if it was started so.
    pub fn printed(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.child.stdout.take()?, self.child.stderr.take()?))
    }

    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Waits for the end. A call that is dropped halfway (in `select!`) may simply be repeated.
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

/// Starts a program that has nothing more to do with us: its input is what we hand it, its complaints
/// go to `log`. Its output is `stdout`, the file of a lock, which so stays held and is within its
/// reach without a number being agreed on. Returns when it has taken all of the input. Wants a tokio
/// runtime, which also reaps the child for as long as we live.
///
/// The child stays in our process group until it calls [`become_session_leader`]: a group leader
/// may not start a session.
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

/// Between two looks at a child that has closed its output: it ends within microseconds, and nothing tells us when.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where a thread polls a child"
)]
fn pause_between_looks() {
    std::thread::sleep(Duration::from_micros(200));
}

/// Asks one process to interrupt what it does. One that is gone already is no error.
pub fn interrupt(pid: u32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    match rustix::process::kill_process(pid, Signal::INT) {
        Err(err) if err == rustix::io::Errno::SRCH => Ok(()),
        sent => Ok(sent?),
    }
}

/// Ends all of a group at once. One that is gone already is no error.
pub fn kill_group(group: u32) -> io::Result<()> {
    match signal_group(group, Signal::KILL) {
        Err(err) if err == rustix::io::Errno::SRCH => Ok(()),
        sent => Ok(sent?),
    }
}

/// Leaves the terminal and its signals for good. The first act of a detached program.
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
    #[error("`{}` did not take its input", program.display())]
    Feed { program: PathBuf, source: io::Error },
}

/// Held while a descriptor without close-on-exec exists, so that no other child gets it as well.
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

/// Starts a helper that is heard or talked to over pipes, and that ends when its input does.
pub(crate) fn spawn_helper(command: &mut Command) -> io::Result<std::process::Child> {
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Waits for the end of a helper and leaves it its number, so that whoever may still signal it meets no other.
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

/// Whether a helper has ended; it keeps its number until it is waited for.
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

/// Copies that lack close-on-exec; they share the lock of their originals, which keep the flag.
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

/// `program` as the first directory of `path` has it, executable.
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Whether it is run by another program that its first line names. What cannot be read is none.
pub(crate) fn is_script(program: &Path) -> bool {
    let mut head = [0; 2];
    File::open(program)
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut head))
        .is_ok_and(|()| &head == b"#!")
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
