//! Who uses a field of published facts, in the files of a GitOps repository: found by how such files name it.
//!
//! | in a file | uses the field `azure.address` |
//! |---|---|
//! | `.Values.azure.address`, `.Values.global.azure.address`, `index .Values "azure" "address"` | Helm templates |
//! | `.Values.azure`, as in `toYaml .Values.azure` | what is taken whole is used in all its parts |
//! | `azure:` with `address:` below, or `azure.address:` | values files, by the path of keys |
//! | `azure.address` as a word of its own, `{{ .azure.address }}` | parameters, replacements, generators |
//! | `${azure_address}` | Flux `postBuild` |
//! | `${address}`, for `data.address` | the same, where the published file is itself a ConfigMap or Secret |
//!
//! A published file is used where its whole path stands: `$facts/clusters/prod/globals.yaml`.
//!
//! A field of one word is not looked for as a bare word: it would be found everywhere. What is composed of parts
//! (`index .Values $env`, `tpl`) is not seen.
//!
//! Not here: which files (`control::contracts`), inputs of other stacks (they are edges of the graph).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Who relies on a stack's outputs, as far as the project knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reliance {
    /// By output: inputs of other stacks.
    #[serde(default)]
    pub inputs: BTreeMap<String, Vec<Consumer>>,
    /// Globs of files that consume facts.
    #[serde(default)]
    pub gitops: Vec<String>,
}

/// One place that uses a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Consumer {
    pub file: String,
    pub line: usize,
    /// The line without the spaces around it, cut if long.
    pub text: String,
    pub how: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// An input of another stack.
    Input,
    Template,
    ValuesKey,
    Word,
    Substitution,
    /// The path of a published file.
    Path,
}

/// The places in one file that use the field, or one of the parts it is made of.
pub fn consumers(file: &str, text: &str, field: &[String], parts: &[Vec<String>]) -> Vec<Consumer> {
    let names = variables(field, parts);
    let mut keys = KeyPath::default();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let key = keys.read(line);
        let how = if in_template(line, field) {
            Use::Template
        } else if key.is_some_and(|key| is_key_of(&key, field)) {
            Use::ValuesKey
        } else if is_substituted(line, &names) {
            Use::Substitution
        } else if is_word(line, field) {
            Use::Word
        } else {
            continue;
        };
        if line.trim_start().starts_with('#') {
            continue;
        }
        found.push(Consumer::at(file, index, line, how));
    }
    found
}

/// The places in one file of which only variables are filled in; those that are `set` otherwise are no use of facts.
pub fn consumers_by_variable(
    file: &str,
    text: &str,
    field: &[String],
    parts: &[Vec<String>],
    set: &BTreeSet<String>,
) -> Vec<Consumer> {
    let names = variables(field, parts);
    let names = names.difference(set).cloned().collect();
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with('#') && is_substituted(line, &names))
        .map(|(index, line)| Consumer::at(file, index, line, Use::Substitution))
        .collect()
}

impl Consumer {
    pub(super) fn at(file: &str, index: usize, line: &str, how: Use) -> Self {
        Self {
            file: file.to_owned(),
            line: index + 1,
            text: line.trim().chars().take(120).collect(),
            how,
        }
    }
}

/// The places in one file that name a published file.
pub fn consumers_of_path(file: &str, text: &str, path: &str) -> Vec<Consumer> {
    let names_it = |line: &str| {
        line.match_indices(path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + path.len()..].chars().next();
            !before.is_some_and(|c| is_name(c) || matches!(c, '-' | '.'))
                && !after.is_some_and(|c| is_name(c) || matches!(c, '-' | '.' | '/'))
        })
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with('#') && names_it(line))
        .map(|(index, line)| Consumer::at(file, index, line, Use::Path))
        .collect()
}

/// Whether one of two paths leads through the other.
fn on_one_way(used: &[&str], field: &[String]) -> bool {
    !used.is_empty() && used.iter().zip(field).all(|(a, b)| *a == b.as_str())
}

fn in_template(line: &str, field: &[String]) -> bool {
    let used = |used: &[&str]| {
        let below_global = used.split_first().filter(|(first, _)| **first == "global");
        on_one_way(used, field) || below_global.is_some_and(|(_, rest)| on_one_way(rest, field))
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
            let rest = &line[at + word.len()..];
            let mut path = Vec::new();
            let mut rest = rest.trim_start();
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
    let is = |names: &[&str]| names.len() == field.len() && on_one_way(names, field);
    // Values of a subchart, or of `helm.values` in an Application, stand deeper.
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

/// The variables by which Flux knows a field, or the parts of it.
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

/// The keys above a line of YAML, by their indentation.
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
