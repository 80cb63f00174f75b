//! Contracts where they are: those that come with terrane, and a project's own in `contracts/NAME/vN.json`.
//!
//! Whether a stack can keep them is looked at three times: in the source (`check`), in the plan (`check_plan`), and with
//! the outputs that were applied (`facts`).
//!
//! Not here: what they say (`model::contract`).

mod gitops;
mod published;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use model::config::Loaded;
use model::contract::{
    self, Consumer, Contract, ContractName, Narrowed, Planned, Problem, ReadContractError,
    Reliance, Use, is_manifest, mapped, narrowed, narrowed_manifest,
};
use model::diagnostic::{Finding, Location};
use model::facts::Standing;
use model::ids::StackName;
use model::project::{EdgeKind, Input, Project};
use model::stage::StageBlock;
use serde_json::{Map, Value};

use gitops::GitopsFiles;
pub use gitops::ReadGitopsError;
use published::WouldPublish;
pub(crate) use published::{Foretold, foretell, foretell_sinks};

#[derive(Debug, thiserror::Error)]
pub enum FindContractError {
    #[error("there is no contract `{name}`")]
    Missing { name: ContractName },
    #[error("could not read the contract `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` has the name of a contract that comes with terrane", path.display())]
    Shadowed { path: PathBuf },
    #[error(transparent)]
    Wrong(#[from] ReadContractError),
}

impl FindContractError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { name } => Some(format!(
                "write it as a JSON Schema in `{}`; `cluster/v1` comes with terrane",
                name.path()
            )),
            Self::Shadowed { .. } => Some("call your own one otherwise".to_owned()),
            Self::Read { .. } | Self::Wrong(_) => None,
        }
    }
}

/// The contract of a name, as the project at `root` sees it.
pub fn find(root: &Path, name: &ContractName) -> Result<Contract, FindContractError> {
    let path = root.join(name.path());
    let own = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(FindContractError::Read { path, source }),
    };
    match (Contract::shipped(name), own) {
        (Some(_), Some(_)) => Err(FindContractError::Shadowed {
            path: name.path().into(),
        }),
        (Some(shipped), None) => Ok(shipped),
        (None, Some(text)) => Ok(Contract::read(name.clone(), &text)?),
        (None, None) => Err(FindContractError::Missing { name: name.clone() }),
    }
}

/// Several at once.
pub fn find_all(
    root: &Path,
    names: &BTreeSet<ContractName>,
) -> Result<BTreeMap<ContractName, Contract>, FindContractError> {
    let find = |name: &ContractName| Ok((name.clone(), find(root, name)?));
    names.iter().map(find).collect()
}

/// What is wrong in the source: contracts that are not there or no schemas, and outputs that a stack does not declare.
pub(crate) fn check(loaded: &mut Loaded, root: &Path) {
    let mut findings = Vec::new();
    for stack in loaded
        .project
        .iter()
        .flat_map(|project| project.stacks.values())
    {
        let module = loaded.modules.get(&stack.path);
        for block in &stack.stages.publish {
            let Some(name) = contract::of_block(block) else {
                continue;
            };
            let contract = match find(root, &name) {
                Ok(contract) => contract,
                Err(err) => {
                    let mut finding = Finding::error("contract", err.to_string());
                    if let FindContractError::Wrong(ReadContractError::NotJson { name, source }) =
                        &err
                    {
                        finding = finding.at(place_of(name, source), "it ends to be JSON here");
                    }
                    let finding = finding.at(block.at.clone(), "named here");
                    findings.push(match err.hint() {
                        Some(hint) => finding.hint(hint),
                        None => finding,
                    });
                    continue;
                }
            };
            let partial = texts(block, "partial");
            findings.extend(unknown_partial(block, &contract, &partial));
            if contract.fields().is_empty() && !block.attrs.contains_key("values") {
                let message = format!("the contract `{name}` names no outputs to publish");
                let finding = Finding::error("contract-output", message);
                findings.push(finding.at(block.at.clone(), "published here").hint(
                    "say `values = { … }`, or name the outputs under `properties` of the contract",
                ));
            }
            let missing: Vec<String> = contract
                .required()
                .into_iter()
                .filter(|field| !partial.iter().any(|name| name == field))
                .filter(|field| module.is_some_and(|it| !it.outputs.contains_key(*field)))
                .map(|field| format!("`{field}`"))
                .collect();
            if !missing.is_empty() {
                let message = format!(
                    "stack `{}` declares no output {}, which the contract `{name}` requires",
                    stack.name,
                    missing.join(", "),
                );
                let finding = Finding::error("contract-output", message);
                findings.push(
                    finding.at(block.at.clone(), "promised here").hint(
                        "declare the outputs, or name what may be missing for now in `partial`",
                    ),
                );
            }
        }
    }
    let files = findings.iter().flat_map(|finding| &finding.places);
    let files: BTreeSet<&String> = files.map(|place| &place.at.file).collect();
    let text = |file: &String| Some((file.clone(), std::fs::read_to_string(root.join(file)).ok()?));
    let texts: BTreeMap<String, String> = files.into_iter().filter_map(text).collect();
    loaded.add(findings, &texts);
}

/// Where a file stops to be JSON.
fn place_of(name: &ContractName, err: &serde_json::Error) -> Location {
    Location {
        file: name.path(),
        line: err.line().max(1),
        column: err.column().max(1),
        ..Location::default()
    }
}

/// Fields that may be missing, and that the contract does not speak of.
fn unknown_partial(block: &StageBlock, contract: &Contract, partial: &[String]) -> Option<Finding> {
    let fields = contract.fields();
    let is_known = |name: &&String| {
        let top = name.split(['.', '[']).next().unwrap_or(name);
        fields.contains(&top)
    };
    let unknown = partial.iter().filter(|name| !is_known(name));
    let unknown: Vec<String> = unknown.map(|name| format!("`{name}`")).collect();
    if unknown.is_empty() {
        return None;
    }
    let (unknown, name) = (unknown.join(", "), &contract.name);
    let message = format!("`partial` names {unknown}, which the contract `{name}` does not");
    let finding = Finding::error("contract-partial", message).at(block.at.clone(), "named here");
    let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    Some(finding.hint(format!("it names {}", fields.join(", "))))
}

fn texts(block: &StageBlock, name: &str) -> Vec<String> {
    match block.attrs.get(name) {
        Some(Input::Known(Value::Array(items))) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        Some(_) | None => Vec::new(),
    }
}

/// What a plan would break for those who rely on a stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanBreaks {
    pub problems: Vec<(ContractName, Problem)>,
    /// Only what somebody uses.
    pub narrowed: Vec<(Narrowed, Vec<Consumer>)>,
    /// Fields that would be published no more, and somebody uses.
    pub unpublished: Vec<(Narrowed, Vec<Consumer>)>,
    /// Files that would be published no more, and somebody names.
    pub withdrawn: Vec<(String, Vec<Consumer>)>,
}

impl PlanBreaks {
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty() && !self.takes_away()
    }

    /// Whether somebody would miss something.
    pub fn takes_away(&self) -> bool {
        !(self.narrowed.is_empty() && self.unpublished.is_empty() && self.withdrawn.is_empty())
    }

    /// What it is all about, in a few words.
    pub fn names(&self) -> Vec<String> {
        let problems = self.problems.iter().map(|(_, problem)| &problem.field);
        let mut names: Vec<String> = problems.map(|field| format!("`{field}`")).collect();
        let fields = self.narrowed.iter().chain(&self.unpublished);
        names.extend(fields.map(|(it, _)| format!("`{}`", it.field())));
        names.extend(self.withdrawn.iter().map(|(path, _)| format!("`{path}`")));
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// A line for each thing, consumers with file and line below it.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (contract, problem) in &self.problems {
            lines.push(format!("contract `{contract}`: {problem}"));
        }
        let narrowed = self.narrowed.iter();
        let outputs = narrowed.map(|(it, used)| (format!("{it}, and is used:"), used));
        let fields = self.unpublished.iter();
        let fields = fields.map(|(it, used)| {
            let what = match &it.now {
                None => format!("`{}` is published no more, and is used:", it.field()),
                Some(now) => format!(
                    "`{}` is published as {now}, was {}, and is used:",
                    it.field(),
                    it.was
                ),
            };
            (what, used)
        });
        let files = self.withdrawn.iter();
        let files =
            files.map(|(path, used)| (format!("file `{path}` is withdrawn, and is used:"), used));
        for (what, consumers) in outputs.chain(fields).chain(files) {
            lines.push(what);
            for consumer in consumers {
                lines.push(format!(
                    "  {}:{}: {}",
                    consumer.file, consumer.line, consumer.text
                ));
            }
        }
        lines
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CheckPlanError {
    #[error(transparent)]
    Contract(#[from] FindContractError),
    #[error(transparent)]
    Gitops(#[from] ReadGitopsError),
}

/// What a plan is looked at with.
#[derive(Clone, Copy, Debug)]
pub struct PlanCheck<'a> {
    /// The tree that is planned: contracts lie there.
    pub source: &'a Path,
    /// Where the project lies; GitOps files lie beside it.
    pub root: &'a Path,
    pub blocks: &'a [StageBlock],
    pub relied: &'a Reliance,
    /// Where the stack's facts stand from before.
    pub standing: &'a [Standing],
    /// The outputs that the stack last applied.
    pub before: &'a Map<String, Value>,
    pub planned: &'a Planned,
    /// The environment of whoever asks.
    pub env: &'a BTreeMap<String, String>,
}

/// Looks at a plan's outputs, and at what the stack would publish, with the contracts and the known consumers.
pub fn check_plan(check: PlanCheck<'_>) -> Result<PlanBreaks, CheckPlanError> {
    let (blocks, planned) = (check.blocks, check.planned);
    let env = check.env;
    let foretold = Foretold { planned, env };
    let mut breaks = PlanBreaks::default();
    for block in blocks {
        for (name, partial) in published::contracts_of(block, foretold).unwrap_or_default() {
            let contract = find(check.source, &name)?;
            let problems = contract.check_planned(planned, &partial, &planned.sensitive);
            let problems = problems.into_iter().map(|problem| (name.clone(), problem));
            breaks.problems.extend(problems);
        }
    }
    breaks.problems.dedup();
    let lost = narrowed(check.before, planned);
    let would = WouldPublish::by(blocks, foretold, |name| find(check.source, name).ok());
    let (unpublished, withdrawn) = taken_away(check.standing, &would, &lost);
    if lost.is_empty() && unpublished.is_empty() && withdrawn.is_empty() {
        return Ok(breaks);
    }
    let files = GitopsFiles::read(check.root, &check.relied.gitops)?;
    for narrowed in lost {
        let inputs = narrowed
            .path
            .first()
            .and_then(|name| check.relied.inputs.get(name));
        let mut used = inputs.cloned().unwrap_or_default();
        for field in published_fields(blocks, &narrowed) {
            let parts = moved_parts(&narrowed, &field);
            used.extend(files.using(&field, &parts));
        }
        used.sort();
        used.dedup();
        if !used.is_empty() {
            breaks.narrowed.push((narrowed, used));
        }
    }
    for narrowed in unpublished {
        let used = files.using(&narrowed.path, &narrowed.parts);
        if !used.is_empty() {
            breaks.unpublished.push((narrowed, used));
        }
    }
    for path in withdrawn {
        let used = files.naming(&path);
        if !used.is_empty() {
            breaks.withdrawn.push((path, used));
        }
    }
    Ok(breaks)
}

/// Fields and files that are published now and would be no more. What is not known yet takes nothing away.
fn taken_away(
    standing: &[Standing],
    would: &WouldPublish,
    lost: &[Narrowed],
) -> (Vec<Narrowed>, BTreeSet<String>) {
    let mut fields: Vec<Narrowed> = Vec::new();
    let mut withdrawn = BTreeSet::new();
    for standing in standing {
        let Standing::Branch { files, .. } = standing else {
            continue;
        };
        for (path, shape) in files {
            if let Some(paths) = &would.paths
                && !paths.contains(path)
            {
                withdrawn.insert(path.clone());
            }
            let less = if is_manifest(shape) {
                narrowed_manifest
            } else {
                narrowed
            };
            let gone = would.fields.as_ref().map(|now| less(shape, now));
            for field in gone.into_iter().flatten() {
                let is_said = lost.iter().chain(&fields).any(|it| it.path == field.path);
                if !is_said {
                    fields.push(field);
                }
            }
        }
    }
    (fields, withdrawn)
}

/// Who relies on a stack: inputs of other stacks, and where facts are consumed.
pub fn reliance(project: &Project, stack: &StackName) -> Reliance {
    let mut inputs: BTreeMap<String, Vec<Consumer>> = BTreeMap::new();
    for (name, other) in &project.stacks {
        for edge in other.edges.iter().filter(|edge| edge.upstream == *stack) {
            if let EdgeKind::Output { output, input } = &edge.kind {
                inputs.entry(output.clone()).or_default().push(Consumer {
                    file: edge.at.file.clone(),
                    line: edge.at.line,
                    text: format!("input `{input}` of stack `{name}`"),
                    how: Use::Input,
                });
            }
        }
    }
    Reliance {
        inputs,
        gitops: project.gitops.clone(),
    }
}

/// The parts of an output under the name that it is published by.
fn moved_parts(narrowed: &Narrowed, field: &[String]) -> Vec<Vec<String>> {
    let parts = narrowed.parts.iter();
    let below = parts.map(|part| &part[narrowed.path.len()..]);
    below.map(|part| [field, part].concat()).collect()
}

/// Under which names an output is published.
fn published_fields(blocks: &[StageBlock], narrowed: &Narrowed) -> Vec<Vec<String>> {
    let mut fields = Vec::new();
    for block in blocks {
        match block.attrs.get("values") {
            None => fields.push(narrowed.path.clone()),
            Some(values) => {
                let uses = mapped(values).into_iter().filter(|one| {
                    let output = narrowed.path.first();
                    output.is_some_and(|output| one.outputs.contains(output))
                });
                fields.extend(uses.map(|one| one.field));
            }
        }
    }
    fields.sort();
    fields.dedup();
    fields
}
