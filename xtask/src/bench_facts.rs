//! Measures the publication of facts to a local bare repository: `cargo xtask bench-facts`. It measures the whole
//! command, from start to end, as a user sees it.
//!
//! Not here: runs (`bench`), the state service (`bench_state`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::bench::Scratch;
use crate::child;

/// The time limit of a publication.
const BAR: Duration = Duration::from_millis(150);

struct Options {
    terrane: PathBuf,
    engine: PathBuf,
    rounds: usize,
}

pub(crate) fn main(root: &Path, args: &[&str]) -> io::Result<ExitCode> {
    let options = parse(root, args).map_err(io::Error::other)?;
    let scratch = Scratch::new(false)?;
    let scene = Scene::new(&options, &scratch.dir)?;
    scene.declare(0)?;
    scene.terrane(&["apply", "--auto-approve"])?;
    let (mut new, mut same) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        eprintln!("bench: facts, round {round}");
        scene.declare(round)?;
        new.push(scene.terrane(&["facts", "publish"])?);
        same.push(scene.terrane(&["facts", "publish"])?);
    }
    println!(
        "Facts to a local bare repository, {} rounds",
        options.rounds
    );
    println!();
    println!("| `terrane facts publish` | median | from | to |");
    println!("|---|---:|---:|---:|");
    let is_fine = row("one file changes: a commit, pushed", &mut new);
    row("nothing changes: no commit", &mut same);
    println!();
    println!(
        "A publication is to take less than {} ms: {}",
        BAR.as_millis(),
        if is_fine { "it does" } else { "it does not" }
    );
    Ok(if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints one row; returns whether the median is below the limit.
fn row(title: &str, times: &mut [Duration]) -> bool {
    times.sort_unstable();
    let (Some(least), Some(most)) = (times.first(), times.last()) else {
        return false;
    };
    let median = times[times.len() / 2];
    let [median_ms, least, most] = [median, *least, *most].map(|time| time.as_millis());
    println!("| {title} | {median_ms} ms | {least} ms | {most} ms |");
    median < BAR
}

struct Scene<'a> {
    options: &'a Options,
    dir: &'a Path,
}

impl<'a> Scene<'a> {
    fn new(options: &'a Options, dir: &'a Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("project/app"))?;
        child::stdout(dir, "git", &["init", "--quiet", "--bare", "facts.git"])?;
        let output = "output \"address\" {\n  value = \"20.1.2.3\"\n}\n";
        fs::write(dir.join("project/app/main.tf"), output)?;
        Ok(Self { options, dir })
    }

    /// Writes the project of one round, which publishes different facts in each.
    fn declare(&self, round: usize) -> io::Result<()> {
        let text = format!(
            "project \"bench\" {{\n  id = \"k3v9qd\"\n  engine \"tofu\" {{}}\n}}\n\
             layer \"main\" {{ order = 0 }}\ntarget \"local\" {{ writers = [\"anyone\"] }}\n\
             facts \"runtime\" {{ repository = \"../facts.git\" }}\n\
             stack \"app\" {{\n  path   = \"app\"\n  target = \"local\"\n  layer  = \"main\"\n  \
             publish \"runtime\" {{\n    path   = \"prod/globals.yaml\"\n    \
             values = {{ address = output.address, round = {round} }}\n  }}\n}}\n"
        );
        fs::write(self.dir.join("project/terrane.hcl"), text)
    }

    /// Runs terrane to its end; returns an error if it fails.
    fn terrane(&self, args: &[&str]) -> io::Result<Duration> {
        let engines = self.options.engine.parent().unwrap_or(Path::new("/"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = child::command(&self.dir.join("project"), &self.options.terrane);
        command
            .args(args)
            .env("PATH", format!("{}:{path}", engines.display()))
            .env("TERRANE_HOME", self.dir.join("home"))
            .env("XDG_CONFIG_HOME", self.dir.join("config"))
            .env_remove("CI");
        let begin = Instant::now();
        let output = command.output()?;
        let took = begin.elapsed();
        if output.status.success() {
            return Ok(took);
        }
        Err(io::Error::other(format!(
            "`terrane {}` failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}

fn parse(root: &Path, args: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        terrane: root.join("target/release/terrane"),
        engine: PathBuf::from("tofu"),
        rounds: 15,
    };
    let mut args = args.iter();
    while let Some(option) = args.next() {
        let value = *args
            .next()
            .ok_or_else(|| format!("`{option}` requires a value"))?;
        match *option {
            "--terrane" => options.terrane = value.into(),
            "--engine" => options.engine = value.into(),
            "--rounds" => {
                let wrong = |_| format!("`{option}` must be a number, not `{value}`");
                options.rounds = value.parse().map_err(wrong)?;
            }
            _ => return Err(format!("there is no option `{option}`")),
        }
    }
    Ok(options)
}
