//! What a break-glass change of a state would do: addresses and names of attributes, never values.

use std::fmt::Write as _;

use model::state::StateChangeSummary;

use super::style::{Symbol, TextRole, ViewOptions};
use super::text::{clean, count};

/// The maximum number of lines; the rest is counted.
const MOST: usize = 40;

/// `state `network`: serial 7 → 8`
pub fn title(state: &str, head: Option<u64>, serial: u64, look: ViewOptions) -> String {
    match head {
        Some(head) => {
            let arrow = look.sign(Symbol::Arrow);
            format!("state `{state}`: serial {head} {arrow} {serial}\n\n")
        }
        None => format!("state `{state}`: its first version, serial {serial}\n\n"),
    }
}

pub fn render(summary: &StateChangeSummary, look: ViewOptions) -> String {
    let mut out = String::new();
    if summary.is_empty() {
        out.push_str("  no resource and no output differs\n");
        return out;
    }
    let mut lines = Vec::new();
    for address in &summary.added {
        lines.push((TextRole::Add, "+", address.clone(), String::new()));
    }
    for address in &summary.removed {
        lines.push((TextRole::Remove, "-", address.clone(), String::new()));
    }
    for changed in &summary.changed {
        let names = changed.attributes.join(", ");
        lines.push((TextRole::Change, "~", changed.address.clone(), names));
    }
    if !summary.outputs.is_empty() {
        let names = summary.outputs.join(", ");
        lines.push((TextRole::Change, "~", "outputs".to_owned(), names));
    }
    for (ink, sign, what, names) in lines.iter().take(MOST) {
        let names = if names.is_empty() {
            String::new()
        } else {
            format!("   {names}")
        };
        let (what, names) = (clean(what), clean(&names));
        let _ = writeln!(out, "  {} {what}{names}", look.paint(*ink, sign));
    }
    if lines.len() > MOST {
        let _ = writeln!(
            out,
            "  {} and {} more",
            look.sign(Symbol::Ellipsis),
            lines.len() - MOST
        );
    }
    let _ = writeln!(
        out,
        "\nIn the state: {} to add, {} to take out, {} to change. Nothing real is touched.",
        count(summary.added.len(), "resource"),
        summary.removed.len(),
        summary.changed.len()
    );
    out
}
