//! Findings for errors in a project's Rego files.

use std::collections::BTreeMap;
use std::path::Path;

use drivers::rego::{Rego, RegoError, RegoLocation};
use model::base::diagnostic::{Finding, Location};
use model::policy::{Policy, PolicySource};
use model::project::config::LoadedProject;

use super::PolicyError;
use super::evaluator_process::{PolicyResult, try_out};

/// Adds findings from the project's policies.
pub fn check(loaded: &mut LoadedProject) {
    let Some(project) = &loaded.project else {
        return;
    };
    let mut findings = Vec::new();
    let mut texts = BTreeMap::new();
    for policy in project.policies.values() {
        if policy.sources.is_empty() {
            continue; // already reported
        }
        findings.extend(of(policy));
        let sources = policy.sources.iter();
        texts.extend(sources.map(|it| (it.path.clone(), it.text.clone())));
    }
    loaded.add(findings, &texts);
}

/// Adds findings that only an evaluation shows, such as a variable without a value or a missing builtin.
/// `program` is this program; it evaluates the policies in a separate process.
pub async fn check_deeply(
    loaded: &mut LoadedProject,
    program: &Path,
    dir: &Path,
) -> Result<(), PolicyError> {
    let Some(project) = loaded.project.as_ref().filter(|it| !it.policies.is_empty()) else {
        return Ok(());
    };
    let judged = try_out(project, program, dir).await?;
    let mut findings = Vec::new();
    let mut texts = BTreeMap::new();
    for (policy, judged) in project.policies.values().zip(judged) {
        let sources = policy.sources.iter();
        texts.extend(sources.map(|it| (it.path.clone(), it.text.clone())));
        match judged {
            PolicyResult::Said { .. } => {}
            PolicyResult::Broken(err) => findings.push(finding(policy, &err)),
            PolicyResult::Trouble(why) => findings.push(finding(
                policy,
                &RegoError {
                    message: why,
                    place: None,
                    hint: None,
                },
            )),
        }
    }
    loaded.add(findings, &texts);
    Ok(())
}

fn of(policy: &Policy) -> Vec<Finding> {
    match Rego::compile(&policy.sources) {
        Ok(rego) => {
            let old = rego.old.iter().filter_map(|path| {
                let source = policy.sources.iter().find(|it| it.path == *path)?;
                let place = location(source, 1, 1);
                let finding = Finding::warning(
                    "old-rego",
                    format!("policy file `{path}` is written in Rego v0"),
                );
                Some(finding.at(place, "read as v0").hint(
                    "it works; `opa fmt --v0-v1 --write` turns it into v1, the syntax of today",
                ))
            });
            old.collect()
        }
        Err(err) => vec![finding(policy, &err)],
    }
}

fn finding(policy: &Policy, err: &RegoError) -> Finding {
    let message = format!(
        "policy `{}` cannot be evaluated: {}",
        policy.name, err.message
    );
    let mut finding = Finding::error("invalid-policy", message);
    let place = err
        .place
        .as_ref()
        .and_then(|RegoLocation { file, line, column }| {
            let source = policy.sources.iter().find(|it| it.path == *file)?;
            Some(location(source, *line, *column))
        });
    finding = match place {
        Some(place) => finding.at(place, "here"),
        None => finding.at(policy.declared_at.clone(), "of this block"),
    };
    finding.hint.clone_from(&err.hint);
    finding
}

/// The location of the word, or the character, at a position.
fn location(source: &PolicySource, line: usize, column: usize) -> Location {
    let text = &source.text;
    let begin = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum::<usize>();
    let rest = text.get(begin..).unwrap_or_default();
    let rest = rest.lines().next().unwrap_or_default();
    let skipped = rest.char_indices().nth(column.saturating_sub(1));
    let offset = skipped.map_or(rest.len(), |(offset, _)| offset);
    let word = rest[offset..]
        .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')
        .unwrap_or(rest.len() - offset);
    let start = begin + offset;
    Location {
        file: source.path.clone(),
        line,
        column,
        start,
        end: (start + word.max(1)).min(text.len()),
    }
}
