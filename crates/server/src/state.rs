//! States over HTTP: which state a path names, the protocol of OpenTofu and Terraform, the routes of the server, and the
//! endpoint of a single run.
//!
//! Not here: pages, and any other API.

mod path;
mod protocol;
mod router;
mod run_endpoint;

pub use run_endpoint::RunEndpoint;

pub(crate) use router::{StateApi, routes};
