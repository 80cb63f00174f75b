//! The pure core of terrane: parse, decide, render to bytes.
//!
//! Not here: clocks, disks, sockets, environment, randomness. They are passed as arguments, and this crate's
//! `clippy.toml` bans direct access.

pub mod approval;
pub mod artifact;
pub mod backend;
pub mod bootstrap;
pub mod break_glass;
pub mod bundle;
pub mod changed;
pub mod changeset;
pub mod config;
pub mod context;
pub mod contract;
pub mod diagnostic;
pub mod drain;
pub mod duration;
pub mod engine;
pub mod engine_event;
pub mod error;
pub mod exact_number;
pub mod exception;
pub mod exec;
pub mod fact_readers;
pub mod facts;
pub mod gate;
pub mod graph;
pub mod hold;
pub mod identity;
pub mod ids;
pub mod ignored_files;
pub mod import_proposal;
pub mod kubernetes;
pub mod lock;
pub mod masking;
pub mod module;
pub mod plan;
pub mod policy;
pub mod preview;
pub mod project;
pub mod proposal;
pub mod providers;
pub mod reference;
pub mod render;
pub mod retention;
pub mod run;
pub mod seal;
pub mod secret;
pub mod selector;
pub mod sink;
pub mod stage;
pub mod state;
pub mod token;
pub mod tree;
