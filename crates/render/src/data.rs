//! Reads data files with the position of each value. For an encrypted file, the secret values are known without
//! any key.

#[cfg(test)]
mod tests;
mod toml;
mod yaml;

use std::path::Path;

use model::base::diagnostic::Location;
use model::base::secret::Secret;
use model::render::data::{Data, MapKey, Node, Scalar, SecretData};

/// A text that is not valid data. The error has the position, never the content.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct ReadDataError {
    pub(crate) at: Location,
    pub(crate) problem: String,
}

impl ReadDataError {
    pub(super) fn new(at: Location, problem: impl Into<String>) -> Self {
        Self {
            at,
            problem: problem.into(),
        }
    }
}

/// Reads YAML, TOML or JSON by the file's extension; `None` for another.
pub(crate) fn read_data(file: &str, text: &str) -> Option<Result<Node, ReadDataError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let places = LineIndex::new(file, text);
    Some(match Path::new(file).extension()?.to_str()? {
        "yaml" | "yml" => yaml::read(&places, yaml::ScalarSyntax::Yaml),
        "json" => yaml::read(&places, yaml::ScalarSyntax::Json),
        "toml" => toml::read(&places),
        _ => return None,
    })
}

/// Maps offsets of a text to positions.
pub(super) struct LineIndex<'t> {
    pub(super) file: &'t str,
    pub(super) text: &'t str,
    lines: Vec<usize>,
    /// The byte offset of each character, unless the text is ASCII.
    chars: Option<Vec<usize>>,
}

impl<'t> LineIndex<'t> {
    fn new(file: &'t str, text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let chars = (!text.is_ascii()).then(|| {
            let ends = std::iter::once(text.len());
            text.char_indices().map(|(at, _)| at).chain(ends).collect()
        });
        Self {
            file,
            text,
            lines: std::iter::once(0)
                .chain(breaks.map(|(at, _)| at + 1))
                .collect(),
            chars,
        }
    }

    /// The byte offset of a character.
    pub(super) fn byte(&self, index: usize) -> usize {
        match &self.chars {
            Some(chars) => chars.get(index).copied().unwrap_or(self.text.len()),
            None => index.min(self.text.len()),
        }
    }

    pub(super) fn at(&self, start: usize, end: usize) -> Location {
        let line = self.lines.partition_point(|begin| *begin <= start);
        let begin = self.lines[line.saturating_sub(1)];
        let column = self
            .text
            .get(begin..start)
            .map_or(0, |before| before.chars().count());
        Location {
            file: self.file.to_owned(),
            line: line.max(1),
            column: column + 1,
            start,
            end: end.max(start),
        }
    }
}

/// The start of a value that SOPS encrypted.
const SEALED: &str = "ENC[AES256_GCM,";

/// Whether the data comes from a file that SOPS encrypted.
pub(crate) fn is_sealed(data: &Node) -> bool {
    data.get("sops").is_some_and(|own| own.get("mac").is_some())
}

/// The data of an encrypted file without its key: every encrypted value becomes an unknown secret.
#[must_use]
pub(crate) fn withhold(mut data: Node) -> Node {
    if let Data::Map(entries) = &mut data.data {
        entries.retain(|entry| entry.key != MapKey::Text("sops".to_owned()));
    }
    hide_sealed(&mut data);
    data
}

fn hide_sealed(node: &mut Node) {
    match &mut node.data {
        Data::Text(text) if text.starts_with(SEALED) => {
            node.data = Data::Secret(SecretData { value: None });
        }
        Data::List(items) => items.iter_mut().for_each(hide_sealed),
        Data::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| hide_sealed(&mut entry.node)),
        _ => {}
    }
}

/// Sets the values of the secrets of an encrypted file from its plain content.
pub(crate) fn unseal(data: &mut Node, plain: &Node) {
    match (&mut data.data, &plain.data) {
        (Data::Secret(secret), value) => {
            let known = match value {
                Data::Text(text) | Data::Moment(text) => (Scalar::Text, text.clone()),
                Data::Int(number) => (Scalar::Int, number.to_string()),
                Data::Float(number) => (Scalar::Float, number.to_string()),
                Data::Bool(value) => (Scalar::Bool, value.to_string()),
                Data::Null | Data::List(_) | Data::Map(_) | Data::Secret(_) => return,
            };
            secret.value = Some((known.0, Secret::new(known.1)));
        }
        (Data::List(items), Data::List(plain)) => {
            for (item, plain) in items.iter_mut().zip(plain) {
                unseal(item, plain);
            }
        }
        (Data::Map(entries), Data::Map(plain)) => {
            for entry in entries {
                if let Some(plain) = plain.iter().find(|plain| plain.key == entry.key) {
                    unseal(&mut entry.node, &plain.node);
                }
            }
        }
        _ => {}
    }
}
