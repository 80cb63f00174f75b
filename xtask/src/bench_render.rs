//! Compares `terrane render` with makejinja: `cargo xtask bench-render`. Both get the same templates and data and
//! a new output directory, in alternating rounds. The bench fails unless both write the same bytes.
//!
//! Each template iterates over all nodes, as a machine configuration or a list of hosts does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::child::command;

const TEMPLATES: usize = 200;
const NODES: usize = 50;
/// The required speed-up.
const BAR: f64 = 20.0;

const USAGE: &str = "usage: cargo xtask bench-render --terrane FILE --makejinja FILE [--rounds N]";

const PROJECT: &str = r##"project "bench" {
  id = "benchr"
}

layer "main" { order = 0 }
target "local" { writers = ["anyone"] }

stack "app" {
  path   = "app"
  target = "local"
  layer  = "main"
}

render "bench" {
  templates = "templates"
  data      = ["cluster.yaml", "nodes.yaml"]
  output    = "ours"
  delimiters {
    block    = ["#%", "%#"]
    variable = ["#{", "}#"]
    comment  = ["#|", "#|"]
  }
}
"##;

const MAKEJINJA: &str = r##"[makejinja]
inputs = ["templates"]
output = "theirs"
data = ["cluster.yaml", "nodes.yaml"]
jinja_suffix = ".j2"
undefined = "strict"
quiet = true
[makejinja.delimiter]
block_start = "#%"
block_end = "%#"
comment_start = "#|"
comment_end = "#|"
variable_start = "#{"
variable_end = "}#"
"##;

const TEMPLATE: &str = r"#| number NUMBER #|
#% macro line(node) %##{ node.name }# #{ node.address }##% endmacro %#
cluster: #{ cluster_name | upper }#
number: NUMBER
nodes:
#% for node in nodes if node.cores > 2 %#
  - name: #{ node.name }#
    address: #{ node.address }#
    role: #{ 'controller' if node.controller else 'worker' }#
    labels: #{ node.labels | join(',') }#
    #% if loop.first %#
    first: true
    #% endif %#
    line: #{ line(node) }#
#% endfor %#
controllers: #{ nodes | selectattr('controller') | map(attribute='name') | join(', ') }#
memory: #{ nodes | sum(attribute='memory') }#
";

struct Options {
    terrane: PathBuf,
    makejinja: PathBuf,
    rounds: usize,
}

pub(crate) fn main(args: &[&str]) -> io::Result<ExitCode> {
    let Some(options) = parse(args) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(64));
    };
    let scratch = super::bench::Scratch::new(false)?;
    let dir = &scratch.dir;
    write_project(dir)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        eprintln!("bench: rendering, round {round}");
        // Not removed: ext4 creates files slowly after many were removed.
        for output in ["ours", "theirs"] {
            if round > 1 {
                fs::rename(dir.join(output), dir.join(format!("{output}-{round}")))?;
            }
        }
        ours.push(time(dir, &options.terrane, &["render"])?);
        theirs.push(time(dir, &options.makejinja, &[])?);
        if files(&dir.join("ours"))? != files(&dir.join("theirs"))? {
            return Err(io::Error::other("the two did not write the same bytes"));
        }
    }
    let again = time(dir, &options.terrane, &["render"])?;
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    let verdict = if ratio >= BAR { "ok" } else { "MISSED" };
    println!(
        "\n{TEMPLATES} templates, {NODES} nodes, medians of {} rounds, equal bytes\n",
        options.rounds
    );
    println!("  terrane render     {:>8.1} ms", ours.as_secs_f64() * 1e3);
    println!("  …, nothing changed {:>8.1} ms", again.as_secs_f64() * 1e3);
    println!(
        "  makejinja          {:>8.1} ms",
        theirs.as_secs_f64() * 1e3
    );
    println!("\n  {ratio:.1} times as fast, at least {BAR} wanted: {verdict}");
    Ok(if ratio >= BAR {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn parse(args: &[&str]) -> Option<Options> {
    let (mut terrane, mut makejinja, mut rounds) = (None, None, 5);
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next()?;
        match *name {
            "--terrane" => terrane = Some(PathBuf::from(value)),
            "--makejinja" => makejinja = Some(PathBuf::from(value)),
            "--rounds" => rounds = value.parse().ok().filter(|rounds| *rounds > 0)?,
            _ => return None,
        }
    }
    Some(Options {
        terrane: terrane?,
        makejinja: makejinja?,
        rounds,
    })
}

fn write_project(dir: &Path) -> io::Result<()> {
    for made in ["app", "templates"] {
        fs::create_dir_all(dir.join(made))?;
    }
    fs::write(dir.join("app/main.tf"), "")?;
    fs::write(dir.join("terrane.hcl"), PROJECT)?;
    fs::write(dir.join("makejinja.toml"), MAKEJINJA)?;
    fs::write(dir.join("cluster.yaml"), "cluster_name: bench\n")?;
    let mut nodes = String::from("nodes:\n");
    for node in 0..NODES {
        _ = write!(
            nodes,
            "  - name: node-{node}\n    address: 10.0.0.{node}\n    controller: {}\n    cores: {}\n    memory: {}\n    labels: [zone-{}, bench]\n",
            node % 10 == 0,
            2 + node % 7,
            1024 * (1 + node % 5),
            node % 3,
        );
    }
    fs::write(dir.join("nodes.yaml"), nodes)?;
    for number in 0..TEMPLATES {
        let below = dir.join(format!("templates/part-{}", number % 10));
        fs::create_dir_all(&below)?;
        let text = TEMPLATE.replace("NUMBER", &number.to_string());
        fs::write(below.join(format!("file-{number}.yaml.j2")), text)?;
    }
    Ok(())
}

fn time(dir: &Path, program: &Path, args: &[&str]) -> io::Result<Duration> {
    let start = Instant::now();
    let said = command(dir, program).args(args).output()?;
    let took = start.elapsed();
    if said.status.success() {
        return Ok(took);
    }
    let words = String::from_utf8_lossy(&said.stderr);
    let program = program.display();
    Err(io::Error::other(format!("`{program}` failed: {words}")))
}

/// The generated files, without terrane's own list.
fn files(dir: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for below in fs::read_dir(dir)? {
        let below = below?.path();
        if !below.is_dir() {
            continue;
        }
        for file in fs::read_dir(&below)? {
            let path = file?.path();
            let name = path.strip_prefix(dir).unwrap_or(&path).to_owned();
            all.insert(name, fs::read(&path)?);
        }
    }
    Ok(all)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
