//! Checks stacks against their modules: directories, outputs, inputs, and variables that are not set.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::{Finding, Location};
use crate::base::tree::{ReadFailure, Tree, TreeEntry, each};
use crate::hcl::expression::Input;
use crate::hcl::paths;
use crate::hcl::suggest;
use crate::project::EdgeKind;
use crate::project::config::attach::{Contexts, MAX_WORK};
use crate::project::config::check::Drafts;
use crate::project::config::check::type_mismatch;
use crate::project::config::findings::Findings;
use crate::project::config::stack::StackDraft;
use crate::project::config::walk::{Dirs, join};
use crate::project::engine::Flavor;
use crate::project::module::{Module, Variable, is_engine_file, read_listed, tfvars_names};

pub(crate) struct Modules<'a> {
    tree: &'a dyn Tree,
    dirs: Dirs,
    pub(crate) read: BTreeMap<String, Module>,
    /// Modules that were read in advance, with their findings.
    ahead: BTreeMap<String, (Module, Vec<Finding>)>,
    /// Variables that are set by files which the engine loads automatically, by directory.
    automatic: BTreeMap<String, BTreeSet<String>>,
    /// The number of patterns matched against variables so far.
    work: usize,
}

impl<'a> Modules<'a> {
    pub(crate) fn new(tree: &'a dyn Tree, dirs: Dirs) -> Self {
        Self {
            tree,
            dirs,
            read: BTreeMap::new(),
            ahead: BTreeMap::new(),
            automatic: BTreeMap::new(),
            work: 0,
        }
    }

    /// Reads the module of every stack and all local modules that it calls, each directory once.
    pub(crate) fn read_all(&mut self, findings: &mut Findings, drafts: &Drafts) {
        self.read_ahead(drafts);
        for draft in drafts.values().filter(|draft| draft.has_path) {
            self.root(findings, draft);
        }
        let roots = drafts.values().filter(|draft| draft.has_path);
        let mut open: Vec<(String, Flavor)> = roots
            .map(|draft| (draft.stack.path.clone(), draft.stack.engine.flavor))
            .collect();
        while let Some((dir, flavor)) = open.pop() {
            let calls = self
                .read
                .get(&dir)
                .map_or_else(Vec::new, |module| module.calls.clone());
            for call in calls {
                let Some(local) = call.local else { continue };
                if self.read.contains_key(&local) {
                    continue;
                }
                if self
                    .module(findings, &local, flavor)
                    .is_some_and(|module| module.has_engine_files)
                {
                    open.push((local, flavor));
                } else {
                    let finding = Finding::error(
                        "missing-directory",
                        format!(
                            "module `{}` has no source: there is no module in `{local}`",
                            call.name
                        ),
                    )
                    .at(call.at.clone(), "called here");
                    findings.push(finding);
                }
            }
        }
    }

    /// Reads the directories of all stacks, in parallel where the tree supports it.
    fn read_ahead(&mut self, drafts: &Drafts) {
        let mut wanted = BTreeMap::new();
        for draft in drafts.values().filter(|draft| draft.has_path) {
            let dir = draft.stack.path.as_str();
            if !wanted.contains_key(dir) && self.dirs.entries(self.tree, dir).is_some() {
                wanted.insert(dir, draft.stack.engine.flavor);
            }
        }
        let wanted: Vec<(&str, Flavor)> = wanted.into_iter().collect();
        let (tree, dirs) = (self.tree, &self.dirs);
        let read = each(tree, &wanted, |(dir, flavor)| {
            read_listed(tree, dir, dirs.known(dir), *flavor)
        });
        let dirs = wanted.iter().map(|(dir, _)| (*dir).to_owned());
        self.ahead = dirs.zip(read).collect();
    }

    fn root(&mut self, findings: &mut Findings, draft: &StackDraft) {
        let path = &draft.stack.path;
        let shown = if path.is_empty() { "." } else { path };
        let flavor = draft.stack.engine.flavor;
        let finding = match self
            .module(findings, path, flavor)
            .map(|it| it.has_engine_files)
        {
            Some(true) => return,
            Some(false) if self.dirs.known(path).iter().any(is_of_engines) => Finding::error(
                "no-module",
                format!("`{shown}` holds no file that `{flavor}` reads"),
            )
            .at(draft.path_at.clone(), "only `.tofu` files are there")
            .hint("rename them to `.tf`, or give the stack `engine \"tofu\" {}`"),
            Some(false) => Finding::error(
                "no-module",
                format!("`{shown}` holds no `.tf` or `.tofu` file"),
            )
            .at(draft.path_at.clone(), "the directory is there"),
            None if draft.stack.render.is_none() && self.tree.leads_out(path) => Finding::error(
                "path-leaves-project",
                format!("`{shown}` leaves the project"),
            )
            .at(draft.path_at.clone(), "a symbolic link leads out of it")
            .hint("only what lies in the project is there when the engine runs"),
            None => {
                let mut finding = Finding::error(
                    "missing-directory",
                    format!("there is no directory `{shown}`"),
                )
                .at(
                    draft.path_at.clone(),
                    format!("stack `{}` should be here", draft.stack.name),
                );
                let near = suggest::nearest(path, self.dirs.engine_dirs(self.tree));
                finding.hint = Some(match near {
                    _ if draft.stack.render.is_some() => format!(
                        "`terrane render {}` makes it",
                        draft.stack.render.as_deref().unwrap_or_default()
                    ),
                    Some(dir) => format!("did you mean `{dir}`?"),
                    None => "paths count from the project's root; `enabled = false` allows it to be missing".to_owned(),
                });
                finding
            }
        };
        findings.push(finding);
    }

    /// Returns a module and reads it if necessary. `None` if there is no such directory. A module that stacks of both
    /// engines use is read as for the first of them.
    fn module(&mut self, findings: &mut Findings, dir: &str, flavor: Flavor) -> Option<&Module> {
        if !self.read.contains_key(dir) {
            let (module, found) = if let Some(read) = self.ahead.remove(dir) {
                read
            } else {
                let entries = self.dirs.entries(self.tree, dir)?;
                read_listed(self.tree, dir, entries, flavor)
            };
            for finding in found {
                findings.push(finding);
            }
            self.read.insert(dir.to_owned(), module);
        }
        self.read.get(dir)
    }

    pub(crate) fn check(
        &mut self,
        findings: &mut Findings,
        contexts: &Contexts,
        drafts: &mut Drafts,
    ) {
        for draft in drafts.values_mut() {
            self.resolve_var_files(findings, draft);
        }
        for draft in drafts.values() {
            self.outputs(findings, drafts, draft);
            if !self.declares(draft) {
                continue;
            }
            let set = self.set_elsewhere(findings, contexts, draft);
            let Some(module) = self.read.get(&draft.stack.path) else {
                continue;
            };
            inputs(findings, module, draft);
            missing(findings, module, draft, &set);
        }
    }

    /// Whether the module of a stack is completely known.
    fn declares(&self, draft: &StackDraft) -> bool {
        draft.has_path
            && self
                .read
                .get(&draft.stack.path)
                .is_some_and(|module| module.is_complete && module.has_engine_files)
    }

    /// Resolves variable files relative to the module, or else to the project's root.
    fn resolve_var_files(&self, findings: &mut Findings, draft: &mut StackDraft) {
        for (raw, at) in &draft.var_files {
            let candidates = [paths::join(&draft.stack.path, raw), paths::normalize(raw)];
            let found = candidates
                .into_iter()
                .flatten()
                .find(|path| !matches!(self.tree.read(path), Err(ReadFailure::Missing)));
            if let Some(path) = found {
                draft.stack.var_files.push(path);
                continue;
            }
            let beside = format!(
                "neither in `{}` nor at the project's root",
                draft.stack.path
            );
            let finding = Finding::error("missing-file", format!("there is no file `{raw}`"));
            findings.push(finding.at(at.clone(), beside));
        }
    }

    /// Outputs that are used must be declared, and sensitive ones must go to sensitive variables.
    fn outputs(&self, findings: &mut Findings, drafts: &Drafts, draft: &StackDraft) {
        for edge in &draft.stack.edges {
            let EdgeKind::Output { output, input } = &edge.kind else {
                continue;
            };
            let Some(upstream) = drafts.get(&edge.upstream) else {
                continue;
            };
            if !self.declares(upstream) {
                continue;
            }
            let Some(module) = self.read.get(&upstream.stack.path) else {
                continue;
            };
            let title = format!("stack `{}`", edge.upstream);
            let Some(declared) = output_of(findings, module, &title, output, &edge.at) else {
                continue;
            };
            let variable = self
                .read
                .get(&draft.stack.path)
                .and_then(|module| module.variables.get(input));
            if let Some(variable) = variable
                && declared.sensitive
                && !variable.sensitive
            {
                let message = format!(
                    "the sensitive output `{output}` of stack `{}` goes to variable `{input}`, which is not sensitive",
                    edge.upstream
                );
                let finding = Finding::warning("sensitive-input", message)
                    .at(edge.at.clone(), "plans would show it in clear")
                    .at(variable.at.clone(), "not marked `sensitive`")
                    .hint(format!("add `sensitive = true` to variable `{input}`"));
                findings.push(finding);
            }
        }
        if !self.declares(draft) {
            return;
        }
        if let Some(module) = self.read.get(&draft.stack.path) {
            for (output, at) in &draft.own_outputs {
                output_of(
                    findings,
                    module,
                    &format!("stack `{}`", draft.stack.name),
                    output,
                    at,
                );
            }
        }
    }

    /// Variables that are set by contexts, variable files and the engine's own files.
    fn set_elsewhere(
        &mut self,
        findings: &mut Findings,
        contexts: &Contexts,
        draft: &StackDraft,
    ) -> BTreeSet<String> {
        let mut set: BTreeSet<String> = self.automatic(findings, &draft.stack.path).clone();
        let mut patterns: Vec<&globset::GlobMatcher> = Vec::new();
        for context in draft
            .stack
            .contexts
            .iter()
            .filter_map(|name| contexts.get(name))
        {
            set.extend(context.context.vars.keys().cloned());
            let names = context
                .context
                .env
                .keys()
                .filter_map(|name| name.strip_prefix("TF_VAR_"));
            set.extend(names.map(str::to_owned));
            patterns.extend(&context.passed);
        }
        if let Some(module) = self.read.get(&draft.stack.path) {
            self.work = self
                .work
                .saturating_add(patterns.len() * module.variables.len());
            let passed = |name: &&String| {
                patterns
                    .iter()
                    .any(|glob| glob.is_match(format!("TF_VAR_{name}")))
            };
            if self.work <= MAX_WORK {
                set.extend(module.variables.keys().filter(passed).cloned());
            }
        }
        for path in &draft.stack.var_files {
            match tfvars_names(self.tree, path) {
                Ok(names) => set.extend(names),
                Err(finding) => findings.push(finding),
            }
        }
        set
    }

    fn automatic(&mut self, findings: &mut Findings, dir: &str) -> &BTreeSet<String> {
        if !self.automatic.contains_key(dir) {
            let entries = self.dirs.entries(self.tree, dir).unwrap_or_default();
            let files: Vec<String> = entries
                .iter()
                .filter(|entry| !entry.is_dir && is_automatic(&entry.name))
                .map(|entry| join(dir, &entry.name))
                .collect();
            let mut set = BTreeSet::new();
            for file in files {
                match tfvars_names(self.tree, &file) {
                    Ok(names) => set.extend(names),
                    Err(finding) => findings.push(finding),
                }
            }
            self.automatic.insert(dir.to_owned(), set);
        }
        self.automatic.entry(dir.to_owned()).or_default()
    }
}

/// Whether any engine reads the file, even if this one does not.
fn is_of_engines(entry: &TreeEntry) -> bool {
    !entry.is_dir && is_engine_file(&entry.name)
}

/// Whether the engine loads a variable file automatically.
pub(crate) fn is_automatic(name: &str) -> bool {
    matches!(name, "terraform.tfvars" | "terraform.tfvars.json")
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".auto.tfvars.json")
}

fn output_of<'m>(
    findings: &mut Findings,
    module: &'m Module,
    title: &str,
    output: &str,
    at: &Location,
) -> Option<&'m crate::project::module::ModuleOutput> {
    let declared = module.outputs.get(output);
    if declared.is_none() && !findings.is_full() {
        let mut finding = Finding::error(
            "unknown-output",
            format!("{title} has no output `{output}`"),
        )
        .at(
            at.clone(),
            format!("the module in `{}` declares no such output", module.dir),
        );
        finding.hint = suggest::hint(output, module.outputs.keys().map(String::as_str))
            .or_else(|| Some("it declares no outputs".to_owned()));
        findings.push(finding);
    }
    declared
}

/// Inputs must be variables of the module.
fn inputs(findings: &mut Findings, module: &Module, draft: &StackDraft) {
    for (input, at) in &draft.stack.inputs_at {
        if findings.is_full() {
            continue;
        }
        if let Some(variable) = module.variables.get(input) {
            let value = draft.stack.inputs.get(input);
            if let Some(finding) = wrong_type(input, value, variable, draft, at) {
                findings.push(finding);
            }
            continue;
        }
        let near = suggest::nearest(input, module.variables.keys().map(String::as_str));
        let mut finding = Finding::error(
            "unknown-input",
            format!("stack `{}` has no input `{input}`", draft.stack.name),
        )
        .at(
            at.clone(),
            format!("the module in `{}` declares no such variable", module.dir),
        );
        finding.hint = Some(
            match near.and_then(|name| module.variables.get_key_value(name)) {
                Some((name, variable)) => format!("it declares {}", described(name, variable)),
                None if module.variables.is_empty() => "it declares no variables".to_owned(),
                None => {
                    let some: Vec<String> = module
                        .variables
                        .iter()
                        .take(8)
                        .map(|(name, variable)| described(name, variable))
                        .collect();
                    format!("it declares {}", some.join(", "))
                }
            },
        );
        findings.push(finding);
    }
}

/// A literal value must match the type that the variable declares.
fn wrong_type(
    input: &str,
    value: Option<&Input>,
    variable: &Variable,
    draft: &StackDraft,
    at: &Location,
) -> Option<Finding> {
    let (Some(Input::Known(value)), Some(declared)) = (value, &variable.type_text) else {
        return None;
    };
    let why = type_mismatch::type_mismatch(value, declared)?;
    let stack = &draft.stack.name;
    Some(
        Finding::error(
            "input-type",
            format!("input `{input}` of stack `{stack}` is {why}"),
        )
        .at(at.clone(), "given here")
        .at(
            variable.at.clone(),
            format!("declared as `{}`", variable.type_on_one_line()),
        ),
    )
}

fn described(name: &str, variable: &Variable) -> String {
    format!("`{name}` ({})", variable.summary())
}

fn missing(findings: &mut Findings, module: &Module, draft: &StackDraft, set: &BTreeSet<String>) {
    for (name, variable) in module
        .variables
        .iter()
        .filter(|(_, variable)| variable.is_required())
    {
        // It is set under a similar name, and that name is reported.
        let is_misspelt = draft.stack.inputs.keys().any(|given| {
            let known = module.variables.keys().map(String::as_str);
            !module.variables.contains_key(given) && suggest::nearest(given, known) == Some(name)
        });
        let is_set = draft.stack.inputs.contains_key(name) || set.contains(name) || is_misspelt;
        if is_set || draft.flawed.may_set(name) {
            continue;
        }
        let finding = Finding::error(
            "missing-input",
            format!("stack `{}` does not set `{name}`", draft.stack.name),
        )
        .at(
            draft.stack.declared_at.clone(),
            format!("the module in `{}` requires it", module.dir),
        )
        .at(variable.at.clone(), "no default here")
        .hint(format!(
            "add `{name} = …` to `inputs` ({})",
            variable.summary()
        ));
        findings.push(finding);
    }
}
