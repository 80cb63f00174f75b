//! Finds contracts and checks them in the source (`check`) and in the plan (`check_plan`). Contracts come
//! with terrane, or are a project's own in `contracts/NAME/vN.json`. A publication checks the applied outputs
//! (`facts`).
//!
//! Not here: what a contract means (`model::stage::contract`), which files read a fact (`fact_readers`).

mod published;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use model::base::diagnostic::{Finding, Location};
use model::base::error::{Explain, NextStep, advice};
use model::hcl::expression::Input;
use model::project::config::LoadedProject;
use model::stage::StageBlock;
use model::stage::contract::{
    self, Contract, ContractName, ContractViolation, NarrowedField, PlannedFields,
    ReadContractError, is_manifest, mapped, narrowed, narrowed_manifest,
};
use model::stage::fact_readers::{Fact, FactReader, Reliance};
use model::stage::facts::FactLocation;
use serde_json::{Map, Value};

use crate::project::fact_readers::{FactReaders, ReadGitopsError};
use published::PlannedPublication;
pub(crate) use published::{PlannedValues, resolve_planned, resolve_planned_sinks};

#[derive(Debug, thiserror::Error)]
pub enum FindContractError {
    #[error("there is no contract `{name}`")]
    Missing { name: ContractName },
    #[error("cannot read the contract `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` has the name of a contract that comes with terrane", path.display())]
    Shadowed { path: PathBuf },
    #[error(transparent)]
    Wrong(#[from] ReadContractError),
}

impl Explain for FindContractError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Missing { name } => vec![advice(format!(
                "write it as a JSON Schema in `{}`; `cluster/v1` is built in",
                name.path()
            ))],
            Self::Shadowed { .. } => vec![advice("give your own contract another name")],
            Self::Read { .. } | Self::Wrong(_) => Vec::new(),
        }
    }
}

/// Finds a contract by name, for the project at `root`.
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

pub fn find_all(
    root: &Path,
    names: &BTreeSet<ContractName>,
) -> Result<BTreeMap<ContractName, Contract>, FindContractError> {
    let find = |name: &ContractName| Ok((name.clone(), find(root, name)?));
    names.iter().map(find).collect()
}

/// Finds errors in the source: contracts that are missing or invalid, and required outputs that a stack does
/// not declare.
pub(crate) fn check(loaded: &mut LoadedProject, root: &Path) {
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
                        finding = finding.at(place_of(name, source), "it is not JSON here");
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
                    "set `values = { … }`, or name the outputs under `properties` of the contract",
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

/// The position at which a file is not valid JSON.
fn place_of(name: &ContractName, err: &serde_json::Error) -> Location {
    Location {
        file: name.path(),
        line: err.line().max(1),
        column: err.column().max(1),
        ..Location::default()
    }
}

/// Entries of `partial` that the contract does not have.
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

/// What a plan would break for readers of a stack's outputs and facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BreakingChanges {
    pub problems: Vec<(ContractName, ContractViolation)>,
    /// Outputs that would be removed or change their type, and have readers.
    pub narrowed: Vec<(NarrowedField, Vec<FactReader>)>,
    /// Fields that would no longer be published, and have readers.
    pub unpublished: Vec<(NarrowedField, Vec<FactReader>)>,
    /// Files that would no longer be published, and have readers.
    pub withdrawn: Vec<(String, Vec<FactReader>)>,
}

impl BreakingChanges {
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty() && !self.takes_away()
    }

    /// Whether a reader would lose something.
    pub fn takes_away(&self) -> bool {
        !(self.narrowed.is_empty() && self.unpublished.is_empty() && self.withdrawn.is_empty())
    }

    /// The fields and files, for a summary.
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

    /// One line for each problem, readers with file and line below it.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (contract, problem) in &self.problems {
            lines.push(format!("contract `{contract}`: {problem}"));
        }
        let narrowed = self.narrowed.iter();
        let outputs = narrowed.map(|(it, used)| (format!("{it}, and is still read:"), used));
        let fields = self.unpublished.iter();
        let fields = fields.map(|(it, used)| {
            let what = match &it.now {
                None => format!("`{}` is no longer published, but still read:", it.field()),
                Some(now) => format!(
                    "`{}` is published as {now}, was {}, and is still read:",
                    it.field(),
                    it.was
                ),
            };
            (what, used)
        });
        let files = self.withdrawn.iter();
        let files = files
            .map(|(path, used)| (format!("file `{path}` is withdrawn, but still read:"), used));
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

impl Explain for CheckPlanError {}

/// What a plan is checked against.
#[derive(Clone, Copy, Debug)]
pub struct PlanCheck<'a> {
    /// The tree that is planned, with its contracts.
    pub source: &'a Path,
    /// The project's root; GitOps files are found from there.
    pub root: &'a Path,
    pub blocks: &'a [StageBlock],
    pub relied: &'a Reliance,
    /// Where the stack's facts were published before.
    pub locations: &'a [FactLocation],
    /// The outputs that the stack last applied.
    pub before: &'a Map<String, Value>,
    pub planned: &'a PlannedFields,
    /// The environment of the caller.
    pub env: &'a BTreeMap<String, String>,
}

/// Checks a plan's outputs, and what the stack would publish, against contracts and known readers.
pub fn check_plan(check: PlanCheck<'_>) -> Result<BreakingChanges, CheckPlanError> {
    let (blocks, planned) = (check.blocks, check.planned);
    let env = check.env;
    let values = PlannedValues { planned, env };
    let mut breaks = BreakingChanges::default();
    for block in blocks {
        for (name, partial) in published::contracts_of(block, values).unwrap_or_default() {
            let contract = find(check.source, &name)?;
            let problems = contract.check_planned(planned, &partial, &planned.sensitive);
            let problems = problems.into_iter().map(|problem| (name.clone(), problem));
            breaks.problems.extend(problems);
        }
    }
    breaks.problems.dedup();
    let lost = narrowed(check.before, planned);
    let would = PlannedPublication::by(blocks, values, |name| find(check.source, name).ok());
    let (unpublished, withdrawn) = taken_away(check.locations, &would, &lost);
    if lost.is_empty() && unpublished.is_empty() && withdrawn.is_empty() {
        return Ok(breaks);
    }
    let readers = FactReaders::load(check.root, check.relied)?;
    for narrowed in lost {
        let output = narrowed.path.first().map_or("", String::as_str);
        let mut used = readers.of(Fact::Output(output));
        for path in published_fields(blocks, &narrowed) {
            let (path, parts) = (&path, &moved_parts(&narrowed, &path));
            used.extend(readers.of(Fact::Field { path, parts }));
        }
        used.sort();
        used.dedup();
        if !used.is_empty() {
            breaks.narrowed.push((narrowed, used));
        }
    }
    for narrowed in unpublished {
        let (path, parts) = (&narrowed.path, &narrowed.parts);
        let used = readers.of(Fact::Field { path, parts });
        if !used.is_empty() {
            breaks.unpublished.push((narrowed, used));
        }
    }
    for path in withdrawn {
        let used = readers.of(Fact::File(&path));
        if !used.is_empty() {
            breaks.withdrawn.push((path, used));
        }
    }
    Ok(breaks)
}

/// Fields and files that are published now and would not be any more. A value that is not known yet counts as
/// kept.
fn taken_away(
    locations: &[FactLocation],
    would: &PlannedPublication,
    lost: &[NarrowedField],
) -> (Vec<NarrowedField>, BTreeSet<String>) {
    let mut fields: Vec<NarrowedField> = Vec::new();
    let mut withdrawn = BTreeSet::new();
    for location in locations {
        let FactLocation::Branch { files, .. } = location else {
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
                let is_known = lost.iter().chain(&fields).any(|it| it.path == field.path);
                if !is_known {
                    fields.push(field);
                }
            }
        }
    }
    (fields, withdrawn)
}

/// The parts of an output under its published name.
fn moved_parts(narrowed: &NarrowedField, field: &[String]) -> Vec<Vec<String>> {
    let parts = narrowed.parts.iter();
    let below = parts.map(|part| &part[narrowed.path.len()..]);
    below.map(|part| [field, part].concat()).collect()
}

/// The names under which an output is published.
fn published_fields(blocks: &[StageBlock], narrowed: &NarrowedField) -> Vec<Vec<String>> {
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
