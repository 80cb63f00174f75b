//! Follows the engines' output to show the resource that each is working on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use control::Control;
use control::runner::STILL;
use model::base::ids::RunId;
use model::run::engine_event::{EngineEvent, EventKind, EventReader};
use model::run::{Run, RunState, Stage};

#[derive(Default)]
pub(super) struct Tails(BTreeMap<RunId, Tail>);

struct Tail {
    path: PathBuf,
    read: u64,
    reader: EventReader,
    now: Option<String>,
    /// Written by one of terrane's stages, not by an engine.
    is_ours: bool,
    /// What the run still waits for, if not reported to the user yet.
    still: Option<String>,
}

impl Tails {
    /// Reads the new output of all runs that are under way.
    pub(super) fn follow(&mut self, control: &Control, runs: &[Run]) {
        for run in runs {
            let stage = match run.state {
                RunState::Planning { .. } => Stage::Planning,
                RunState::Applying { .. } => Stage::Applying,
                RunState::Completing { part, .. } => part,
                RunState::Queued
                | RunState::Deferred { .. }
                | RunState::Planned { .. }
                | RunState::Applied { .. }
                | RunState::Finished { .. } => {
                    self.0.remove(&run.id);
                    continue;
                }
            };
            let path = control.home.engine_events(run.id, stage);
            let is_ours = stage > Stage::Applying;
            let tail = self
                .0
                .entry(run.id)
                .or_insert_with(|| Tail::new(path.clone(), is_ours));
            if tail.path != path {
                *tail = Tail::new(path, is_ours);
            }
            tail.follow();
            if tail.read == 0 {
                tail.now = std::fs::read_to_string(control.home.run_waits(run.id))
                    .ok()
                    .filter(|words| !words.is_empty());
            }
        }
    }

    /// What runs reported since the last call that they still wait for.
    pub(super) fn take_still(&mut self) -> Vec<(RunId, String)> {
        let tails = self.0.iter_mut();
        tails
            .filter_map(|(run, tail)| Some((*run, tail.still.take()?)))
            .collect()
    }

    /// The current work of a run's engine.
    pub(super) fn now(&self, run: RunId) -> Option<&str> {
        self.0.get(&run)?.now.as_deref()
    }
}

impl Tail {
    fn new(path: PathBuf, is_ours: bool) -> Self {
        Self {
            path,
            is_ours,
            still: None,
            read: 0,
            reader: EventReader::default(),
            now: None,
        }
    }

    /// Reads the new part of the file. A file that does not exist yet, or cannot be read now, is tried again
    /// next time.
    fn follow(&mut self) {
        let Ok(mut file) = File::open(&self.path) else {
            return;
        };
        // A new plan starts its log from the beginning.
        if file.metadata().is_ok_and(|found| found.len() < self.read) {
            *self = Self::new(self.path.clone(), self.is_ours);
        }
        let mut new = Vec::new();
        if file.seek(SeekFrom::Start(self.read)).is_err() || file.read_to_end(&mut new).is_err() {
            return;
        }
        self.read += new.len() as u64;
        for event in self.reader.push(&new) {
            if self.is_ours && matches!(&event.kind, EventKind::Other(kind) if kind == STILL) {
                self.still = Some(event.message.clone());
            }
            if let Some(words) = describe(&event, self.is_ours) {
                self.now = Some(words);
            } else if self.now.as_deref().is_some_and(|now| is_over(&event, now)) {
                self.now = None;
            }
        }
    }
}

fn describe(event: &EngineEvent, is_ours: bool) -> Option<String> {
    let (step, words) = match &event.kind {
        EventKind::RefreshStart(step) => (step, "refreshing"),
        EventKind::ApplyStart(step) => (step, doing(step.action.as_deref())),
        EventKind::ApplyProgress(step) => (step, still(step.action.as_deref())),
        EventKind::ProvisionStart(step) | EventKind::ProvisionProgress(step) => {
            (step, "provisioning")
        }
        EventKind::Hook(name) => return Some(name.clone()),
        // Messages of terrane's own stages.
        EventKind::Log => return Some(event.message.clone()).filter(|_| is_ours),
        _ => return None,
    };
    Some(format!("{}: {words}", step.resource.addr))
}

/// Whether the current work has ended.
fn is_over(event: &EngineEvent, now: &str) -> bool {
    let (EventKind::RefreshComplete(step)
    | EventKind::ApplyComplete(step)
    | EventKind::ApplyErrored(step)) = &event.kind
    else {
        return false;
    };
    now.strip_prefix(&step.resource.addr)
        .is_some_and(|rest| rest.starts_with(": "))
}

fn doing(action: Option<&str>) -> &'static str {
    match action {
        Some("create") => "creating",
        Some("update") => "changing",
        Some("delete") => "destroying",
        Some("read") => "reading",
        _ => "working",
    }
}

fn still(action: Option<&str>) -> &'static str {
    match action {
        Some("create") => "still creating",
        Some("update") => "still changing",
        Some("delete") => "still destroying",
        Some("read") => "still reading",
        _ => "still working",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown after each line of a log.
    #[track_caller]
    fn check(lines: &[(&str, Option<&str>)]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(path.clone(), false);
        let mut log = String::new();
        for (line, expected) in lines {
            log.extend([*line, "\n"]);
            std::fs::write(&path, &log).unwrap();
            tail.follow();
            assert_eq!(tail.now.as_deref(), *expected, "{line}");
        }
    }

    #[test]
    fn what_is_shown_is_what_goes_on() {
        check(&[
            (
                r#"{"type":"apply_start","hook":{"resource":{"addr":"a.b"},"action":"create"}}"#,
                Some("a.b: creating"),
            ),
            (
                r#"{"type":"apply_complete","hook":{"resource":{"addr":"a.c"},"action":"create"}}"#,
                Some("a.b: creating"),
            ),
            (
                r#"{"type":"apply_complete","hook":{"resource":{"addr":"a.b"},"action":"create"}}"#,
                None,
            ),
            (
                r#"{"type":"log","hook":"hook after apply of context `h`","@message":"tick"}"#,
                Some("hook after apply of context `h`"),
            ),
        ]);
    }
}
