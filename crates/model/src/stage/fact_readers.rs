//! Finds the readers of a published fact, in inputs of other stacks and in the files of GitOps repositories.
//!
//! In a file, the field `azure.address` is read by
//!
//! | text | as |
//! |---|---|
//! | `.Values.azure.address`, `.Values.global.azure.address`, `index .Values "azure" "address"` | Helm template |
//! | `.Values.azure`, as in `toYaml .Values.azure` | Helm template: the whole includes its parts |
//! | `azure:` with `address:` below, or `azure.address:` | key of a values file |
//! | `azure.address` as a word, `{{ .azure.address }}` | parameter, replacement, generator |
//! | `${azure_address}` | Flux `postBuild` |
//! | `${address}`, for `data.address` | Flux `postBuild`, if the published file is a ConfigMap or Secret |
//!
//! A published file is read where its whole path is written: `$facts/clusters/prod/globals.yaml`. A field of one word is
//! not searched as a bare word. Computed names (`index .Values $env`, `tpl`) are not found.
//!
//! Not here: which files there are (`control::project::fact_readers`).

mod flux;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use flux::{Kustomization, kustomizations};

/// The readers of a stack's outputs and facts, as far as the project shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reliance {
    /// By output: inputs of other stacks.
    #[serde(default)]
    pub inputs: BTreeMap<String, Vec<FactReader>>,
    /// Globs of the files that read facts.
    #[serde(default)]
    pub gitops: Vec<String>,
}

/// A fact that may have readers.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// An output, by name.
    Output(&'a str),
    /// A published field, with its path, outermost name first.
    Field {
        path: &'a [String],
        /// The paths of its values, if it is an object.
        parts: &'a [Vec<String>],
    },
    /// A published file, by its path on the branch.
    File(&'a str),
}

/// A location that reads a fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FactReader {
    pub file: String,
    pub line: usize,
    /// The line without surrounding spaces, truncated if long.
    pub text: String,
    pub how: ReadAs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAs {
    /// An input of another stack.
    Input,
    Template,
    ValuesKey,
    Word,
    Substitution,
    /// The path of a published file.
    Path,
}

impl FactReader {
    fn at(file: &str, index: usize, line: &str, how: ReadAs) -> Self {
        Self {
            file: file.to_owned(),
            line: index + 1,
            text: line.trim().chars().take(120).collect(),
            how,
        }
    }
}

/// How a file can read facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// All ways.
    Any,
    /// Only variables that Flux substitutes, except those that the Kustomization sets itself.
    Variables { except: BTreeSet<String> },
}

/// The locations in one file that read a fact.
pub fn readers_in(file: &str, text: &str, syntax: &Syntax, fact: Fact<'_>) -> Vec<FactReader> {
    let mut variables = match fact {
        Fact::Field { path, parts } => variables(path, parts),
        Fact::Output(_) | Fact::File(_) => BTreeSet::new(),
    };
    if let Syntax::Variables { except } = syntax {
        variables.retain(|name| !except.contains(name));
    }
    let mut keys = KeyPath::default();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let key = keys.read(line);
        if line.trim_start().starts_with('#') {
            continue;
        }
        let how = match (fact, syntax) {
            (Fact::File(path), Syntax::Any) if names_file(line, path) => ReadAs::Path,
            (Fact::Field { path, .. }, Syntax::Any) if in_template(line, path) => ReadAs::Template,
            (Fact::Field { path, .. }, Syntax::Any)
                if key.is_some_and(|key| is_key_of(&key, path)) =>
            {
                ReadAs::ValuesKey
            }
            (Fact::Field { .. }, _) if is_substituted(line, &variables) => ReadAs::Substitution,
            (Fact::Field { path, .. }, Syntax::Any) if is_word(line, path) => ReadAs::Word,
            _ => continue,
        };
        found.push(FactReader::at(file, index, line, how));
    }
    found
}

fn names_file(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        !before.is_some_and(|c| is_name(c) || matches!(c, '-' | '.'))
            && !after.is_some_and(|c| is_name(c) || matches!(c, '-' | '.' | '/'))
    })
}

/// Whether one of two key paths is a prefix of the other.
fn is_prefix(used: &[&str], field: &[String]) -> bool {
    !used.is_empty() && used.iter().zip(field).all(|(a, b)| *a == b.as_str())
}

fn in_template(line: &str, field: &[String]) -> bool {
    let used = |used: &[&str]| {
        let below_global = used.split_first().filter(|(first, _)| **first == "global");
        is_prefix(used, field) || below_global.is_some_and(|(_, rest)| is_prefix(rest, field))
    };
    let dotted = line.match_indices(".Values.").any(|(at, word)| {
        let rest = &line[at + word.len()..];
        let end = rest.find(|c: char| !is_name(c) && c != '.');
        let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
        used(&path.split('.').collect::<Vec<_>>())
    });
    let indexed = line
        .match_indices("index .Values ")
        .chain(line.match_indices("index $.Values "))
        .any(|(at, word)| {
            let mut path = Vec::new();
            let mut rest = line[at + word.len()..].trim_start();
            while let Some((name, more)) =
                rest.strip_prefix('"').and_then(|rest| rest.split_once('"'))
            {
                path.push(name);
                rest = more.trim_start();
            }
            used(&path)
        });
    dotted || indexed
}

fn is_key_of(key: &[String], field: &[String]) -> bool {
    let names: Vec<&str> = key.iter().map(String::as_str).collect();
    let is = |names: &[&str]| names.len() == field.len() && is_prefix(names, field);
    // Values of a subchart, or of `helm.values` in an Application, are nested deeper.
    let at_end =
        field.len() > 1 && names.len() > field.len() && is(&names[names.len() - field.len()..]);
    is(&names) || at_end
}

fn is_word(line: &str, field: &[String]) -> bool {
    let word = field.join(".");
    field.len() > 1
        && line.match_indices(&word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_name) && !after.is_some_and(|c| is_name(c) || c == '-')
        })
}

/// The variables that Flux uses for a field and its parts.
fn variables(field: &[String], parts: &[Vec<String>]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for field in std::iter::once(field).chain(parts.iter().map(Vec::as_slice)) {
        names.insert(field.join("_"));
        if let [data, name] = field
            && matches!(data.as_str(), "data" | "stringData")
        {
            names.insert(name.clone());
        }
    }
    names
}

fn is_substituted(line: &str, names: &BTreeSet<String>) -> bool {
    line.match_indices("${").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let is_escaped = line[..at].ends_with('$');
        let is_whole = rest[end..].starts_with(['}', ':']);
        !is_escaped && is_whole && names.contains(&rest[..end])
    })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The keys above a line of YAML, by indentation.
#[derive(Default)]
struct KeyPath(Vec<(usize, String)>);

impl KeyPath {
    /// The path of the key on this line, if there is one.
    fn read(&mut self, line: &str) -> Option<Vec<String>> {
        let content = line.trim_start_matches([' ', '-']);
        let indent = line.len() - content.len();
        if content.starts_with('#') || content.is_empty() {
            return None;
        }
        let (key, rest) = content.split_once(':')?;
        let is_key = rest.is_empty() || rest.starts_with([' ', '\t']);
        let key = key.trim_matches(['"', '\'']);
        if !is_key || key.is_empty() || key.contains([' ', '{', '"']) {
            return None;
        }
        while self.0.last().is_some_and(|(at, _)| *at >= indent) {
            self.0.pop();
        }
        self.0.push((indent, key.to_owned()));
        let parts = self.0.iter().flat_map(|(_, key)| key.split('.'));
        Some(parts.map(str::to_owned).collect())
    }
}
