//! Compares state services: `cargo xtask bench-state`. Clients do what engines do: lock, get, post, unlock, each
//! on its own state, on persistent connections.
//!
//! Not here: one client (`client`), how a service is started (`service`), the posted state (`payload`), the output
//! (`table`).

mod client;
mod options;
mod payload;
mod service;
mod table;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use client::{Client, STEPS};
use options::StateBenchOptions;
use payload::Payload;
use service::{BenchService, ServiceKind};
use table::{Cell, StateBenchReport};

/// The title of a state's size, and its number of resources.
const SIZES: [(&str, usize); 3] = [("4 KB", 9), ("462 KB", 1_000), ("10 MB", 22_000)];
const CLIENTS: [usize; 3] = [1, 8, 32];

/// The minimum number of cycles in a round: with fewer, the slowest percentile would be a single cycle.
const LEAST: usize = 100;

/// The number of versions whose size on disk is measured.
const VERSIONS: usize = 100;

pub(crate) fn main(root: &Path, args: &[&str]) -> io::Result<ExitCode> {
    let options = StateBenchOptions::parse(root, args).map_err(io::Error::other)?;
    let scratch = super::bench::Scratch::new(false)?;
    let mut report = StateBenchReport::default();
    for kind in ServiceKind::ALL {
        match options.missing(kind) {
            Some(why) => report.missing.push((kind, why)),
            None => measure(kind, &options, &scratch.dir, &mut report)?,
        }
    }
    if let Some(service) = BenchService::start(
        ServiceKind::TerraneSqlite,
        &options,
        &scratch.dir.join("room"),
    )? {
        report.room = Some(room(&service)?);
    }
    println!("{}", table::render(&report));
    Ok(ExitCode::SUCCESS)
}

fn measure(
    kind: ServiceKind,
    options: &StateBenchOptions,
    scratch: &Path,
    report: &mut StateBenchReport,
) -> io::Result<()> {
    for (size, resources) in SIZES {
        for clients in CLIENTS {
            // For large states only the latency matters; more clients add no information.
            let is_too_much = resources > 10_000 && clients > 8;
            if is_too_much || !options.wants(resources, clients) {
                continue;
            }
            for round in 1..=options.rounds {
                eprintln!(
                    "bench: {}, {size}, {clients} clients, round {round}",
                    kind.title()
                );
                let dir = scratch.join(format!("{}-{resources}-{clients}-{round}", kind.word()));
                let Some(service) = BenchService::start(kind, options, &dir)? else {
                    return Ok(());
                };
                match drive(&service, resources, clients, options.seconds) {
                    Ok(cell) => report.add(kind, size, clients, cell),
                    // A failing service is also a result.
                    Err(err) => report.broken.push(format!(
                        "{}, {size}, {clients} clients: {err}{}",
                        kind.title(),
                        service.last_words()
                    )),
                }
                drop(service);
                std::fs::remove_dir_all(&dir)?;
            }
        }
    }
    Ok(())
}

/// Runs all clients at once for this time, or longer if they are slow; the first cycle of each is not counted.
fn drive(
    service: &BenchService,
    resources: usize,
    clients: usize,
    seconds: u64,
) -> io::Result<Cell> {
    let start = Barrier::new(clients + 1);
    let length = Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..clients)
            .map(|number| {
                let start = &start;
                scope.spawn(move || -> io::Result<Vec<[Duration; STEPS]>> {
                    let mut payload = Payload::new(resources, number);
                    let ready = Client::connect(service, number).and_then(|mut client| {
                        client.cycle(&mut payload)?;
                        Ok(client)
                    });
                    // The other clients wait here, even if this one failed.
                    start.wait();
                    let mut client = ready?;
                    let begun = Instant::now();
                    let mut cycles = Vec::new();
                    while begun.elapsed() < length || cycles.len() * clients < LEAST {
                        cycles.push(client.cycle(&mut payload)?);
                    }
                    Ok(cycles)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        let mut cycles = Vec::new();
        for worker in workers {
            let done = worker
                .join()
                .map_err(|_| io::Error::other("a client failed"))?;
            cycles.extend(done?);
        }
        let memory = service.memory().unwrap_or(0);
        Ok(Cell::new(&cycles, begun.elapsed(), memory))
    })
}

/// The size on disk of 100 versions with one changed attribute each, and their raw size.
fn room(service: &BenchService) -> io::Result<(u64, u64)> {
    let mut client = Client::connect(service, 0)?;
    let mut payload = Payload::new(1_000, 0);
    for _ in 0..VERSIONS {
        client.cycle(&mut payload)?;
    }
    let raw = (payload.bytes().len() * VERSIONS) as u64;
    Ok((service.blob_bytes()?, raw))
}
