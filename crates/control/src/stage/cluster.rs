//! What every stage that works on a cluster needs: the context of its calls, server-side apply, and waiting.
//!
//! Not here: what is done there (`bootstrap`, `drain`, `sinks`), the cluster's API (`drivers::kubernetes`).

pub(crate) mod apply;
mod poll;

use std::fs::File;
use std::path::Path;

use drivers::process::Environment;
use model::base::secret::Secret;

pub(crate) use poll::Poll;

/// The source, environment and lock for calls to a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterContext<'a> {
    /// The project's source, as the run uses it.
    pub source: &'a Path,
    /// The environment of programs: credential plugins, renderers, the project's own steps.
    pub env: &'a Environment,
    /// Secrets in that environment.
    pub hidden: &'a [Secret],
    /// Where downloads may be kept.
    pub cache: &'a Path,
    /// The lock of the run. A command of the project inherits it, so that it is not started twice.
    pub held: Option<&'a File>,
}
