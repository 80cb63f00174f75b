//! Reads blobs one after the other from one `git cat-file --batch` process.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use model::base::tree::ReadFailure;

use super::GitError;
use crate::process::spawn_helper;

/// A running `git cat-file` process; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct BlobReader {
    child: Child,
    /// Taken on drop: closing it makes Git exit.
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
}

impl BlobReader {
    pub(super) fn start(mut command: Command) -> Result<Self, GitError> {
        command
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = spawn_helper(&mut command).map_err(|source| GitError::Start { source })?;
        let (ask, answer) = (child.stdin.take(), child.stdout.take());
        let answer = answer.ok_or_else(|| GitError::Start {
            source: io::ErrorKind::BrokenPipe.into(),
        })?;
        Ok(Self {
            child,
            ask,
            answer: BufReader::new(answer),
        })
    }

    /// The content of a blob, or an error if it is larger than `limit`.
    pub(crate) fn read(&mut self, id: &str, limit: u64) -> Result<Vec<u8>, ReadFailure> {
        self.ask(id, limit)
            .map_err(|err| ReadFailure::Other(format!("Git did not answer: {err}")))?
    }

    fn ask(&mut self, id: &str, limit: u64) -> io::Result<Result<Vec<u8>, ReadFailure>> {
        let ask = self.ask.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(ask, "{id}")?;
        ask.flush()?;
        // "<id> blob <size>" or "<id> missing"
        let mut head = String::new();
        self.answer.read_line(&mut head)?;
        let words: Vec<&str> = head.split_whitespace().collect();
        let size: u64 = match words[..] {
            [_, "blob", size] => size.parse().map_err(|_| io::ErrorKind::InvalidData)?,
            [_, "missing"] => return Ok(Err(ReadFailure::Missing)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let mut content = (&mut self.answer).take(size + 1); // and a line feed
        if size > limit {
            io::copy(&mut content, &mut io::sink())?;
            return Ok(Err(ReadFailure::TooLarge { limit }));
        }
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        if bytes.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Ok(bytes))
    }
}

impl Drop for BlobReader {
    fn drop(&mut self) {
        self.ask.take();
        // Git exits at the end of its input; its exit code no longer matters.
        let _ = self.child.wait();
    }
}
