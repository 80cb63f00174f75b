//! Evaluates Rego in this process: v1, and v0 for files that are not v1. No builtin has side effects: there is no
//! `http.send`, no DNS and no environment.
//!
//! A policy can use excessive time or memory. Time is limited here, between two steps of the interpreter. Memory,
//! and a builtin that never ends, can only be limited from outside: see [`limit_memory`] and `control::policy`,
//! which evaluates in a separate process.
//!
//! Not here: what the rules mean (`model::policy`).

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use model::policy::{
    AddressFinder, Dialect, PolicyInput, PolicySource, RuleKind, RuleResult, RuleResultError,
};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Time limit for parsing the files of one policy.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// A parsed policy.
pub struct Rego {
    engine: Engine,
    packages: Vec<Package>,
    /// The files that use the syntax of Rego v0.
    pub old: Vec<String>,
}

struct Package {
    /// `data.terrane`
    path: String,
    dialect: Dialect,
    rules: Vec<RuleKind>,
}

/// An error in the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegoError {
    pub message: String,
    pub place: Option<RegoLocation>,
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegoLocation {
    pub file: String,
    /// Line and column, both from 1.
    pub line: usize,
    pub column: usize,
}

impl std::error::Error for RegoError {}

impl std::fmt::Display for RegoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some(RegoLocation { file, line, column }) => {
                write!(f, "{} at {file}:{line}:{column}", self.message)
            }
            None => f.write_str(&self.message),
        }
    }
}

/// Why an evaluation failed.
#[derive(Debug, thiserror::Error)]
pub enum EvaluatePolicyError {
    #[error("it did not finish within {} s", limit.as_secs_f32())]
    TimedOut { limit: Duration },
    #[error("{0}")]
    Evaluate(RegoError),
    #[error(transparent)]
    Answer(#[from] RuleResultError),
}

impl Rego {
    /// Parses the files of one policy. Nothing is evaluated: an unbound variable or an unknown builtin is found in
    /// [`Self::ask`].
    pub fn compile(sources: &[PolicySource]) -> Result<Self, RegoError> {
        let sources = sources.to_vec();
        Self::read_within(READ_WITHIN, move || Self::read(&sources))
    }

    /// The parser cannot be cancelled: after the time limit we stop waiting for its thread.
    fn read_within(
        limit: Duration,
        read: impl FnOnce() -> Result<Self, RegoError> + Send + 'static,
    ) -> Result<Self, RegoError> {
        let (done, heard) = mpsc::channel();
        thread::spawn(move || drop(done.send(read())));
        heard.recv_timeout(limit).unwrap_or_else(|_| {
            Err(RegoError {
                message: format!("it is not read within {} s", limit.as_secs()),
                place: None,
                hint: Some(
                    "split it: literals that stand in one another are slow to read".to_owned(),
                ),
            })
        })
    }

    fn read(sources: &[PolicySource]) -> Result<Self, RegoError> {
        let mut engine = Engine::new();
        engine.set_gather_prints(true);
        add_missing_builtins(&mut engine);
        let mut old = Vec::new();
        for source in sources {
            if add(&mut engine, source)? {
                old.push(source.path.clone());
            }
        }
        let packages = packages(&engine, sources)?;
        Ok(Self {
            engine,
            packages,
            old,
        })
    }

    /// Evaluates all rules within `limit` in total. Also returns how many further answers were dropped.
    pub fn ask(
        &mut self,
        document: &PolicyInput,
        limit: Duration,
    ) -> Result<(Vec<RuleResult>, usize), EvaluatePolicyError> {
        let mentions = AddressFinder::of(&document.plan);
        let approvals = document.approvals.iter().filter(|it| it.approves()).count();
        let deadline = Instant::now() + limit;
        let (mut answers, mut left_off) = (Vec::new(), 0);
        for package in &self.packages {
            let input = document.for_dialect(package.dialect);
            self.engine.set_input(Value::from(input));
            for rule in &package.rules {
                let left = deadline.saturating_duration_since(Instant::now());
                self.engine
                    .set_execution_timer_config(ExecutionTimerConfig {
                        limit: left,
                        check_interval: NonZeroU32::MIN.saturating_add(63),
                    });
                let path = format!("{}.{}", package.path, rule.as_str());
                let value = self.engine.eval_rule(path);
                let value = value.map_err(|err| said(&err.to_string(), limit))?;
                let value = match value {
                    Value::Undefined => None,
                    value => Some(json(&value)?),
                };
                let (more, beyond) = rule.answers(value.as_ref(), &mentions, approvals)?;
                answers.extend(more);
                left_off += beyond;
            }
        }
        Ok((answers, left_off))
    }
}

impl std::fmt::Debug for Rego {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rego")
            .field("old", &self.old)
            .finish_non_exhaustive()
    }
}

/// Limits the memory of this process to `bytes`; beyond that, it aborts. Only for a process that does nothing
/// else.
pub fn limit_memory(bytes: u64) {
    let most = getrlimit(Resource::As).maximum;
    let limit = most.map_or(bytes, |most| most.min(bytes));
    // Where this limit is not supported, only the time limit applies.
    _ = setrlimit(
        Resource::As,
        Rlimit {
            current: Some(limit),
            maximum: most,
        },
    );
}

/// Returns whether the file is in the syntax of v0. If it is in neither, the error comes from the version whose
/// parser got further.
fn add(engine: &mut Engine, source: &PolicySource) -> Result<bool, RegoError> {
    if let Some((line, column)) = too_deep(&source.text) {
        let file = source.path.clone();
        return Err(RegoError {
            message: format!("brackets stand more than {DEEPEST} deep in each other"),
            place: Some(RegoLocation { file, line, column }),
            hint: Some("give a part of it a name of its own".to_owned()),
        });
    }
    let mut with = |is_old: bool| {
        engine.set_rego_v0(is_old);
        let added = engine.add_policy(source.path.clone(), source.text.clone());
        added.map(drop).map_err(|err| explain(&err.to_string()))
    };
    let Err(new) = with(false) else {
        return Ok(false);
    };
    // The v0 parser writes to our standard error when it sees keywords of v1.
    if has_new_words(&source.text) {
        return Err(new);
    }
    let Err(old) = with(true) else {
        return Ok(true);
    };
    let reached = |err: &RegoError| err.place.as_ref().map(|it| (it.line, it.column));
    Err(if reached(&old) > reached(&new) {
        old
    } else {
        new
    })
}

/// The time to parse a policy doubles with each level of nested brackets.
const DEEPEST: usize = 16;

/// Line and column, from 1, of the first bracket that is nested too deeply; strings and comments are skipped.
fn too_deep(text: &str) -> Option<(usize, usize)> {
    let (mut depth, mut line, mut column) = (0_usize, 1, 0);
    let mut letters = text.chars().peekable();
    // Inside a string, its closing quote; inside a comment, the end of the line.
    let mut until = None;
    while let Some(letter) = letters.next() {
        column += 1;
        if letter == '\n' {
            (line, column) = (line + 1, 0);
        }
        match (until, letter) {
            (Some(end), _) if letter == end => until = None,
            (Some('"'), '\\') => {
                letters.next();
                column += 1;
            }
            (Some(_), _) => {}
            (None, '"' | '`') => until = Some(letter),
            (None, '#') => until = Some('\n'),
            (None, '(' | '[' | '{') => {
                depth += 1;
                if depth > DEEPEST {
                    return Some((line, column));
                }
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    None
}

/// Whether the text uses `if` or `contains` as keywords, outside strings and comments.
fn has_new_words(text: &str) -> bool {
    if text.contains("future.keywords") {
        return false;
    }
    text.lines().any(|line| {
        let code: String = line.split('"').step_by(2).collect();
        let code = code.split('#').next().unwrap_or_default();
        code.split_whitespace()
            .any(|word| matches!(word, "if" | "contains"))
    })
}

/// The packages that terrane evaluates, with their known rules.
fn packages(engine: &Engine, sources: &[PolicySource]) -> Result<Vec<Package>, RegoError> {
    let broken = |err: &dyn std::fmt::Display| explain(&err.to_string());
    let named = engine.get_policy_package_components();
    let mut packages: Vec<Package> = Vec::new();
    for part in named.map_err(|err| broken(&err))? {
        let Some(dialect) = Dialect::of(&part.components) else {
            continue;
        };
        let declares = |rule: &str| {
            let found = engine.has_declared_rule_rooted_at(&part.source_file, rule);
            found.map_err(|err| broken(&err))
        };
        if dialect == Dialect::Terrane {
            refuse_foreign(&part.source_file, sources, declares)?;
        }
        let path = part
            .components
            .iter()
            .fold("data".to_owned(), |path, part| join(&path, part));
        let mut rules = Vec::new();
        for rule in dialect.rules() {
            if declares(rule.as_str())? {
                rules.push(*rule);
            }
        }
        match packages.iter_mut().find(|package| package.path == path) {
            Some(package) => package.rules.extend(rules),
            None => packages.push(Package {
                path,
                dialect,
                rules,
            }),
        }
    }
    for package in &mut packages {
        package.rules.sort_unstable();
        package.rules.dedup();
    }
    packages.retain(|package| !package.rules.is_empty());
    if packages.is_empty() {
        return Err(RegoError {
            message: "it defines no rule that is read".to_owned(),
            place: sources.first().map(|source| at_word(source, "package")),
            hint: Some(
                "`package terrane` with `deny`, `warn` or `require_approval`; `package spacelift` and \
                 `package main` (conftest) are read as well"
                    .to_owned(),
            ),
        });
    }
    Ok(packages)
}

/// Refuses rule names that other tools read (`approve`, `reject`, `violation`): here they would have no effect.
fn refuse_foreign(
    file: &str,
    sources: &[PolicySource],
    declares: impl Fn(&str) -> Result<bool, RegoError>,
) -> Result<(), RegoError> {
    for foreign in ["approve", "reject", "violation"] {
        if !declares(foreign)? {
            continue;
        }
        let instead = if foreign == "approve" {
            RuleKind::RequireApproval
        } else {
            RuleKind::Deny
        };
        let source = sources.iter().find(|source| source.path == file);
        return Err(RegoError {
            message: format!("rule `{foreign}` is not read in `package terrane`"),
            place: source.map(|source| at_word(source, foreign)),
            hint: Some(format!("it is called `{}` here", instead.as_str())),
        });
    }
    Ok(())
}

fn join(path: &str, part: &str) -> String {
    let is_word = !part.is_empty()
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !part.as_bytes()[0].is_ascii_digit();
    if is_word {
        format!("{path}.{part}")
    } else {
        format!("{path}[{}]", serde_json::json!(part))
    }
}

/// The first line that begins with a word.
fn at_word(source: &PolicySource, word: &str) -> RegoLocation {
    let found = source.text.lines().position(|line| line.starts_with(word));
    RegoLocation {
        file: source.path.clone(),
        line: found.unwrap_or(0) + 1,
        column: 1,
    }
}

/// Parses regorus's formatted error, which has the position in its first line and the reason in its last.
fn explain(text: &str) -> RegoError {
    let place = text.lines().find_map(|line| {
        let mut parts = line.strip_prefix("--> ")?.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        let line = parts.next()?.parse().ok()?;
        Some(RegoLocation {
            file: parts.next()?.to_owned(),
            line,
            column,
        })
    });
    let reason = match text.rsplit_once("error: ") {
        Some((_, reason)) => reason,
        None => text,
    };
    let message = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = message.contains("http.send").then(|| {
        "a policy reaches nothing outside: what it needs belongs into its input".to_owned()
    });
    RegoError {
        message,
        place,
        hint,
    }
}

fn said(text: &str, limit: Duration) -> EvaluatePolicyError {
    if text.contains("time limit") {
        return EvaluatePolicyError::TimedOut { limit };
    }
    EvaluatePolicyError::Evaluate(explain(text))
}

fn json(value: &Value) -> Result<serde_json::Value, EvaluatePolicyError> {
    let failed =
        |err: &dyn std::fmt::Display| EvaluatePolicyError::Evaluate(explain(&err.to_string()));
    let text = value.to_json_str().map_err(|err| failed(&err))?;
    serde_json::from_str(&text).map_err(|err| failed(&err))
}

/// Builtins of OPA that plan policies use and regorus lacks. Invalid arguments give undefined.
fn add_missing_builtins(engine: &mut Engine) {
    let sha256 = |args: Vec<Value>| {
        let text = args[0].as_string()?;
        Ok(Value::from(crate::snapshot::sha256(text.as_bytes())))
    };
    let flatten = |args: Vec<Value>| {
        let mut flat = Vec::new();
        for item in args[0].as_array()? {
            match item.as_array() {
                Ok(inner) => flat.extend(inner.iter().cloned()),
                Err(_) => flat.push(item.clone()),
            }
        }
        Ok(Value::from(flat))
    };
    let intersects = |args: Vec<Value>| {
        let (one, other) = (cidr(args[0].as_string()?), cidr(args[1].as_string()?));
        Ok(match (one, other) {
            (Some(one), Some(other)) => Value::from(intersect(one, other)),
            _ => Value::Undefined,
        })
    };
    // A builtin that regorus already has is kept.
    drop(engine.add_extension("crypto.sha256".to_owned(), 1, Box::new(sha256)));
    drop(engine.add_extension("array.flatten".to_owned(), 1, Box::new(flatten)));
    drop(engine.add_extension("net.cidr_intersects".to_owned(), 2, Box::new(intersects)));
}

/// The bits of an address, and the length of its prefix.
fn cidr(text: &str) -> Option<(u128, u32, bool)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix: u32 = prefix.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(v4) if prefix <= 32 => Some((u128::from(u32::from(v4)) << 96, prefix, true)),
        IpAddr::V6(v6) if prefix <= 128 => Some((u128::from(v6), prefix, false)),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

fn intersect(one: (u128, u32, bool), other: (u128, u32, bool)) -> bool {
    let shorter = one.1.min(other.1);
    let differing = (one.0 ^ other.0).checked_shr(128 - shorter).unwrap_or(0);
    one.2 == other.2 && differing == 0
}
