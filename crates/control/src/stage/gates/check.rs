//! One check of one gate: its probe, with a hard time limit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::kubernetes::{AgentObjects, ClusterClients};
use drivers::probe::{Probes, dns, http, oidc, tcp, tls};
use drivers::process::{self, Capture, Exit};
use model::base::duration::seconds;
use model::base::error::one_line;
use model::base::masking::Mask;
use model::stage::gate::{
    CheckResult, CommandEvidence, CommandGate, EqualGate, Gate, Probe, ProbeQuery, ProbeQueryError,
};
use tokio::time::{Instant, timeout};

use super::{GateContext, clusters};
use crate::program_output::output_tail::OutputTail;

/// A probe ends by itself at its limit; after this extra time it is stopped.
const GRACE: Duration = Duration::from_secs(2);
/// How much of the end of a program's output is kept, and how much is searched for secrets.
const KEPT_OUTPUT: usize = 2000;
const READ_OUTPUT: usize = 64 << 10;

pub(super) async fn look(
    gate: &Gate,
    probes: &Probes,
    known: &ClusterClients,
    around: &GateContext,
    limit: Duration,
) -> CheckResult {
    let looking = async {
        match &gate.probe {
            Probe::Dns(gate) => dns::look(gate, limit).await,
            Probe::Tls(gate) => tls::look(probes, gate, limit).await,
            Probe::Tcp(gate) => tcp::look(gate, limit).await,
            Probe::Http(gate) => http::look(probes, gate, limit).await,
            Probe::Oidc(gate) => oidc::look(probes, gate, limit).await,
            Probe::Kubernetes(gate) => {
                let looking = clusters::object(gate, known);
                clusters::within(limit, &gate.kubeconfig, known, looking).await
            }
            Probe::Argocd(gate) => {
                let looking = clusters::agent(gate, AgentObjects::Argocd, known);
                clusters::within(limit, &gate.kubeconfig, known, looking).await
            }
            Probe::Flux(gate) => {
                let looking = clusters::agent(gate, AgentObjects::Flux, known);
                clusters::within(limit, &gate.kubeconfig, known, looking).await
            }
            Probe::Equal(gate) => equal(gate, known, limit).await,
            Probe::Unready { why, .. } => CheckResult::impossible(why),
            Probe::Command(program) => command(program, &gate.mask, around, limit).await,
        }
    };
    let ended = timeout(limit + GRACE, Box::pin(looking)).await;
    ended.unwrap_or_else(|_| {
        CheckResult::impossible(format!("the look did not end within {}", seconds(limit)))
    })
}

async fn equal(gate: &EqualGate, known: &ClusterClients, limit: Duration) -> CheckResult {
    let mut answers = Vec::new();
    let end = Instant::now() + limit;
    for asked in gate.asked() {
        let left = end.saturating_duration_since(Instant::now());
        answers.push(match asked {
            ProbeQuery::Dns { name, record } => dns::resolve(&name, record, left).await,
            ProbeQuery::Kubernetes { object, field } => {
                let Some(kubeconfig) = gate.kubeconfig.as_ref() else {
                    answers.push(Err(ProbeQueryError(
                        "the gate has no `kubeconfig`".to_owned(),
                    )));
                    continue;
                };
                let asking = clusters::field(kubeconfig, &object, &field, known);
                match timeout(left, asking).await {
                    Ok(found) => found,
                    Err(_) => Err(ProbeQueryError(
                        clusters::late(left, kubeconfig, known).await,
                    )),
                }
            }
        });
    }
    gate.judge(answers)
}

async fn command(
    gate: &CommandGate,
    mask: &Mask,
    around: &GateContext,
    limit: Duration,
) -> CheckResult {
    let mut env = around.env.clone();
    for (name, value) in &gate.env {
        env.set_secret(name, value.clone());
    }
    let program = program(&gate.program, &around.dir);
    let args: Vec<OsString> = gate.args.iter().map(OsString::from).collect();
    let began = Instant::now();
    let ended = process::run_with_tail(Capture {
        timeout: limit,
        limit: READ_OUTPUT,
        ..Capture::new(&program, &args, &around.dir, &env)
    });
    let ended = match ended.await {
        Ok(ended) => ended,
        Err(err) => return CheckResult::impossible(one_line(&err)),
    };
    let said = |output: &[u8]| {
        let words = OutputTail {
            output,
            limit: READ_OUTPUT,
            was_stopped: ended.exit.is_none(),
        };
        end_of(&words.masked(&[mask, &around.mask]))
    };
    let late = || format!("it did not finish within {}", seconds(limit));
    gate.judge(CommandEvidence {
        program: gate.program.clone(),
        exit: ended.exit.map_or_else(late, |exit| exit.to_string()),
        passed: ended.exit.is_some_and(Exit::success),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        stdout: said(&ended.stdout),
        stderr: said(&ended.stderr),
    })
}

/// A path is relative to the project; a bare name is searched for as usual.
fn program(name: &str, dir: &Path) -> PathBuf {
    if name.contains('/') {
        dir.join(name)
    } else {
        PathBuf::from(name)
    }
}

fn end_of(text: &str) -> String {
    let text = text.trim();
    let from = text.len().saturating_sub(KEPT_OUTPUT);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    text[from.unwrap_or_default()..].trim().to_owned()
}
