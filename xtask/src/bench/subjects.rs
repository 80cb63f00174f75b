//! The measured tools, and how each is run on the generated project.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::measure::{self, Sample};
use super::options::Options;
use super::project::BenchProject;
use crate::child;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Terrane,
    /// Waves of `init`, `plan -out`, `show -json`, `apply` of that plan, `output`.
    SameWork,
    /// Waves of `init`, `apply -auto-approve`, `output`.
    LessWork,
    Terragrunt,
}

impl Peer {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Terrane => "terrane",
            Self::SameWork => "loop A: init, plan, show, apply, output",
            Self::LessWork => "loop B: init, apply, output",
            Self::Terragrunt => "terragrunt run --all",
        }
    }

    /// For directory names.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Terrane => "terrane",
            Self::SameWork => "loop-a",
            Self::LessWork => "loop-b",
            Self::Terragrunt => "terragrunt",
        }
    }
}

/// One tool on one copy of the project.
pub(crate) struct Subject<'a> {
    peer: Peer,
    options: &'a Options,
    dir: &'a Path,
    /// terrane's home.
    home: PathBuf,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(peer: Peer, options: &'a Options, dir: &'a Path) -> Self {
        Self {
            peer,
            options,
            dir,
            home: dir.join("data"),
        }
    }

    /// The same with another home.
    pub(crate) fn with_home(self, home: &Path) -> Self {
        let home = home.to_owned();
        Self { home, ..self }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Applies everything; a second call on the same copy finds nothing to change.
    pub(crate) fn apply(&self, turn: &str, project: &BenchProject) -> io::Result<Sample> {
        match self.peer {
            Peer::Terrane => {
                let usage = self.dir.join(format!("usage-{turn}"));
                measure::run_terrane(&mut self.terrane_apply(), &usage)
            }
            Peer::SameWork => self.run_loop(STEP_SAME, project),
            Peer::LessWork => self.run_loop(STEP_LESS, project),
            Peer::Terragrunt => measure::run(&mut self.terragrunt_apply()?),
        }
    }

    /// The digest in the last stack's output, which depends on the work of all stacks.
    pub(crate) fn answer(&self, project: &BenchProject) -> io::Result<String> {
        let last = project.last();
        let text = match self.peer {
            Peer::Terrane => {
                let output = self.terrane(&["output", last, "--json"]).output()?;
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            Peer::SameWork | Peer::LessWork => {
                std::fs::read_to_string(self.dir.join("outputs").join(format!("{last}.json")))?
            }
            Peer::Terragrunt => {
                let stack = self.dir.join("stacks").join(last);
                child::stdout(&stack, &self.options.engine, &["output", "-json"])?
            }
        };
        digest_in(&text).map(str::to_owned).ok_or_else(|| {
            io::Error::other(format!(
                "{}: no digest among the outputs of `{last}`",
                self.peer.title()
            ))
        })
    }

    pub(crate) fn peak_memory(&self) -> io::Result<u64> {
        measure::peak_memory(&mut self.terrane_apply(), &self.options.terrane)
    }

    pub(crate) fn validate_and_graph(&self) -> io::Result<Sample> {
        let validate = measure::run(&mut self.terrane(&["validate"]))?;
        let graph = measure::run(&mut self.terrane(&["graph"]))?;
        Ok(Sample::of_wall(validate.wall + graph.wall))
    }

    fn terrane_apply(&self) -> Command {
        let jobs = self.options.jobs.to_string();
        self.terrane(&["apply", "--auto-approve", "-j", &jobs])
    }

    fn terrane(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.options.terrane);
        command.args(args).arg("--data").arg(&self.home);
        command
    }

    fn terragrunt_apply(&self) -> io::Result<Command> {
        let Some(terragrunt) = &self.options.terragrunt else {
            return Err(io::Error::other("no `--terragrunt` was given"));
        };
        let mut command = self.command(terragrunt);
        command
            .current_dir(self.dir.join("stacks"))
            .env("TG_TF_PATH", &self.options.engine)
            .env("TG_LOG_LEVEL", "error")
            .env("TG_NON_INTERACTIVE", "true")
            .args(["run", "--all", "apply", "--parallelism"])
            .arg(self.options.jobs.to_string());
        Ok(command)
    }

    fn run_loop(&self, step: &str, project: &BenchProject) -> io::Result<Sample> {
        let script = self.dir.join("step.sh");
        std::fs::write(&script, step)?;
        let sample = measure::run(
            self.command("bash")
                .args(["-c", LOOP])
                .env("ENGINE", &self.options.engine)
                .env("JOBS", self.options.jobs.to_string())
                .env("XTASK", std::env::current_exe()?),
        )?;
        let outputs = std::fs::read_dir(self.dir.join("outputs"))?.count();
        if outputs == project.len() {
            return Ok(sample);
        }
        Err(io::Error::other(format!(
            "the loop left {outputs} outputs of {}",
            project.len()
        )))
    }

    /// The engine is first on the path, so that all tools use the same one.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = child::command(self.dir, program);
        let mut path = vec![
            self.options
                .engine
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
        ];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        if let Ok(path) = std::env::join_paths(path) {
            command.env("PATH", path);
        }
        command.env_remove("TF_CLI_CONFIG_FILE");
        command
    }
}

const LOOP: &str = "set -euo pipefail\n\
    for wave in waves/*; do xargs -P \"$JOBS\" -n 1 bash step.sh < \"$wave\"; done\n";

const STEP_SAME: &str = "set -euo pipefail\n\
    cd \"stacks/$1\"\n\
    \"$XTASK\" bench tfvars .\n\
    \"$ENGINE\" init -input=false -no-color > /dev/null\n\
    \"$ENGINE\" plan -input=false -no-color -out=plan.bin > /dev/null\n\
    \"$ENGINE\" show -json plan.bin > plan.json\n\
    \"$ENGINE\" apply -input=false -no-color plan.bin > /dev/null\n\
    \"$ENGINE\" output -json > \"../../outputs/$1.json\"\n";

const STEP_LESS: &str = "set -euo pipefail\n\
    cd \"stacks/$1\"\n\
    \"$XTASK\" bench tfvars .\n\
    \"$ENGINE\" init -input=false -no-color > /dev/null\n\
    \"$ENGINE\" apply -input=false -no-color -auto-approve > /dev/null\n\
    \"$ENGINE\" output -json > \"../../outputs/$1.json\"\n";

/// The first sequence of 64 hexadecimal digits.
fn digest_in(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_hexdigit())
        .find(|word| word.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_in_any_json() {
        let digest = "0f".repeat(32);
        let text = format!("{{\"value\":{{\"digest\":\"{digest}\",\"name\":\"s4-009\"}}}}");
        assert_eq!(digest_in(&text), Some(digest.as_str()));
        assert_eq!(digest_in("abc"), None);
    }
}
