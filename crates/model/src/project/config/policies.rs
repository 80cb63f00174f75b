//! `policy` blocks: their files, and the stacks to which they apply.
//!
//! Not here: whether the files are valid Rego (`control::policy`).

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::base::tree::ReadFailure;
use crate::hcl::paths;
use crate::hcl::suggest;
use crate::policy::{Policy, PolicyPhase, PolicySource};
use crate::project::Stack;
use crate::project::config::attach::{MAX_WORK, Selector, read_selectors};
use crate::project::config::check::{Drafts, KnownNames};
use crate::project::config::findings::Findings;
use crate::project::config::project::OuterBlock;
use crate::project::config::reader::{Reader, Scope};
use crate::project::config::walk::{Dirs, join};

/// The size limit for all files of one policy together.
const MAX_BYTES: usize = 1 << 20;
const MAX_FILES: usize = 200;

/// A policy whose stacks are not known yet.
pub(crate) struct PolicyDraft {
    policy: Policy,
    selectors_at: Location,
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    item: OuterBlock<'_>,
    scope: &Scope,
    dirs: &Dirs,
) -> PolicyDraft {
    let fields = reader.fields(item.source, item.block, item.spec, scope);
    let at_of = |name: &str| {
        let field = fields.get(name);
        field.map_or_else(|| item.at(), |field| item.source.location(field.at.clone()))
    };
    let sources = match fields.text("path") {
        Some(path) => sources(reader, path, &at_of("path"), dirs),
        None => Vec::new(),
    };
    let words = fields.texts("at");
    let at = PolicyPhase::ALL.into_iter();
    let at: BTreeSet<PolicyPhase> = match fields.get("at") {
        None => at.collect(),
        Some(_) => at
            .filter(|point| words.iter().any(|word| word == point.as_str()))
            .collect(),
    };
    if at.is_empty() && fields.get("at").is_some() {
        let finding = Finding::error(
            "invalid-value",
            format!("policy `{}` is asked nowhere", item.name()),
        )
        .at(at_of("at"), "this list is empty")
        .hint("leave `at` out to have it asked everywhere");
        reader.findings.push(finding);
    }
    PolicyDraft {
        selectors_at: at_of("stacks"),
        policy: Policy {
            name: item.name().to_owned(),
            sources,
            at,
            enforce: fields.bool("enforce").unwrap_or(true),
            selectors: fields.get("stacks").map(|_| fields.texts("stacks")),
            stacks: BTreeSet::new(),
            is_of_source: true,
            declared_at: item.at(),
        },
    }
}

/// The Rego files that a path selects, with their texts.
fn sources(
    reader: &mut Reader<'_>,
    written: &str,
    at: &Location,
    dirs: &Dirs,
) -> Vec<PolicySource> {
    let Ok(path) = paths::normalize(written) else {
        return Vec::new(); // already reported
    };
    let found = find(reader, &path, dirs);
    let mut finding = None;
    if found.is_empty() {
        let mut missing = Finding::error(
            "missing-policy",
            format!("there is no Rego file at `{written}`"),
        )
        .at(at.clone(), "nothing here ends in `.rego`");
        let all = dirs.files_ending(".rego");
        missing.hint = suggest::hint(&path, all.iter().map(String::as_str));
        finding = Some(missing);
    } else if found.len() > MAX_FILES {
        finding = Some(too_much(at, &format!("more than {MAX_FILES} files")));
    }
    if let Some(finding) = finding {
        reader.findings.push(finding);
        return Vec::new();
    }
    let mut sources = Vec::new();
    let mut total = 0;
    for path in found {
        let failed = |why: String| {
            let message = format!("policy file `{path}` cannot be read: {why}");
            Finding::error("unreadable-policy", message).at(at.clone(), "read for this")
        };
        let text = match reader.tree.read(&path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned())),
            Err(why) => Err(failed(why.to_string())),
        };
        match text {
            Ok(text) => {
                total += text.len();
                sources.push(PolicySource { path, text });
            }
            Err(finding) => reader.findings.push(finding),
        }
        if total > MAX_BYTES {
            reader
                .findings
                .push(too_much(at, "more than 1 MiB of Rego"));
            return Vec::new();
        }
    }
    sources
}

fn too_much(at: &Location, what: &str) -> Finding {
    Finding::error("too-complex", format!("this policy is {what}")).at(at.clone(), "all of this")
}

fn is_rego(file: &str) -> bool {
    file.rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "rego")
}

/// A file is taken as it is. A directory or a glob selects Rego files that are not tests.
fn find(reader: &Reader<'_>, path: &str, dirs: &Dirs) -> Vec<String> {
    let is_policy = |file: &str| is_rego(file) && !file.ends_with("_test.rego");
    if path.contains(['*', '?', '[', '{']) {
        let Ok(glob) = paths::compile_glob(path) else {
            return Vec::new();
        };
        let all = dirs.files_ending(".rego").into_iter();
        return all
            .filter(|file| glob.is_match(file) && is_policy(file))
            .collect();
    }
    if let Some(entries) = reader.tree.list(path).filter(|_| !path.is_empty()) {
        let files = entries.into_iter().filter(|entry| !entry.is_dir);
        let files = files.map(|entry| join(path, &entry.name));
        return files.filter(|file| is_policy(file)).collect();
    }
    let is_there = is_rego(path) && !matches!(reader.tree.read(path), Err(ReadFailure::Missing));
    is_there.then(|| path.to_owned()).into_iter().collect()
}

impl Policy {
    /// Whether the policy applies to a stack, which may have been removed from the project.
    pub fn selects(&self, stack: &Stack) -> bool {
        let Some(selectors) = &self.selectors else {
            return true;
        };
        let mut selectors = selectors.iter().filter_map(|raw| Selector::parse(raw).ok());
        selectors.any(|selector| selector.selects(stack))
    }
}

/// Resolves the stacks to which each policy applies.
pub(crate) fn attach(
    findings: &mut Findings,
    known: &KnownNames<'_>,
    policies: Vec<PolicyDraft>,
    drafts: &Drafts,
) -> BTreeMap<String, Policy> {
    let written: usize = policies
        .iter()
        .map(|draft| draft.policy.selectors.as_ref().map_or(1, Vec::len))
        .sum();
    if written.saturating_mul(drafts.len()) > MAX_WORK {
        findings.push(Finding::error(
            "too-complex",
            "too many policies for so many stacks",
        ));
        return BTreeMap::new();
    }
    let mut attached = BTreeMap::new();
    for PolicyDraft {
        mut policy,
        selectors_at,
    } in policies
    {
        let selectors = policy.selectors.as_ref();
        let selectors =
            selectors.map(|raw| read_selectors(findings, known, raw, &selectors_at, drafts));
        let applies = drafts.values().filter(|draft| match &selectors {
            None => true,
            Some(selectors) => selectors.iter().any(|it| it.selects(&draft.stack)),
        });
        policy.stacks = applies.map(|draft| draft.stack.name.clone()).collect();
        if policy.stacks.is_empty() && !drafts.is_empty() && !known.is_partial {
            let message = format!("policy `{}` applies to no stack", policy.name);
            findings
                .push(Finding::warning("unused-policy", message).at(selectors_at, "selects none"));
        }
        attached.insert(policy.name.clone(), policy);
    }
    attached
}
