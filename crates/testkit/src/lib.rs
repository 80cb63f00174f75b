//! What tests share: a project in a temporary directory, the real binary, the real engines.
//!
//! Not here: fakes, except [`ScriptedServer`] for a service that is not available. A misbehaving engine is a shell
//! script in the test that needs it.

pub mod command_output;
pub mod engines;
mod http_backend;
mod issuer;
mod program;
mod provider;
mod random;
mod scripted;
mod services;
mod terminal;
mod terrane;
mod wait;

pub use command_output::CommandOutput;
pub use http_backend::{FakeHttpBackend, LockStyle};
pub use issuer::{Issuer, SigningMethod, TestToken};
pub use program::{copy_program, write_program};
pub use random::{SeededRng, seed};
pub use scripted::{RecordedRequest, ScriptedServer};
pub use services::azurite::{AzureProxy, Azurite};
pub use services::dex::Dex;
pub use services::dns::Dns;
pub use services::gcs::FakeGcs;
pub use services::git_http::GitHttp;
pub use services::kubernetes::Kubernetes;
pub use services::makejinja::Makejinja;
pub use services::minio::Minio;
pub use services::moto::Moto;
pub use services::postgres::Postgres;
pub use services::sops::{AgeKey, Sops, age_plugins, ssh_key};
pub use services::sshd::Sshd;
pub use services::vault::Vault;
pub use terminal::Terminal;
pub use terrane::{BackgroundCommand, TestTerrane, kill};
pub use wait::{is_true_within, pause, wait_until};
