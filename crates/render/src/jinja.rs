//! The template language: Jinja2 as makejinja provides it, rendered in this process.
//!
//! Not here: data files (`data`), which files are made, and whether they may be written (`model::render`,
//! `outputs`).

mod alternate;
mod code;
mod comparing;
pub(crate) mod dates;
mod defaults;
mod environment;
mod files;
mod format;
mod import_scope;
mod literals;
mod mutable;
mod networks;
mod origin;
mod percent;
mod python;
mod repr;
mod templates;
mod time_parts;
mod variadic;
mod views;

#[cfg(test)]
mod tests;

pub(crate) use self::templates::{BoundTemplates, Reveal, TemplateError, TemplateText, Templates};
