//! Rewrites a root module so that it can be planned while some of its inputs are unknown.
//!
//! No engine accepts an unknown root variable. So each `var.NAME` of such an input is replaced in place by a local with
//! an unknown value of the declared type. That is an attribute of an added `terraform_data` resource, which is never
//! applied. Line numbers stay the same. A partly known value goes through an added module whose variable has the
//! declared type, so that the engine converts it.
//!
//! Not here: running the engine on it (`control`), showing the plan (`cli`).

mod hcl;
mod json;
mod origins;
mod partial_value;
#[cfg(test)]
mod tests;
mod unknown_type;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::base::diagnostic::Finding;
use crate::base::ids::StackName;
use crate::base::tree::{Tree, TreeEntry};
use crate::hcl::syntax;
use crate::project::engine::Flavor;
use crate::project::module::{self, Variable};

use hcl::Splice;
pub use origins::UnknownOrigins;

/// Root variables with unknown values, and the stacks after which they are known.
pub type UnknownVariables = BTreeMap<String, BTreeSet<StackName>>;

/// The known parts of those: values with placeholders (`plan::placeholders`) for the rest.
pub type PartialValues = BTreeMap<String, Value>;

/// The files to write to a copy of the root module before planning.
#[derive(Clone, Debug, PartialEq)]
pub struct RewrittenModule {
    /// Changed and added files, by path relative to the root module's directory.
    pub files: BTreeMap<String, String>,
    /// Whether a module is added: the engine must be initialised for it before planning.
    pub has_module: bool,
    /// Explains where unknown values in the plan come from.
    pub origins: UnknownOrigins,
    prefix: String,
    /// The variables that are replaced by unknown values.
    variables: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    #[error("`var.{variable}` determines {what}, which must be known before planning")]
    Early { variable: String, what: String },
    #[error("{0}")]
    Unreadable(String),
}

/// Rewrites the root module in `dir`. Files that an engine of this flavor does not read are left out.
pub fn rewrite(
    tree: &dyn Tree,
    dir: &str,
    flavor: Flavor,
    unknowns: &UnknownVariables,
    partly: &PartialValues,
) -> Result<RewrittenModule, RewriteError> {
    let entries = tree.list(dir).unwrap_or_default();
    let (module, _) = module::read_listed(tree, dir, &entries, flavor);
    let mut texts = BTreeMap::new();
    for name in module::engine_files(&entries, flavor) {
        let path = crate::project::config::walk::join(dir, name);
        let source = syntax::open(tree, &path).map_err(unreadable)?;
        texts.insert(name, source);
    }
    let all: Vec<&str> = texts.values().map(|source| source.text.as_str()).collect();
    let prefix = free_prefix(&all, &entries);
    let mut splice = Splice::new(unknowns, &prefix);
    let mut files = BTreeMap::new();
    for (name, source) in &texts {
        let text = if module::is_json(name) {
            json::rewrite(source, &mut splice)?
        } else {
            hcl::rewrite(source, &mut splice)?
        };
        files.extend(text.map(|text| ((*name).to_owned(), text)));
    }
    let declared = module.variables.iter();
    let declared = declared.filter(|(name, _)| unknowns.contains_key(*name));
    let added = added(&prefix, declared, partly);
    let has_module = !added.module.is_empty();
    files.insert(format!("{prefix}.tf"), added.root);
    if has_module {
        files.insert(format!("{prefix}/main.tf"), added.module);
    }
    Ok(RewrittenModule {
        files,
        has_module,
        origins: splice.into_origins(),
        prefix,
        variables: unknowns.keys().cloned().collect(),
    })
}

impl RewrittenModule {
    /// Translates an engine's message on the rewritten module back to the original source.
    pub fn in_words_of_source(&self, text: &str) -> String {
        text.replace(&format!("local.{}_", self.prefix), "var.")
            .replace(&format!("module.{}.var.", self.prefix), "var.")
    }

    /// The address of the added resource.
    pub fn resource(&self) -> String {
        format!("terraform_data.{}", self.prefix)
    }

    /// Removes everything that was added, and the values that replace unknown variables, from the engine's plan JSON.
    pub fn take_out(&self, plan: &mut Value) {
        let resource = self.resource();
        for (list, name) in [
            ("/resource_changes", "address"),
            ("/planned_values/root_module/resources", "address"),
            ("/configuration/root_module/resources", "address"),
            ("/relevant_attributes", "resource"),
        ] {
            if let Some(Value::Array(items)) = plan.pointer_mut(list) {
                items.retain(|item| item[name] != resource.as_str());
            }
        }
        let calls = plan.pointer_mut("/configuration/root_module/module_calls");
        if let Some(Value::Object(calls)) = calls {
            calls.remove(&self.prefix);
        }
        if let Some(Value::Object(variables)) = plan.get_mut("variables") {
            variables.retain(|name, _| !self.variables.contains(name));
        }
        if let Some(configuration) = plan.get_mut("configuration") {
            self.say_as_source(configuration);
        }
    }

    fn say_as_source(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.in_words_of_source(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.say_as_source(item)),
            Value::Object(fields) => {
                let fields = fields.values_mut();
                fields.for_each(|field| self.say_as_source(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Whether a file is not in the original source.
    pub fn is_added(&self, file: &str) -> bool {
        let rest = file.strip_prefix(&self.prefix);
        rest.is_some_and(|rest| rest == ".tf" || rest.starts_with('/'))
    }
}

fn unreadable(finding: Finding) -> RewriteError {
    RewriteError::Unreadable(finding.message)
}

/// A name that occurs neither in the module nor in its directory.
fn free_prefix(texts: &[&str], beside: &[TreeEntry]) -> String {
    let is_free = |name: &String| {
        texts.iter().all(|text| !text.contains(name))
            && beside.iter().all(|entry| !entry.name.starts_with(name))
    };
    let numbered = (2..).map(|number| format!("terrane_preview{number}"));
    let mut names = std::iter::once("terrane_preview".to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

/// Files that are not in the original source.
struct AddedFiles {
    root: String,
    /// Empty if no module is needed.
    module: String,
}

/// The resource, and a local for each variable that it replaces.
fn added<'a>(
    prefix: &str,
    declared: impl Iterator<Item = (&'a String, &'a Variable)>,
    partly: &PartialValues,
) -> AddedFiles {
    let (mut samples, mut locals) = (String::new(), String::new());
    let (mut arguments, mut module) = (String::new(), String::new());
    for (name, variable) in declared {
        let declared = variable.type_text.as_deref();
        let known = partly.get(name);
        let known = known.and_then(|value| partial_value::write(value, declared, name, prefix));
        let value = match (known, declared.and_then(unknown_type::sample)) {
            (Some(known), _) => {
                samples.push_str(&known.samples);
                if let Some(declared) = declared {
                    _ = writeln!(arguments, "  {name} = {}", known.text);
                    _ = write!(
                        module,
                        "variable \"{name}\" {{\n  type = {declared}\n}}\n\noutput \"{name}\" {{\n  value = var.{name}\n}}\n"
                    );
                    format!("module.{prefix}.{name}")
                } else {
                    known.text
                }
            }
            (None, Some(sample)) => {
                _ = writeln!(samples, "    {name} = {sample}");
                format!("terraform_data.{prefix}.output.{name}")
            }
            (None, None) => unknown_type::of_any(declared, prefix),
        };
        let value = if variable.sensitive {
            format!("sensitive({value})")
        } else {
            value
        };
        _ = writeln!(locals, "  {prefix}_{name} = {value}");
    }
    let mut root = format!(
        "resource \"terraform_data\" \"{prefix}\" {{\n  input = {{\n{samples}  }}\n}}\n\nlocals {{\n{locals}}}\n"
    );
    if !module.is_empty() {
        _ = write!(
            root,
            "\nmodule \"{prefix}\" {{\n  source = \"./{prefix}\"\n{arguments}}}\n"
        );
    }
    AddedFiles { root, module }
}
