//! Stories told to the real binary, with real engines, Git and homes; what a person sees is kept whole.

mod backend;
mod changed;
mod contexts;
mod engines;
mod environment;
mod fmt;
mod graph;
mod home;
mod init;
mod json;
mod output;
mod project;
mod selectors;
mod source;
mod tour;
mod usage;
mod validate;
