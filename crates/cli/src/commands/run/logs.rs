//! `terrane run logs`

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use control::Control;
use control::changeset::explain;
use control::run::liveness;
use control::run::logs::{LogLine, LogPart, RunLog, attempts, strip_ansi};
use control::schedule::cancel;
use model::base::actor::Actor;
use model::base::error::Explain;
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::Status;
use model::run::engine_event::EventKind;
use model::run::{Run, Stage};
use serde_json::json;

use super::cancel::say_over;
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::text::{self, clean, pad};
use crate::{CommandError, ExitStatus, Process, report};

/// How often to check for new lines.
const LOOK: Duration = Duration::from_millis(100);

/// How often to check whether the change set waits for a user.
const ASK: Duration = Duration::from_secs(1);

/// Print the engine output of a run, without secrets
///
/// `-f` follows an active run, from any terminal, and reports if the run waits for a person. A stack means its
/// newest run, a change set all its runs. A run that is planned again (after `run retry`, or when its plan was
/// stale) starts another attempt; the last one is shown. `--json` prints the events as the engine wrote them, one
/// per line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane run logs r7\n  terrane run logs -f network\n  \
                  terrane run logs r7 --attempt 1\n  terrane run logs r7 --stage apply --json"
)]
pub(crate) struct LogsArgs {
    /// A run, such as `r7`, a change set, such as `c3`, or a stack
    #[arg(value_name = "RUN|CHANGESET|STACK")]
    what: String,
    /// Follow until the run is over
    #[arg(short, long)]
    follow: bool,
    /// Only one stage
    #[arg(long, value_enum)]
    stage: Option<StageArg>,
    /// An earlier attempt, counted from 1; `terrane run show` shows how many there are
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    attempt: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum StageArg {
    Init,
    Plan,
    Apply,
    Publish,
    Bootstrap,
    Verify,
}

impl From<StageArg> for Stage {
    fn from(word: StageArg) -> Self {
        match word {
            StageArg::Init => Self::Preparing,
            StageArg::Plan => Self::Planning,
            StageArg::Apply => Self::Applying,
            StageArg::Publish => Self::Publishing,
            StageArg::Bootstrap => Self::Bootstrapping,
            StageArg::Verify => Self::Verifying,
        }
    }
}

pub(crate) async fn logs(
    args: &LogsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let control = &place.control;
    let mut runs = find(&args.what, control).await?;
    if let Some(run) = runs.first() {
        let checked = control.check_project(run.change_set).await;
        checked.map_err(|err| CommandError::from_error(&err))?;
    }
    if let Some(attempt) = args.attempt {
        let most = runs.iter().map(|run| attempts(&control.home, run.id)).max();
        runs.retain(|run| attempts(&control.home, run.id) >= attempt.get());
        if runs.is_empty() {
            let had = text::count(most.unwrap_or(0), "attempt");
            return Err(CommandError::new(format!(
                "there is no attempt {attempt} of `{}`",
                args.what
            ))
            .hint(format!("there is a log of {had}")));
        }
    }
    let width = runs.iter().map(|run| run.stack.as_str().len()).max();
    let mut readers: Vec<LogPrinter> = runs
        .iter()
        .map(|run| LogPrinter {
            id: run.id,
            log: RunLog::new(
                &control.home,
                run.id,
                args.stage.map(Stage::from),
                args.attempt.map(NonZeroUsize::get),
            ),
            name: run.stack.to_string(),
            prefix: width.filter(|_| runs.len() > 1),
            part: None,
            json: global.json,
        })
        .collect();
    let mut waits = runs.first().map(|run| WaitNotice::of(run, process));
    let mut said = false;
    // If a run has lost its runner, this check completes its log.
    for reader in &readers {
        ended(control, reader.id).await?;
    }
    let mut over = Vec::new();
    while !readers.is_empty() {
        let mut open = Vec::new();
        for mut reader in readers {
            // Check for the end before printing, so that no output in between is lost.
            let ended = if args.follow {
                ended(control, reader.id).await?
            } else {
                None
            };
            if args.follow && ended.is_none() {
                said |= reader.print()?;
                open.push(reader);
            } else {
                said |= reader.print_rest()?;
                over.extend(ended);
            }
        }
        readers = open;
        if !readers.is_empty() {
            if let Some(waits) = waits.as_mut().filter(|_| !global.json) {
                waits.look(control).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    if !said && !global.json {
        report::say("There is no engine output.\n")?;
    }
    for run in over.iter().filter(|_| !global.json) {
        say_over(run, "")?;
    }
    Ok(ExitStatus::Done)
}

async fn ended(control: &Control, run: RunId) -> Result<Option<Run>, CommandError> {
    let ended = cancel::ended(control, run).await;
    ended.map_err(|err| CommandError::from_error(&err))
}

async fn find(word: &str, control: &Control) -> Result<Vec<Run>, CommandError> {
    let failed = |err: &dyn Explain| CommandError::from_error(err);
    let runs = if let Ok(id) = word.parse::<RunId>() {
        let run = control.run(id).await.map_err(|err| failed(&err))?;
        run.into_iter().collect()
    } else if let Ok(id) = word.parse::<ChangeSetId>() {
        control.change_set(id).await.map_err(|err| failed(&err))?;
        control.runs(id).await.map_err(|err| failed(&err))?
    } else if let Some(run) = explain::at_work(control, word)
        .await
        .map_err(|err| failed(&err))?
    {
        vec![run]
    } else {
        let newest = control.newest_run(word).await;
        newest.map_err(|err| failed(&err))?.into_iter().collect()
    };
    let Some(first) = runs.first() else {
        return Err(CommandError::new(format!("there is no run of `{word}`"))
            .hint("name a run (`r7`), a change set (`c3`) or a stack that was planned here"));
    };
    let set = control.change_set(first.change_set).await;
    if liveness::is_elsewhere(control, &set.map_err(|err| failed(&err))?) {
        return Err(CommandError::new(format!(
            "run {} was carried out on another machine, and its log is there",
            first.id
        ))
        .hint("run the same command there")
        .status(ExitStatus::Refused));
    }
    Ok(runs)
}

/// Reports that a followed change set waits for a user, once until it continues.
struct WaitNotice {
    set: ChangeSetId,
    /// The user who follows it.
    actor: Actor,
    looked: Option<Instant>,
    seen: Option<String>,
    said: Option<String>,
}

impl WaitNotice {
    fn of(run: &Run, process: &Process) -> Self {
        Self {
            set: run.change_set,
            actor: process.actor(),
            looked: None,
            seen: None,
            said: None,
        }
    }

    async fn look(&mut self, control: &Control) -> Result<(), CommandError> {
        if self.looked.is_some_and(|at| at.elapsed() < ASK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let now = self.words(control).await?;
        // A state that is seen only once may be a transition.
        if now == self.seen && now != self.said {
            if let Some(words) = &now {
                report::say(&format!("{}\n", clean(words)))?;
            }
            self.said.clone_from(&now);
        }
        self.seen = now;
        Ok(())
    }

    /// What it waits for, and how to continue it.
    async fn words(&self, control: &Control) -> Result<Option<String>, CommandError> {
        let set = self.set;
        let explained = explain::explain(control, set).await;
        let explained = explained.map_err(|err| CommandError::from_error(&err))?;
        if explained.set.status != Status::AwaitingConfirm {
            return Ok(None);
        }
        if let Some(hold) = explained.stage_hold().or_else(|| explained.plan_hold()) {
            let all = if hold.person.name == self.actor.name {
                ""
            } else {
                " --all"
            };
            let (on, name) = (hold.on.words(), hold.on.name());
            let held = hold.words();
            return Ok(Some(format!(
                "Change set {set} waits: {on} is {held}; `terrane hold release {name}{all}` ends it."
            )));
        }
        let Some(why) = explained.why() else {
            return Ok(None);
        };
        let missing = explained.missing_approvals();
        let ways: BTreeSet<String> = missing.iter().map(|one| one.command(set)).collect();
        let ways: Vec<String> = ways.iter().map(|way| format!("`{way}`")).collect();
        let how = match ways.as_slice() {
            [] => String::new(),
            ways => format!(": {}", text::list(ways)),
        };
        Ok(Some(format!("Change set {set} waits for {why}{how}.")))
    }
}

/// Prints the log of one run.
struct LogPrinter {
    id: RunId,
    log: RunLog,
    name: String,
    /// The width of the stack names, if there are several.
    prefix: Option<usize>,
    part: Option<LogPart>,
    json: bool,
}

impl LogPrinter {
    fn print(&mut self) -> Result<bool, CommandError> {
        let lines = self.log.read_new();
        self.say(&lines)
    }

    fn print_rest(mut self) -> Result<bool, CommandError> {
        let mut said = self.print()?;
        let log = std::mem::replace(&mut self.log, RunLog::empty());
        said |= self.say(&log.finish())?;
        Ok(said)
    }

    fn say(&mut self, lines: &[LogLine]) -> Result<bool, CommandError> {
        let mut out = String::new();
        for line in lines {
            if self.json {
                out.push_str(&as_event(line));
                out.push('\n');
                continue;
            }
            let prefix = self.prefix.map_or_else(String::new, |width| {
                format!("{} | ", pad(&clean(&self.name), width))
            });
            if self.part != Some(line.part) {
                self.part = Some(line.part);
                let _ = writeln!(out, "{prefix}run {}, {}:", self.id, word(line.part));
            }
            for words in render(line) {
                let _ = writeln!(out, "{prefix}{words}");
            }
        }
        report::data(&out)?;
        Ok(!out.is_empty())
    }
}

fn word(part: LogPart) -> &'static str {
    match part {
        LogPart::Stage(stage) => stage.word(),
        LogPart::Complaints => "on standard error",
    }
}

/// An event as the engine wrote it; plain text is wrapped in an event.
fn as_event(line: &LogLine) -> String {
    if line.event.kind == EventKind::Text {
        json!({ "@level": "info", "@message": line.text, "type": "text" }).to_string()
    } else {
        line.text.clone()
    }
}

/// `10:04:11  thing_file.a: Creating...`; further lines of a diagnostic come below it.
fn render(line: &LogLine) -> Vec<String> {
    let time = line.event.time.as_deref().and_then(|time| time.get(11..19));
    let time = time.map_or_else(String::new, |time| format!("{time}  "));
    let below = " ".repeat(time.len());
    // Colour codes are removed.
    let message = strip_ansi(&line.event.message);
    let message = message.trim_matches('\n');
    if message.is_empty() && !line.event.message.is_empty() {
        return Vec::new();
    }
    let mut words = message.lines();
    let mut lines = vec![format!("{time}{}", clean(words.next().unwrap_or_default()))];
    lines.extend(words.map(|more| format!("{below}{}", clean(more))));
    if let Some(diagnostic) = line.event.as_diagnostic() {
        if let (Some(file), Some(number)) = (diagnostic.file(), diagnostic.line()) {
            lines.push(format!("{below}on {} line {number}", clean(&file)));
        }
        let detail = strip_ansi(&diagnostic.detail);
        let detail = detail.lines();
        lines.extend(detail.map(|more| format!("{below}{}", clean(more))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use model::run::engine_event::EngineEvent;

    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &[&str]) {
        let line = LogLine {
            part: LogPart::Stage(Stage::Preparing),
            text: text.to_owned(),
            event: EngineEvent::parse(text),
        };
        assert_eq!(render(&line), shown);
    }

    #[test]
    fn what_is_painted_is_shown_plainly() {
        check("\u{1b}[0m\u{1b}[32m", &[]);
        check("use [this].\u{1b}[0m", &["use [this]."]);
        let event = r#"{"@message":"\u001b[0m\u001b[32m\nConfigured!\u001b[0m","type":"log"}"#;
        check(event, &["Configured!"]);
    }
}
