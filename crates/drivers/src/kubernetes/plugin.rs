//! Credential plugins: a program that a kubeconfig names and that prints the current credential.
//!
//! The plugin gets the given environment and the kubeconfig's additions. It has no terminal and a time limit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use model::base::masking::cut;
use model::base::secret::Secret;
use model::stage::kubernetes::{ExecPlugin, Kubeconfig};
use serde::Deserialize;
use serde_json::json;

use super::KubernetesError;
use crate::process::{Capture, CaptureError, Environment, capture, find_program};

const PATIENCE: Duration = Duration::from_mins(1);
const MAX_SAID: usize = 256 << 10;

/// A credential for a cluster.
#[derive(Default)]
pub(super) struct PluginCredential {
    pub(super) token: Option<Secret>,
    /// Certificate and key, in PEM.
    pub(super) identity: Option<(String, Secret)>,
    pub(super) until: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

pub(super) async fn run(
    plugin: &ExecPlugin,
    config: &Kubeconfig,
    env: &Environment,
    dir: &Path,
) -> Result<PluginCredential, KubernetesError> {
    let program = locate(plugin, env)?;
    let mut env = env.clone();
    for (name, value) in &plugin.env {
        env.set_secret(name, value.clone());
    }
    env.set("KUBERNETES_EXEC_INFO", question(plugin, config));
    let args: Vec<OsString> = plugin.args.iter().map(OsString::from).collect();
    let mut call = Capture::new(&program, &args, dir, &env);
    call.timeout = PATIENCE;
    call.limit = MAX_SAID;
    let said = capture(call).await.map_err(|source| match source {
        CaptureError::TimedOut { limit, .. } => hung(plugin, limit),
        source => KubernetesError::Plugin {
            program: plugin.command.clone(),
            source,
        },
    })?;
    if !said.exit.success() {
        return Err(KubernetesError::PluginFailed {
            program: plugin.command.clone(),
            said: last_line(&said.stderr_text()).unwrap_or_else(|| said.exit.to_string()),
        });
    }
    let read: Option<ExecCredential> = serde_json::from_slice(&said.stdout).ok();
    let status = read.and_then(|read| read.status);
    let identity = |status: &ExecStatus| {
        let certificate = status.client_certificate_data.clone()?;
        let key = status.client_key_data.clone()?;
        Some((certificate, Secret::new(key)))
    };
    let credential = status.map(|status| PluginCredential {
        identity: identity(&status),
        token: status.token.map(Secret::new),
        until: status.expiration_timestamp,
    });
    credential
        .filter(|credential| credential.token.is_some() || credential.identity.is_some())
        .ok_or_else(|| KubernetesError::NoCredential {
            program: plugin.command.clone(),
        })
}

pub(super) fn hung(plugin: &ExecPlugin, limit: Duration) -> KubernetesError {
    KubernetesError::PluginHung {
        program: plugin.command.clone(),
        limit,
    }
}

/// Found on PATH or by an absolute path. A relative one has no base, because the kubeconfig is not a file here.
fn locate(plugin: &ExecPlugin, env: &Environment) -> Result<PathBuf, KubernetesError> {
    let missing = || KubernetesError::NoPlugin {
        program: plugin.command.clone(),
        install: plugin.install_hint.clone(),
    };
    let named = Path::new(&plugin.command);
    if named.is_absolute() {
        return Ok(named.to_owned());
    }
    if plugin.command.contains('/') {
        return Err(missing());
    }
    let path = env.get("PATH").map(Secret::expose).unwrap_or_default();
    find_program(&plugin.command, path.as_ref()).ok_or_else(missing)
}

fn question(plugin: &ExecPlugin, config: &Kubeconfig) -> String {
    let mut spec = json!({"interactive": false});
    if plugin.cluster_info {
        spec["cluster"] = json!({
            "server": config.server,
            "certificate-authority-data": config.authority,
            "insecure-skip-tls-verify": config.insecure,
            "tls-server-name": config.server_name,
        });
    }
    json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).to_string()
}

/// The last line of standard error, which usually has the reason. Never standard output: it holds the credential.
fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(cut(line.trim(), 300))
}
