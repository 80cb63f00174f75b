//! The policy verdicts on a change set, as a block below its plans.

use model::policy::{Remark, Verdict};

use super::style::{TextRole, ViewOptions};
use super::text::{self, clean, count};

/// The verdict on one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackVerdict {
    /// Empty if the stack needs no name.
    pub stack: String,
    pub verdict: Verdict,
    /// The verdict is on a preview: that on the final plan may differ.
    pub is_foreseen: bool,
}

/// A header with the counts, then a line for each result, denials first. Empty if no policy was evaluated.
pub fn render(verdicts: &[StackVerdict], widest: usize, look: ViewOptions) -> String {
    let mut asked: Vec<&String> = verdicts.iter().flat_map(|it| &it.verdict.asked).collect();
    asked.sort_unstable();
    asked.dedup();
    if asked.is_empty() {
        return String::new();
    }
    let lines: Vec<Line> = verdicts.iter().flat_map(lines).collect();
    let name = look.paint(TextRole::Strong, &text::pad("policy", widest));
    let mut out = format!("{name}  {}\n", summary(verdicts, asked.len()));
    let word = lines.iter().map(|line| line.kind.word().len()).max();
    let policy = lines.iter().map(|line| text::width(&line.policy)).max();
    let (word, policy) = (word.unwrap_or(0), policy.unwrap_or(0));
    for kind in Kind::ALL {
        for line in lines.iter().filter(|line| line.kind == kind) {
            let head = format!(
                "  {}  {}  ",
                look.paint(kind.ink(), &text::pad(kind.word(), word)),
                text::pad(&line.policy, policy)
            );
            let indent = 2 + word + 2 + policy + 2;
            for (n, part) in text::wrap(&line.words, look.room(indent))
                .iter()
                .enumerate()
            {
                if n == 0 {
                    out.push_str(&head);
                } else {
                    out.push_str(&" ".repeat(indent));
                }
                out.extend([part.as_str(), "\n"]);
            }
        }
    }
    let left_off: usize = verdicts.iter().map(|it| it.verdict.left_off).sum();
    if left_off > 0 {
        let more = format!("  and {left_off} more\n");
        out.push_str(&more);
    }
    out
}

fn summary(verdicts: &[StackVerdict], asked: usize) -> String {
    let sum = |is_foreseen: bool, of: fn(&Verdict) -> usize| {
        let these = verdicts.iter().filter(|it| it.is_foreseen == is_foreseen);
        these.map(|it| of(&it.verdict)).sum::<usize>()
    };
    let (denials, approvals) = (
        |it: &Verdict| it.denials.len(),
        |it: &Verdict| it.approvals.len(),
    );
    let warnings = |it: &Verdict| it.warnings.len();
    let parts: Vec<String> = [
        (sum(false, denials), "denial", ""),
        (sum(true, denials), "denial", " to come"),
        (sum(false, approvals), "approval condition", ""),
        (sum(true, approvals), "approval condition", " to come"),
        (sum(false, warnings) + sum(true, warnings), "warning", ""),
    ]
    .into_iter()
    .filter(|(number, ..)| *number > 0)
    .map(|(number, noun, when)| count(number, noun) + when)
    .collect();
    if parts.is_empty() {
        return format!("passed ({asked} checked)");
    }
    parts.join(", ")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deny,
    WouldDeny,
    Approve,
    WouldWant,
    Warn,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Deny,
        Self::WouldDeny,
        Self::Approve,
        Self::WouldWant,
        Self::Warn,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::WouldDeny => "would deny",
            Self::Approve => "approve",
            Self::WouldWant => "would want",
            Self::Warn => "warn",
        }
    }

    fn ink(self) -> TextRole {
        match self {
            Self::Deny | Self::WouldDeny => TextRole::Error,
            Self::Approve | Self::WouldWant => TextRole::Change,
            Self::Warn => TextRole::Warning,
        }
    }
}

struct Line {
    kind: Kind,
    policy: String,
    words: String,
}

fn lines(of: &StackVerdict) -> Vec<Line> {
    let line = |kind: Kind, remark: &Remark, rest: &str| Line {
        kind,
        policy: clean(&remark.policy).into_owned(),
        words: format!("{}{rest}", words(&of.stack, remark)),
    };
    let denials = of.verdict.denials.iter();
    let warnings = of.verdict.warnings.iter();
    let approvals = of.verdict.approvals.iter();
    let (deny, approve) = if of.is_foreseen {
        (Kind::WouldDeny, Kind::WouldWant)
    } else {
        (Kind::Deny, Kind::Approve)
    };
    denials
        .map(|remark| line(deny, remark, ""))
        .chain(approvals.map(|wanted| {
            let rest = format!("; needs {}", wanted.wants());
            line(approve, &wanted.remark, &rest)
        }))
        .chain(warnings.map(|remark| line(Kind::Warn, remark, "")))
        .collect()
}

/// ``database: terraform_data.db is deleted``
fn words(stack: &str, remark: &Remark) -> String {
    let message = clean(&remark.message);
    let about = match &remark.resource {
        Some(resource) if !message.contains(resource.as_str()) => format!(" ({})", clean(resource)),
        _ => String::new(),
    };
    if stack.is_empty() {
        format!("{message}{about}")
    } else {
        format!("{}: {message}{about}", clean(stack))
    }
}

#[cfg(test)]
mod tests {
    use model::policy::{RuleKind, RuleResult};

    use super::*;

    fn answer(rule: RuleKind, message: &str, resource: Option<&str>) -> RuleResult {
        RuleResult {
            rule,
            message: message.to_owned(),
            resource: resource.map(str::to_owned),
            count: 2,
            role: None,
        }
    }

    #[test]
    fn denials_come_first_and_name_their_resource() {
        let mut verdict = Verdict::default();
        let said = vec![
            answer(RuleKind::Warn, "it is Friday", None),
            answer(RuleKind::Deny, "no owner", Some("terraform_data.db")),
            answer(
                RuleKind::RequireApproval,
                "terraform_data.db goes away",
                Some("terraform_data.db"),
            ),
        ];
        verdict.add("owners", true, said, 3);
        let all = [StackVerdict {
            stack: "database".to_owned(),
            verdict,
            is_foreseen: false,
        }];
        insta::assert_snapshot!(render(&all, 8, ViewOptions::plain(72)), @r"
        policy    1 denial, 1 approval condition, 1 warning
          deny     owners  database: no owner (terraform_data.db)
          approve  owners  database: terraform_data.db goes away; needs 2
                           approvals
          warn     owners  database: it is Friday
          and 3 more
        ");
    }

    #[test]
    fn silence_is_said_and_no_policy_is_not() {
        let mut verdict = Verdict::default();
        let stack = String::new();
        let none = [StackVerdict {
            stack: stack.clone(),
            verdict: verdict.clone(),
            is_foreseen: false,
        }];
        assert_eq!(render(&none, 6, ViewOptions::plain(72)), "");
        verdict.add("owners", true, Vec::new(), 0);
        let silent = [StackVerdict {
            stack,
            verdict,
            is_foreseen: false,
        }];
        assert_eq!(
            render(&silent, 6, ViewOptions::plain(72)),
            "policy  passed (1 checked)\n"
        );
    }
}
