//! Stories told to the real binary, with real engines, Git and homes; what a person sees is kept whole.

#![expect(
    clippy::unwrap_used,
    reason = "a test may stop at once, in its helpers too"
)]

mod approval;
mod artifacts;
mod attach;
mod backend;
mod backend_locks;
mod backends;
mod bundle;
mod cancel;
mod changed;
mod context_files;
mod context_show;
mod contexts;
mod destroy;
mod drain;
mod engines;
mod environment;
mod exceptions;
mod exec;
mod facts;
mod facts_rules;
mod facts_withdrawn;
mod failure;
mod fmt;
mod graph;
mod home;
mod homelab;
mod hooks;
mod hooks_after;
mod init;
mod interrupt;
mod json;
mod keys;
mod lanes;
mod locks;
mod lost_engine;
mod order;
mod outage;
mod output;
mod people;
mod planted;
mod policy;
mod preview;
mod project;
mod providers;
mod quickstart;
mod random_kills;
mod recovery;
mod reinstall;
mod render;
mod run_logs;
mod seals;
mod secret;
mod secret_sources;
mod selectors;
mod sensitive;
mod server;
mod server_kills;
mod shared;
mod source;
mod stage_kills;
mod stages;
mod state;
mod state_ask;
mod stored;
mod story;
mod surgery;
mod tour;
mod usage;
mod validate;
mod verify;
mod writers;
