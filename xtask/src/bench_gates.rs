//! `cargo xtask bench-gates`: the cost of many gates, against slow pages on loopback.
//!
//! The limits: a hundred gates take at most 200 ms longer than the slowest of them, and less than 50 MB more than
//! one gate.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::child;

/// The response time of a page.
const SLOWEST: Duration = Duration::from_millis(500);
const MOST_MORE: Duration = Duration::from_millis(200);
const MOST_MEMORY: u64 = 50 << 10;

pub(crate) fn main(root: &Path, args: &[&str]) -> io::Result<ExitCode> {
    let mut terrane = root.join("target/release/terrane");
    let mut runs = 5;
    let mut gates = 100;
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let value = args.next().copied().unwrap_or_default();
        let number = || value.parse().map_err(io::Error::other);
        match *option {
            "--terrane" => terrane = PathBuf::from(value),
            "--runs" => runs = number()?,
            "--gates" => gates = number()?,
            _ => return Err(io::Error::other(format!("there is no option `{option}`"))),
        }
    }
    let page = serve()?;
    let dir = std::env::temp_dir().join(format!("terrane-bench-gates-{}", std::process::id()));
    let one = best(&terrane, &project(&dir, "one", 1, page)?, runs)?;
    let many = best(&terrane, &project(&dir, "many", gates, page)?, runs)?;
    std::fs::remove_dir_all(&dir)?;
    println!("| gates | wall | peak memory |\n|---|---|---|");
    for (number, found) in [(1, &one), (gates, &many)] {
        let memory = found.memory.checked_div(1024).unwrap_or_default();
        println!("| {number} | {} ms | {memory} MB |", found.wall.as_millis());
    }
    let more = many.wall.saturating_sub(one.wall);
    let memory = many.memory.saturating_sub(one.memory);
    println!(
        "\n{gates} gates take {} ms more than one, and {} MB",
        more.as_millis(),
        memory >> 10
    );
    if more > MOST_MORE || memory > MOST_MEMORY {
        eprintln!("error: the bar is 200 ms and 50 MB");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

struct Measurement {
    wall: Duration,
    /// In KB.
    memory: u64,
}

/// The fastest of some runs, to exclude other load on the machine.
fn best(terrane: &Path, project: &Path, runs: usize) -> io::Result<Measurement> {
    let mut best: Option<Measurement> = None;
    for _ in 0..runs.max(1) {
        let found = measure(terrane, project)?;
        if best.as_ref().is_none_or(|best| found.wall < best.wall) {
            best = Some(found);
        }
    }
    best.ok_or_else(|| io::Error::other("nothing was measured"))
}

fn measure(terrane: &Path, project: &Path) -> io::Result<Measurement> {
    let home = project.with_extension("home");
    let mut command: Command = child::command(project, terrane);
    command
        .args(["verify", "--once"])
        .env("TERRANE_HOME", home)
        .env_remove("CI")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let begun = Instant::now();
    let mut running = command.spawn()?;
    let status = format!("/proc/{}/status", running.id());
    let mut memory = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        memory = memory.max(peak(&text));
        if let Some(ended) = running.try_wait()? {
            break ended;
        }
        testkit::pause(Duration::from_millis(2));
    };
    let wall = begun.elapsed();
    if !ended.success() {
        let mut said = String::new();
        if let Some(mut stderr) = running.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        return Err(io::Error::other(format!("`terrane verify` failed: {said}")));
    }
    Ok(Measurement { wall, memory })
}

/// The peak memory of a process, in KB.
fn peak(status: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A project with this many gates on one stack.
fn project(dir: &Path, name: &str, gates: usize, page: SocketAddr) -> io::Result<PathBuf> {
    let root = dir.join(name);
    std::fs::create_dir_all(root.join("app"))?;
    std::fs::write(root.join("app/main.tf"), "")?;
    let mut text = "project \"bench\" {\n  id = \"bench\"\n  engine \"tofu\" {}\n}\n\
        layer \"all\" { order = 0 }\ntarget \"local\" { writers = [\"anyone\"] }\n\
        stack \"app\" {\n  path = \"app\"\n  target = \"local\"\n  layer = \"all\"\n"
        .to_owned();
    for number in 0..gates {
        let gate = format!(
            "  gate \"http\" \"page-{number}\" {{\n    url = \"http://{page}/\"\n    body = \"fine\"\n  }}\n"
        );
        text.write_str(&gate).map_err(io::Error::other)?;
    }
    text.push_str("}\n");
    std::fs::write(root.join("terrane.hcl"), text)?;
    Ok(root)
}

/// Serves slow pages, each on its own thread.
fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut asked = [0; 2048];
                let _ = stream.read(&mut asked);
                testkit::pause(SLOWEST);
                let page = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine";
                stream.write_all(page)
            });
        }
    });
    Ok(address)
}
