//! Flux Kustomizations: the directory that each applies, and the variables that it substitutes there.

use std::collections::BTreeSet;

use serde::Deserialize as _;
use serde_json::Value;

use super::{FactReader, ReadAs};

const GROUP: &str = "kustomize.toolkit.fluxcd.io/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kustomization {
    /// A directory of its source, without `./`; empty for the whole source.
    pub path: String,
    /// Whether it substitutes variables from cluster objects.
    pub substitutes: bool,
    /// Variables that it sets itself; they take precedence.
    pub sets: BTreeSet<String>,
    /// Where it names its directory.
    pub place: FactReader,
}

impl Kustomization {
    /// Whether a file is in its directory.
    pub fn applies(&self, file: &str) -> bool {
        let rest = file.strip_prefix(self.path.as_str());
        !self.path.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// The Kustomizations in one file. A document that is not valid YAML, such as a template, has none.
pub fn kustomizations(file: &str, text: &str) -> Vec<Kustomization> {
    if !text.contains(GROUP) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("---") {
            found.extend(read(file, &lines));
            lines.clear();
        } else {
            lines.push((index, line));
        }
    }
    found.extend(read(file, &lines));
    found
}

fn read(file: &str, lines: &[(usize, &str)]) -> Option<Kustomization> {
    let text: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
    let text = text.join("\n");
    let document = yaml_serde::Deserializer::from_str(&text).next()?;
    let object = Value::deserialize(document).ok()?;
    let is_ours =
        object["kind"] == "Kustomization" && object["apiVersion"].as_str()?.starts_with(GROUP);
    if !is_ours {
        return None;
    }
    let spec = &object["spec"];
    let written = spec["path"].as_str().unwrap_or_default();
    let names_it = |(_, line): &&(usize, &str)| {
        let line = line.trim_start_matches([' ', '{', ',']);
        line.starts_with("path:") && line.contains(written)
    };
    let (index, line) = lines.iter().find(names_it).or(lines.first())?;
    let from = spec.pointer("/postBuild/substituteFrom");
    let sets = spec.pointer("/postBuild/substitute");
    let sets = sets.and_then(Value::as_object).into_iter().flatten();
    Some(Kustomization {
        path: written
            .trim_start_matches("./")
            .trim_matches('/')
            .to_owned(),
        substitutes: from
            .and_then(Value::as_array)
            .is_some_and(|from| !from.is_empty()),
        sets: sets.map(|(name, _)| name.clone()).collect(),
        place: FactReader::at(file, *index, line, ReadAs::Path),
    })
}
