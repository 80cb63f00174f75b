//! Appends that concurrent writers of a server share: frames that arrive during one sync are written and synced with
//! the next one. Database commits continue meanwhile.
//!
//! Not here: where frames are stored (`segments`), and which of them are in use (the database decides).

use std::io;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::frame::Frame;
use super::{FrameLocation, Segments};
use crate::db::SyncedFile as _;

/// How many frames are written together at most.
const LARGEST: usize = 256;

/// Dropping it waits for all pending jobs.
#[derive(Debug)]
pub(crate) struct AppendQueue {
    /// `None` once it is being dropped.
    jobs: Option<Sender<AppendJob>>,
    writer: Option<JoinHandle<()>>,
}

enum AppendJob {
    /// Durable before the sender gets its location.
    Frame(Arc<Frame>, oneshot::Sender<io::Result<FrameLocation>>),
    /// Nothing waits for it; the next sync includes it.
    Marker(Frame),
    /// Answered when all earlier jobs are written.
    Settle(oneshot::Sender<()>),
}

impl AppendQueue {
    pub(crate) fn new(segments: Arc<Segments>) -> Self {
        let (jobs, queue) = mpsc::channel();
        let writer = thread::spawn(move || write_all(&queue, &segments));
        Self {
            jobs: Some(jobs),
            writer: Some(writer),
        }
    }

    /// Durable when this returns.
    pub(crate) async fn append(&self, frame: Arc<Frame>) -> io::Result<FrameLocation> {
        let (tell, told) = oneshot::channel();
        self.send(AppendJob::Frame(frame, tell));
        let gone = |_| io::Error::other("nothing is written any more");
        told.await.map_err(gone)?
    }

    pub(crate) fn mark(&self, marker: Frame) {
        // The version is stored and acknowledged in any case.
        self.send(AppendJob::Marker(marker));
    }

    /// Returns when all earlier jobs are written, or never will be.
    pub(crate) async fn settle(&self) {
        let (tell, told) = oneshot::channel();
        self.send(AppendJob::Settle(tell));
        drop(told.await);
    }

    /// If the thread is gone, the caller notices the dropped channel.
    fn send(&self, job: AppendJob) {
        if let Some(jobs) = &self.jobs {
            drop(jobs.send(job));
        }
    }
}

impl Drop for AppendQueue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

impl AppendJob {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Frame(frame, _) => Some(&frame.bytes),
            Self::Marker(frame) => Some(&frame.bytes),
            Self::Settle(_) => None,
        }
    }

    fn is_awaited(&self) -> bool {
        matches!(self, Self::Frame(..))
    }
}

fn write_all(queue: &Receiver<AppendJob>, segments: &Segments) {
    while let Ok(first) = queue.recv() {
        let more = queue.try_iter().take(LARGEST);
        let jobs: Vec<AppendJob> = iter::once(first).chain(more).collect();
        let written = write(&jobs, segments);
        tell(jobs, &written);
    }
}

/// The location of each frame that was written.
fn write(jobs: &[AppendJob], segments: &Segments) -> io::Result<Vec<FrameLocation>> {
    let frames: Vec<&[u8]> = jobs.iter().filter_map(AppendJob::bytes).collect();
    if frames.is_empty() {
        return Ok(Vec::new());
    }
    let (segment, places) = segments.append(&frames)?;
    if jobs.iter().any(AppendJob::is_awaited) {
        segment.sync()?;
    }
    Ok(places)
}

fn tell(jobs: Vec<AppendJob>, written: &io::Result<Vec<FrameLocation>>) {
    let mut places = written.as_deref().unwrap_or_default().iter();
    for job in jobs {
        let place = if job.bytes().is_some() {
            places.next()
        } else {
            None
        };
        // The caller may be gone.
        match job {
            AppendJob::Frame(_, tell) => {
                let place = place.cloned().ok_or_else(|| why(written));
                drop(tell.send(place));
            }
            AppendJob::Marker(_) => {}
            AppendJob::Settle(tell) => drop(tell.send(())),
        }
    }
}

/// The same error for each caller that shares the write.
fn why(written: &io::Result<Vec<FrameLocation>>) -> io::Error {
    match written {
        Ok(_) => io::Error::other("it has no place"),
        Err(err) => match err.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(err.kind(), err.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::durability::SyncWatch;
    use crate::blob::segments::read_at;

    fn frame(text: &str) -> Arc<Frame> {
        Arc::new(Frame {
            bytes: text.as_bytes().to_vec(),
            digest: [0; 32],
        })
    }

    #[tokio::test]
    async fn each_writer_is_told_its_own_place() {
        let home = tempfile::tempdir().unwrap();
        let segments = Arc::new(Segments::new(home.path(), SyncWatch::default()));
        let appends = Arc::new(AppendQueue::new(Arc::clone(&segments)));
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..100 {
            let appends = Arc::clone(&appends);
            writers.spawn(async move {
                let text = format!("frame {number}");
                let place = appends.append(frame(&text)).await.unwrap();
                appends.mark(Arc::unwrap_or_clone(frame("marker")));
                (text, place)
            });
        }
        for (text, place) in writers.join_all().await {
            let read = read_at(&segments.path(1), &place).unwrap();
            assert_eq!(read, text.as_bytes());
        }
        drop(appends);
        let all = std::fs::read_to_string(segments.path(1)).unwrap();
        assert_eq!(all.matches("marker").count(), 100);
    }

    #[tokio::test]
    async fn all_that_share_a_failure_are_told() {
        let home = tempfile::tempdir().unwrap();
        let watch = SyncWatch::default();
        watch.die_after(0);
        let segments = Segments::new(home.path(), watch);
        let appends = AppendQueue::new(Arc::new(segments));
        let (one, two) = tokio::join!(appends.append(frame("a")), appends.append(frame("b")));
        for failed in [one, two] {
            assert_eq!(failed.unwrap_err().to_string(), "the machine is off");
        }
        appends.settle().await;
    }
}
