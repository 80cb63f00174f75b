//! Documents as YAML: keeps comments and order, and writes the same form as the official tool.

mod comments;
mod plain;
mod reader;
mod writer;

pub(super) use reader::read;
pub(super) use writer::write;
