//! One attribute or output of a plan: its name, the value before and the value after.

use model::base::exact_number;
use model::base::ids::StackName;
use model::plan::PlanValue;
use serde_json::Value;

use super::PlanViewOptions;
use crate::view::diff::{self, DiffLine};
use crate::view::style::{Symbol, TextRole, ViewOptions};
use crate::view::text::{self, clean, count, quote};
use crate::view::value;

/// Names wider than this do not push all others to the right.
const WIDEST_NAME: usize = 44;
const FORCES: &str = "forces replacement";

/// A terminal with fewer columns has no room for names and values side by side.
const NARROW: usize = 60;
/// Unchanged lines kept around a change, and lines of a text before the rest is folded.
const CONTEXT: usize = 2;
const MOST_LINES: usize = 8;
const MOST_DIFF_LINES: usize = 40;
/// Characters kept before a difference inside of a long string.
const NEAR: usize = 16;

pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) before: &'a PlanValue,
    pub(super) after: &'a PlanValue,
    pub(super) forces_replacement: bool,
    /// It exists and does not change: only `after` counts.
    pub(super) is_settled: bool,
}

/// Whether names are marked with `+`, `-` and `~`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkStyle {
    Never,
    /// `+` and `-` for values on one side only, if there are any.
    WhereOneSide,
    Always,
}

/// What is shown next to a name.
enum EntryText {
    /// One value.
    Value(Vec<String>),
    /// The value before and after.
    Pair(String, String),
    /// A block with its own lines, below.
    Block(String, Vec<String>),
}

pub(super) fn entry_lines(
    entries: &[Entry<'_>],
    marks: MarkStyle,
    indent: usize,
    sheet: PlanViewOptions,
) -> Vec<String> {
    let one_side =
        |entry: &Entry<'_>| *entry.before == PlanValue::Absent || *entry.after == PlanValue::Absent;
    let marked = match marks {
        MarkStyle::Never => false,
        MarkStyle::WhereOneSide => entries.iter().any(one_side),
        MarkStyle::Always => true,
    };
    let widths = entries.iter().map(|entry| text::width(&clean(entry.name)));
    let widest = widths
        .filter(|width| *width <= WIDEST_NAME)
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    for entry in entries {
        let mark = match (entry.before, entry.after) {
            _ if !marked => String::new(),
            (PlanValue::Absent, _) => sheet.look.paint(TextRole::Add, "+") + " ",
            (_, PlanValue::Absent) => sheet.look.paint(TextRole::Remove, "-") + " ",
            _ if marks == MarkStyle::Always => sheet.look.paint(TextRole::Change, "~") + " ",
            _ => "  ".to_owned(),
        };
        let name = text::pad(&clean(entry.name), widest);
        let start = format!("{}{mark}{name}   ", " ".repeat(indent));
        lines.extend(lines_of(entry, &start, indent + 4, sheet));
    }
    lines
}

fn lines_of(entry: &Entry<'_>, start: &str, below: usize, sheet: PlanViewOptions) -> Vec<String> {
    let look = sheet.look;
    let column = text::width(start);
    if look.width < NARROW && column > below {
        // Two columns do not fit: the value is below its name.
        let mut lines = vec![start.trim_end().to_owned()];
        lines.extend(lines_of(entry, &" ".repeat(below), below, sheet));
        return lines;
    }
    let margin = |columns: usize| " ".repeat(columns);
    // Next to the value, or below it if there is no room.
    let forces = |line: String| {
        if !entry.forces_replacement {
            vec![line]
        } else if text::width(&line) + FORCES.len() + 3 <= look.width {
            vec![format!("{line}   {FORCES}")]
        } else {
            vec![line, format!("{}{FORCES}", margin(column))]
        }
    };
    match shown(entry, look.room(column), sheet) {
        EntryText::Value(values) => {
            let mut lines = values.into_iter();
            let first = format!("{start}{}", lines.next().unwrap_or_default());
            let rest = lines.map(|line| format!("{}{line}", margin(column)));
            forces(first).into_iter().chain(rest).collect()
        }
        EntryText::Pair(before, after) => {
            let arrow = look.paint(TextRole::Faint, look.sign(Symbol::Arrow));
            let pair = format!("{before} {arrow} {after}");
            let beside = if entry.forces_replacement {
                FORCES.len() + 3
            } else {
                0
            };
            if text::width(&pair) + beside <= look.room(column) {
                return forces(format!("{start}{pair}"));
            }
            let second = forces(format!("{}{arrow} {after}", margin(column)));
            std::iter::once(format!("{start}{before}"))
                .chain(second)
                .collect()
        }
        EntryText::Block(title, block) => {
            let first = format!("{start}{}", look.paint(TextRole::Faint, &title));
            let rest = block.iter().map(|line| format!("{}{line}", margin(below)));
            forces(first).into_iter().chain(rest).collect()
        }
    }
}

fn shown(entry: &Entry<'_>, room: usize, sheet: PlanViewOptions) -> EntryText {
    use PlanValue::{Absent, Known};
    match (entry.before, entry.after) {
        (_, value) if entry.is_settled => single(value, TextRole::Plain, room, sheet),
        (Absent, value) => single(value, TextRole::Add, room, sheet),
        (value, Absent) => single(value, TextRole::Remove, room, sheet),
        (before, after) if before == after => single(after, TextRole::Change, room, sheet),
        (Known(Value::String(before)), Known(Value::String(after))) => {
            texts(before, after, room, sheet)
        }
        (Known(before), Known(after)) if is_long(before, after, room) => {
            let kind = if after.is_array() { "list" } else { "map" };
            // Narrow enough that each element of a list gets its own line.
            let broken = |value| value::lines(value, room.min(40)).join("\n");
            let (old, new) = (broken(before), broken(after));
            EntryText::Block(kind.to_owned(), line_diff(&diff::lines(&old, &new), sheet))
        }
        (before, after) => {
            let new = flat(after, room, sheet);
            // An old value next to an unknown one only has to be recognisable.
            let beside = room.saturating_sub(text::width(&new) + 4);
            let is_known = matches!(after, Known(_));
            let old = flat(before, if is_known { room } else { beside.max(24) }, sheet);
            EntryText::Pair(
                sheet.look.paint(TextRole::Remove, &old),
                sheet.look.paint(TextRole::Add, &new),
            )
        }
    }
}

/// Whether both values are lists, or both maps, and too long for one line.
fn is_long(before: &Value, after: &Value, room: usize) -> bool {
    let is_map = |value: &Value| value.is_object() && exact_number::digits(value).is_none();
    let same_kind = (before.is_array() && after.is_array()) || (is_map(before) && is_map(after));
    let columns = |value| text::width(&value::one_line(value));
    same_kind && columns(before) + 3 + columns(after) > room
}

/// A value without a counterpart.
fn single(value: &PlanValue, ink: TextRole, room: usize, sheet: PlanViewOptions) -> EntryText {
    if let PlanValue::KnownAfter { stacks } = value {
        let lines = text::wrap(&known_after(stacks), room).into_iter();
        let painted = lines.map(|line| sheet.look.paint(TextRole::Faint, &line));
        return EntryText::Value(painted.collect());
    }
    let PlanValue::Known(known) = value else {
        return EntryText::Value(vec![
            sheet.look.paint(TextRole::Faint, &flat(value, room, sheet)),
        ]);
    };
    if let Value::String(text) = known {
        let document = (text::width(&quote(text)) > room)
            .then(|| as_document(text))
            .flatten();
        if let Some(pretty) = document {
            return EntryText::Block("JSON".to_owned(), folded_text(&pretty, sheet));
        }
        if text.trim_end_matches('\n').contains('\n') {
            return EntryText::Block(
                count(text.lines().count(), "line"),
                folded_text(text, sheet),
            );
        }
        return EntryText::Value(vec![sheet.look.paint(ink, &flat(value, room, sheet))]);
    }
    let painted = value::lines(known, room)
        .into_iter()
        .map(|line| sheet.look.paint(ink, &line));
    EntryText::Value(fold(painted.collect(), sheet))
}

/// A value on one line; a long one is cut, with a note.
fn flat(value: &PlanValue, room: usize, sheet: PlanViewOptions) -> String {
    let whole = match value {
        PlanValue::Absent => return String::new(),
        PlanValue::Unknown => return "(known after apply)".to_owned(),
        PlanValue::KnownAfter { stacks } => {
            let whole = known_after(stacks);
            return match stacks.len() {
                many if many > 1 && text::width(&whole) > room => {
                    format!("(known after {many} stacks)")
                }
                _ => whole,
            };
        }
        PlanValue::Sensitive => return "(sensitive)".to_owned(),
        PlanValue::Masked { digest } => return format!("(sensitive #{digest})"),
        PlanValue::Known(known) => value::one_line(known),
    };
    if sheet.full || text::width(&whole) <= room {
        return whole;
    }
    let characters = match value {
        PlanValue::Known(Value::String(text)) => text.chars().count(),
        _ => whole.chars().count(),
    };
    let size = format!(" ({characters} characters)");
    format!(
        "{}{size}",
        text::cut(&whole, room.saturating_sub(size.len()), sheet.look)
    )
}

/// ``(known after `network`)``
fn known_after(stacks: &[StackName]) -> String {
    let stacks: Vec<String> = stacks.iter().map(|stack| format!("`{stack}`")).collect();
    format!("(known after {})", text::list(&stacks))
}

/// Two strings: side by side, or only the lines that differ.
fn texts(before: &str, after: &str, room: usize, sheet: PlanViewOptions) -> EntryText {
    let look = sheet.look;
    if let (Some(old), Some(new)) = (as_document(before), as_document(after)) {
        if old == new {
            return EntryText::Block(
                "JSON, the same content written differently".to_owned(),
                Vec::new(),
            );
        }
        return EntryText::Block(
            "JSON".to_owned(),
            line_diff(&diff::lines(&old, &new), sheet),
        );
    }
    if before.contains('\n') || after.contains('\n') {
        return text_diff(before, after, sheet);
    }
    let (old, new) = (quote(before), quote(after));
    let fits = text::width(&old).max(text::width(&new)) + 2 <= room;
    let (old, new) = if sheet.full || fits {
        (old, new)
    } else {
        around(before, after, room, look)
    };
    EntryText::Pair(
        look.paint(TextRole::Remove, &old),
        look.paint(TextRole::Add, &new),
    )
}

/// A string that contains a JSON document, formatted in lines.
fn as_document(text: &str) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let document = exact_number::read(text).ok()?;
    Some(exact_number::write_lines(&document))
}

fn text_diff(before: &str, after: &str, sheet: PlanViewOptions) -> EntryText {
    let ends = |text: &str| text.is_empty() || text.ends_with('\n');
    let last_break = match (ends(before), ends(after)) {
        (true, false) => Some("loses its last line break"),
        (false, true) => Some("gets a last line break"),
        (true, true) | (false, false) => None,
    };
    let all = diff::lines(before, after);
    let added = all
        .iter()
        .filter(|line| matches!(line, DiffLine::New(_)))
        .count();
    let removed = all
        .iter()
        .filter(|line| matches!(line, DiffLine::Old(_)))
        .count();
    let lines = match (added, removed) {
        (0, 0) => return EntryText::Block(last_break.unwrap_or("text").to_owned(), Vec::new()),
        (added, 0) => format!("{} added", count(added, "line")),
        (0, removed) => format!("{} removed", count(removed, "line")),
        (added, removed) => format!("{} added, {removed} removed", count(added, "line")),
    };
    let title = std::iter::once(lines.as_str())
        .chain(last_break)
        .collect::<Vec<_>>()
        .join(", ");
    EntryText::Block(title, line_diff(&all, sheet))
}

/// The lines that differ, with some context.
fn line_diff(all: &[DiffLine<'_>], sheet: PlanViewOptions) -> Vec<String> {
    let is_near = |at: usize| {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(all.len());
        all[range]
            .iter()
            .any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let look = sheet.look;
    let mut lines = Vec::new();
    let mut hidden = 0;
    let fold = |hidden: &mut usize, lines: &mut Vec<String>| {
        if *hidden > 0 {
            let words = format!(
                "{} {} unchanged",
                look.sign(Symbol::Ellipsis),
                count(*hidden, "line")
            );
            lines.push(look.paint(TextRole::Faint, &words));
        }
        *hidden = 0;
    };
    for (at, line) in all.iter().enumerate() {
        if !is_near(at) {
            hidden += 1;
            continue;
        }
        fold(&mut hidden, &mut lines);
        lines.push(match line {
            DiffLine::Same(words) => format!("  {}", short(words, sheet)).trim_end().to_owned(),
            DiffLine::Old(words) => {
                look.paint(TextRole::Remove, format!("- {}", clean(words)).trim_end())
            }
            DiffLine::New(words) => {
                look.paint(TextRole::Add, format!("+ {}", clean(words)).trim_end())
            }
        });
    }
    fold(&mut hidden, &mut lines);
    keep(lines, MOST_DIFF_LINES, sheet)
}

fn folded_text(text: &str, sheet: PlanViewOptions) -> Vec<String> {
    fold(text.lines().map(|line| short(line, sheet)).collect(), sheet)
}

/// A context line, cut if it is long; a line that differs is never cut.
fn short(line: &str, sheet: PlanViewOptions) -> String {
    if sheet.full {
        return clean(line).into_owned();
    }
    // Leaves room for the deepest indent of a text and its mark.
    text::cut(&clean(line), sheet.look.room(12), sheet.look)
}

fn fold(lines: Vec<String>, sheet: PlanViewOptions) -> Vec<String> {
    keep(lines, MOST_LINES, sheet)
}

fn keep(mut lines: Vec<String>, most: usize, sheet: PlanViewOptions) -> Vec<String> {
    // Folding a single line would not save one.
    if sheet.full || lines.len() <= most + 1 {
        return lines;
    }
    let rest = lines.len() - most;
    lines.truncate(most);
    let look = sheet.look;
    let words = format!(
        "{} {rest} more lines, `--full` shows all",
        look.sign(Symbol::Ellipsis)
    );
    lines.push(look.paint(TextRole::Faint, &words));
    lines
}

/// Two long strings, cut so that both show the first difference.
fn around(before: &str, after: &str, room: usize, look: ViewOptions) -> (String, String) {
    let same = before
        .chars()
        .zip(after.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let skip = same.saturating_sub(NEAR);
    let ellipsis = look.sign(Symbol::Ellipsis);
    let part = |text: &str| {
        let rest: String = text.chars().skip(skip).collect();
        let quoted = quote(&rest);
        let inner = &quoted[1..];
        let start = if skip > 0 { ellipsis } else { "" };
        text::cut(&format!("\"{start}{inner}"), room.saturating_sub(2), look)
    };
    (part(before), part(after))
}
