//! The error of a command as text: what happened, why, and the next step.

use super::style::{TextRole, ViewOptions};
use super::text;

/// `error: …`, each cause on lines of its own below the message, then the hints.
pub fn render(message: &str, causes: &[String], hints: &[String], look: ViewOptions) -> String {
    let mut out = String::new();
    push(&mut out, TextRole::Error, "error: ", message, look);
    for cause in causes {
        for line in text::wrap(cause, look.room(7)) {
            out.push_str("       ");
            out.push_str(&line);
            out.push('\n');
        }
    }
    for hint in hints {
        push(&mut out, TextRole::Hint, "hint: ", hint, look);
    }
    out
}

/// `warning: …` with its hints, in the same form.
pub fn render_warning(message: &str, hints: &[String], look: ViewOptions) -> String {
    let mut out = String::new();
    push(&mut out, TextRole::Warning, "warning: ", message, look);
    for hint in hints {
        push(&mut out, TextRole::Hint, "hint: ", hint, look);
    }
    out
}

fn push(out: &mut String, ink: TextRole, word: &str, message: &str, look: ViewOptions) {
    let indent = word.len();
    for (n, line) in text::wrap(message, look.room(indent)).iter().enumerate() {
        if n == 0 {
            out.push_str(&look.paint(ink, word.trim_end()));
            out.push(' ');
        } else if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::color_tags::tagged;

    #[test]
    fn a_refusal() {
        let seen = render(
            "this plan may no longer be applied: the state moved after it was made (serial 17, now 18)",
            &[
                "serial 18 was written by run r40 (commit 77ab310, CI job 5521) 3 minutes ago"
                    .to_owned(),
            ],
            &[
                "`terrane plan k8s-prod` makes a new plan; approvals stay valid if it is equal"
                    .to_owned(),
            ],
            ViewOptions::plain(100),
        );
        insta::assert_snapshot!(seen, @"
        error: this plan may no longer be applied: the state moved after it was made (serial 17, now 18)
               serial 18 was written by run r40 (commit 77ab310, CI job 5521) 3 minutes ago
        hint: `terrane plan k8s-prod` makes a new plan; approvals stay valid if it is equal
        ");
    }

    #[test]
    fn a_narrow_place() {
        let seen = render(
            "could not read `terrane.hcl` of this project",
            &["permission denied (os error 13)".to_owned()],
            &["make it readable: `chmod u+r terrane.hcl`".to_owned()],
            ViewOptions {
                color: true,
                ..ViewOptions::plain(40)
            },
        );
        insta::assert_snapshot!(tagged(&seen), @"
        <bold red>error:</> could not read `terrane.hcl` of
               this project
               permission denied (os error 13)
        <bold cyan>hint:</> make it readable:
              `chmod u+r terrane.hcl`
        ");
    }
}
