//! Results of gates: a line for each pass. For the others, what was expected, what was seen, since when, and
//! how to investigate.

use std::time::Duration;

use jiff::Timestamp;
use model::stage::gate::{GateMismatch, GateReport, GateVerdict};

use super::duration::human;
use super::style::{Symbol, TextRole, ViewOptions};
use super::text;

/// One line for each gate that passed.
pub fn passes(reports: &[(String, GateReport)], look: ViewOptions) -> String {
    let passed = reports.iter().map(|(_, report)| report);
    let passed: Vec<GateReport> = passed
        .filter(|report| report.verdict.is_pass())
        .cloned()
        .collect();
    brief(&passed, look)
}

/// One line for each gate, passed or not.
pub fn brief(reports: &[GateReport], look: ViewOptions) -> String {
    let name_width = widest(reports.iter().map(|report| report.name.as_str()));
    let kind_width = widest(reports.iter().map(|report| report.kind.as_str()));
    let mut out = String::new();
    for report in reports {
        let (ink, sign) = if report.verdict.lets_on() {
            (TextRole::Good, Symbol::Check)
        } else {
            (TextRole::Error, Symbol::Cross)
        };
        let said = match (&report.verdict, &report.evidence) {
            (GateVerdict::Passed, Some(evidence)) => evidence.brief(),
            (verdict, _) => verdict.brief(),
        };
        let line = format!(
            "{} {}   {}   {}",
            look.paint(ink, look.sign(sign)),
            text::pad(&text::clean(&report.name), name_width),
            text::pad(&report.kind, kind_width),
            text::clean(&said),
        );
        out.extend([line.trim_end(), "\n"]);
    }
    out
}

/// Everything about a gate that did not pass.
pub fn failure(stack: &str, report: &GateReport, look: ViewOptions) -> String {
    let title = format!(
        "{} gate `{}` ({}) on {stack}",
        look.paint(TextRole::Error, look.sign(Symbol::Cross)),
        text::clean(&report.name),
        report.kind
    );
    let mut out = match &report.verdict {
        GateVerdict::NotTried { after } => {
            return format!(
                "{title} was not tried: it comes after `{}`\n",
                text::clean(after)
            );
        }
        GateVerdict::Skipped { .. } => {
            return format!("{title} was {}\n", text::clean(&report.verdict.brief()));
        }
        GateVerdict::Passed | GateVerdict::Failed { .. } | GateVerdict::CannotLook { .. } => {
            let tries = text::count(usize::try_from(report.tries).unwrap_or(0), "attempt");
            let took = human(between(report.began, report.ended));
            format!("{title}, after {took} ({tries})\n")
        }
    };
    match &report.verdict {
        GateVerdict::Passed | GateVerdict::NotTried { .. } | GateVerdict::Skipped { .. } => {}
        GateVerdict::CannotLook { why } => row(&mut out, "could not check", why, look),
        GateVerdict::Failed { misses } => {
            let since = since(report);
            for miss in misses {
                push_miss(&mut out, miss, &since, look);
            }
        }
    }
    for command in &report.look_further {
        row(&mut out, "see also", command, look);
    }
    out
}

fn push_miss(out: &mut String, miss: &GateMismatch, since: &str, look: ViewOptions) {
    out.extend(["    ", &*text::clean(&miss.subject), "\n"]);
    row(out, "expected", &miss.expected, look);
    row(out, "seen", &format!("{}{since}", miss.seen), look);
    if let Some(also) = &miss.also {
        row(out, "also", also, look);
    }
}

fn row(out: &mut String, word: &str, words: &str, look: ViewOptions) {
    let width = word.len().max(8);
    let room = if look.piped {
        usize::MAX
    } else {
        look.room(6 + width + 3)
    };
    for (at, line) in text::wrap(&text::clean(words), room).iter().enumerate() {
        let word = if at == 0 { word } else { "" };
        out.extend(["      ", &*text::pad(word, width), "   ", line, "\n"]);
    }
}

/// Empty if the gate was checked only once.
fn since(report: &GateReport) -> String {
    match report.since {
        Some(since) if report.tries > 1 => {
            let first = between(report.began, since) < Duration::from_millis(100);
            if first {
                ", since the first attempt".to_owned()
            } else {
                format!(", for {}", human(between(since, report.ended)))
            }
        }
        Some(_) | None => String::new(),
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn widest<'a>(words: impl Iterator<Item = &'a str>) -> usize {
    words.map(text::width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: GateVerdict, tries: u32) -> GateReport {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        GateReport {
            name: "wildcard-dev".to_owned(),
            kind: "dns".to_owned(),
            since: (!verdict.is_pass()).then(|| at(0)),
            verdict,
            tries,
            began: at(0),
            ended: at(300),
            evidence: None,
            look_further: vec!["dig any-label.dev.example.io A".to_owned()],
        }
    }

    #[test]
    fn a_gate_that_failed() {
        let miss = GateMismatch::new(
            "*.dev.example.io",
            "203.0.113.7",
            "198.51.100.4 from ns1.example.io (192.0.2.53:53) and ns2.example.io (192.0.2.54:53), TTL 3600",
        )
        .also("`dev.example.io` answers as expected: only the wildcard does not");
        let failed = report(GateVerdict::Failed { misses: vec![miss] }, 20);
        insta::assert_snapshot!(failure("k8s-prod", &failed, ViewOptions::plain(100)), @"
        ✗ gate `wildcard-dev` (dns) on k8s-prod, after 5 m 00 s (20 attempts)
            *.dev.example.io
              expected   203.0.113.7
              seen       198.51.100.4 from ns1.example.io (192.0.2.53:53) and ns2.example.io
                         (192.0.2.54:53), TTL 3600, since the first attempt
              also       `dev.example.io` answers as expected: only the wildcard does not
              see also   dig any-label.dev.example.io A
        ");
    }

    #[test]
    fn a_gate_that_could_not_be_looked_at() {
        let why = "no answer from 192.0.2.53:53: connection refused".to_owned();
        let blind = report(GateVerdict::CannotLook { why }, 1);
        insta::assert_snapshot!(failure("k8s-prod", &blind, ViewOptions::plain(100)), @"
        ✗ gate `wildcard-dev` (dns) on k8s-prod, after 5 m 00 s (1 attempt)
              could not check   no answer from 192.0.2.53:53: connection refused
              see also   dig any-label.dev.example.io A
        ");
        let after = "certificate".to_owned();
        let never = report(GateVerdict::NotTried { after }, 0);
        insta::assert_snapshot!(failure("k8s-prod", &never, ViewOptions::plain(100)), @"✗ gate `wildcard-dev` (dns) on k8s-prod was not tried: it comes after `certificate`");
    }
}
