//! Files generated from templates: the settings of a `render` block, its data, and the files it may change.
//!
//! Not here: the template language, file access, keys and the sequence of steps (the crate `render`).

pub mod checks;
pub mod data;
pub mod decide;
pub mod manifest;
pub mod names;
pub mod schema;
pub mod select;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::base::diagnostic::Location;
use crate::hcl::expression::Input;

pub use self::select::Select;

/// A `render` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Render {
    pub name: String,
    /// Directories and files are relative to the project's root; `""` is the root. If several template directories have
    /// the same file, the first one wins.
    pub templates: Vec<String>,
    /// Later files override earlier ones, per top-level key.
    pub data: Vec<String>,
    pub output: String,
    pub schema: Option<String>,
    /// Files with this suffix are templates; others are copied.
    pub suffix: String,
    pub undefined: UndefinedMode,
    /// Globs of files that are neither rendered nor copied. Templates can still use them.
    pub exclude: Vec<String>,
    /// Whether a template with an empty result still creates a file.
    pub keep_empty: bool,
    pub spaces: WhitespaceOptions,
    pub delimiters: Delimiters,
    /// Defaults for values that the files do not set; maps are merged.
    pub defaults: Value,
    /// Additional names, as Jinja expressions over the data.
    pub values: BTreeMap<String, String>,
    /// Default keys for the items of lists.
    pub each: BTreeMap<String, BTreeMap<String, String>>,
    /// By glob of generated files: the Jinja expression that must be true for them to be created.
    pub when: BTreeMap<String, String>,
    /// Additional names with secret values.
    pub secrets: BTreeMap<String, Input>,
    /// Paths of secret values in plain data files.
    pub sensitive: Vec<String>,
    pub checks: Vec<checks::Check>,
    pub declared_at: Location,
    /// The locations of its parts, by name: `data`, `when.GLOB`, `each.LIST.KEY`, `check.0`.
    pub places: BTreeMap<String, Location>,
}

impl Render {
    /// The location of a part, or else of the block.
    pub fn place(&self, part: &str) -> Location {
        let known = self.places.get(part);
        known.unwrap_or(&self.declared_at).clone()
    }
}

/// How templates treat undefined names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndefinedMode {
    /// Using it is an error.
    #[default]
    Strict,
    /// It renders as nothing.
    Lenient,
    /// It renders as nothing, and so do its attributes.
    Chainable,
}

impl UndefinedMode {
    pub const WORDS: [&'static str; 3] = ["strict", "lenient", "chainable"];

    pub fn of(word: &str) -> Self {
        match word {
            "lenient" => Self::Lenient,
            "chainable" => Self::Chainable,
            _ => Self::Strict,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lenient => "lenient",
            Self::Chainable => "chainable",
        }
    }
}

/// How whitespace around template code is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhitespaceOptions {
    pub trim_blocks: bool,
    pub lstrip_blocks: bool,
    pub keep_trailing_newline: bool,
}

impl Default for WhitespaceOptions {
    /// The defaults of makejinja.
    fn default() -> Self {
        Self {
            trim_blocks: true,
            lstrip_blocks: true,
            keep_trailing_newline: true,
        }
    }
}

/// The start and end markers of template code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimiters {
    pub block: (String, String),
    pub variable: (String, String),
    pub comment: (String, String),
}

impl Default for Delimiters {
    fn default() -> Self {
        let pair = |start: &str, end: &str| (start.to_owned(), end.to_owned());
        Self {
            block: pair("{%", "%}"),
            variable: pair("{{", "}}"),
            comment: pair("{#", "#}"),
        }
    }
}

impl Render {
    /// The path of the file generated from a template or copied file, relative to the project's root.
    pub fn output_of(&self, template: &str) -> String {
        let name = match template.strip_suffix(&self.suffix) {
            Some(name) if self.is_template(template) => name,
            _ => template,
        };
        join(&self.output, name)
    }

    /// Whether a file in the template directory is a template.
    pub fn is_template(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// The path of the manifest with the digests of generated files, relative to the project's root.
    pub fn manifest_path(&self) -> String {
        join(&self.output, &format!(".terrane-render.{}.json", self.name))
    }

    /// Whether a file is an input or describes the render. Such a file is never generated or removed.
    pub fn is_input(&self, path: &str) -> bool {
        let in_dir = |dir: &String| {
            let rest = path.strip_prefix(dir.as_str());
            !dir.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        path == "terrane.hcl"
            || path.ends_with(".terrane.hcl")
            || self
                .data
                .iter()
                .chain(&self.schema)
                .any(|file| file == path)
            || self.templates.iter().any(in_dir)
    }

    /// The settings that affect the generated bytes, in a canonical form.
    pub fn settings(&self) -> Value {
        serde_json::json!({
            "output": self.output,
            "suffix": self.suffix,
            "undefined": self.undefined.word(),
            "exclude": self.exclude,
            "keep_empty": self.keep_empty,
            "spaces": [self.spaces.trim_blocks, self.spaces.lstrip_blocks, self.spaces.keep_trailing_newline],
            "delimiters": [self.delimiters.block, self.delimiters.variable, self.delimiters.comment],
            "values": self.values,
            "each": self.each,
            "when": self.when,
            "sensitive": self.sensitive,
            "secrets": self.secrets.keys().collect::<Vec<_>>(),
        })
    }
}

/// Whether a generated file must be encrypted: `x.sops.yaml`, but not the rules themselves.
pub fn is_secret_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".sops.")
        .is_some_and(|(before, after)| !before.is_empty() && !after.is_empty())
}

pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

#[cfg(test)]
mod tests;
