//! The counts of a plan.

use model::plan::{Plan, PlanCounts};

use crate::view::style::{Symbol, TextRole, ViewOptions};
use crate::view::text::count;

/// `-/+ 1 replace, ~ 2 change`: the counts of one stack.
pub(super) fn marks(plan: &Plan, look: ViewOptions) -> String {
    let counts = plan.counts();
    let arrow = look.sign(Symbol::Arrow);
    let kinds = [
        (counts.create, TextRole::Add, "+", "add"),
        (counts.replace, TextRole::Replace, "-/+", "replace"),
        (counts.update, TextRole::Change, "~", "change"),
        (counts.delete, TextRole::Remove, "-", "destroy"),
        (
            counts.import,
            TextRole::Move,
            look.sign(Symbol::Import),
            "import",
        ),
        (counts.moved, TextRole::Move, arrow, "move"),
        (
            counts.forget,
            TextRole::Remove,
            look.sign(Symbol::Forget),
            "forget",
        ),
        (counts.drift, TextRole::Change, "~", "changed outside"),
    ];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, ink, mark, verb)| format!("{} {number} {verb}", look.paint(*ink, mark)))
        .collect();
    match (parts.is_empty(), counts.outputs) {
        (true, 0) => look.paint(TextRole::Faint, "no changes"),
        (true, outputs) => format!(
            "{} {}",
            look.paint(TextRole::Change, "~"),
            count(outputs, "output")
        ),
        (false, _) => parts.join(", "),
    }
}

/// `0 to add, 3 to change, 1 to replace, 0 to destroy`: the counts of all stacks. These four are always
/// shown, except in a refresh-only plan, which changes no resource.
pub fn sum(counts: &PlanCounts) -> String {
    let mut parts = if counts.drift > 0 {
        vec![format!(
            "{} changed outside of terrane",
            count(counts.drift, "resource")
        )]
    } else {
        vec![
            format!("{} to add", counts.create),
            format!("{} to change", counts.update),
            format!("{} to replace", counts.replace),
            format!("{} to destroy", counts.delete),
        ]
    };
    let rare = [
        (counts.import, "import"),
        (counts.moved, "move"),
        (counts.forget, "forget"),
    ];
    for (number, verb) in rare.iter().filter(|(number, _)| *number > 0) {
        parts.push(format!("{number} to {verb}"));
    }
    let no_resources = PlanCounts {
        outputs: counts.outputs,
        drift: counts.drift,
        ..PlanCounts::default()
    };
    if *counts == no_resources && counts.outputs > 0 {
        parts.push(format!("{} to change", count(counts.outputs, "output")));
    }
    parts.join(", ")
}
