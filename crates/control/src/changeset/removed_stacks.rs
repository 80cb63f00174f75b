//! Stacks that the project no longer has although their state contains resources. They are read from the
//! commit that last had them, so that they can be destroyed with their own code.
//!
//! Not here: which states have no stack (`state::queries`).

use std::collections::{BTreeMap, BTreeSet};

use drivers::git::{GitError, Repository};
use drivers::tree::CommitTree;
use model::base::diagnostic::{Location, Severity};
use model::base::error::{ErrorKind, Explain, NextStep, command};
use model::base::ids::StackName;
use model::policy::{AppliedPolicy, Policy};
use model::project::ApprovalBlock;
use model::project::config::{self, LoadEnvironment, LoadedProject};
use model::project::{Project, Stack, Target, Writer};

use crate::policy;
use crate::project::open::{OlderProject, OpenProject};

/// How many commits that touched a project file are searched.
const MOST: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum RemovedStackError {
    #[error("cannot read an older version of the project: there is no Git history")]
    NoRepository,
    #[error("could not read the project of an older commit")]
    Git(#[from] GitError),
    #[error("cannot read the project of commit {commit}: {why}")]
    Unsound { commit: String, why: String },
    #[error("stack `{0}` is in the project now")]
    Present(StackName),
    #[error("the state of stack `{stack}` now belongs to stack `{now}` of the project")]
    Renamed { stack: StackName, now: StackName },
    #[error(
        "the rules of another commit do not hold for stack `{stack}`: {commit} (\"{subject}\") is the last that has it, {rule}"
    )]
    OtherRules {
        stack: StackName,
        /// ``on target `ci` ``
        rule: String,
        /// The stack's name in that commit.
        there: StackName,
        commit: String,
        subject: String,
    },
}

impl Explain for RemovedStackError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Present(_) | Self::Renamed { .. } | Self::OtherRules { .. } => ErrorKind::Refused,
            Self::NoRepository | Self::Git(_) | Self::Unsound { .. } => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Git(source) => source.next_steps(),
            Self::Present(stack) | Self::Renamed { now: stack, .. } => vec![command(
                format!("destroy {stack}"),
                "destroys it with its current code",
            )],
            Self::OtherRules { there, commit, .. } => vec![command(
                format!("destroy {there} --from {commit}"),
                "destroys it with the code of that commit",
            )],
            Self::NoRepository | Self::Unsound { .. } => Vec::new(),
        }
    }
}

/// The commit that last had a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct RemovedStack {
    pub stack: StackName,
    pub commit: String,
    pub subject: String,
    /// Its protection and approval there apply, whatever commit it is destroyed with.
    pub protected: bool,
    pub approval: Option<ApprovalBlock>,
    /// The attributes that policies read.
    pub layer: String,
    pub labels: BTreeSet<String>,
    /// Its target there, with the current rules.
    pub target: Target,
    /// The writers of that target, and the claims that identify them.
    pub writers: BTreeMap<String, Writer>,
    /// The policies that applied to it.
    pub policies: Vec<AppliedPolicy>,
}

impl RemovedStack {
    pub fn short_commit(&self) -> &str {
        &self.commit[..12.min(self.commit.len())]
    }
}

/// The project of a commit, with the current home.
pub fn open_at(
    now: OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    revision: &str,
) -> Result<(OpenProject, Project), RemovedStackError> {
    let git = now.git.as_ref().ok_or(RemovedStackError::NoRepository)?;
    let (id, subject) = git.describe(revision)?;
    let mut loaded = load(git, env, &id)?;
    let commit = id[..12.min(id.len())].to_owned();
    let errors = loaded
        .findings
        .iter()
        .filter(|it| it.severity == Severity::Error);
    if let Some(first) = errors.map(|finding| finding.message.clone()).next() {
        return Err(RemovedStackError::Unsound { commit, why: first });
    }
    let Some(mut then) = loaded.project.take() else {
        let why = "it has no project file".to_owned();
        return Err(RemovedStackError::Unsound { commit, why });
    };
    // The code is from that commit; the writers are those of the current project.
    for target in then.targets.values_mut() {
        rule_as_now(target, project);
    }
    for (name, writer) in &project.writers {
        then.writers.insert(name.clone(), writer.clone());
    }
    ask_as_now(&mut then, project);
    loaded.project = Some(then.clone());
    let from = OlderProject {
        id,
        subject,
        now: project.clone(),
    };
    let open = OpenProject {
        loaded,
        commit: Some(from),
        ..now
    };
    Ok((open, then))
}

fn rule_as_now(target: &mut Target, now: &Project) {
    if let Some(present) = now.targets.get(&target.name) {
        target.writers.clone_from(&present.writers);
        target.approval.clone_from(&present.approval);
        target.lane = present.lane;
    }
}

/// Adds the current policies to those of the commit, so that both are evaluated.
fn ask_as_now(then: &mut Project, now: &Project) {
    for policy in now.policies.values() {
        let selected = then.stacks.values().filter(|stack| policy.selects(stack));
        let mut policy = Policy {
            stacks: selected.map(|stack| stack.name.clone()).collect(),
            is_of_source: false,
            ..policy.clone()
        };
        let is_same = |then: &Policy| {
            let asks = |it: &Policy| (it.sources.clone(), it.at.clone(), it.enforce);
            asks(then) == asks(&policy) && policy.stacks.is_subset(&then.stacks)
        };
        match then.policies.get(&policy.name) {
            Some(same) if is_same(same) => continue,
            Some(_) => policy.name = format!("{} (as of now)", policy.name),
            None => {}
        }
        then.policies.insert(policy.name.clone(), policy);
    }
}

/// Finds the newest commit whose project has a stack with this name, or with a state of this name.
pub fn last_commit(
    now: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    name: &str,
) -> Result<Option<RemovedStack>, RemovedStackError> {
    let git = now.git.as_ref().ok_or(RemovedStackError::NoRepository)?;
    let Some(head) = git.head()? else {
        return Ok(None);
    };
    // A stack can come from the project file or from a discovered directory, which contains modules.
    let touching = git.touching(&["*.hcl", "*.tf", "*.tofu", "*.tf.json"], MOST)?;
    let mut seen = Vec::new();
    for commit in std::iter::once(head).chain(touching) {
        let parents = git.parents(&commit)?;
        for candidate in std::iter::once(commit).chain(parents) {
            if seen.contains(&candidate) {
                continue;
            }
            let loaded = load(git, env, &candidate)?;
            if let Some((there, stack)) = find_in(&loaded, name) {
                let (commit, subject) = git.describe(&candidate)?;
                let mut target = there.targets[&stack.target].clone();
                rule_as_now(&mut target, project);
                let mut writers = there.writers.clone();
                writers.extend(project.writers.clone());
                return Ok(Some(RemovedStack {
                    stack: stack.name.clone(),
                    commit,
                    subject,
                    protected: stack.protected,
                    approval: stack.approval.clone(),
                    layer: stack.layer.clone(),
                    labels: stack.labels.clone(),
                    writers: named(&writers, &target),
                    target,
                    policies: policy::applied(there, &stack.name),
                }));
            }
            seen.push(candidate);
        }
    }
    Ok(None)
}

/// Refuses to destroy with old code what the project has now, also under another name.
pub fn check_absent<'a>(
    then: &Project,
    now: &Project,
    stacks: impl IntoIterator<Item = &'a StackName>,
) -> Result<(), RemovedStackError> {
    for stack in stacks {
        if now.stacks.contains_key(stack) {
            return Err(RemovedStackError::Present(stack.clone()));
        }
        let state = &then.stacks[stack].state;
        let mut present = now.stacks.values();
        if let Some(other) = present.find(|other| other.state == *state) {
            return Err(RemovedStackError::Renamed {
                stack: stack.clone(),
                now: other.name.clone(),
            });
        }
    }
    Ok(())
}

fn load(
    git: &Repository,
    env: &BTreeMap<String, String>,
    commit: &str,
) -> Result<LoadedProject, RemovedStackError> {
    let lookup = |name: &str| env.get(name).cloned();
    let around = LoadEnvironment {
        env: &lookup,
        git_commit: Some(commit.to_owned()),
        git_branch: git.branch()?,
    };
    Ok(config::load(&CommitTree::new(git, commit)?, &around))
}

fn find_in<'a>(loaded: &'a LoadedProject, name: &str) -> Option<(&'a Project, &'a Stack)> {
    let project = loaded.project.as_ref()?;
    let mut stacks = project.stacks.values();
    let of_state = stacks.clone().find(|stack| stack.state == name);
    let stack = of_state.or_else(|| stacks.find(|stack| stack.name.as_str() == name))?;
    let has_target = project.targets.contains_key(&stack.target);
    has_target.then_some((project, stack))
}

/// The writers of a target, regardless of their place in a file.
fn named(writers: &BTreeMap<String, Writer>, target: &Target) -> BTreeMap<String, Writer> {
    let all = writers
        .iter()
        .filter(|(name, _)| target.writers.contains(name));
    let somewhere = |writer: &Writer| Writer {
        declared_at: Location::default(),
        ..writer.clone()
    };
    all.map(|(name, writer)| (name.clone(), somewhere(writer)))
        .collect()
}

/// Refuses a commit whose rules differ from those where the stack was last: writers, approvals,
/// or a missing policy.
pub fn check_rules(
    then: &Project,
    stack: &StackName,
    last: &RemovedStack,
) -> Result<(), RemovedStackError> {
    let named_stack = &then.stacks[stack];
    let target = &then.targets[&named_stack.target];
    let is_same = target.name == last.target.name
        && target.writers == last.target.writers
        && named(&then.writers, target) == last.writers
        && target.approval == last.target.approval;
    let asked = policy::applied(then, stack);
    let missing = last.policies.iter().find(|policy| !asked.contains(policy));
    let differs = [
        ("approval", named_stack.approval != last.approval),
        ("layer", named_stack.layer != last.layer),
        ("labels", named_stack.labels != last.labels),
    ];
    let other = differs.iter().find(|(_, differs)| *differs);
    let rule = match (is_same, other, missing) {
        (false, ..) => format!("on target `{}`", last.target.name),
        (true, Some((what, _)), _) => format!("with other `{what}`"),
        (true, None, Some(policy)) => format!(
            "with policy `{}`, which the named commit lacks or defines differently",
            policy.name
        ),
        (true, None, None) => return Ok(()),
    };
    Err(RemovedStackError::OtherRules {
        stack: stack.clone(),
        rule,
        there: last.stack.clone(),
        commit: last.short_commit().to_owned(),
        subject: last.subject.clone(),
    })
}
