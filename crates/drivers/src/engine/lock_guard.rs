//! Uses an engine process to hold a state lock: `console` locks before it reads its input and unlocks at end of
//! input. Terraform's console prints nothing before that, so we send it an expression: once it reads that, it
//! holds the lock.
//!
//! Not here: the work done under the lock. Backends without locks are not locked, and this is not reported.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use super::Engine;
use crate::process::{self, Environment};

/// Limit for taking the lock. It covers starting providers, not waiting for another holder.
const PATIENCE: Duration = Duration::from_mins(5);

/// How often to check whether the console has read its input.
const LOOK: Duration = Duration::from_millis(20);

/// The console's standard error, in its directory.
const COMPLAINTS: &str = ".terrane-console.err";

/// Both engines print this when a lock cannot be released, and still exit with success.
const STAYS: &str = "Error releasing the state lock";

/// Dropping this, or the end of our process, closes the console's input and releases the lock.
#[derive(Debug)]
pub struct EngineLockGuard {
    child: Child,
    input: ChildStdin,
    complaints: PathBuf,
    /// Length of standard error when the lock was taken.
    before: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineLockError {
    #[error("could not run the engine")]
    Run(#[from] io::Error),
    /// `said` is the engine's own message.
    #[error("the engine could not lock the state: {said}")]
    Refused { said: String },
    /// `said` is the engine's own message. The lock may still be held.
    #[error("the engine could not unlock the state: {said}")]
    NotReleased { said: String },
    #[error("the engine did not answer within {} minutes", PATIENCE.as_secs() / 60)]
    TooSlow,
}

impl Engine {
    /// Takes the lock of the state that `dir` was initialised for. The files are those given to `init`.
    pub async fn hold_lock(
        &self,
        dir: &Path,
        env: &Environment,
        var_files: &[PathBuf],
    ) -> Result<EngineLockGuard, EngineLockError> {
        // Standard error goes to a file: a full pipe that is not read would block the engine.
        let complaints = dir.join(COMPLAINTS);
        let mut command = Command::from(process::command(&self.program, dir, env));
        command
            .arg("console")
            .args(var_files.iter().map(|file| {
                let mut word = OsString::from("-var-file=");
                word.push(file);
                word
            }))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&complaints)?);
        let mut child = command.spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut input = child.stdin.take().ok_or_else(gone)?;
        // If the console has already exited, the write fails and its standard error has the reason.
        let asked = input.write_all(b"0\n").await.is_ok();
        let begun = Instant::now();
        loop {
            if child.try_wait()?.is_some() {
                let said = said_since(&complaints, 0)?;
                return Err(EngineLockError::Refused { said });
            }
            if asked && rustix::io::ioctl_fionread(&input).map_err(io::Error::from)? == 0 {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(EngineLockError::TooSlow);
            }
            tokio::time::sleep(LOOK).await;
        }
        let before = std::fs::metadata(&complaints)?.len();
        Ok(EngineLockGuard {
            child,
            input,
            complaints,
            before,
        })
    }
}

impl EngineLockGuard {
    /// Releases the lock and waits for the engine to exit.
    pub async fn release(self) -> Result<(), EngineLockError> {
        let Self {
            mut child,
            input,
            complaints,
            before,
        } = self;
        drop(input);
        let ended = child.wait().await?;
        let said = said_since(&complaints, before)?;
        if ended.success() && !said.contains(STAYS) {
            return Ok(());
        }
        Err(EngineLockError::NotReleased { said })
    }

    /// Ends the engine without releasing the lock.
    pub async fn leave_locked(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}

/// Standard error after the first `before` bytes.
fn said_since(complaints: &Path, before: u64) -> io::Result<String> {
    let mut file = File::open(complaints)?;
    file.seek(SeekFrom::Start(before))?;
    let mut said = Vec::new();
    file.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
