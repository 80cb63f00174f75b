//! The options of `cargo xtask bench`.

use std::io;
use std::path::{Path, PathBuf};

use crate::child;

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) stacks: usize,
    pub(crate) runs: usize,
    pub(crate) jobs: usize,
    /// 0: not measured.
    pub(crate) memory_stacks: usize,
    /// 0: not measured.
    pub(crate) reading_stacks: usize,
    /// Stacks of the project on which the cost of runs is measured; 0: not measured.
    pub(crate) run_stacks: usize,
    /// Runs in the home before the last measurement; 0: not measured.
    pub(crate) stored_runs: usize,
    pub(crate) terrane: PathBuf,
    /// A file called `tofu` or `terraform`.
    pub(crate) engine: PathBuf,
    pub(crate) terragrunt: Option<PathBuf>,
    pub(crate) keep: bool,
}

impl Options {
    pub(crate) fn parse(root: &Path, args: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            stacks: 50,
            runs: 3,
            jobs: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            memory_stacks: 200,
            reading_stacks: 1000,
            run_stacks: 200,
            stored_runs: 10_000,
            terrane: root.join("target/release/terrane"),
            engine: PathBuf::new(),
            terragrunt: None,
            keep: false,
        };
        let mut args = args.iter();
        while let Some(option) = args.next() {
            if *option == "--keep" {
                options.keep = true;
                continue;
            }
            let value = *args
                .next()
                .ok_or_else(|| format!("`{option}` requires a value"))?;
            let number = || {
                value
                    .parse::<usize>()
                    .map_err(|_| format!("`{option}` must be a number, not `{value}`"))
            };
            match *option {
                "--stacks" => options.stacks = number()?,
                "--runs" => options.runs = number()?,
                "--jobs" => options.jobs = number()?,
                "--memory-stacks" => options.memory_stacks = number()?,
                "--reading-stacks" => options.reading_stacks = number()?,
                "--run-stacks" => options.run_stacks = number()?,
                "--stored-runs" => options.stored_runs = number()?,
                "--terrane" => options.terrane = value.into(),
                "--engine" => options.engine = value.into(),
                "--terragrunt" => options.terragrunt = Some(value.into()),
                _ => {
                    return Err(format!(
                        "`{option}` is not an option: see `bench/README.md`"
                    ));
                }
            }
        }
        if options.stacks == 0 || options.runs == 0 || options.jobs == 0 {
            return Err("`--stacks`, `--runs` and `--jobs` want at least 1".to_owned());
        }
        if !options.engine.is_absolute() || !options.engine.is_file() {
            return Err(
                "`--engine` requires the absolute path of `tofu` or `terraform`".to_owned(),
            );
        }
        if !options.terrane.is_file() {
            return Err(format!(
                "{} is not there: `cargo build --release -p terrane` makes it",
                options.terrane.display()
            ));
        }
        Ok(options)
    }

    pub(crate) fn flavor(&self) -> &'static str {
        if self.engine.ends_with("terraform") {
            "terraform"
        } else {
            "tofu"
        }
    }

    pub(crate) fn engine_version(&self) -> io::Result<String> {
        let text = child::stdout(&std::env::temp_dir(), &self.engine, &["version"])?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(args: &[&str], expected: &str) {
        assert_eq!(Options::parse(Path::new("."), args).unwrap_err(), expected);
    }

    #[test]
    fn mistakes_are_named() {
        refused(&["--stacks"], "`--stacks` requires a value");
        refused(
            &["--stacks", "many"],
            "`--stacks` must be a number, not `many`",
        );
        refused(
            &["--fast", "1"],
            "`--fast` is not an option: see `bench/README.md`",
        );
        refused(
            &["--runs", "0"],
            "`--stacks`, `--runs` and `--jobs` want at least 1",
        );
        refused(
            &[],
            "`--engine` requires the absolute path of `tofu` or `terraform`",
        );
    }
}
