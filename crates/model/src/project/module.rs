//! A module as its source describes it: variables, outputs, calls, requirements, files it reads.
//!
//! Not here: running it (`drivers::engine`), how a stack uses it (`config`).

mod computed_reads;
mod hcl;
mod json;
mod read;
pub(crate) mod remote_states;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub use computed_reads::{PathScope, UnknownRead, unwatched};
pub use read::read;
pub(crate) use read::{engine_files, is_engine_file, is_json, read_listed, tfvars_names};

use crate::base::diagnostic::Location;

/// One directory of engine files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Relative to the project's root, with `/`; `""` is the root.
    pub dir: String,
    pub variables: BTreeMap<String, Variable>,
    pub outputs: BTreeMap<String, ModuleOutput>,
    pub calls: Vec<ModuleCall>,
    /// Constraints on the engine, as written.
    pub required_version: Vec<String>,
    pub required_providers: BTreeMap<String, RequiredProvider>,
    /// Local names of providers that resources and data sources imply, by type or explicitly, with the first location
    /// of each.
    pub implied_providers: BTreeMap<String, Location>,
    /// The type of its `backend` block, or `cloud`.
    pub backend: Option<String>,
    pub backend_at: Option<Location>,
    /// The settings of its `backend` or `cloud` block, as source text.
    pub backend_text: String,
    /// Literal paths in `file()` and similar functions, relative to the project's root, with their first locations.
    /// Those of `fileset()` are globs.
    pub files: BTreeMap<String, Location>,
    /// Further files that it reads, by computed paths.
    pub unknown_reads: Vec<UnknownRead>,
    /// `data "terraform_remote_state"` blocks.
    pub remote_states: Vec<RemoteState>,
    /// The outputs of remote states that are used, by remote state name.
    pub remote_outputs: BTreeMap<String, BTreeSet<String>>,
    /// Whether it uses paths that depend on the location of its source.
    pub has_unstable_paths: bool,
    /// Whether the directory contains any engine file.
    pub has_engine_files: bool,
    /// Whether every file could be read. If not, seemingly missing declarations may exist.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// The source text with its line breaks, which can replace commas. `None`: any.
    pub type_text: Option<String>,
    pub has_default: bool,
    pub sensitive: bool,
    pub description: Option<String>,
    pub at: Location,
}

impl Variable {
    pub fn is_required(&self) -> bool {
        !self.has_default
    }

    /// `string, required`.
    pub fn summary(&self) -> String {
        let kind = self.type_on_one_line();
        if self.is_required() {
            format!("{kind}, required")
        } else {
            kind
        }
    }

    /// Its type, for messages.
    pub fn type_on_one_line(&self) -> String {
        let words = self
            .type_text
            .as_deref()
            .unwrap_or("any")
            .split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleOutput {
    pub sensitive: bool,
    pub description: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleCall {
    pub name: String,
    pub source: String,
    pub version: Option<String>,
    /// The directory that it refers to, if that is in the project.
    pub local: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredProvider {
    /// `namespace/type`, as source text.
    pub source: Option<String>,
    pub version: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteState {
    pub name: String,
    /// The backend that it reads from, if it is a literal.
    pub backend: Option<String>,
    /// The source text of its `config`, on one line.
    pub config: String,
    pub at: Location,
}

impl Module {
    /// The backend that contains its state unless the state was migrated, and the location of that setting. An empty
    /// `local` backend is a file beside the module, which can be checked.
    pub fn keeps_state_elsewhere(&self) -> Option<(&str, &Location)> {
        let kind = self.backend.as_deref()?;
        let body = self.backend_text.split_once('{');
        let mut body = body.map_or("", |(_, body)| body).chars();
        let says_nothing = body.all(|c| c.is_whitespace() || c == '}');
        let at = self.backend_at.as_ref()?;
        (kind != "local" || !says_nothing).then_some((kind, at))
    }
}

impl Module {
    /// Whether its own backend supports locks, as far as its settings show.
    pub fn backend_locks(&self) -> bool {
        let says = |name: &str| {
            let said = self.backend_setting(name);
            said.is_some_and(|value| !IS_OFF.contains(&value))
        };
        match self.backend.as_deref() {
            None | Some("local") => false,
            Some("http") => says("lock_address"),
            Some("s3") => says("use_lockfile") || says("dynamodb_table"),
            Some("oss") => says("tablestore_table"),
            Some("consul") => self.backend_setting("lock").is_none() || says("lock"),
            Some(_) => true,
        }
    }

    /// Where its own `local` backend stores the state.
    pub fn local_state(&self) -> LocalState<'_> {
        if self.backend.as_deref() != Some("local") {
            return LocalState::Unsaid;
        }
        let Some(said) = self.backend_setting("path") else {
            return LocalState::Unsaid;
        };
        let plain = said.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        match plain {
            Some((path, _)) if !path.contains(['$', '%', '\\']) => LocalState::File(path),
            _ => LocalState::Computed,
        }
    }

    /// The value of a backend setting: a literal with its quotes, or the first word of an expression.
    fn backend_setting(&self, name: &str) -> Option<&str> {
        let words = words(&self.backend_text);
        let said = words
            .windows(3)
            .find(|words| words[0].trim_matches('"') == name && ["=", ":"].contains(&words[1]));
        said.map(|words| words[2])
    }
}

/// Settings with these values count as not set.
const IS_OFF: [&str; 4] = ["false", "\"false\"", "\"\"", "null"];

/// The words of a block's text, in HCL or JSON. A quoted text is one word; comments are skipped.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let upto = |end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
        let (is_word, length) = match first {
            '"' => (true, quoted(rest)),
            '#' => (false, upto("\n")),
            '/' if rest.starts_with("//") => (false, upto("\n")),
            '/' if rest.starts_with("/*") => (false, upto("*/")),
            _ if is_of_word(first) => {
                let end = rest.find(|c: char| !is_of_word(c));
                (true, end.unwrap_or(rest.len()))
            }
            _ => (true, first.len_utf8()),
        };
        let (word, after) = rest.split_at(length);
        if is_word {
            words.push(word);
        }
        rest = after.trim_start();
    }
    words
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || ['_', '-', '.'].contains(&c)
}

/// The length of the quoted text at the start, including its quotes.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    let mut inside = text.char_indices().skip(1);
    let end = inside.find(|(_, c)| {
        let is_end = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// The file of a `local` backend, according to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalState<'a> {
    /// The engine's default name, beside the source.
    Unsaid,
    File(&'a str),
    /// Only the engine can evaluate it.
    Computed,
}

/// A directory and the local modules that it calls, directly or indirectly.
pub fn closure(modules: &BTreeMap<String, Module>, dir: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        if !reached.insert(dir.clone()) {
            continue;
        }
        let calls = modules.get(&dir).map_or(&[][..], |module| &module.calls);
        open.extend(calls.iter().filter_map(|call| call.local.clone()));
    }
    reached
}

/// The local name of the provider that a resource type implies: the part before the first `_`.
fn provider_of(resource_type: &str) -> &str {
    resource_type.split('_').next().unwrap_or(resource_type)
}

impl Module {
    /// Whether it needs a provider that is not built into the engine.
    pub fn needs_providers(&self) -> bool {
        const BUILT_IN: &str = "terraform.io/builtin/terraform";
        let asked = self.required_providers.values();
        asked
            .clone()
            .any(|provider| provider.source.as_deref() != Some(BUILT_IN))
            || !self.implied_providers.is_empty()
    }

    /// Records a provider by its local name, except the engine's own.
    pub(super) fn imply_provider(&mut self, name: &str, at: Location) {
        if name != "terraform" {
            self.implied_providers.entry(name.to_owned()).or_insert(at);
        }
    }

    /// Everything in this directory that `init` depends on, as canonical text.
    pub fn init_inputs(&self) -> String {
        let mut out = String::new();
        for version in &self.required_version {
            _ = writeln!(out, "required_version {version:?}");
        }
        for (name, provider) in &self.required_providers {
            _ = writeln!(
                out,
                "provider {name} {:?} {:?}",
                provider.source, provider.version
            );
        }
        for name in self.implied_providers.keys() {
            _ = writeln!(out, "implied {name}");
        }
        let mut calls: Vec<&ModuleCall> = self.calls.iter().collect();
        calls.sort_by(|a, b| a.name.cmp(&b.name));
        for call in calls {
            _ = writeln!(
                out,
                "module {} {:?} {:?}",
                call.name, call.source, call.version
            );
        }
        if let Some(backend) = &self.backend {
            let words = self.backend_text.split_whitespace().collect::<Vec<_>>();
            _ = writeln!(out, "backend {backend} {}", words.join(" "));
        }
        out
    }
}
