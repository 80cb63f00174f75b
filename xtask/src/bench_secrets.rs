//! Compares opening secret files with the official tool: `cargo xtask bench-secrets TERRANE SOPS AGE_KEYGEN`.
//!
//! Both open the same files and must give the same text. The official tool opens one file per call, so it is
//! called for each; terrane is measured both ways.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::child;

const FILES: usize = 200;
const ROUNDS: usize = 3;
const VALUES: usize = 12;

pub(crate) fn main(terrane: &Path, sops: &Path, keygen: &Path) -> io::Result<ExitCode> {
    let scratch = super::bench::Scratch::new(false)?;
    let bench = Bench {
        dir: scratch.dir.clone(),
        terrane: fs::canonicalize(terrane)?,
        sops: fs::canonicalize(sops)?,
    };
    let names = bench.write(&fs::canonicalize(keygen)?)?;
    let mut times: [Vec<Duration>; 3] = Default::default();
    // Round by round, so that a busy minute affects both equally.
    for round in 1..=ROUNDS {
        eprintln!("bench: {FILES} files of secrets, round {round} of {ROUNDS}");
        times[0].push(timed(|| bench.sops_each(&names))?);
        times[1].push(timed(|| bench.terrane_each(&names))?);
        times[2].push(timed(|| bench.terrane_once(&names))?);
    }
    let [sops, each, once] = times.map(median);
    let times = |time: Duration| sops.as_secs_f64() / time.as_secs_f64();
    println!("| {FILES} files of secrets, {VALUES} values each | seconds | times as fast |");
    println!("|---|---:|---:|");
    println!(
        "| `sops --decrypt FILE`, {FILES} calls | {:.2} | 1.0 |",
        sops.as_secs_f64()
    );
    println!(
        "| `terrane secret decrypt FILE`, {FILES} calls | {:.2} | {:.1} |",
        each.as_secs_f64(),
        times(each)
    );
    println!(
        "| `terrane secret decrypt --json FILE…`, one call | {:.2} | {:.1} |",
        once.as_secs_f64(),
        times(once)
    );
    if times(once) < 10.0 {
        eprintln!("error: one call is less than 10 times as fast");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

struct Bench {
    dir: PathBuf,
    terrane: PathBuf,
    sops: PathBuf,
}

impl Bench {
    /// Writes the files, and checks that both tools give the same text.
    fn write(&self, keygen: &Path) -> io::Result<Vec<String>> {
        let key = child::stdout(&self.dir, keygen, &[])?;
        let mut lines = key.lines();
        let recipient = lines.find_map(|line| line.strip_prefix("# public key: "));
        let recipient =
            recipient.ok_or_else(|| io::Error::other("`age-keygen` says no public key"))?;
        fs::write(self.dir.join("keys.txt"), &key)?;
        let rules = format!("creation_rules:\n  - age: {recipient}\n");
        fs::write(self.dir.join(".sops.yaml"), rules)?;
        let names: Vec<String> = (0..FILES).map(|number| format!("s{number}.yaml")).collect();
        for (number, name) in names.iter().enumerate() {
            let lines =
                (0..VALUES).map(|value| format!("key{value}: value {value} of file {number}\n"));
            fs::write(self.dir.join(name), lines.collect::<String>())?;
            self.run(&self.terrane, &["secret", "encrypt", "--in-place", name])?;
        }
        let ours = self.run(&self.terrane, &["secret", "decrypt", &names[0]])?;
        let theirs = self.run(&self.sops, &["--decrypt", &names[0]])?;
        if ours != theirs {
            return Err(io::Error::other("the two tools give different texts"));
        }
        Ok(names)
    }

    fn sops_each(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            self.run(&self.sops, &["--decrypt", name])?;
        }
        Ok(())
    }

    fn terrane_each(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            self.run(&self.terrane, &["secret", "decrypt", name])?;
        }
        Ok(())
    }

    fn terrane_once(&self, names: &[String]) -> io::Result<()> {
        let words = ["secret", "decrypt", "--json"].into_iter();
        let words: Vec<&str> = words.chain(names.iter().map(String::as_str)).collect();
        let said = self.run(&self.terrane, &words)?;
        let lines = said.split_inclusive(|byte| *byte == b'\n').count();
        if lines == names.len() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{lines} of {FILES} files were opened"
        )))
    }

    fn run(&self, program: &Path, args: &[&str]) -> io::Result<Vec<u8>> {
        let mut command: Command = child::command(&self.dir, program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.dir)
            .env("SOPS_AGE_KEY_FILE", self.dir.join("keys.txt"))
            .env("SOPS_DISABLE_VERSION_CHECK", "1")
            .stderr(Stdio::piped());
        let output = command.output()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let program = program.display();
        Err(io::Error::other(format!(
            "`{program} {}`: {said}",
            args.join(" ")
        )))
    }
}

fn timed(action: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begun = Instant::now();
    action()?;
    Ok(begun.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
