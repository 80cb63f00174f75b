//! Documents as YAML: comments and order kept, and written as the official tool writes them.

mod comments;
mod plain;
mod reader;
mod writer;

pub(super) use reader::read;
pub(super) use writer::write;
