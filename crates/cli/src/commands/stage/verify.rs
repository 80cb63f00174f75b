//! `terrane verify`

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use control::Control;
use control::changeset::upstreams::{self, UnfinishedRun};
use control::project::open::OpenProject;
use control::stage::gates::{
    self, GateContext, GateEvent, GateProblem, OpenGates, StackGates, StackGatesError,
};
use model::base::diagnostic::Finding;
use model::base::ids::StackName;
use model::project::{Project, Stack};
use model::run::Stage;
use model::stage::gate::{Gate, GateReport};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

use crate::commands::{open_home, selection, valid_project_except};
use crate::global::Global;
use crate::view::progress::{ProgressFrame, ProgressRow, ProgressStatus};
use crate::view::text::count;
use crate::view::{findings, gates as view};
use crate::watch::display::Display;
use crate::{CommandError, ExitStatus, Process, report};

/// Check the gates of stacks now
///
/// Compares the real resources with what the stacks last applied. Each gate is checked until it passes or
/// its time is over. Nothing is changed, not even a run that a gate stopped: `run retry` continues it. Exit
/// code 5 if a gate did not pass.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane verify                       # in the project's root: all gates of all stacks\n  terrane verify k8s-prod --once       # check once, no waiting\n  \
    terrane verify k8s-prod --gate coder # one gate, or all of its `for_each`\n  terrane verify --json | jq '.stacks[].gates[] | select(.verdict != \"passed\")'"
)]
pub(crate) struct VerifyArgs {
    /// Stacks, or selectors of them; none: those in and below this directory
    stacks: Vec<String>,
    /// Only gates of this name
    #[arg(long = "gate", value_name = "NAME")]
    gates: Vec<String>,
    /// Check once, instead of until each gate's time is over
    #[arg(long)]
    once: bool,
}

pub(crate) async fn verify(
    args: VerifyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    // Errors in other gates do not prevent checking the requested ones.
    let others: &[&str] = match args.gates.as_slice() {
        [] => &[],
        [..] => &["gate-settings", "missing-file"],
    };
    let (open, project) = valid_project_except(others, global, process)?;
    let stacks = selection::resolve(&args.stacks, &open, &project, process, None)?;
    let stacks = stacks.iter().map(|name| &project.stacks[name]);
    let stacks: Vec<_> = stacks
        .filter(|stack| !stack.stages.gates.is_empty())
        .collect();
    if stacks.is_empty() {
        return Err(CommandError::new("none of these stacks has a gate")
            .hint("a gate is a block of a stack: `gate \"http\" \"page\" { url = \"https://…\" }`")
            .status(ExitStatus::Usage));
    }
    check_names(&stacks, &args.gates)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let found = resolve_gates(&control, &open, &project, &stacks, &args.gates, process).await?;
    let (mut ready, wrong) = found;
    if !wrong.is_empty() {
        if global.json {
            report::json(&findings::findings_json(&wrong))?;
        } else {
            let look = process.look(global);
            report::say(&findings::render(&wrong, &open.loaded.texts, look))?;
        }
        return Err(CommandError::said(ExitStatus::Failed));
    }
    pick(&mut ready, &args.gates)?;
    if ready.is_empty() {
        return Err(CommandError::new("cannot check any of these gates now")
            .hint("gates with `when = \"destroyed\"` are checked once their stack is destroyed")
            .status(ExitStatus::Usage));
    }
    let mut watch = GateDisplay::new(&ready, global, process);
    check_all(ready, &open, args.once, &mut watch, global).await?;
    let status = finish(&watch.ended, global, process)?;
    if args.gates.is_empty() && !global.json {
        say_not_done(&control, &watch.ended).await?;
    }
    Ok(status)
}

/// The gates of the stacks with all their values, and findings about values that do not fit.
async fn resolve_gates(
    control: &Control,
    open: &OpenProject,
    project: &Project,
    stacks: &[&Stack],
    names: &[String],
    process: &Process,
) -> Result<(BTreeMap<StackName, StackGates>, Vec<Finding>), CommandError> {
    let mut ready = BTreeMap::new();
    let mut wrong = Vec::new();
    for stack in stacks {
        let found = gates::of_stack(control, project, stack, names, &process.env, &open.root);
        match found.await {
            Ok(found) => {
                ready.insert(stack.name.clone(), found);
            }
            Err(StackGatesError::Settings { problems, .. }) => {
                wrong.extend(problems.into_iter().map(finding));
            }
            Err(err) => return Err(CommandError::from_error(&err)),
        }
    }
    Ok((ready, wrong))
}

/// Checks all gates at the same time, and draws their progress.
async fn check_all(
    ready: BTreeMap<StackName, StackGates>,
    open: &OpenProject,
    once: bool,
    watch: &mut GateDisplay,
    global: &Global,
) -> Result<(), CommandError> {
    let mut running = JoinSet::new();
    let (events, mut heard) = unbounded_channel();
    for (stack, found) in ready {
        let around = GateContext {
            dir: open.root.clone(),
            env: found.env,
            mask: found.mask,
            once,
            skipped: BTreeMap::new(),
        };
        let (own, mut own_heard) = unbounded_channel();
        let (events, name) = (events.clone(), stack.clone());
        running.spawn(async move {
            while let Some(event) = own_heard.recv().await {
                // The receiver may be gone.
                drop(events.send((name.clone(), event)));
            }
        });
        running.spawn(async move {
            gates::run(found.gates, around, &own).await;
        });
    }
    drop(events);
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    watch.draw()?;
    loop {
        tokio::select! {
            event = heard.recv() => match event {
                Some((stack, event)) => watch.hear(&stack, event),
                None => break,
            },
            _ = tick.tick() => watch.say_still(global)?,
            _ = tokio::signal::ctrl_c() => {
                watch.display.clear()?;
                return Err(CommandError::new("interrupted: not all gates were checked").status(ExitStatus::Interrupted));
            }
        }
        watch.draw()?;
    }
    watch.display.clear()
}

/// Reports stacks that stay unverified: passed gates change nothing until the run continues.
async fn say_not_done(
    control: &Control,
    ended: &[(String, GateReport)],
) -> Result<(), CommandError> {
    let resting = upstreams::resting(control).await;
    let resting = resting.map_err(|err| CommandError::from_error(&err))?;
    let seen = |one: &UnfinishedRun| ended.iter().any(|(stack, _)| one.stack.as_str() == stack);
    for one in resting.iter().filter(|one| one.stage == Stage::Verifying) {
        if seen(one) {
            report::say(&format!(
                "`{}` still counts as {}, and its dependents wait; next step: {}.\n",
                one.stack, one.state, one.next_step
            ))?;
        }
    }
    Ok(())
}

/// Checks that every requested gate exists.
fn check_names(stacks: &[&Stack], wanted: &[String]) -> Result<(), CommandError> {
    let all = || stacks.iter().flat_map(|stack| &stack.stages.gates);
    for name in wanted {
        if !all().any(|block| block.is_named(name)) {
            return Err(no_gate(name, all().map(|block| block.name.as_str())));
        }
    }
    Ok(())
}

fn no_gate<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> CommandError {
    let names: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    CommandError::new(format!("there is no gate `{name}` here"))
        .hint(format!("there are {}", names.join(", ")))
        .status(ExitStatus::Usage)
}

/// Keeps only the requested gates and those that they come after.
fn pick(
    ready: &mut BTreeMap<StackName, StackGates>,
    wanted: &[String],
) -> Result<(), CommandError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let named = |gate: &Gate, name: &String| gate.name == *name || gate.group == *name;
    for name in wanted {
        let mut all = ready.values().flat_map(|found| &found.gates);
        if !all.any(|gate| named(gate, name)) {
            let all = ready.values().flat_map(|found| &found.gates);
            return Err(no_gate(name, all.map(|gate| gate.name.as_str())));
        }
    }
    for found in ready.values_mut() {
        let mut kept: BTreeSet<String> = BTreeSet::new();
        let mut more: Vec<String> = wanted.to_vec();
        while let Some(name) = more.pop() {
            for gate in found.gates.iter().filter(|gate| named(gate, &name)) {
                if kept.insert(gate.name.clone()) {
                    more.extend(gate.after.clone());
                }
            }
        }
        found.gates.retain(|gate| kept.contains(&gate.name));
    }
    ready.retain(|_, found| !found.gates.is_empty());
    Ok(())
}

fn finding(problem: GateProblem) -> Finding {
    let mut finding = Finding::error("gate-settings", problem.message).at(problem.at, "this gate");
    finding.hint = problem.hint;
    finding
}

/// The progress display while gates are checked.
struct GateDisplay {
    display: Display,
    frame: ProgressFrame,
    started: Instant,
    /// Rows by stack and gate, and when each started.
    rows: BTreeMap<(StackName, String), (usize, Option<Instant>)>,
    /// What each stack still waits for.
    missing: BTreeMap<StackName, OpenGates>,
    ended: Vec<(String, GateReport)>,
}

impl GateDisplay {
    fn new(ready: &BTreeMap<StackName, StackGates>, global: &Global, process: &Process) -> Self {
        let title = match ready.keys().collect::<Vec<_>>().as_slice() {
            [only] => format!("gates of `{only}`"),
            several => format!("gates of {}", count(several.len(), "stack")),
        };
        let alone = ready.len() == 1;
        let mut rows = BTreeMap::new();
        let mut frame = ProgressFrame {
            title,
            ..ProgressFrame::default()
        };
        for (stack, found) in ready {
            for gate in &found.gates {
                rows.insert((stack.clone(), gate.name.clone()), (frame.rows.len(), None));
                let label = if alone {
                    gate.name.clone()
                } else {
                    format!("{stack} {}", gate.name)
                };
                frame.rows.push(ProgressRow {
                    stack: label,
                    mark: ProgressStatus::Waiting,
                    text: match gate.after.as_slice() {
                        [] => String::new(),
                        names => format!("after {}", names.join(", ")),
                    },
                    elapsed: None,
                });
            }
        }
        frame.total = frame.rows.len();
        Self {
            display: Display::new(global, process),
            frame,
            started: Instant::now(),
            rows,
            missing: ready
                .iter()
                .map(|(stack, found)| (stack.clone(), OpenGates::of(&found.gates)))
                .collect(),
            ended: Vec::new(),
        }
    }

    /// Without a live display, prints what gates still wait for from time to time. With `--json`, prints
    /// events on standard error, apart from the document.
    fn say_still(&mut self, global: &Global) -> Result<(), CommandError> {
        if self.display.is_live() {
            return Ok(());
        }
        for (stack, missing) in &mut self.missing {
            let Some(words) = missing.words() else {
                continue;
            };
            let stack = stack.as_str();
            if global.json {
                let event = json!({ "event": "still", "stack": stack, "message": words });
                report::say(&format!("{event}\n"))?;
            }
            self.display.still(self.started.elapsed(), stack, &words)?;
        }
        Ok(())
    }

    fn hear(&mut self, stack: &StackName, event: GateEvent) {
        if let Some(missing) = self.missing.get_mut(stack) {
            missing.hear(&event);
        }
        let gate = match &event {
            GateEvent::Began { gate } | GateEvent::Looked { gate, .. } => gate,
            GateEvent::Ended(report) => &report.name,
        };
        let Some((at, began)) = self.rows.get_mut(&(stack.clone(), gate.clone())) else {
            return;
        };
        let row = &mut self.frame.rows[*at];
        match event {
            GateEvent::Began { .. } => {
                *began = Some(Instant::now());
                row.mark = ProgressStatus::Running;
                "looking".clone_into(&mut row.text);
            }
            GateEvent::Looked { said, .. } => row.text = said,
            GateEvent::Ended(report) => {
                row.mark = if report.verdict.is_pass() {
                    ProgressStatus::Done
                } else {
                    ProgressStatus::Failed
                };
                row.text = report.verdict.brief();
                *began = None;
                self.frame.done += 1;
                self.ended.push((stack.to_string(), *report));
            }
        }
    }

    fn draw(&mut self) -> Result<(), CommandError> {
        self.frame.elapsed = self.started.elapsed();
        for (at, began) in self.rows.values() {
            self.frame.rows[*at].elapsed = began.map(|began| began.elapsed());
        }
        self.display.draw(&self.frame)
    }
}

fn finish(
    ended: &[(String, GateReport)],
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let mut ended = ended.to_vec();
    // Sorted by name: the order of completion does not matter.
    ended.sort_by(|(left, one), (right, other)| (left, &one.name).cmp(&(right, &other.name)));
    let bad: Vec<_> = ended
        .iter()
        .filter(|(_, report)| !report.verdict.is_pass())
        .collect();
    let status = if bad.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::NotVerified
    };
    if global.json {
        let names: BTreeSet<&String> = ended.iter().map(|(stack, _)| stack).collect();
        let stacks = names.into_iter().map(|name| {
            let own = ended.iter().filter(|(stack, _)| stack == name);
            let own: Vec<&GateReport> = own.map(|(_, report)| report).collect();
            json!({ "stack": name, "gates": own })
        });
        let stacks: Vec<_> = stacks.collect();
        let passed = ended.len() - bad.len();
        report::json(&json!({ "gates": ended.len(), "passed": passed, "stacks": stacks }))?;
        return Ok(status);
    }
    report::data(&view::passes(&ended, process.data_look(global)))?;
    let look = process.look(global);
    for (stack, one) in &bad {
        report::say(&view::failure(stack, one, look))?;
    }
    if bad.is_empty() {
        report::data(&format!(
            "{} of {} passed\n",
            ended.len(),
            count(ended.len(), "gate")
        ))?;
        return Ok(status);
    }
    Err(CommandError::new(format!(
        "not verified: {} of {} did not pass",
        bad.len(),
        count(ended.len(), "gate")
    ))
    .hint("fix the problem, then run `terrane verify` again")
    .status(status))
}
