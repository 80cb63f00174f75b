//! Checks of `publish` blocks before anything runs: sensitive outputs that would be refused, encrypted files without
//! recipients, two blocks with one file, repositories that do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::git::publish::RemoteUrl;
use drivers::sops;
use model::base::diagnostic::{Finding, Location};
use model::base::error::Explain;
use model::hcl::expression::Input;
use model::project::Project;
use model::project::config::LoadedProject;
use model::project::module::Module;
use model::stage::StageBlock;
use model::stage::contract::{self, mapped};
use model::stage::facts::{FactsBranch, SensitiveFacts};
use model::stage::facts::{PathClash, PathMap, SOPS_RULES as RULES, path_problem};

use crate::project::contracts;

/// Adds what is wrong to the findings of the project.
pub(crate) fn check(loaded: &mut LoadedProject, root: &Path) {
    let Some(project) = &loaded.project else {
        return;
    };
    let mut findings = Vec::new();
    for place in project.facts.values() {
        findings.extend(repository(place, root));
    }
    shared(project, &mut findings);
    sink_files(project, &mut findings);
    let rules = std::fs::read_to_string(root.join(RULES)).ok();
    for stack in project.stacks.values() {
        let module = loaded.modules.get(&stack.path);
        for block in &stack.stages.publish {
            let Some(place) = project.facts.get(&block.name) else {
                continue;
            };
            let sensitive = module.map(|module| sensitive_outputs(block, module, root));
            let sensitive = sensitive.unwrap_or_default();
            findings.extend(refused(place, block, &sensitive));
            findings.extend(module.and_then(|module| shown_by_name(block, module)));
            let encrypts = place.encrypt_all
                || (place.sensitive == SensitiveFacts::Encrypt && !sensitive.is_empty());
            if encrypts {
                findings.extend(unreadable(block, rules.as_deref()));
            }
        }
    }
    let files = findings.iter().flat_map(|finding| &finding.places);
    let files: BTreeSet<&String> = files.map(|place| &place.at.file).collect();
    let text = |file: &String| Some((file.clone(), std::fs::read_to_string(root.join(file)).ok()?));
    let texts: BTreeMap<String, String> = files.into_iter().filter_map(text).collect();
    loaded.add(findings, &texts);
}

fn literal(input: Option<&Input>) -> Option<&str> {
    match input? {
        Input::Known(value) => value.as_str(),
        Input::Expression(_) => None,
    }
}

/// A local repository that does not exist: a warning, because it may exist where the project is applied.
fn repository(place: &FactsBranch, root: &Path) -> Option<Finding> {
    let text = literal(place.repository.as_ref())?;
    let url = match RemoteUrl::parse(text, root) {
        Ok(url) => url,
        Err(err) => {
            let finding = Finding::error("facts-repository", err.to_string());
            let finding = finding.at(place.declared_at.clone(), "named here");
            return Some(match err.hint() {
                Some(hint) => finding.hint(hint),
                None => finding,
            });
        }
    };
    let path = url.local()?;
    if path.exists() {
        return None;
    }
    let finding = Finding::warning(
        "facts-repository",
        format!("`{text}` is not there: `facts \"{}\"`", place.name),
    );
    Some(
        finding
            .at(place.declared_at.clone(), "named here")
            .hint(format!("`git init --bare {text}` makes it")),
    )
}

/// Two `facts` blocks may name one branch; a file there still has one owner.
fn shared(project: &Project, findings: &mut Vec<Finding>) {
    let branch = |place: &str| {
        let place = project.facts.get(place)?;
        Some((
            literal(place.repository.as_ref())?,
            literal(place.branch.as_ref()).unwrap_or("facts"),
        ))
    };
    let mut seen: BTreeMap<_, PathMap<(&str, &Location)>> = BTreeMap::new();
    for stack in project.stacks.values() {
        for block in &stack.stages.publish {
            let path = literal(block.attrs.get("path"));
            let (Some(branch), Some(path)) = (branch(&block.name), path) else {
                continue;
            };
            let there = seen.entry(branch).or_default();
            let Some((other, (name, first), how)) = there.clash(path) else {
                there.add(path, (block.name.as_str(), &block.at));
                continue;
            };
            if *name == block.name {
                continue; // another check reports it
            }
            let what = match how {
                PathClash::Same => format!("`{path}` is published twice"),
                PathClash::Directory | PathClash::Case => {
                    let why = how.why();
                    format!("`{path}` and `{other}` cannot both be published, {why}")
                }
            };
            let message = format!("{what}: `{name}` and `{}` are one branch", block.name);
            let finding = Finding::error("shared-fact", message);
            let finding = finding.at(block.at.clone(), "again here");
            findings.push(finding.at((*first).clone(), "first here"));
        }
    }
}

/// Files of the project that cannot be written.
fn sink_files(project: &Project, findings: &mut Vec<Finding>) {
    let mut seen: PathMap<&Location> = PathMap::default();
    for stack in project.stacks.values() {
        let sinks = stack.stages.publish.iter().flat_map(|block| &block.blocks);
        for sink in sinks.filter(|sink| sink.kind == "file") {
            let Some(path) = literal(sink.attrs.get("path")) else {
                continue;
            };
            if let Some(why) = path_problem(path) {
                let path = path.escape_debug();
                let message = format!("`{path}` is not a valid path for facts: {why}");
                let finding = Finding::error("fact-path", message);
                findings.push(finding.at(sink.at.clone(), "written here"));
                continue;
            }
            let Some((other, first, how)) = seen.clash(path) else {
                seen.add(path, &sink.at);
                continue;
            };
            let message = match how {
                PathClash::Same => format!("`{path}` is written by two sinks"),
                PathClash::Directory | PathClash::Case => {
                    format!(
                        "`{path}` and `{other}` cannot both be written: {}",
                        how.why()
                    )
                }
            };
            let finding = Finding::error("shared-fact", message);
            let finding = finding.at(sink.at.clone(), "again here");
            findings.push(finding.at((*first).clone(), "first here"));
        }
    }
}

/// The sensitive outputs in what a block publishes.
fn sensitive_outputs(block: &StageBlock, module: &Module, root: &Path) -> BTreeSet<String> {
    let used: BTreeSet<String> = match block.attrs.get("values") {
        Some(values) => mapped(values)
            .into_iter()
            .flat_map(|one| one.outputs)
            .collect(),
        None => contract::of_block(block)
            .and_then(|name| contracts::find(root, &name).ok())
            .map(|contract| contract.fields().into_iter().map(str::to_owned).collect())
            .unwrap_or_default(),
    };
    let is_sensitive = |name: &String| module.outputs.get(name).is_some_and(|it| it.sensitive);
    used.into_iter().filter(is_sensitive).collect()
}

/// A path must not show a sensitive output.
fn shown_by_name(block: &StageBlock, module: &Module) -> Option<Finding> {
    let used = mapped(block.attrs.get("path")?);
    let used = used.into_iter().flat_map(|one| one.outputs);
    let is_sensitive = |name: &String| module.outputs.get(name).is_some_and(|it| it.sensitive);
    let name = used.into_iter().find(is_sensitive)?;
    let message = format!("`path` would show the sensitive output `{name}` in the name of a file");
    let finding = Finding::error("sensitive-fact", message);
    let finding = finding.at(block.at.clone(), "published here");
    Some(finding.hint("name the file after something that is not sensitive"))
}

fn refused(
    place: &FactsBranch,
    block: &StageBlock,
    sensitive: &BTreeSet<String>,
) -> Option<Finding> {
    if sensitive.is_empty() || place.encrypt_all || place.sensitive != SensitiveFacts::Refuse {
        return None;
    }
    let names: Vec<String> = sensitive.iter().map(|name| format!("`{name}`")).collect();
    let finding = Finding::error(
        "sensitive-fact",
        format!(
            "sensitive outputs would be published in clear: {}",
            names.join(", ")
        ),
    );
    let finding = finding.at(block.at.clone(), "published here");
    Some(finding.hint(
        "leave them out of `values`, or set `sensitive = \"encrypt\"` or `\"reference\"` in the `facts` block",
    ))
}

/// A file that must be encrypted and has no recipients.
fn unreadable(block: &StageBlock, rules: Option<&str>) -> Option<Finding> {
    let path = literal(block.attrs.get("path")).unwrap_or("facts.yaml");
    let why = match rules {
        None => format!("the project has no `{RULES}`"),
        Some(text) => match sops::rules(text) {
            Err(err) => format!("cannot parse `{RULES}`: {err}"),
            Ok(rules) => {
                // A computed path is not known yet.
                literal(block.attrs.get("path"))?;
                rules.for_path(path).err()?.to_string()
            }
        },
    };
    let finding = Finding::error(
        "facts-recipients",
        format!("`{path}` cannot be encrypted: {why}"),
    );
    Some(finding.at(block.at.clone(), "published here").hint(format!(
        "a `creation_rules` entry of `{RULES}` at the project's root names its recipients"
    )))
}
