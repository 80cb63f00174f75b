//! Reads the parts of a `Cargo.toml` that the rules need: sections, keys and raw values.
//!
//! Not here: full TOML. A value that spans lines is joined until its brackets close.

/// A manifest as its sections, in order.
#[derive(Debug, Default)]
pub(crate) struct CargoManifest {
    pub(crate) sections: Vec<Section>,
}

#[derive(Debug)]
pub(crate) struct Section {
    /// `dependencies`, `target.'cfg(unix)'.dependencies`, `dependencies.serde`.
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// One dependency, in any notation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
    /// Whether version and source come from the workspace root.
    pub(crate) inherited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Normal,
    Dev,
    Build,
}

impl CargoManifest {
    pub(crate) fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut lines = text.lines().enumerate();
        while let Some((index, raw)) = lines.next() {
            let line = without_comment(raw).trim();
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                manifest.sections.push(Section {
                    name: name.trim_matches(['[', ']']).trim().to_owned(),
                    entries: Vec::new(),
                });
            } else if let Some((key, value)) = line.split_once('=') {
                let mut value = value.trim().to_owned();
                while open_brackets(&value) > 0 {
                    let Some((_, more)) = lines.next() else { break };
                    value.push(' ');
                    value.push_str(without_comment(more).trim());
                }
                let entry = Entry {
                    line: index + 1,
                    key: key.trim().to_owned(),
                    value,
                };
                match manifest.sections.last_mut() {
                    Some(section) => section.entries.push(entry),
                    None => manifest.sections.push(Section {
                        name: String::new(),
                        entries: vec![entry],
                    }),
                }
            }
        }
        manifest
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let mut found = Vec::new();
        for section in &self.sections {
            if let Some(kind) = kind_of(&section.name) {
                found.extend(section.entries.iter().map(|entry| {
                    let (name, rest) = entry.key.split_once('.').unwrap_or((&entry.key, ""));
                    Dependency {
                        line: entry.line,
                        name: name.trim_matches('"').to_owned(),
                        kind,
                        inherited: (rest == "workspace" && entry.value == "true")
                            || entry.value.contains("workspace = true"),
                    }
                }));
            } else if let Some((table, name)) = section.name.rsplit_once('.')
                && let Some(kind) = kind_of(table)
            {
                found.push(Dependency {
                    line: section.entries.first().map_or(1, |entry| entry.line),
                    name: name.to_owned(),
                    kind,
                    inherited: section
                        .entries
                        .iter()
                        .any(|entry| entry.key == "workspace" && entry.value == "true"),
                });
            }
        }
        found
    }
}

impl Section {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.value.as_str())
    }
}

fn kind_of(section: &str) -> Option<DependencyKind> {
    let last = section.rsplit('.').next().unwrap_or(section);
    match last {
        "dependencies" if section != "workspace.dependencies" => Some(DependencyKind::Normal),
        "dev-dependencies" => Some(DependencyKind::Dev),
        "build-dependencies" => Some(DependencyKind::Build),
        _ => None,
    }
}

fn open_brackets(value: &str) -> isize {
    let count = |open: char, close: char| {
        value.chars().fold(0, |depth: isize, c| {
            depth + isize::from(c == open) - isize::from(c == close)
        })
    };
    count('[', ']') + count('{', '}')
}

/// Ignores a `#` inside quotes.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, DependencyKind, bool)]) {
        let seen: Vec<_> = CargoManifest::parse(text)
            .dependencies()
            .into_iter()
            .map(|dependency| (dependency.name, dependency.kind, dependency.inherited))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, kind, inherited)| ((*name).to_owned(), *kind, *inherited))
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_way_to_write_a_dependency_is_seen() {
        check(
            "[dependencies]\nserde.workspace = true",
            &[("serde", DependencyKind::Normal, true)],
        );
        check(
            "[dependencies]\nserde = \"1\" # why",
            &[("serde", DependencyKind::Normal, false)],
        );
        check(
            "[dev-dependencies]\nserde = { workspace = true, features = [\n\"a\",\n] }\nx = \"2\"",
            &[
                ("serde", DependencyKind::Dev, true),
                ("x", DependencyKind::Dev, false),
            ],
        );
        check(
            "[target.'cfg(unix)'.build-dependencies]\ncc.workspace = true",
            &[("cc", DependencyKind::Build, true)],
        );
        check(
            "[dependencies.serde]\nversion = \"1\"",
            &[("serde", DependencyKind::Normal, false)],
        );
        check("[workspace.dependencies]\nserde = \"1\"", &[]);
    }
}
