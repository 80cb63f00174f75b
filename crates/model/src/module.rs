//! A module as its own source describes it: variables, outputs, calls, requirements, files it reads.
//!
//! Not here: running it (`drivers::engine`), what a stack makes of it (`config`).

mod hcl;
mod json;
mod read;
mod reads;
pub(crate) mod remote_states;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub use read::read;
pub(crate) use read::{engine_files, is_engine_file, is_json, read_listed, tfvars_names};
pub use reads::{UnknownRead, Whereabouts, unwatched};

use crate::diagnostic::Location;

/// One directory of engine files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Relative to the project's root, with `/`; `""` is the root.
    pub dir: String,
    pub variables: BTreeMap<String, Variable>,
    pub outputs: BTreeMap<String, Output>,
    pub calls: Vec<ModuleCall>,
    /// Constraints on the engine, as written.
    pub required_version: Vec<String>,
    pub required_providers: BTreeMap<String, RequiredProvider>,
    /// Local names of providers that resources and data sources imply by their type or name themselves, and
    /// where that is first seen.
    pub implied_providers: BTreeMap<String, Location>,
    /// The kind of its `backend` block, or `cloud`.
    pub backend: Option<String>,
    pub backend_at: Option<Location>,
    /// The settings of its `backend` or `cloud` block, as written.
    pub backend_text: String,
    /// Literal paths given to `file()` and its kin, relative to the project's root; those of
    /// `fileset()` are globs.
    pub files: BTreeSet<String>,
    /// Further files it reads, by paths that are not written out.
    pub unknown_reads: Vec<UnknownRead>,
    /// `data "terraform_remote_state"` blocks.
    pub remote_states: Vec<RemoteState>,
    /// The outputs of theirs that are used, by their names.
    pub remote_outputs: BTreeMap<String, BTreeSet<String>>,
    /// Whether the directory holds any engine file.
    pub has_engine_files: bool,
    /// Whether every file could be read: if not, what seems missing may be there.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// As written, on one line; `None`: any.
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
        let kind = self.type_text.as_deref().unwrap_or("any");
        if self.is_required() {
            format!("{kind}, required")
        } else {
            kind.to_owned()
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub sensitive: bool,
    pub description: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleCall {
    pub name: String,
    pub source: String,
    pub version: Option<String>,
    /// The directory it means, if it lies in the project.
    pub local: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredProvider {
    /// `namespace/type`, as written.
    pub source: Option<String>,
    pub version: Option<String>,
    pub at: Location,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteState {
    pub name: String,
    /// The backend it reads from, if written as a literal.
    pub backend: Option<String>,
    /// Its `config`, as written, on one line.
    pub config: String,
    pub at: Location,
}

impl Module {
    /// The backend in which its state is unless it was brought elsewhere, and where that is said. An empty `local` is a
    /// file beside the module, which can be looked at.
    pub fn keeps_state_elsewhere(&self) -> Option<(&str, &Location)> {
        let kind = self.backend.as_deref()?;
        let body = self.backend_text.split_once('{');
        let mut body = body.map_or("", |(_, body)| body).chars();
        let says_nothing = body.all(|c| c.is_whitespace() || c == '}');
        let at = self.backend_at.as_ref()?;
        (kind != "local" || !says_nothing).then_some((kind, at))
    }
}

/// A directory and the local modules it calls, directly and through others.
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

/// The local name of the provider that a type of resources implies: what is before the first `_`.
fn provider_of(resource_type: &str) -> &str {
    resource_type.split('_').next().unwrap_or(resource_type)
}

impl Module {
    /// Whether it asks for a provider that is not built into the engine.
    pub fn needs_providers(&self) -> bool {
        const BUILT_IN: &str = "terraform.io/builtin/terraform";
        let asked = self.required_providers.values();
        asked
            .clone()
            .any(|provider| provider.source.as_deref() != Some(BUILT_IN))
            || !self.implied_providers.is_empty()
    }

    /// Notes a provider by its local name; the engine's own needs no note.
    pub(super) fn imply_provider(&mut self, name: &str, at: Location) {
        if name != "terraform" {
            self.implied_providers.entry(name.to_owned()).or_insert(at);
        }
    }

    /// All that `init` depends on in this directory, as canonical text.
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
            _ = writeln!(out, "backend {backend} {}", self.backend_text);
        }
        out
    }
}
