//! Templates and their data, in this process: the language of Jinja2 as makejinja's users have it.
//!
//! Not here: which files are made, and whether they may be written (`model::render`, `control::render`).

mod alternate;
mod apart;
mod changing;
mod clocks;
mod code;
mod defaults;
pub mod disk;
mod environment;
mod files;
mod format;
mod literals;
mod moments;
mod networks;
mod ordered;
mod origin;
mod percent;
mod python;
pub mod read;
mod read_toml;
mod read_yaml;
mod repr;
pub mod templates;
mod variadic;
mod views;

#[cfg(test)]
mod tests;

pub use self::disk::{Disk, DiskError, TemplateFile};
pub use self::read::{ReadDataError, read_data};
pub use self::templates::{Bound, Reveal, TemplateError, TemplateText, Templates};
