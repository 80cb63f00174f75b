//! The stored engine logs of a run: without secrets, growing while engines run.
//!
//! Not here: writing them (`runner::logs`), displaying them (`cli`).

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use model::base::ids::RunId;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::run::Stage;
use model::run::engine_event::EngineEvent;

use crate::home::{COMPLAINTS, Home, log_name};

pub use crate::program_output::engine_messages::strip_ansi;

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPart {
    Stage(Stage),
    /// The engine's standard error, in any stage.
    Complaints,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub part: LogPart,
    /// As the engine wrote it, without secrets.
    pub text: String,
    pub event: EngineEvent,
}

/// The number of attempts of a run that have engine logs. Each new plan is an attempt.
pub fn attempts(home: &Home, run: RunId) -> usize {
    let mut logs = Stage::ALL
        .map(|stage| home.engine_events(run, stage))
        .into_iter();
    earlier_attempts(home, run) + usize::from(logs.any(|log| log.exists()))
}

/// The number of finished attempts, whose logs are stored separately.
pub(crate) fn earlier_attempts(home: &Home, run: RunId) -> usize {
    let found = fs::read_dir(home.attempts(run));
    found.map_or(0, |entries| entries.flatten().count())
}

/// The mask for the values that a run must hide, as long as its scratch directory exists.
pub(crate) fn hidden_in(home: &Home, run: RunId) -> Option<Mask> {
    let bytes = fs::read(home.hidden_values(run)).ok()?;
    let values: Vec<String> = serde_json::from_slice(&bytes).ok()?;
    let secrets: Vec<Secret> = values.iter().map(Secret::new).collect();
    Some(Mask::new(&secrets))
}

/// Reads the log of a run from the beginning, then its new lines.
#[derive(Debug)]
pub struct RunLog {
    tails: Vec<Tail>,
}

impl RunLog {
    /// `only`: one stage, without standard error. `attempt`: an earlier attempt; by default the last one.
    pub fn new(home: &Home, run: RunId, only: Option<Stage>, attempt: Option<usize>) -> Self {
        let earlier = attempt.filter(|number| *number <= earlier_attempts(home, run));
        let dir = earlier.map_or_else(|| home.run_dir(run), |number| home.attempt(run, number));
        let wanted = Stage::ALL
            .into_iter()
            .filter(|it| only.is_none_or(|only| only == *it));
        let mut tails: Vec<Tail> = wanted
            .map(|stage| Tail::new(LogPart::Stage(stage), dir.join(log_name(stage))))
            .collect();
        if only.is_none() {
            tails.push(Tail::new(LogPart::Complaints, dir.join(COMPLAINTS)));
        }
        Self { tails }
    }

    /// A log without any files.
    pub fn empty() -> Self {
        Self { tails: Vec::new() }
    }

    /// The new lines since the last call, in the order of the stages.
    pub fn read_new(&mut self) -> Vec<LogLine> {
        self.tails.iter_mut().flat_map(Tail::read_new).collect()
    }

    /// The remaining lines, including an unterminated last line. Call it when no more output will follow.
    pub fn finish(mut self) -> Vec<LogLine> {
        let mut lines = self.read_new();
        lines.extend(self.tails.iter().filter_map(|tail| tail.line(&tail.rest)));
        lines
    }
}

#[derive(Debug)]
struct Tail {
    part: LogPart,
    path: PathBuf,
    read: u64,
    rest: Vec<u8>,
}

impl Tail {
    fn new(part: LogPart, path: PathBuf) -> Self {
        Self {
            part,
            path,
            read: 0,
            rest: Vec::new(),
        }
    }

    /// A file that does not exist yet or cannot be read now is tried again at the next call.
    fn read_new(&mut self) -> Vec<LogLine> {
        let Ok(mut file) = File::open(&self.path) else {
            return Vec::new();
        };
        // A repeated stage starts its log again.
        if file.metadata().is_ok_and(|found| found.len() < self.read) {
            self.read = 0;
            self.rest.clear();
        }
        let mut new = Vec::new();
        if file.seek(SeekFrom::Start(self.read)).is_err() || file.read_to_end(&mut new).is_err() {
            return Vec::new();
        }
        self.read += new.len() as u64;
        self.rest.extend(new);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = whole.split(|byte| *byte == b'\n');
        lines.filter_map(|line| self.line(line)).collect()
    }

    fn line(&self, bytes: &[u8]) -> Option<LogLine> {
        let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
        (!text.is_empty()).then(|| LogLine {
            part: self.part,
            event: EngineEvent::parse(&text),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_come_when_they_are_whole_and_again_when_a_stage_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.jsonl");
        let mut tail = Tail::new(LogPart::Stage(Stage::Planning), path.clone());
        let mut texts = || -> Vec<String> {
            let lines = tail.read_new().into_iter();
            lines.map(|line| line.event.message).collect()
        };
        assert_eq!(texts(), Vec::<String>::new());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"{\"@message\":\"one\"}\n{\"@mess").unwrap();
        assert_eq!(texts(), ["one"]);
        file.write_all(b"age\":\"two\"}\n").unwrap();
        assert_eq!(texts(), ["two"]);
        fs::write(&path, "again\n").unwrap();
        assert_eq!(texts(), ["again"]);
    }
}
