//! The stages after an apply: publishing, bootstrapping, verifying. Each may be carried out again at any time.
//!
//! Not here: what they do (`facts`, `bootstrap`, `gates`), where their values come from (`stages`).

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use drivers::process::engine_environment;
use model::masking::Mask;
use model::project::Backend;
use model::run::{RunEvent, Stage};
use model::stage::StageBlock;
use serde_json::{Value, json};

use super::{Failure, Job, failed};
use crate::stages::{Side, StackValues};

pub(super) async fn carry_out(job: &Job<'_>, stage: Stage) -> RunEvent {
    let mut mask = Mask::default();
    let ended = {
        let mut interrupts = job.interrupts.lock().await;
        tokio::select! {
            ended = stage_of(job, stage, &mut mask) => ended,
            () = interrupts.next() => Err(Failure::interrupted()),
        }
    };
    match ended {
        Ok(report) => {
            let later = |next: &&Stage| **next > stage;
            let stages = job.spec.stages_after();
            RunEvent::StageFinished {
                part: stage,
                report,
                then: stages.iter().find(later).copied(),
            }
        }
        Err(failure) => failed(failure, stage, None, &mask),
    }
}

async fn stage_of(job: &Job<'_>, stage: Stage, mask: &mut Mask) -> Result<Value, Failure> {
    let stages = &job.spec.stack.stages;
    let blocks: &[StageBlock] = match stage {
        Stage::Publishing => &stages.publish,
        Stage::Bootstrapping => &stages.bootstrap,
        Stage::Verifying => &stages.gates,
        Stage::Preparing | Stage::Planning | Stage::Applying => &[],
    };
    let env = engine_environment(job.asker.env(), job.spec.target.is_open());
    let side = Side {
        asker: job.asker,
        root: Path::new(&job.spec.root),
        env: &env,
    };
    let is_ours = job.spec.target.backend == Backend::Terrane;
    let gathered = StackValues::gather(
        job.control,
        &job.spec.stack,
        is_ours,
        blocks,
        std::iter::empty(),
        &side,
    );
    let values = gathered
        .await
        .map_err(|err| Failure::because("could not get the values it needs", &err))?;
    *mask = values.mask();
    let log = StageLog::open(job, stage, mask.clone())?;
    let resolved = values
        .resolve(blocks)
        .map_err(|err| Failure::because("could not work out what it says", &err))?;
    log.say(&format!("{} blocks", resolved.len()));
    Ok(json!({ "summary": format!("{} blocks", resolved.len()) }))
}

/// What a stage says while it is at work: for whoever watches, and for later. Without secrets.
pub(super) struct StageLog {
    file: File,
    mask: Mask,
}

impl StageLog {
    fn open(job: &Job<'_>, stage: Stage, mask: Mask) -> Result<Self, Failure> {
        let path = job.control.home.engine_events(job.run, stage);
        let mut options = File::options();
        let options = options.create(true).append(true).mode(0o600);
        let file = options
            .open(path)
            .map_err(|err| Failure::because("could not write the run's log", &err))?;
        Ok(Self { file, mask })
    }

    /// One line, as engines write theirs.
    pub(super) fn say(&self, words: &str) {
        let line = json!({
            "@level": "info",
            "@message": self.mask.mask_text(words),
            "@timestamp": jiff::Timestamp::now().to_string(),
            "type": "log",
        });
        // A line that cannot be written now is not worth a failure.
        drop(writeln!(&self.file, "{line}"));
    }
}
