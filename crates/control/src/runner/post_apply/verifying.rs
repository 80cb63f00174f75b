//! Verifying: checks the stack's gates until each has passed or its time is over.

use std::collections::BTreeMap;
use std::path::Path;

use model::stage::StageBlock;
use model::stage::gate::{Gate, GateReport};
use model::state::break_glass::BreakGlassAction;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use super::{Failure, StageReport, StageWork, count, record_act};
use crate::runner::seal;
use crate::stage::facts;
use crate::stage::gates::{self, GateContext, GateEvent, OpenGates, SkippedGate};
use crate::stage::values::CallerContext;

pub(super) async fn verify(
    mut part: StageWork<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<StageReport, Failure> {
    if part.job.spec.destroy && seal::head(part.job).await?.is_none() {
        return Ok(StageReport {
            changed: None,
            summary: "nothing was ever applied".to_owned(),
            details: json!([]),
        });
    }
    let gates = read(&mut part, blocks).await?;
    let around = GateContext {
        dir: source.to_owned(),
        env: part.env.clone(),
        mask: part.values.mask(&part.hidden),
        once: false,
        skipped: skipped(&part, &gates).await?,
    };
    let (events, mut heard) = unbounded_channel();
    let mut missing = OpenGates::of(&gates);
    let looking = gates::run(gates, around, &events);
    tokio::pin!(looking);
    let reports = loop {
        tokio::select! {
            Some(event) = heard.recv() => {
                say(&part, &event);
                missing.hear(&event);
            }
            () = missing.due() => {
                if let Some(words) = missing.words() {
                    part.log.still(&words);
                }
            }
            reports = &mut looking => break reports,
        }
    };
    while let Ok(event) = heard.try_recv() {
        say(&part, &event);
    }
    ended(&part, &reports)
}

fn ended(part: &StageWork<'_>, reports: &[GateReport]) -> Result<StageReport, Failure> {
    let open: Vec<&GateReport> = reports
        .iter()
        .filter(|report| !report.verdict.lets_on())
        .collect();
    if open.is_empty() {
        return Ok(StageReport {
            changed: None,
            summary: summary(reports),
            details: json!(reports),
        });
    }
    let mut lines = Vec::new();
    for report in &open {
        lines.extend(report.lines());
    }
    let passed = reports.iter().filter(|report| report.verdict.is_pass());
    let headline = format!(
        "{} of {} passed",
        passed.count(),
        count(reports.len(), "gate")
    );
    lines.insert(0, headline);
    let stack = &part.job.spec.stack.name;
    let hint = format!("`terrane verify {stack}` checks again at any time");
    let mut failure = Failure::new(lines.join("\n")).hint(hint);
    failure.report = Some(Box::new(json!(reports)));
    Err(failure)
}

/// ``3 gates passed; `open` skipped by ada: the probe is wrong``
fn summary(reports: &[GateReport]) -> String {
    let passed = reports.iter().filter(|report| report.verdict.is_pass());
    let mut words = vec![format!("{} passed", count(passed.count(), "gate"))];
    let rest = reports.iter().filter(|report| !report.verdict.is_pass());
    words.extend(rest.map(|report| format!("`{}` {}", report.name, report.verdict.brief())));
    words.join("; ")
}

/// The gates that the request skips. Each skip is recorded.
async fn skipped(
    part: &StageWork<'_>,
    gates: &[Gate],
) -> Result<BTreeMap<String, SkippedGate>, Failure> {
    let job = part.job;
    let mut skipped = BTreeMap::new();
    let Some(exceptions) = &job.set.request.exceptions else {
        return Ok(skipped);
    };
    for gate in gates {
        if exceptions.skips(&job.spec.stack.name, gate) {
            let detail = format!("gate `{}`, run {}", gate.name, job.run);
            record_act(job, BreakGlassAction::GateSkipped, detail).await?;
            let one = SkippedGate {
                by: job.asker_name().to_owned(),
                reason: exceptions.reason.clone(),
            };
            skipped.insert(gate.name.clone(), one);
        }
    }
    Ok(skipped)
}

fn say(part: &StageWork<'_>, event: &GateEvent) {
    match event {
        GateEvent::Began { gate } => part.log.say(&format!("{gate}: looking")),
        GateEvent::Looked { gate, said, .. } => part.log.say(&format!("{gate}: {said}")),
        GateEvent::Ended(report) => {
            let words = report.verdict.brief();
            part.log.say(&format!("{}: {words}", report.name));
        }
    }
}

/// Resolves the gates with their values. Published facts are read first. A gate itself reads what changes
/// while it waits.
async fn read(part: &mut StageWork<'_>, blocks: &[StageBlock]) -> Result<Vec<Gate>, Failure> {
    let (job, values) = (part.job, &mut part.values);
    let side = CallerContext {
        asker: job.asker,
        root: part.root,
        env: &part.base,
    };
    facts::answer(job.control, &side, &job.spec.facts, blocks, values).await;
    gates::read(blocks, values).map_err(|problems| {
        let words: Vec<String> = problems.into_iter().map(|it| it.message).collect();
        Failure::new(words.join("\n"))
    })
}
