//! The output of the state bench: cycles per second, the time of each step, and a verdict for each limit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::client::STEPS;
use super::service::ServiceKind;

const STEP_NAMES: [&str; STEPS] = ["lock", "get", "post", "unlock"];

/// One service with one size and one number of clients, in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    cycles_per_second: f64,
    p50: [Duration; STEPS],
    p99: [Duration; STEPS],
    memory: u64,
}

#[derive(Debug, Default)]
pub(crate) struct StateBenchReport {
    cells: BTreeMap<(ServiceKind, usize, usize), Vec<Cell>>,
    sizes: Vec<&'static str>,
    pub(crate) missing: Vec<(ServiceKind, &'static str)>,
    /// Error messages.
    pub(crate) broken: Vec<String>,
    /// Bytes on disk, and raw.
    pub(crate) room: Option<(u64, u64)>,
}

impl Cell {
    pub(crate) fn new(cycles: &[[Duration; STEPS]], length: Duration, memory: u64) -> Self {
        let quantile = |step: usize, part: f64| {
            let mut all: Vec<Duration> = cycles.iter().map(|cycle| cycle[step]).collect();
            all.sort_unstable();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a place in a list"
            )]
            let place = ((all.len() as f64 - 1.0) * part).max(0.0) as usize;
            all.get(place).copied().unwrap_or_default()
        };
        let of = |part| std::array::from_fn(|step| quantile(step, part));
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let count = cycles.len() as f64;
        Self {
            cycles_per_second: count / length.as_secs_f64(),
            p50: of(0.5),
            p99: of(0.99),
            memory,
        }
    }
}

impl StateBenchReport {
    pub(crate) fn add(
        &mut self,
        kind: ServiceKind,
        size: &'static str,
        clients: usize,
        cell: Cell,
    ) {
        let place = self.sizes.iter().position(|known| *known == size);
        let place = place.unwrap_or_else(|| {
            self.sizes.push(size);
            self.sizes.len() - 1
        });
        self.cells
            .entry((kind, place, clients))
            .or_default()
            .push(cell);
    }

    /// The median round.
    fn middle(&self, kind: ServiceKind, size: usize, clients: usize) -> Option<Cell> {
        let mut cells = self.cells.get(&(kind, size, clients))?.clone();
        cells.sort_by(|a, b| a.cycles_per_second.total_cmp(&b.cycles_per_second));
        cells.get(cells.len() / 2).copied()
    }
}

pub(crate) fn render(report: &StateBenchReport) -> String {
    let mut text = String::from("## State service: lock, get, post, unlock\n");
    for (size, name) in report.sizes.iter().enumerate() {
        let _ = write!(
            text,
            "\n### {name}\n\n| service | promises | clients | cycles/s (least–most) | p50/p99 ms: lock | get | post | unlock | peak MB |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
        );
        for ((kind, at, clients), cells) in &report.cells {
            let Some(cell) = report.middle(*kind, *at, *clients).filter(|_| *at == size) else {
                continue;
            };
            let rates = cells.iter().map(|cell| cell.cycles_per_second);
            let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| {
                (least.min(rate), most.max(rate))
            });
            let _ = write!(
                text,
                "| {} | {} | {clients} | {:.0} ({least:.0}–{most:.0}) |",
                kind.title(),
                kind.promises(),
                cell.cycles_per_second
            );
            for step in 0..STEPS {
                let ms = |time: Duration| time.as_secs_f64() * 1000.0;
                let _ = write!(
                    text,
                    " {:.2}/{:.2} |",
                    ms(cell.p50[step]),
                    ms(cell.p99[step])
                );
            }
            let _ = writeln!(text, " {} |", cell.memory / 1_000_000);
        }
    }
    for (kind, why) in &report.missing {
        let _ = writeln!(text, "\n{} is missing: {why}", kind.title());
    }
    for broken in &report.broken {
        let _ = writeln!(text, "\nbroke: {broken}");
    }
    text.push_str(&bars(report));
    text
}

fn bars(report: &StateBenchReport) -> String {
    use ServiceKind::{NimbolusFiles, NimbolusPostgres, TerranePostgres, TerraneSqlite, Tfstated};
    let mut text = String::from("\n| bar | seen | wanted | |\n|---|---:|---:|---|\n");
    let mut line = |what: String, seen: Option<f64>, wanted: f64, at_least: bool, unit: &str| {
        let (seen, verdict) = match seen {
            None => ("–".to_owned(), "not measured"),
            Some(seen) if (seen >= wanted) == at_least => (format!("{seen:.2}{unit}"), "ok"),
            Some(seen) => (format!("{seen:.2}{unit}"), "**missed**"),
        };
        let sign = if at_least { "≥" } else { "≤" };
        let _ = writeln!(
            text,
            "| {what} | {seen} | {sign} {wanted}{unit} | {verdict} |"
        );
    };
    let ratio = |ours: ServiceKind, theirs: ServiceKind, size: usize| {
        let rate = |kind| {
            report
                .middle(kind, size, 32)
                .map(|cell| cell.cycles_per_second)
        };
        Some(rate(ours)? / rate(theirs)?)
    };
    let wanted = [
        (TerraneSqlite, Tfstated, [3.0, 3.0]),
        (TerraneSqlite, NimbolusFiles, [1.0, 0.6]),
        (TerranePostgres, NimbolusPostgres, [3.0, 3.0]),
    ];
    for (ours, theirs, wanted) in wanted {
        for (size, wanted) in wanted.into_iter().enumerate() {
            let name = report.sizes.get(size).copied().unwrap_or_default();
            let what = format!("{} ÷ {}, {name}, 32 clients", ours.title(), theirs.title());
            line(what, ratio(ours, theirs, size), wanted, true, "×");
        }
    }
    let worst = report
        .cells
        .iter()
        .filter(|((kind, ..), _)| matches!(kind, TerraneSqlite | TerranePostgres))
        .filter_map(|((kind, size, clients), _)| {
            let cell = report.middle(*kind, *size, *clients)?;
            let of = |step: usize| cell.p99[step].as_secs_f64() / cell.p50[step].as_secs_f64();
            let step = (0..STEPS).max_by(|a, b| of(*a).total_cmp(&of(*b)))?;
            Some((
                of(step),
                format!("{}, {clients} clients, {}", kind.title(), STEP_NAMES[step]),
            ))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let (seen, place) = worst.unzip();
    let what = format!("worst p99 ÷ p50 of a step ({})", place.unwrap_or_default());
    line(what, seen, 10.0, false, "×");
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let memory = report
        .middle(TerraneSqlite, 2, 8)
        .map(|cell| cell.memory as f64 / 1e6);
    line(
        "memory, 8 clients with 10 MB".to_owned(),
        memory,
        150.0,
        false,
        " MB",
    );
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let room = report
        .room
        .map(|(disk, raw)| disk as f64 / raw as f64 * 100.0);
    line(
        "room of 100 versions of 462 KB ÷ raw".to_owned(),
        room,
        3.0,
        false,
        " %",
    );
    text
}
