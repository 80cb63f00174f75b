//! Engine permits: how many engines a change set may run at once.
//!
//! There is one run more than there are permits (`Request::runs_at_once`). A run takes a permit before its
//! first engine. It releases the permit after its last engine, while it still has to store what happened. The
//! waiting run has already begun and starts its engine at once, so that no processor is idle between two
//! runs.
//!
//! A permit is a file lock that engines inherit, so the engines of a killed runner keep it. A process that
//! releases a permit writes to a named pipe, so that waiting runs need not poll often.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::base::ids::ChangeSetId;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::io::Errno;
use tokio::net::unix::pipe;

use crate::home::{Home, make_private};
use crate::run::lock::try_lock;

/// Poll interval, for permits whose holder was killed without notifying.
const LOOK: Duration = Duration::from_secs(1);

/// An engine permit, held while engines of one run are at work.
#[derive(Debug)]
pub(super) struct EnginePermit {
    file: File,
    bell: PathBuf,
}

impl EnginePermit {
    /// Takes a permit or waits for one. Calls `waits` if that takes long. The future may be dropped while it
    /// waits.
    pub(super) async fn take(
        home: &Home,
        set: ChangeSetId,
        places: usize,
        mut waits: impl FnMut(),
    ) -> io::Result<Self> {
        let dir = home.places();
        make_private(&dir)?;
        let bell = dir.join(format!("{set}.bell"));
        let free = |bell: PathBuf| {
            for number in 0..places {
                if let Some(file) = try_lock(&dir.join(format!("{set}.{number}")))? {
                    return Ok(Some(Self { file, bell }));
                }
            }
            Ok::<_, io::Error>(None)
        };
        if let Some(place) = free(bell.clone())? {
            return Ok(place);
        }
        // Open the pipe before trying again, so that a permit released after that is noticed.
        let ears = listen(&bell)?;
        loop {
            if let Some(place) = free(bell.clone())? {
                return Ok(place);
            }
            if tokio::time::timeout(LOOK, hear(&ears)).await.is_err() {
                waits();
            }
        }
    }

    /// The lock file, for engines to inherit.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for EnginePermit {
    fn drop(&mut self) {
        // Closing is not enough: a background process that an engine left must not keep the permit.
        drop(self.file.unlock());
        ring(&self.bell);
    }
}

/// Opens the pipe for writing as well, so that it does not end when there is no writer.
fn listen(bell: &Path) -> io::Result<pipe::Receiver> {
    match mkfifoat(CWD, bell, Mode::RUSR | Mode::WUSR) {
        Err(err) if err != Errno::EXIST => return Err(err.into()),
        _ => {}
    }
    let mut options = File::options();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).write(true).custom_flags(nonblocking);
    pipe::Receiver::from_file_unchecked(file.open(bell)?)
}

async fn hear(ears: &pipe::Receiver) -> io::Result<()> {
    loop {
        ears.readable().await?;
        match ears.try_read(&mut [0; 64]) {
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            heard => return heard.map(drop),
        }
    }
}

/// Notifies waiting runs. If no process has the pipe open, no run waits.
fn ring(bell: &Path) {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    if let Ok(mut bell) = options.write(true).custom_flags(nonblocking).open(bell) {
        drop(bell.write(b"!"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::home::HomeLocation;
    use crate::home::master_keys::KeySource;
    use crate::run::cleanup;

    fn home(dir: &Path) -> Home {
        let place = HomeLocation::Directory(dir.to_owned());
        let key = KeySource::File(dir.join("key"));
        Home::at(place, dir.to_owned(), key, "p".to_owned())
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_a_place_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let set = ChangeSetId(7);
        let take = || EnginePermit::take(&home, set, 2, || {});
        let first = take().await.unwrap();
        let _second = take().await.unwrap();
        let mut third = Box::pin(take());
        tokio::select! {
            biased;
            _ = &mut third => panic!("there are two places"),
            () = tokio::task::yield_now() => {}
        }
        // As an engine that left something running: it has the descriptor still.
        let inherited = first.file().try_clone().unwrap();
        drop(first);
        drop(third.await.unwrap());
        drop(inherited);
        // Another change set has places of its own.
        drop(
            EnginePermit::take(&home, ChangeSetId(77), 1, || {})
                .await
                .unwrap(),
        );
        cleanup::remove_places(&home, set);
        let left: Vec<_> = fs::read_dir(home.places()).unwrap().flatten().collect();
        let left: Vec<_> = left.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(left, ["c77.0"]);
    }
}
