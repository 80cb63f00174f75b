//! One look at one gate: which probe it is, and a hard end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::kubernetes::{AgentObjects, Clusters};
use drivers::probe::{Probes, dns, http, oidc, tcp, tls};
use drivers::process::{self, Capture, CaptureError};
use model::gate::{Asked, CommandGate, CommandSeen, EqualGate, Gate, Look, NotAsked, Probe};
use tokio::time::{Instant, timeout};

use super::{Around, clusters};

/// A probe ends by itself at its limit; this much later it is ended.
const GRACE: Duration = Duration::from_secs(2);
/// As much of what a program prints is kept, of its end.
const KEPT_OUTPUT: usize = 2000;
const MOST_OUTPUT: usize = 1 << 20;

pub(super) async fn look(
    gate: &Gate,
    probes: &Probes,
    known: &Clusters,
    around: &Around,
    limit: Duration,
) -> Look {
    let looking = async {
        match &gate.probe {
            Probe::Dns(gate) => dns::look(gate, limit).await,
            Probe::Tls(gate) => tls::look(probes, gate, limit).await,
            Probe::Tcp(gate) => tcp::look(gate, limit).await,
            Probe::Http(gate) => http::look(probes, gate, limit).await,
            Probe::Oidc(gate) => oidc::look(probes, gate, limit).await,
            Probe::Kubernetes(gate) => clusters::object(gate, known).await,
            Probe::Argocd(gate) => clusters::agent(gate, AgentObjects::Argocd, known).await,
            Probe::Flux(gate) => clusters::agent(gate, AgentObjects::Flux, known).await,
            Probe::Equal(gate) => equal(gate, known, limit).await,
            Probe::Command(gate) => command(gate, around, limit).await,
        }
    };
    let ended = timeout(limit + GRACE, Box::pin(looking)).await;
    ended.unwrap_or_else(|_| {
        Look::impossible(format!("the look did not end within {} s", limit.as_secs()))
    })
}

async fn equal(gate: &EqualGate, known: &Clusters, limit: Duration) -> Look {
    let mut answers = Vec::new();
    let end = Instant::now() + limit;
    for asked in gate.asked() {
        let left = end.saturating_duration_since(Instant::now());
        answers.push(match asked {
            Asked::Dns { name, record } => dns::resolve(&name, record, left).await,
            Asked::Kubernetes { object, field } => {
                let kubeconfig = gate.kubeconfig.as_ref();
                let asking = clusters::field(kubeconfig, &object, &field, known);
                let late = || Err(NotAsked("the cluster did not answer in time".to_owned()));
                timeout(left, asking).await.unwrap_or_else(|_| late())
            }
        });
    }
    gate.judge(answers)
}

async fn command(gate: &CommandGate, around: &Around, limit: Duration) -> Look {
    let mut env = around.env.clone();
    for (name, value) in &gate.env {
        env.set_secret(name, value.clone());
    }
    let program = program(&gate.program, &around.dir);
    let args: Vec<OsString> = gate.args.iter().map(OsString::from).collect();
    let began = Instant::now();
    let captured = process::capture(Capture {
        timeout: limit,
        limit: MOST_OUTPUT,
        ..Capture::new(&program, &args, &around.dir, &env)
    });
    let took = |began: Instant| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let seen = |exit: String, passed: bool, stdout: &[u8], stderr: &[u8]| CommandSeen {
        program: gate.program.clone(),
        exit,
        passed,
        took_ms: took(began),
        stdout: end_of(stdout),
        stderr: end_of(stderr),
    };
    match captured.await {
        Ok(said) => {
            let exit = said.exit.to_string();
            gate.judge(seen(exit, said.exit.success(), &said.stdout, &said.stderr))
        }
        Err(err @ CaptureError::Spawn { .. }) => {
            let why = std::error::Error::source(&err).map(ToString::to_string);
            Look::impossible(format!("{err}: {}", why.unwrap_or_default()))
        }
        Err(
            err @ (CaptureError::TimedOut { .. }
            | CaptureError::TooMuch { .. }
            | CaptureError::Read { .. }),
        ) => gate.judge(seen(err.to_string(), false, &[], &[])),
    }
}

/// A path is the project's; a bare name is looked for as usual.
fn program(name: &str, dir: &Path) -> PathBuf {
    if name.contains('/') {
        dir.join(name)
    } else {
        PathBuf::from(name)
    }
}

fn end_of(output: &[u8]) -> String {
    let from = output.len().saturating_sub(KEPT_OUTPUT);
    let end = output.get(from..).unwrap_or_default();
    String::from_utf8_lossy(end).trim().to_owned()
}
