//! The template language: Jinja2 as makejinja provides it, rendered in this process.
//!
//! Not here: data files (`data`), which files are made, and whether they may be written (`model::render`,
//! `outputs`).

mod alternate;
mod apart;
mod changing;
mod clocks;
mod code;
mod defaults;
mod environment;
mod files;
mod format;
mod literals;
pub(crate) mod moments;
mod networks;
mod ordered;
mod origin;
mod percent;
mod python;
mod repr;
mod templates;
mod variadic;
mod views;

#[cfg(test)]
mod tests;

pub(crate) use self::templates::{BoundTemplates, Reveal, TemplateError, TemplateText, Templates};
