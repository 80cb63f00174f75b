//! `gate "command"`: a program of the project exits with 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::settings::Reader;
use super::{CheckResult, Evidence, GateMismatch, quoted};
use crate::base::secret::Secret;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandGate {
    pub program: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEvidence {
    pub program: String,
    /// `exit code 1`, `killed by signal 9`.
    pub exit: String,
    pub passed: bool,
    pub took_ms: u64,
    /// The end of its output.
    pub stdout: String,
    pub stderr: String,
}

impl CommandGate {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let mut words = reader.texts("run").into_iter();
        let program = words.next().unwrap_or_default();
        if program.is_empty() {
            reader.wrong("run", "requires a program and its arguments");
        }
        let env = reader.text_map("env");
        let odd = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = env.keys().find(odd) {
            reader.wrong("env", &format!("`{name}` is no name of a variable"));
        }
        Self {
            program,
            args: words.collect(),
            env: env
                .into_iter()
                .map(|(name, value)| (name, Secret::new(value)))
                .collect(),
        }
    }

    pub fn judge(&self, seen: CommandEvidence) -> CheckResult {
        let mut misses = Vec::new();
        if !seen.passed {
            let last = |text: &str| text.lines().last().map(str::trim).map(str::to_owned);
            let (out, err) = (last(&seen.stdout), last(&seen.stderr));
            let words = match err.as_ref().or(out.as_ref()) {
                Some(line) => format!("{}: {line}", seen.exit),
                None => seen.exit.clone(),
            };
            let mut miss = GateMismatch::new(&seen.program, "exit code 0", words);
            if let (Some(out), Some(_)) = (out, err) {
                miss = miss.also(format!("its output ends with: {out}"));
            }
            misses.push(miss);
        }
        CheckResult::judged(Evidence::Command(seen), misses)
    }

    pub(super) fn look_further(&self) -> Vec<String> {
        let words = std::iter::once(&self.program).chain(&self.args);
        let words: Vec<String> = words.map(|word| quoted(word)).collect();
        vec![words.join(" ")]
    }
}
