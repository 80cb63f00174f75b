//! What a rendering changed, or would change.

use std::fmt::Write as _;

use model::base::diagnostic::Finding;
use model::render::decide::{FileAction, FileRefusal};
use render::{KeyChange, KeyChangeKind, Rendered, RenderedFile};
use serde_json::{Value, json};

use super::diff::{self, DiffLine};
use super::style::{TextRole, ViewOptions};
use super::text::{clean, count};

/// Lines around a change.
const CONTEXT: usize = 3;
/// More files than this are only counted.
const MOST: usize = 40;

/// Whether rendering may fix the finding: files that do not exist yet.
pub(crate) fn is_fixed_by_render(finding: &Finding) -> bool {
    matches!(
        finding.code,
        "missing-directory"
            | "no-module"
            | "missing-file"
            | "unknown-input"
            | "missing-input"
            | "unknown-output"
            | "input-type"
    )
}

/// The text: one paragraph for each `render` block.
pub(crate) fn render(
    rendered: &[Rendered],
    with_diff: bool,
    is_written: bool,
    look: ViewOptions,
) -> String {
    let width = rendered.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for one in rendered {
        _ = writeln!(out, "{:<width$}   {}", one.name, summary(one, is_written));
        let changed: Vec<(&String, &RenderedFile)> = one
            .files
            .iter()
            .filter(|(_, file)| file.action != FileAction::Keep)
            .collect();
        let shown = if with_diff { changed.len() } else { MOST };
        for (path, file) in changed.iter().take(shown) {
            out.push_str(&line(path, &file.action, look));
            if with_diff {
                out.push_str(&difference(file, look));
            }
        }
        if changed.len() > shown {
            let more = count(changed.len() - shown, "more file");
            _ = writeln!(out, "  … and {more}");
        }
    }
    out
}

/// Additional notes.
pub(crate) fn notes(rendered: &[Rendered], look: ViewOptions) -> String {
    let mut out = String::new();
    for one in rendered.iter().filter(|one| !one.not_opened.is_empty()) {
        let number = count(one.not_opened.len(), "encrypted file");
        let them = if one.not_opened.len() == 1 {
            "it"
        } else {
            "them"
        };
        let note = look.paint(TextRole::Hint, "note:");
        _ = writeln!(
            out,
            "{note} {number} of `{}` compared by digest alone: there is no key here to open {them}",
            one.name
        );
    }
    out
}

/// The same as data.
pub(crate) fn json(rendered: &[Rendered], is_written: bool) -> Value {
    let renders: Vec<Value> = rendered
        .iter()
        .map(|one| {
            let files: Vec<Value> = one
                .files
                .iter()
                .map(|(path, file)| {
                    json!({
                        "path": path,
                        "action": word(&file.action),
                        "template": file.template,
                        "encrypted": file.is_encrypted,
                        "values": file.changes.as_deref().map(values_json),
                    })
                })
                .collect();
            json!({
                "name": one.name,
                "differs": one.differs(),
                "files": files,
                "not_opened": one.not_opened,
                "warnings": one.warnings,
            })
        })
        .collect();
    json!({ "renders": renders, "written": is_written })
}

/// Why a file is not replaced.
pub(crate) fn why(why: FileRefusal) -> &'static str {
    match why {
        FileRefusal::Edited => "was edited since it was rendered",
        FileRefusal::EditedAndStale => {
            "was edited since it was rendered, and is no longer generated"
        }
        FileRefusal::UnprovenAndStale => {
            "is no longer generated, and its list was edited or merged"
        }
        FileRefusal::NotOurs => "was there before, and is different",
        FileRefusal::Missing => "is not there",
    }
}

fn word(action: &FileAction) -> &'static str {
    match action {
        FileAction::Keep => "keep",
        FileAction::Adopt => "adopt",
        FileAction::Create => "create",
        FileAction::Change => "change",
        FileAction::Remove => "remove",
        FileAction::Forget => "forget",
        FileAction::LetGo => "let-go",
        FileAction::Refuse(_) => "refuse",
    }
}

fn summary(one: &Rendered, is_written: bool) -> String {
    let of = |is_it: &dyn Fn(&FileAction) -> bool| {
        let files = one.files.values();
        files.filter(|file| is_it(&file.action)).count()
    };
    let words = if is_written {
        [
            "created",
            "changed",
            "removed",
            "adopted",
            "no longer managed",
            "refused",
        ]
    } else {
        [
            "to create",
            "to change",
            "to remove",
            "to adopt",
            "to stop managing",
            "refused",
        ]
    };
    let counts = [
        of(&|action| *action == FileAction::Create),
        of(&|action| *action == FileAction::Change),
        of(&|action| *action == FileAction::Remove),
        of(&|action| *action == FileAction::Adopt),
        of(&|action| *action == FileAction::LetGo),
        of(&|action| matches!(action, FileAction::Refuse(_))),
    ];
    let parts: Vec<String> = counts
        .iter()
        .zip(words)
        .filter(|(number, _)| **number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    let same = of(&|action| *action == FileAction::Keep);
    if parts.is_empty() {
        let list = match (one.list_changes, is_written) {
            (false, _) => "",
            (true, true) => "; their list is new",
            (true, false) => "; their list is not",
        };
        let they = if same == 1 { "it" } else { "they" };
        return format!("{} as {they} should be{list}", count(same, "file"));
    }
    match same {
        0 => parts.join(", "),
        same => format!("{}, {same} unchanged", parts.join(", ")),
    }
}

fn line(path: &str, action: &FileAction, look: ViewOptions) -> String {
    let (sign, ink, more) = match action {
        FileAction::Create => ("+", TextRole::Add, String::new()),
        FileAction::Change => ("~", TextRole::Change, String::new()),
        FileAction::Remove => ("-", TextRole::Remove, String::new()),
        FileAction::Forget => ("-", TextRole::Faint, "   gone already".to_owned()),
        FileAction::LetGo => (
            "!",
            TextRole::Faint,
            "   stays, and is yours now".to_owned(),
        ),
        FileAction::Adopt => ("=", TextRole::Good, "   agrees".to_owned()),
        FileAction::Refuse(reason) => ("!", TextRole::Error, format!("   {}", why(*reason))),
        FileAction::Keep => (" ", TextRole::Faint, String::new()),
    };
    format!("  {} {}{more}\n", look.paint(ink, sign), clean(path))
}

/// Which values of an encrypted file change, without the values.
fn values(file: &RenderedFile, look: ViewOptions) -> String {
    let Some(changes) = &file.changes else {
        return match file.action {
            FileAction::Create | FileAction::Remove => "      (encrypted)\n",
            _ => "      (encrypted: what is there cannot be opened, so no values are compared)\n",
        }
        .to_owned();
    };
    if changes.is_empty() {
        return "      (encrypted: the values stay as they are)\n".to_owned();
    }
    let mut out = String::new();
    for KeyChange { key, action } in changes {
        let (sign, ink) = match action {
            KeyChangeKind::Added => ('+', TextRole::Add),
            KeyChangeKind::Changed => ('~', TextRole::Change),
            KeyChangeKind::Removed => ('-', TextRole::Remove),
        };
        let line = format!("      {sign} {} (encrypted)", clean(key));
        _ = writeln!(out, "{}", look.paint(ink, &line));
    }
    out
}

fn values_json(changes: &[KeyChange]) -> Value {
    let changes = changes.iter().map(|KeyChange { key, action }| {
        let action = match action {
            KeyChangeKind::Added => "add",
            KeyChangeKind::Changed => "change",
            KeyChangeKind::Removed => "remove",
        };
        json!({ "key": key, "action": action })
    });
    changes.collect()
}

fn difference(file: &RenderedFile, look: ViewOptions) -> String {
    if file.is_encrypted {
        return values(file, look);
    }
    let text = |bytes: &Option<Vec<u8>>| {
        let bytes = bytes.as_deref().unwrap_or_default();
        std::str::from_utf8(bytes).map(str::to_owned).ok()
    };
    let (Some(before), Some(after)) = (text(&file.before), text(&file.after)) else {
        return "      (not text)\n".to_owned();
    };
    let after = match file.action {
        FileAction::Remove | FileAction::Forget => String::new(),
        FileAction::LetGo => before.clone(),
        _ => after,
    };
    let lines = diff::lines(&before, &after);
    let is_changed = |line: &DiffLine<'_>| !matches!(line, DiffLine::Same(_));
    let mut out = String::new();
    let mut is_gap = false;
    for (at, line) in lines.iter().enumerate() {
        let from = at.saturating_sub(CONTEXT);
        let to = (at + CONTEXT + 1).min(lines.len());
        if !lines[from..to].iter().any(is_changed) {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) && !out.is_empty() {
            out.push_str("      …\n");
        }
        let line = match line {
            DiffLine::Same(line) => format!("        {}", clean(line)),
            DiffLine::Old(line) => {
                look.paint(TextRole::Remove, &format!("      - {}", clean(line)))
            }
            DiffLine::New(line) => look.paint(TextRole::Add, &format!("      + {}", clean(line))),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}
