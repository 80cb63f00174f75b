//! Files made from templates: what a `render` block says, what its data are, which files it may touch.
//!
//! Not here: the language of templates, disks, keys and the order of things (the crate `render`).

pub mod checks;
pub mod data;
pub mod decide;
pub mod manifest;
pub mod names;
pub mod schema;
pub mod select;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::diagnostic::Location;
use crate::project::Input;

pub use self::select::Select;

/// A `render` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Render {
    pub name: String,
    /// Directories and files are relative to the project's root; `""` is the root. A file that several directories of
    /// templates have is that of the first.
    pub templates: Vec<String>,
    /// Later files win, key by key of the outermost level.
    pub data: Vec<String>,
    pub output: String,
    pub schema: Option<String>,
    /// Files with this ending are templates; others are copied.
    pub suffix: String,
    pub undefined: Undefined,
    /// Globs of files that are neither rendered nor copied; templates may still use them.
    pub exclude: Vec<String>,
    /// Whether a template that comes out empty still makes a file.
    pub keep_empty: bool,
    pub spaces: Spaces,
    pub delimiters: Delimiters,
    /// Data that stand in where the files say nothing; maps are merged.
    pub defaults: Value,
    /// More names, by Jinja expressions over the data.
    pub values: BTreeMap<String, String>,
    /// Keys that items of a list get unless they have them.
    pub each: BTreeMap<String, BTreeMap<String, String>>,
    /// By glob of generated files: the Jinja expression that must be true for them to be made.
    pub when: BTreeMap<String, String>,
    /// More names, whose values are secret.
    pub secrets: BTreeMap<String, Input>,
    /// Paths of values in plain data files that are secret.
    pub sensitive: Vec<String>,
    pub checks: Vec<checks::Check>,
    pub declared_at: Location,
    /// Where its parts stand, by what they are called: `data`, `when.GLOB`, `each.LIST.KEY`, `check.0`.
    pub places: BTreeMap<String, Location>,
}

impl Render {
    /// Where a part of it stands, or else the block.
    pub fn place(&self, part: &str) -> Location {
        let known = self.places.get(part);
        known.unwrap_or(&self.declared_at).clone()
    }
}

/// What a name that nobody defined is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undefined {
    /// Using it is an error.
    #[default]
    Strict,
    /// It prints as nothing.
    Lenient,
    /// It prints as nothing, and so do its attributes.
    Chainable,
}

impl Undefined {
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

/// What becomes of the white space around template code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spaces {
    pub trim_blocks: bool,
    pub lstrip_blocks: bool,
    pub keep_trailing_newline: bool,
}

impl Default for Spaces {
    /// As makejinja has it.
    fn default() -> Self {
        Self {
            trim_blocks: true,
            lstrip_blocks: true,
            keep_trailing_newline: true,
        }
    }
}

/// What surrounds template code: start and end.
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
    /// The generated file that a template, or a file beside them, becomes; relative to the project's root.
    pub fn output_of(&self, template: &str) -> String {
        let name = match template.strip_suffix(&self.suffix) {
            Some(name) if self.is_template(template) => name,
            _ => template,
        };
        join(&self.output, name)
    }

    /// Whether a file in the directory of templates is one.
    pub fn is_template(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// Where the digests of what it made are kept; relative to the project's root.
    pub fn manifest_path(&self) -> String {
        join(&self.output, &format!(".terrane-render.{}.json", self.name))
    }

    /// Whether it reads a file, or is described by it: nothing that it makes, or may take away.
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

    /// What of the block decides the bytes that come out, in a fixed form.
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

/// Whether a generated file is to be encrypted: `x.sops.yaml`, but not the rules themselves.
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
