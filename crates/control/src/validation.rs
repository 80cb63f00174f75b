//! Checks beyond the project file: what stage blocks refer to, and for `validate --engine` what the engine
//! finds in every root module.
//!
//! The engine works on a copy of the source, without backend and inputs, so that it contacts only the
//! registries of modules and providers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use drivers::engine::{
    Engine, EngineCall, EngineSearch, InitCall, LocateError, LockFileMode, PluginCache,
    PluginCacheError, locate,
};
use drivers::process::{CaptureError, Captured, Environment, engine_environment};
use drivers::tree::normalised;
use model::base::diagnostic::{Finding, Location};
use model::base::error::{Explain, NextStep};
use model::project::Project;
use model::project::module::{self, Module};
use model::run::engine_event::{Diagnostic, EngineSeverity, EventKind, EventReader};
use serde::Deserialize;

use crate::project::engines::{LayOutSourceError, lay_out};
use crate::project::open::OpenProject;
use crate::project::{contracts, stage_files};
use crate::stage::facts;

#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error("could not copy the source for the engine")]
    Copy(#[from] LayOutSourceError),
    #[error("could not use the shared providers")]
    Cache(#[from] PluginCacheError),
    #[error("could not run the engine")]
    Call(#[from] CaptureError),
}

impl Explain for ValidateError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Locate(err) => err.next_steps(),
            Self::Copy(_) | Self::Cache(_) | Self::Call(_) => Vec::new(),
        }
    }
}

/// Checks contracts, facts and the files that stage blocks name, and adds the errors to the findings.
pub fn check_stages(open: &mut OpenProject) {
    let OpenProject { loaded, root, .. } = open;
    contracts::check(loaded, root);
    facts::check(loaded, root);
    stage_files::check(loaded, root);
}

/// The engine's findings, and the texts they point into.
#[derive(Clone, Debug, Default)]
pub struct EngineFindings {
    pub findings: Vec<Finding>,
    pub texts: BTreeMap<String, String>,
}

/// Validates every root module once, with the engine of its stack.
pub async fn by_engine(
    open: &OpenProject,
    project: &Project,
    env: &BTreeMap<String, String>,
    cache: &Path,
) -> Result<EngineFindings, ValidateError> {
    let scratch = tempfile::tempdir().map_err(LayOutSourceError::from)?;
    let tree = lay_out(open, scratch.path())?;
    let search = EngineSearch::new(env.get("PATH").map(OsStr::new), cache);
    let mut asked = BTreeSet::new();
    let mut opinion = EngineFindings::default();
    for stack in project.stacks.values() {
        let engine = locate(&stack.engine, &search)?;
        if !asked.insert((stack.path.clone(), engine.program.clone())) {
            continue;
        }
        let mut environment = engine_environment(env, true);
        let shared = needs_providers(open, &stack.path)
            .then(|| PluginCache::acquire(cache, engine.flavor))
            .transpose()?;
        if let Some(shared) = &shared {
            shared.add_to(&mut environment);
        }
        let dir = tree.join(&stack.path);
        for diagnostic in ask(&engine, &dir, &environment).await? {
            opinion.add(&diagnostic, &engine, &stack.path, &tree);
        }
    }
    // Engines report findings in no particular order.
    let place = |finding: &Finding| finding.places.first().map(|place| place.at.clone());
    opinion.findings.sort_by_key(place);
    Ok(opinion)
}

fn needs_providers(open: &OpenProject, dir: &str) -> bool {
    module::closure(&open.loaded.modules, dir)
        .iter()
        .filter_map(|dir| open.loaded.modules.get(dir))
        .any(Module::needs_providers)
}

async fn ask(
    engine: &Engine,
    dir: &Path,
    environment: &Environment,
) -> Result<Vec<Diagnostic>, ValidateError> {
    let init = EngineCall::Init(InitCall {
        lock_file: LockFileMode::Completed,
        backend_config: &[],
        var_files: &[],
        backend: false,
    });
    let said = engine.capture(&init, dir, environment, &[]).await?;
    if !said.exit.success() {
        return Ok(of_init(&said));
    }
    let validate = EngineCall::Validate { var_files: &[] };
    let said = engine.capture(&validate, dir, environment, &[]).await?;
    Ok(of_validate(&said))
}

fn of_init(said: &Captured) -> Vec<Diagnostic> {
    let told: Vec<Diagnostic> = EventReader::read_all(&said.stdout)
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::Diagnostic(diagnostic) => Some(diagnostic),
            _ => None,
        })
        .collect();
    if told.is_empty() {
        return vec![without_words("could not be initialised", said)];
    }
    told
}

fn of_validate(said: &Captured) -> Vec<Diagnostic> {
    #[derive(Deserialize)]
    struct ValidateOutput {
        diagnostics: Vec<Diagnostic>,
    }
    match serde_json::from_slice(&said.stdout) {
        Ok(ValidateOutput { diagnostics }) => diagnostics,
        Err(_) => vec![without_words("could not be checked", said)],
    }
}

/// A diagnostic from the raw output of an engine that printed no readable report.
fn without_words(summary: &str, said: &Captured) -> Diagnostic {
    let words = [said.stderr_text(), said.stdout_text()].join("\n");
    let detail: String = words.trim().chars().take(2000).collect();
    Diagnostic {
        summary: format!("{summary}: {}", said.exit),
        detail,
        ..Diagnostic::default()
    }
}

impl EngineFindings {
    fn add(&mut self, diagnostic: &Diagnostic, engine: &Engine, dir: &str, tree: &Path) {
        let summary = diagnostic.summary.trim_end_matches('.');
        let message = format!("{} on `{dir}`: {summary}", engine.flavor);
        let mut finding = match diagnostic.severity {
            EngineSeverity::Error => Finding::error("engine", message),
            EngineSeverity::Warning => Finding::warning("engine", message),
        };
        if let Some((at, text)) = place(diagnostic, dir, tree) {
            self.texts.insert(at.file.clone(), text);
            finding = finding.at(at, "here");
        }
        if !diagnostic.detail.is_empty() {
            finding = finding.hint(one_line(&diagnostic.detail));
        }
        // Report a finding in a module that two stacks share only once.
        let seen = |other: &Finding| {
            other.places == finding.places
                && !finding.places.is_empty()
                && other.hint == finding.hint
        };
        if !self.findings.iter().any(seen) {
            self.findings.push(finding);
        }
    }
}

/// The location in the project; `None` for modules that are not part of it.
fn place(diagnostic: &Diagnostic, dir: &str, tree: &Path) -> Option<(Location, String)> {
    let range = diagnostic.range.as_ref()?;
    let file = normalised(dir, &range.filename)?;
    if file.split('/').any(|part| part == ".terraform") {
        return None;
    }
    let text = std::fs::read_to_string(tree.join(&file)).ok()?;
    let offset = |byte: u64| {
        let byte = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
        (0..=byte)
            .rev()
            .find(|byte| text.is_char_boundary(*byte))
            .unwrap_or(0)
    };
    let start = offset(range.start.byte);
    let number = |value: u64| usize::try_from(value).unwrap_or(1).max(1);
    let at = Location {
        file,
        line: number(range.start.line),
        column: number(range.start.column),
        start,
        end: offset(range.end.byte).max(start),
    };
    Some((at, text))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
