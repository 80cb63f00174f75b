//! The plan of a change set: what will happen in each stack, and the counts.
//!
//! Not here: what a plan is (`model::plan`), how policies are shown (`policy`), approvals.

mod entry;
mod resource;
mod summary;
#[cfg(test)]
mod tests;

use model::plan::{Plan, PlanCounts, PlanValue, ResourceChange};
use model::stage::facts::{Forecast, ForecastChange};

use self::entry::{Entry, MarkStyle, entry_lines};
use self::resource::resource_lines;
pub use self::summary::sum;
use super::diagnostics::{self, DiagnosticView};
use super::policy::{self, StackVerdict};
use super::style::{TextRole, ViewOptions};
use super::text::{self, clean};

/// The stacks of a change set, in the order they are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanSet {
    /// Printed first, such as ``change set c42 on `azure`, source 3f9c1e2 (clean)``; may be empty.
    pub heading: String,
    pub stacks: Vec<StackPlan>,
    /// The policy verdicts.
    pub policy: Vec<StackVerdict>,
    /// By stack, the changes to published files.
    pub facts: Vec<(String, Vec<Forecast>)>,
    /// Holds, open break-glass records and quarantined states of its stacks, each in one line.
    pub in_force: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StackPlan {
    pub stack: String,
    pub status: StackStatus,
    /// Only a preview: values that it needs do not exist yet.
    pub is_deferred: bool,
    /// Shown next to the counts of a plan, such as ``deferred: `subnet_id` is known after `network` ``.
    pub remark: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StackStatus {
    Planned(Plan),
    NoChanges,
    /// Applied by this change set; with the plan, unless only waiting plans are shown.
    Applied(Option<Plan>),
    /// Planned later, when more is known; there is no preview.
    Deferred {
        reason: String,
    },
    /// Not planned: neither the stack nor anything that it uses changed.
    Untouched,
    /// Not planned, although it should have been.
    Skipped {
        reason: String,
    },
    Failed {
        /// The stage it was in.
        stage: String,
        /// It was stopped.
        is_interrupted: bool,
        /// Why, in terrane's words.
        lines: Vec<String>,
        /// Why, in the engine's words.
        diagnostics: Vec<DiagnosticView>,
    },
}

/// How to render a plan and all its parts.
#[derive(Clone, Copy)]
struct PlanViewOptions {
    look: ViewOptions,
    /// Fold nothing.
    full: bool,
}

/// The whole plan. Long values and long resources are folded unless `full`.
pub fn render(set: &PlanSet, full: bool, look: ViewOptions) -> String {
    let sheet = PlanViewOptions { look, full };
    let widest = set
        .stacks
        .iter()
        .map(|stack| text::width(&clean(&stack.stack)))
        .max();
    let mut out = String::new();
    if !set.heading.is_empty() {
        out.extend([&*clean(&set.heading), "\n\n"]);
    }
    let mut after_block = false;
    for (n, stack) in set.stacks.iter().enumerate() {
        let (header, body) = stack_lines(stack, widest.unwrap_or(0), sheet);
        if n > 0 && (after_block || !body.is_empty()) {
            out.push('\n');
        }
        after_block = !body.is_empty();
        for line in std::iter::once(&header).chain(&body) {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    if !set.stacks.is_empty() {
        out.push('\n');
    }
    for (stack, forecast) in &set.facts {
        out.push_str(&facts_lines(stack, forecast, look));
        out.push('\n');
    }
    let said = policy::render(&set.policy, widest.unwrap_or(0), look);
    if !said.is_empty() {
        out.extend([&*said, "\n"]);
    }
    for line in &set.in_force {
        out.push_str(&clean(line));
        out.push('\n');
    }
    if !set.in_force.is_empty() {
        out.push('\n');
    }
    out.push_str(&break_at_commas(&closing(set), look.room(0)));
    out.push('\n');
    out
}

/// What an apply would do to the facts of a stack.
fn facts_lines(stack: &str, forecast: &[Forecast], look: ViewOptions) -> String {
    let stack = look.paint(TextRole::Strong, &clean(stack));
    let mut out = format!("facts of {stack} would change\n");
    for one in forecast {
        let mark = match one.change {
            ForecastChange::New => "+",
            ForecastChange::Changed => "~",
            ForecastChange::Withdrawn => "-",
            ForecastChange::Left => "!",
        };
        let words = forecast_words(one);
        out.extend(["  ", mark, " ", &*clean(&one.path), "  ", &*words, "\n"]);
    }
    out
}

fn forecast_words(one: &Forecast) -> String {
    let place = clean(&one.place);
    match (one.sink.as_deref(), one.change) {
        (None, ForecastChange::New) => format!("published to `{place}`"),
        (None, ForecastChange::Changed) => format!("published again to `{place}`"),
        (None, ForecastChange::Left) => {
            format!("stays where `{place}` pointed before: remove it there yourself")
        }
        (None, ForecastChange::Withdrawn) => format!("withdrawn from `{place}`"),
        (Some("file"), ForecastChange::New) => "written into the project".to_owned(),
        (Some("file"), ForecastChange::Changed) => "written again into the project".to_owned(),
        (Some("file"), ForecastChange::Withdrawn | ForecastChange::Left) => {
            "removed from the project".to_owned()
        }
        (Some(kind), ForecastChange::New) => format!("put into the cluster as {kind}"),
        (Some(kind), ForecastChange::Changed) => format!("put again into the cluster as {kind}"),
        (Some(kind), ForecastChange::Withdrawn) => format!("{kind} removed from the cluster"),
        (Some(kind), ForecastChange::Left) => {
            format!("{kind} stays in its cluster: remove it there yourself")
        }
    }
}

/// Breaks text at commas into as few lines as possible.
fn break_at_commas(words: &str, room: usize) -> String {
    let mut lines = vec![String::new()];
    for part in words.split_inclusive(", ") {
        if let Some(line) = lines.last_mut()
            && (line.is_empty() || text::width(line) + text::width(part.trim_end()) <= room)
        {
            line.push_str(part);
        } else {
            lines.push(part.to_owned());
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// `-/+ 1 replace, ~ 2 change`, or `no changes`: one plan in a few words, without colour.
pub fn brief(plan: &Plan, look: ViewOptions) -> String {
    summary::marks(
        plan,
        ViewOptions {
            color: false,
            ..look
        },
    )
}

/// The differences, without a heading for the stack.
pub(crate) fn changes(plan: &Plan, full: bool, look: ViewOptions) -> String {
    let lines = plan_lines(plan, PlanViewOptions { look, full });
    let lines = lines.iter().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// Values without a change, each next to its name.
pub(crate) fn values(
    values: &[(String, PlanValue)],
    indent: usize,
    full: bool,
    look: ViewOptions,
) -> Vec<String> {
    let entries: Vec<Entry<'_>> = values
        .iter()
        .map(|(name, value)| Entry {
            name,
            before: &PlanValue::Absent,
            after: value,
            forces_replacement: false,
            is_settled: true,
        })
        .collect();
    entry_lines(
        &entries,
        MarkStyle::Never,
        indent,
        PlanViewOptions { look, full },
    )
}

/// `Plan: 0 to add, 3 to change, 1 to replace, 0 to destroy, in 2 of 4 stacks.`
pub fn closing(set: &PlanSet) -> String {
    let mut counts = PlanCounts::default();
    let (mut changed, mut deferred, mut failed, mut skipped) = (0, 0, 0, 0);
    let mut interrupted = 0;
    for stack in &set.stacks {
        match &stack.status {
            StackStatus::Planned(plan) | StackStatus::Applied(Some(plan)) => {
                counts = counts.plus(plan.counts());
                changed += usize::from(!plan.is_empty());
            }
            StackStatus::NoChanges | StackStatus::Applied(None) | StackStatus::Untouched => {}
            StackStatus::Skipped { .. } => skipped += 1,
            StackStatus::Deferred { .. } => deferred += 1,
            StackStatus::Failed {
                is_interrupted: true,
                ..
            } => interrupted += 1,
            StackStatus::Failed { .. } => failed += 1,
        }
    }
    let total = set.stacks.len();
    let mut words = match (changed, total) {
        (0, 0) => return "No changes: no stack was selected.".to_owned(),
        (0, _) if deferred + failed + interrupted + skipped == 0 => {
            return nothing_changes(set);
        }
        (0, _) => "Plan: no changes so far".to_owned(),
        (_, 1) => format!("Plan: {}", sum(&counts)),
        (_, _) => format!("Plan: {}, in {changed} of {total} stacks", sum(&counts)),
    };
    let denied = set.policy.iter().filter(|it| it.verdict.denies());
    let (foreseen, denied): (Vec<_>, Vec<_>) = denied.partition(|it| it.is_foreseen);
    let missing: Vec<String> = [
        (denied.len(), "denied"),
        (foreseen.len(), "would be denied"),
        (failed, "failed"),
        (interrupted, "interrupted"),
        (skipped, "skipped"),
        (deferred, "without a preview"),
    ]
    .iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, word)| format!("{number} {word}"))
    .collect();
    if !missing.is_empty() {
        words = format!("{words}; {}", missing.join(", "));
    }
    words + "."
}

/// Also names untouched stacks, so that they are not taken for planned ones.
fn nothing_changes(set: &PlanSet) -> String {
    let untouched = set
        .stacks
        .iter()
        .filter(|stack| matches!(stack.status, StackStatus::Untouched))
        .count();
    if !set.facts.is_empty() {
        return "No changes of resources; facts would change.".to_owned();
    }
    if untouched == 0 {
        return "No changes: everything matches the configuration.".to_owned();
    }
    let stacks = text::count(untouched, "stack");
    format!("No changes; {stacks} untouched: `--all` plans everything.")
}

/// The stack's header line, and the lines below it.
fn stack_lines(stack: &StackPlan, widest: usize, sheet: PlanViewOptions) -> (String, Vec<String>) {
    let look = sheet.look;
    let name = text::pad(&clean(&stack.stack), widest);
    let name = look.paint(TextRole::Strong, &name);
    let faint = |words: &str| look.paint(TextRole::Faint, words);
    let (words, body) = match &stack.status {
        StackStatus::Planned(plan) => (summary::marks(plan, look), plan_lines(plan, sheet)),
        StackStatus::NoChanges => (faint("no changes"), Vec::new()),
        StackStatus::Applied(None) => (faint("applied before"), Vec::new()),
        StackStatus::Applied(Some(plan)) => (
            format!("{}   {}", summary::marks(plan, look), faint("applied")),
            plan_lines(plan, sheet),
        ),
        StackStatus::Deferred { reason } => (
            faint(&format!("deferred, no preview: {}", clean(reason))),
            Vec::new(),
        ),
        StackStatus::Untouched => (faint("untouched: nothing it consumes changes"), Vec::new()),
        StackStatus::Skipped { reason } => {
            (faint(&format!("skipped: {}", clean(reason))), Vec::new())
        }
        StackStatus::Failed {
            stage,
            is_interrupted,
            lines,
            diagnostics,
        } => {
            let mut body: Vec<String> = lines
                .iter()
                .flat_map(|line| text::wrap(line, look.room(4)))
                .map(|line| format!("    {line}"))
                .collect();
            for diagnostic in diagnostics {
                let block = diagnostics::render(diagnostic, 4, look);
                body.extend(block.lines().map(str::to_owned));
            }
            let how = if *is_interrupted {
                "interrupted"
            } else {
                "failed"
            };
            let words = format!("{how} while {}", clean(stage));
            (look.paint(TextRole::Error, &words), body)
        }
    };
    let mut header = format!("{name}  {words}");
    let mut body = body;
    if let Some(remark) = &stack.remark {
        let remark = clean(remark);
        if text::width(&header) + 3 + text::width(&remark) <= look.width {
            // The remarks of several stacks are aligned where possible.
            let gap = 45_usize.saturating_sub(text::width(&header)).max(3);
            let room = look
                .width
                .saturating_sub(text::width(&header) + text::width(&remark));
            header.push_str(&" ".repeat(gap.min(room)));
            header.push_str(&faint(&remark));
        } else {
            let lines = text::wrap(&remark, look.room(2));
            body.splice(0..0, lines.iter().map(|line| format!("  {}", faint(line))));
        }
    }
    (header, body)
}

fn plan_lines(plan: &Plan, sheet: PlanViewOptions) -> Vec<String> {
    let mut lines = change_lines(&plan.changes, 2, sheet);
    if !plan.outputs.is_empty() {
        lines.push("  outputs".to_owned());
        let entries: Vec<Entry<'_>> = plan
            .outputs
            .iter()
            .map(|(name, output)| Entry {
                name,
                before: &output.before,
                after: &output.after,
                forces_replacement: false,
                is_settled: false,
            })
            .collect();
        lines.extend(entry_lines(&entries, MarkStyle::Always, 4, sheet));
    }
    if !plan.drift.is_empty() {
        lines.push("  changed outside of terrane".to_owned());
        lines.extend(change_lines(&plan.drift, 4, sheet));
    }
    if plan.errored {
        lines.push(format!(
            "  {} the engine stopped before this plan was complete; it cannot be applied",
            sheet.look.paint(TextRole::Error, "incomplete:"),
        ));
    }
    lines
}

/// Changes, by module if there are several; the root module comes first and needs no name.
fn change_lines(changes: &[ResourceChange], indent: usize, sheet: PlanViewOptions) -> Vec<String> {
    let mut modules: Vec<&str> = Vec::new();
    for change in changes {
        if !modules.contains(&change.module.as_str()) {
            modules.push(&change.module);
        }
    }
    modules.sort_by_key(|module| !module.is_empty());
    let several = modules.len() > 1;
    let mut lines = Vec::new();
    for module in modules {
        let mut indent = indent;
        if several && !module.is_empty() {
            lines.push(format!("{}{}", " ".repeat(indent), clean(module)));
            indent += 2;
        }
        for change in changes.iter().filter(|change| change.module == module) {
            lines.extend(resource_lines(change, several, indent, sheet));
        }
    }
    lines
}
