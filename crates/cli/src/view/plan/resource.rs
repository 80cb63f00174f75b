//! One resource of a plan: its mark, its address, why, and its attributes.

use model::plan::{ChangeAction, PlanValue, ResourceChange};

use super::PlanViewOptions;
use super::entry::{Entry, MarkStyle, entry_lines};
use crate::view::style::{Symbol, TextRole, ViewOptions};
use crate::view::text::{self, clean};

/// How many attributes of a new or changed resource are shown before the rest is folded.
const MOST_NEW: usize = 10;
const MOST_CHANGED: usize = 30;
/// How many attributes are named as the cause of a replacement before they are only counted.
const MOST_CAUSES: usize = 2;

pub(super) fn resource_lines(
    change: &ResourceChange,
    below_module: bool,
    indent: usize,
    sheet: PlanViewOptions,
) -> Vec<String> {
    let look = sheet.look;
    let (mark, ink) = mark(change, look);
    let address = below_module
        .then(|| {
            change
                .address
                .strip_prefix(&change.module)?
                .strip_prefix('.')
        })
        .flatten()
        .unwrap_or(&change.address);
    let address = clean(address);
    let start = format!(
        "{}{} {}",
        " ".repeat(indent),
        look.paint(ink, mark),
        look.paint(ink, &address)
    );
    let remarks = remarks(change).join("; ");
    let mut lines = Vec::new();
    if text::width(&start) + 3 + text::width(&remarks) <= look.width {
        lines.push(format!("{start}   {remarks}"));
    } else {
        lines.push(start);
        let below = " ".repeat(indent + 4);
        lines.extend(
            text::wrap(&remarks, look.room(indent + 4))
                .iter()
                .map(|line| format!("{below}{line}")),
        );
    }
    lines.extend(attribute_lines(change, indent + 4, sheet));
    lines
}

fn mark(change: &ResourceChange, look: ViewOptions) -> (&'static str, TextRole) {
    match change.action {
        ChangeAction::NoOp if change.importing.is_some() => {
            (look.sign(Symbol::Import), TextRole::Move)
        }
        ChangeAction::NoOp => (look.sign(Symbol::Arrow), TextRole::Move),
        ChangeAction::Create => ("+", TextRole::Add),
        ChangeAction::Read => ("<=", TextRole::Move),
        ChangeAction::Update => ("~", TextRole::Change),
        ChangeAction::DeleteCreate => ("-/+", TextRole::Replace),
        ChangeAction::CreateDelete => ("+/-", TextRole::Replace),
        ChangeAction::Delete => ("-", TextRole::Remove),
        ChangeAction::Forget => (look.sign(Symbol::Forget), TextRole::Remove),
    }
}

/// Details that the mark does not show.
fn remarks(change: &ResourceChange) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(old) = &change.moved_from {
        remarks.push(format!("moved from `{}`", clean(old)));
    }
    match change.importing.as_deref() {
        None => {}
        Some("") => remarks.push("imported, by an id that is known later".to_owned()),
        Some(id) => remarks.push(format!("imported as `{}`", clean(id))),
    }
    match change.action {
        ChangeAction::NoOp | ChangeAction::Create | ChangeAction::Update => {}
        ChangeAction::Read => remarks.push("read during apply".to_owned()),
        ChangeAction::DeleteCreate => remarks.push(format!("replaced, {}", replaced_why(change))),
        ChangeAction::CreateDelete => {
            remarks.push(format!(
                "replaced, the new one first, {}",
                replaced_why(change)
            ));
        }
        ChangeAction::Delete => remarks.extend(deleted_why(change)),
        ChangeAction::Forget => remarks.push("leaves the state, is not destroyed".to_owned()),
    }
    remarks
}

fn replaced_why(change: &ResourceChange) -> String {
    match (change.replace_because.as_slice(), change.reason.as_deref()) {
        (_, Some("replace_because_tainted")) => "because it is tainted".to_owned(),
        (_, Some("replace_by_request")) => "as requested".to_owned(),
        (_, Some("replace_by_triggers")) => "because what triggers it changes".to_owned(),
        ([], None | Some("replace_because_cannot_update")) => {
            "because it cannot be changed in place".to_owned()
        }
        ([], Some(other)) => clean(&other.replace('_', " ")).into_owned(),
        ([path], _) => format!("because `{}` changes", clean(path)),
        (paths, _) if paths.len() <= MOST_CAUSES => {
            let paths: Vec<String> = paths
                .iter()
                .map(|path| format!("`{}`", clean(path)))
                .collect();
            format!("because {} change", text::list(&paths))
        }
        (paths, _) => format!("because {} attributes change", paths.len()),
    }
}

fn deleted_why(change: &ResourceChange) -> Option<String> {
    let why = match change.reason.as_deref()? {
        "delete_because_no_resource_config" => "no longer in the configuration",
        "delete_because_no_module" => "its module is no longer in the configuration",
        "delete_because_wrong_repetition" => "`count` or `for_each` was added or removed",
        "delete_because_count_index" => "its index is beyond `count`",
        "delete_because_each_key" => "its key is no longer in `for_each`",
        "delete_because_no_move_target" => "it was moved to what is not in the configuration",
        other => return Some(clean(&other.replace('_', " ")).into_owned()),
    };
    Some(why.to_owned())
}

fn attribute_lines(change: &ResourceChange, indent: usize, sheet: PlanViewOptions) -> Vec<String> {
    let is_new = change.action == ChangeAction::Create;
    if change.action.destroys() && !change.action.is_replace() && !sheet.full {
        return Vec::new(); // all of it is destroyed; the address is enough
    }
    let name_causes = change.replace_because.len() > MOST_CAUSES;
    let shown = |after: &PlanValue| match after {
        PlanValue::Known(value) => !(is_new && value.is_null()),
        PlanValue::Unknown => !is_new,
        PlanValue::Absent
        | PlanValue::KnownAfter { .. }
        | PlanValue::Sensitive
        | PlanValue::Masked { .. } => true,
    };
    let mut entries: Vec<Entry<'_>> = change
        .attributes
        .iter()
        .filter(|attribute| shown(&attribute.after))
        .map(|attribute| Entry {
            name: &attribute.path,
            before: &attribute.before,
            after: &attribute.after,
            forces_replacement: attribute.forces_replacement && name_causes,
            is_settled: false,
        })
        .collect();
    let most = if is_new { MOST_NEW } else { MOST_CHANGED };
    // Folding a single line would not save one.
    let folded = if sheet.full || entries.len() <= most + 1 {
        0
    } else {
        entries.len() - most
    };
    entries.truncate(entries.len() - folded);

    let marks = match change.action {
        ChangeAction::Create | ChangeAction::Delete => MarkStyle::Never,
        _ => MarkStyle::WhereOneSide,
    };
    let mut lines = entry_lines(&entries, marks, indent, sheet);
    let margin = " ".repeat(indent);
    let look = sheet.look;
    let faint = |words: &str| format!("{margin}{}", look.paint(TextRole::Faint, words));
    let ellipsis = look.sign(Symbol::Ellipsis);
    if folded > 0 {
        lines.push(faint(&format!(
            "{ellipsis} {folded} more, `--full` shows all"
        )));
    }
    if is_new {
        lines.extend(
            known_later(change, indent, sheet)
                .iter()
                .map(|line| faint(line)),
        );
    }
    if change.unchanged > 0 && !change.attributes.is_empty() {
        lines.push(faint(&format!("{ellipsis} {} unchanged", change.unchanged)));
    }
    lines
}

/// Attributes of a new resource that are known later, in one list: they are the same every time.
fn known_later(change: &ResourceChange, indent: usize, sheet: PlanViewOptions) -> Vec<String> {
    let names: Vec<String> = change
        .attributes
        .iter()
        .filter(|attribute| attribute.after == PlanValue::Unknown)
        .map(|attribute| clean(&attribute.path).into_owned())
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let most = if sheet.full {
        names.len()
    } else {
        names.len().min(MOST_NEW)
    };
    let rest = match names.len() - most {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let words = format!("known after apply: {}{rest}", names[..most].join(", "));
    text::wrap(&words, sheet.look.room(indent))
}
