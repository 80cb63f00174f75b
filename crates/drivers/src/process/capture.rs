//! Runs short helpers and captures their output. A helper that exceeds its time or size limit is killed.
//!
//! Not here: engines that change something; those are started and waited for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use model::base::duration::seconds;
use rustix::process::Signal;

use super::{Environment, Exit, SPAWNING, command, pass_on, signal_group};

/// How often to check whether the caller has given up.
const ATTENTION: Duration = Duration::from_millis(250);

/// The program to run and its limits.
#[derive(Clone, Debug)]
pub struct Capture<'a> {
    pub program: &'a Path,
    pub args: &'a [OsString],
    pub dir: &'a Path,
    pub env: &'a Environment,
    pub stdin: &'a [u8],
    pub timeout: Duration,
    /// Limit for stdout in bytes; stderr has the same.
    pub limit: usize,
    /// A lock that the helper also holds, so that waiting for the lock waits for both of us.
    pub held: Option<&'a File>,
}

impl<'a> Capture<'a> {
    /// Defaults: half a minute, 16 MB, no input.
    pub fn new(
        program: &'a Path,
        args: &'a [OsString],
        dir: &'a Path,
        env: &'a Environment,
    ) -> Self {
        Self {
            program,
            args,
            dir,
            env,
            stdin: &[],
            timeout: Duration::from_secs(30),
            limit: 16 << 20,
            held: None,
        }
    }
}

/// The output of a helper. `Debug` leaves out the bytes: they may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Captured {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Captured {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Captured")
            .field("exit", &self.exit)
            .field("stdout", &format_args!("{} bytes", self.stdout.len()))
            .field("stderr", &format_args!("{} bytes", self.stderr.len()))
            .finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("could not start `{program}`")]
    Spawn { program: String, source: io::Error },
    #[error("could not read the output of `{program}`")]
    Read { program: String, source: io::Error },
    #[error("`{program}` did not end within {}", seconds(*limit))]
    TimedOut { program: String, limit: Duration },
    #[error("`{program}` wrote more than {limit} bytes")]
    TooMuch { program: String, limit: usize },
}

/// Like [`capture_blocking`], off the runtime's threads. Dropping the future kills the helper.
pub async fn capture(call: Capture<'_>) -> Result<Captured, CaptureError> {
    aside(call, capture_until).await
}

/// Runs the work on a blocking thread. Dropping the future signals the work to stop.
pub(super) async fn aside<T: Send + 'static>(
    call: Capture<'_>,
    work: fn(&Capture<'_>, &AtomicBool) -> Result<T, CaptureError>,
) -> Result<T, CaptureError> {
    let (program, args) = (call.program.to_owned(), call.args.to_vec());
    let (dir, env, stdin) = (call.dir.to_owned(), call.env.clone(), call.stdin.to_vec());
    let (timeout, limit) = (call.timeout, call.limit);
    let name = call.program.display().to_string();
    let held = call.held.map(File::try_clone).transpose();
    let held = held.map_err(|source| CaptureError::Spawn {
        program: name.clone(),
        source,
    })?;
    let given_up = Arc::new(AtomicBool::new(false));
    let (ends, ended) = mpsc::channel::<()>();
    let _abandoned = CaptureGuard {
        given_up: Arc::clone(&given_up),
        ended,
    };
    let done = tokio::task::spawn_blocking(move || {
        let _ends = ends; // dropped at the end of this work
        let call = Capture {
            program: &program,
            args: &args,
            dir: &dir,
            env: &env,
            stdin: &stdin,
            timeout,
            limit,
            held: held.as_ref(),
        };
        work(&call, &given_up)
    });
    done.await.unwrap_or_else(|panicked| {
        Err(CaptureError::Read {
            program: name,
            source: io::Error::other(panicked),
        })
    })
}

/// On drop, signals the work to stop and waits for the end of the helper, so that it does not outlive its
/// caller.
struct CaptureGuard {
    given_up: Arc<AtomicBool>,
    ended: mpsc::Receiver<()>,
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        // No message is ever sent: the channel closes when the helper is gone.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// A killed helper is gone long before this.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a helper to its end and returns its output, whatever its exit code.
pub fn capture_blocking(call: &Capture<'_>) -> Result<Captured, CaptureError> {
    capture_until(call, &AtomicBool::new(false))
}

fn capture_until(call: &Capture<'_>, given_up: &AtomicBool) -> Result<Captured, CaptureError> {
    let program = || call.program.display().to_string();
    let mut child = begin(call)?;
    let (said, heard) = mpsc::channel();
    listen(child.stdout.take(), Stream::Stdout, call.limit, &said);
    listen(child.stderr.take(), Stream::Stderr, call.limit, &said);
    drop(said);

    let deadline = Instant::now() + call.timeout;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left.min(ATTENTION)) {
            Ok((_, Ok(bytes))) if bytes.len() > call.limit => {
                put_down(&mut child);
                return Err(CaptureError::TooMuch {
                    program: program(),
                    limit: call.limit,
                });
            }
            Ok((Stream::Stdout, Ok(bytes))) => stdout = bytes,
            Ok((Stream::Stderr, Ok(bytes))) => stderr = bytes,
            Ok((_, Err(source))) => {
                put_down(&mut child);
                return Err(CaptureError::Read {
                    program: program(),
                    source,
                });
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout)
                if Instant::now() < deadline && !given_up.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout) => {
                put_down(&mut child);
                return Err(CaptureError::TimedOut {
                    program: program(),
                    limit: call.timeout,
                });
            }
        }
    }
    let ended = wait_until(&mut child, deadline).map_err(|source| CaptureError::Read {
        program: program(),
        source,
    })?;
    let Some(exit) = ended else {
        put_down(&mut child);
        return Err(CaptureError::TimedOut {
            program: program(),
            limit: call.timeout,
        });
    };
    Ok(Captured {
        exit,
        stdout,
        stderr,
    })
}

/// Starts a helper and sends its input.
pub(super) fn begin(call: &Capture<'_>) -> Result<Child, CaptureError> {
    let mut child = spawn(call).map_err(|source| CaptureError::Spawn {
        program: call.program.display().to_string(),
        source,
    })?;
    if let Some(mut pipe) = child.stdin.take() {
        let input = call.stdin.to_vec();
        // A helper may exit without reading its input; its exit code shows the result.
        thread::spawn(move || pipe.write_all(&input));
    }
    Ok(child)
}

/// Waits for the exit. A helper usually exits as soon as it closes its output; the deadline covers one that does
/// not.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<Exit>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.into()));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        super::pause_between_looks();
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

fn spawn(call: &Capture<'_>) -> io::Result<Child> {
    let mut command = command(call.program, call.dir, call.env);
    command
        .args(call.args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if call.stdin.is_empty() {
        command.stdin(Stdio::null());
    } else {
        command.stdin(Stdio::piped());
    }
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    let held: Vec<BorrowedFd<'_>> = call.held.iter().map(|held| held.as_fd()).collect();
    let _passed_on = pass_on(&held)?;
    command.spawn()
}

fn listen(
    pipe: Option<impl Read + Send + 'static>,
    stream: Stream,
    limit: usize,
    said: &mpsc::Sender<(Stream, io::Result<Vec<u8>>)>,
) {
    let Some(pipe) = pipe else { return };
    let said = said.clone();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.take(limit as u64 + 1).read_to_end(&mut bytes);
        // After a timeout, the receiver is gone.
        let _ = said.send((stream, read.map(|_| bytes)));
    });
}

/// Kills a helper and its children; a helper holds nothing that could be lost.
pub(super) fn put_down(child: &mut Child) {
    let _ = signal_group(child.id(), Signal::KILL);
    let _ = child.wait();
}
