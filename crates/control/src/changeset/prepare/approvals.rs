//! The approvals that the project requires before an apply.
//!
//! Not here: given and missing approvals (`model::run::approval`).

use std::collections::BTreeSet;

use model::base::ids::StackName;
use model::project::Project;
use model::project::{ApprovalBlock, ApprovalRule, ApprovalScope};
use model::run::approval::ApprovalRequirement;
use model::run::changeset::{Action, Request};

use super::ChangeSetRequest;

/// The approvals that are required before an apply. A target's rule counts once for all its stacks, a stack's
/// rule only for itself.
pub(super) fn approvals(project: &Project, wanted: &ChangeSetRequest) -> Vec<ApprovalRequirement> {
    let mut found: Vec<ApprovalRequirement> = Vec::new();
    match wanted.action {
        Action::Apply | Action::Destroy => {}
        // Engine commands have their own record.
        Action::Plan | Action::Exec => return found,
    }
    for name in &wanted.stacks {
        let Some((by, rule)) = rule_of(project, name) else {
            continue;
        };
        match found.iter_mut().find(|one| one.by == by) {
            Some(known) => {
                known.stacks.insert(name.clone());
            }
            None => found.push(ApprovalRequirement {
                by,
                rule,
                stacks: BTreeSet::from([name.clone()]),
            }),
        }
    }
    found
}

/// The block that requires approvals for a stack, and its rule.
fn rule_of(project: &Project, name: &StackName) -> Option<(String, ApprovalRule)> {
    let stack = project.stacks.get(name)?;
    let target = project.targets.get(&stack.target)?;
    let rule = ApprovalBlock::rule(target.approval.as_ref(), stack.approval.as_ref());
    let rule = rule.filter(|rule| rule.count > 0)?;
    let by = if stack.approval.is_some() || rule.scope == ApprovalScope::Stack {
        format!("stack `{name}`")
    } else {
        format!("target `{}`", target.name)
    };
    Some((by, rule))
}

/// The stack or target that requires more approvals now than when the change set was requested.
pub fn requires_more_approvals(project: &Project, request: &Request) -> Option<String> {
    match request.action {
        Action::Apply | Action::Destroy => {}
        Action::Plan | Action::Exec => return None,
    }
    request.stacks.iter().find_map(|name| {
        let (by, now) = rule_of(project, name)?;
        let mut asked = request.approvals.iter();
        let is_asked = asked.any(|one| one.stacks.contains(name) && one.rule.asks_as_much_as(&now));
        (!is_asked).then_some(by)
    })
}
