//! Runs programs of the project: returns the exit and the end of the output, for any amount of output and also if
//! the program was stopped.
//!
//! Not here: helpers whose whole output is needed (`capture`).

use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::capture::{Capture, CaptureError, aside, begin, put_down};
use super::open_files::{FileId, holders_of};
use super::{Exit, SPAWNING, has_ended, signal_group};

/// How often to check a program whose output stays open.
const ATTENTION: Duration = Duration::from_millis(20);
/// Time to read the rest of the output if another process keeps it open after the program's end.
const LINGER: Duration = Duration::from_millis(250);

/// How a program ended. `Debug` leaves out the bytes: they may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TailedOutput {
    /// `None` if it was stopped, at its limit or because the caller gave up.
    pub exit: Option<Exit>,
    /// The end of its output: at most as many bytes as the call's limit.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl std::fmt::Debug for TailedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ended")
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

/// Runs a program until it ends or reaches its time limit. Afterwards no process of it is left that keeps its
/// output open.
pub async fn run_with_tail(call: Capture<'_>) -> Result<TailedOutput, CaptureError> {
    aside(call, end_of).await
}

pub(super) fn end_of(
    call: &Capture<'_>,
    given_up: &AtomicBool,
) -> Result<TailedOutput, CaptureError> {
    let mut child = begin(call)?;
    let (open, closed) = mpsc::channel::<()>();
    let outputs = [
        child.stdout.as_ref().and_then(FileId::of_open),
        child.stderr.as_ref().and_then(FileId::of_open),
    ];
    let stdout = follow(child.stdout.take(), call.limit, &open);
    let stderr = follow(child.stderr.take(), call.limit, &open);
    drop(open);
    let unreadable = |source| CaptureError::Read {
        program: call.program.display().to_string(),
        source,
    };
    let deadline = Instant::now() + call.timeout;
    let exit = loop {
        if has_ended(&child).map_err(unreadable)? {
            // No message is ever sent: either both pipes are closed, or a process that the program started still
            // holds one.
            if closed.recv_timeout(LINGER) == Err(RecvTimeoutError::Timeout) {
                let _ = signal_group(child.id(), Signal::KILL);
                end_holders(&outputs, &closed);
            }
            break Some(child.wait().map_err(unreadable)?.into());
        }
        if Instant::now() >= deadline || given_up.load(Ordering::Relaxed) {
            put_down(&mut child);
            end_holders(&outputs, &closed);
            break None;
        }
        match closed.recv_timeout(ATTENTION) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            // The program exits shortly after it closes its output.
            Err(RecvTimeoutError::Disconnected) => super::pause_between_looks(),
        }
    };
    Ok(TailedOutput {
        exit,
        stdout: taken(&stdout),
        stderr: taken(&stderr),
    })
}

/// Kills processes that left the group, for a session of their own, and still hold the output open.
fn end_holders(outputs: &[Option<FileId>], closed: &mpsc::Receiver<()>) {
    // Such a process may start another one during the search.
    for _ in 0..3 {
        if closed.recv_timeout(LINGER) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        // A child that is just being started has our descriptors for a moment.
        let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
        for holder in outputs.iter().flatten().flat_map(|it| holders_of(*it)) {
            let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}

type Tail = Arc<Mutex<VecDeque<u8>>>;

/// Reads to the end and keeps only the last bytes; `open` is dropped with the pipe.
fn follow(pipe: Option<impl Read + Send + 'static>, limit: usize, open: &mpsc::Sender<()>) -> Tail {
    let tail = Tail::default();
    let (kept, open) = (Arc::clone(&tail), open.clone());
    let Some(mut pipe) = pipe else {
        return tail;
    };
    thread::spawn(move || {
        let _open = open;
        let mut bytes = [0; 8192];
        while let Ok(read @ 1..) = pipe.read(&mut bytes) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&bytes[..read]);
            let beyond = kept.len().saturating_sub(limit);
            kept.drain(..beyond);
        }
    });
    tail
}

fn taken(tail: &Tail) -> Vec<u8> {
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *tail).into()
}
