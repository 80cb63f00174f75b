//! An engine that holds the lock of a state for us: `console` locks before it reads its input, and unlocks when that ends.
//! Terraform's prints nothing before that, so it is asked something: once the question is taken, it has the lock.
//!
//! Not here: what is done meanwhile. Backends that know no locks are not locked, and nobody says so.

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

/// It may wait for a provider, and for nobody who works.
const PATIENCE: Duration = Duration::from_mins(5);

/// How often is looked whether it has read.
const LOOK: Duration = Duration::from_millis(20);

/// What it says, in its directory.
const COMPLAINTS: &str = ".terrane-console.err";

/// How both engines begin to say that a lock stays. They end as if all were well.
const STAYS: &str = "Error releasing the state lock";

/// Whoever drops this, or dies, ends its input: the lock goes.
#[derive(Debug)]
pub struct Holding {
    child: Child,
    input: ChildStdin,
    complaints: PathBuf,
    /// How much it had complained when it had the lock.
    before: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error("could not run the engine")]
    Run(#[from] io::Error),
    /// In its own words.
    #[error("the engine could not lock the state: {said}")]
    Refused { said: String },
    /// In its own words. The lock may be there still.
    #[error("the engine could not unlock the state: {said}")]
    NotReleased { said: String },
    #[error("the engine did not answer within {} minutes", PATIENCE.as_secs() / 60)]
    TooSlow,
}

impl Engine {
    /// Takes the lock of the state that the directory was initialised for. The files are those it was initialised with.
    pub async fn hold_lock(
        &self,
        dir: &Path,
        env: &Environment,
        var_files: &[PathBuf],
    ) -> Result<Holding, HoldError> {
        // In a file: nobody reads a pipe meanwhile, and a full one would stop it.
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
        // One that ended already takes nothing, and says why.
        let asked = input.write_all(b"0\n").await.is_ok();
        let begun = Instant::now();
        loop {
            if child.try_wait()?.is_some() {
                let said = said_since(&complaints, 0)?;
                return Err(HoldError::Refused { said });
            }
            if asked && rustix::io::ioctl_fionread(&input).map_err(io::Error::from)? == 0 {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(HoldError::TooSlow);
            }
            tokio::time::sleep(LOOK).await;
        }
        let before = std::fs::metadata(&complaints)?.len();
        Ok(Holding {
            child,
            input,
            complaints,
            before,
        })
    }
}

impl Holding {
    /// Unlocks, and waits for it.
    pub async fn release(self) -> Result<(), HoldError> {
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
        Err(HoldError::NotReleased { said })
    }

    /// Leaves the lock there, with nobody behind it.
    pub async fn leave_locked(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}

/// What it has complained since its complaints were so long.
fn said_since(complaints: &Path, before: u64) -> io::Result<String> {
    let mut file = File::open(complaints)?;
    file.seek(SeekFrom::Start(before))?;
    let mut said = Vec::new();
    file.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
