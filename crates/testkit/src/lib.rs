//! What tests share: a project in a temporary directory, the real binary, the real engines.
//!
//! Not here: fakes, except [`ScriptedServer`] for a service that is not available. A misbehaving engine is a shell
//! script in the test that needs it.

mod azurite;
pub mod command_output;
mod dex;
mod dns;
pub mod engines;
mod gcs;
mod git_http;
mod http_backend;
mod issuer;
mod kubernetes;
mod makejinja;
mod minio;
mod moto;
mod postgres;
mod program;
mod provider;
mod proxmox;
mod random;
mod scripted;
mod service;
mod sops;
mod sshd;
mod terminal;
mod terrane;
mod vault;
mod wait;

pub use azurite::{AzureProxy, Azurite};
pub use command_output::CommandOutput;
pub use dex::Dex;
pub use dns::Dns;
pub use gcs::FakeGcs;
pub use git_http::GitHttp;
pub use http_backend::{FakeHttpBackend, LockStyle};
pub use issuer::{Issuer, SigningMethod, TestToken};
pub use kubernetes::Kubernetes;
pub use makejinja::Makejinja;
pub use minio::Minio;
pub use moto::Moto;
pub use postgres::Postgres;
pub use program::{copy_program, write_program};
pub use random::{SeededRng, seed};
pub use scripted::{RecordedRequest, ScriptedServer};
pub use sops::{AgeKey, Sops, age_plugins, ssh_key};
pub use sshd::Sshd;
pub use terminal::Terminal;
pub use terrane::{BackgroundCommand, TestTerrane, kill};
pub use vault::Vault;
pub use wait::{is_true_within, pause, wait_until};
