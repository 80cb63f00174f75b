//! A root module rewritten so that it can be planned while some of its inputs are not known yet.
//!
//! No engine takes an unknown root variable. So each `var.NAME` of such an input is replaced, where it
//! stands, by a local that holds an unknown value of the declared type: an attribute of an added
//! `terraform_data` resource, which is never applied. Lines stay where they are.
//!
//! Not here: running the engine on it (`control`), showing the plan (`cli`).

mod hcl;
mod json;
mod origins;
mod partly;
#[cfg(test)]
mod tests;
mod unknown_type;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::config::syntax;
use crate::diagnostic::Finding;
use crate::engine::Flavor;
use crate::ids::StackName;
use crate::module::{self, Variable};
use crate::tree::Tree;

use hcl::Splice;
pub use origins::Origins;

/// Root variables whose values are not known, and after which stacks they will be.
pub type Unknowns = BTreeMap<String, BTreeSet<StackName>>;

/// Of those, what is known all the same: values with words (`plan::words`) where something is not.
pub type Partly = BTreeMap<String, Value>;

/// The files to write into a copy of the root module before it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewritten {
    /// Those that differ, and the one that is added; by name in the root module's directory.
    pub files: BTreeMap<String, String>,
    /// What the plan of it says about where unknown values come from.
    pub origins: Origins,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    #[error("`var.{variable}` decides {what}, which must be known before anything is planned")]
    Early { variable: String, what: String },
    #[error("{0}")]
    Unreadable(String),
}

/// Rewrites the root module in `dir`; files that an engine of this flavor does not read stay out of it.
pub fn rewrite(
    tree: &dyn Tree,
    dir: &str,
    flavor: Flavor,
    unknowns: &Unknowns,
    partly: &Partly,
) -> Result<Rewritten, RewriteError> {
    let entries = tree.list(dir).unwrap_or_default();
    let (module, _) = module::read_listed(tree, dir, &entries, flavor);
    let mut texts = BTreeMap::new();
    for name in module::engine_files(&entries, flavor) {
        let path = crate::config::walk::join(dir, name);
        let source = syntax::open(tree, &path).map_err(unreadable)?;
        texts.insert(name, source);
    }
    let all: Vec<&str> = texts.values().map(|source| source.text.as_str()).collect();
    let prefix = free_prefix(&all);
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
    files.insert(format!("{prefix}.tf"), added(&prefix, declared, partly));
    Ok(Rewritten {
        files,
        origins: splice.into_origins(),
        prefix,
    })
}

impl Rewritten {
    /// What an engine says about the rewritten module, in the words of the source.
    pub fn in_words_of_source(&self, text: &str) -> String {
        text.replace(&format!("local.{}_", self.prefix), "var.")
    }
}

fn unreadable(finding: Finding) -> RewriteError {
    RewriteError::Unreadable(finding.message)
}

/// A name that stands nowhere in the module.
fn free_prefix(texts: &[&str]) -> String {
    let is_free = |name: &String| texts.iter().all(|text| !text.contains(name));
    let numbered = (2..).map(|number| format!("terrane_preview{number}"));
    let mut names = std::iter::once("terrane_preview".to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

/// The resource, and a local for each variable in whose place it stands.
fn added<'a>(
    prefix: &str,
    declared: impl Iterator<Item = (&'a String, &'a Variable)>,
    partly: &Partly,
) -> String {
    let (mut samples, mut locals) = (String::new(), String::new());
    for (name, variable) in declared {
        let declared = variable.type_text.as_deref();
        let known = partly.get(name);
        let known = known.and_then(|value| partly::write(value, declared, name, prefix));
        let value = match (known, declared.and_then(unknown_type::sample)) {
            (Some(known), _) => {
                samples.push_str(&known.samples);
                known.text
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
    format!(
        "resource \"terraform_data\" \"{prefix}\" {{\n  input = {{\n{samples}  }}\n}}\n\nlocals {{\n{locals}}}\n"
    )
}
