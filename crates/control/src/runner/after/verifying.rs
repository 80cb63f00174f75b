//! Verifying: the gates of the stack, until each has passed or its time is over.

use std::path::Path;

use model::gate::{Gate, GateReport};
use model::stage::StageBlock;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use super::{Failure, Part, Report, count};
use crate::facts;
use crate::gates::{self, Around, GateEvent};
use crate::stages::Side;

pub(super) async fn verify(
    mut part: Part<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<Report, Failure> {
    let gates = read(&mut part, blocks).await?;
    let around = Around {
        dir: source.to_owned(),
        env: part.env.clone(),
        mask: part.values.mask(),
        once: false,
    };
    let (events, mut heard) = unbounded_channel();
    let looking = gates::run(gates, around, &events);
    tokio::pin!(looking);
    let reports = loop {
        tokio::select! {
            Some(event) = heard.recv() => say(&part, &event),
            reports = &mut looking => break reports,
        }
    };
    while let Ok(event) = heard.try_recv() {
        say(&part, &event);
    }
    ended(&part, &reports)
}

fn ended(part: &Part<'_>, reports: &[GateReport]) -> Result<Report, Failure> {
    let open: Vec<&GateReport> = reports
        .iter()
        .filter(|report| !report.verdict.is_pass())
        .collect();
    if open.is_empty() {
        return Ok(Report {
            summary: format!("{} passed", count(reports.len(), "gate")),
            details: json!(reports),
        });
    }
    let mut lines = Vec::new();
    for report in &open {
        lines.extend(report.lines());
    }
    let passed = reports.len() - open.len();
    let headline = format!("{passed} of {} passed", count(reports.len(), "gate"));
    lines.insert(0, headline);
    let stack = &part.job.spec.stack.name;
    let hint = format!("`terrane verify {stack}` looks again at any time");
    let mut failure = Failure::new(lines.join("\n")).hint(hint);
    failure.report = Some(Box::new(json!(reports)));
    Err(failure)
}

fn say(part: &Part<'_>, event: &GateEvent) {
    match event {
        GateEvent::Began { gate } => part.log.say(&format!("{gate}: looking")),
        GateEvent::Looked { gate, said, .. } => part.log.say(&format!("{gate}: {said}")),
        GateEvent::Ended(report) => {
            let words = report.verdict.brief();
            part.log.say(&format!("{}: {words}", report.name));
        }
    }
}

/// The gates with their values. Published facts are read first; what changes while a gate waits, it asks for itself.
async fn read(part: &mut Part<'_>, blocks: &[StageBlock]) -> Result<Vec<Gate>, Failure> {
    let (job, values) = (part.job, &mut part.values);
    let side = Side {
        asker: job.asker,
        root: part.root,
        env: &part.env,
    };
    facts::answer(job.control, &side, &job.spec.facts, blocks, values)
        .await
        .map_err(|err| Failure::because("could not read the facts that gates look at", &err))?;
    gates::read(blocks, values).map_err(|problems| {
        let words: Vec<String> = problems.into_iter().map(|it| it.message).collect();
        Failure::new(words.join("\n"))
    })
}
