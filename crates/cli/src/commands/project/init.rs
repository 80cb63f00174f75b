//! `terrane init`

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use control::project::engines::EngineSearch;
use control::project::init::{self, FILE, InitProposal, ProposeError};
use control::project::open;
use model::project::proposal::{self, EdgeReason, ProposedEdge};
use serde_json::json;

use crate::global::Global;
use crate::view::errors;
use crate::{CommandError, ExitStatus, Process, report};

/// Read a repository and propose a project file
///
/// Finds root modules, their backends and the states they read, and writes `terrane.hcl`: what is
/// certain as code, what is guessed as comments. A file that is there already is never overwritten.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane init\n  terrane init --dry-run            # only show the file\n  \
    terrane init --project ../infra"
)]
pub(crate) struct InitArgs {
    /// Show the file instead of writing it
    #[arg(long, visible_alias = "print")]
    dry_run: bool,
}

pub(crate) fn init(
    args: &InitArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let root = global
        .project
        .as_ref()
        .map_or_else(|| process.cwd.clone(), |dir| process.cwd.join(dir));
    if !args.dry_run {
        init::check_free(&root).map_err(|err| told(&err))?;
    }
    if let Some(outer) = root
        .canonicalize()
        .ok()
        .and_then(|root| open::find_root(root.parent()?).ok())
    {
        let said = format!(
            "this directory is part of the project in `{}`",
            outer.display()
        );
        let hint = "a project in a project has its own states and lanes; add stacks to the outer one instead";
        let look = process.look(global);
        report::say(&errors::render_warning(&said, &[hint.to_owned()], look))?;
    }
    let settings = process.settings(global)?;
    let path = process.env.get("PATH").map(OsStr::new);
    let search = EngineSearch::new(path, &settings.cache_dir);
    let proposed = init::propose(&root, &search, &process.env).map_err(|err| told(&err))?;
    if proposed.survey.roots.is_empty() {
        return Err(nothing_found(&proposed, &root));
    }
    let written = if args.dry_run {
        None
    } else {
        Some(init::write(&root, &proposed.text).map_err(|err| told(&err))?)
    };
    let (stacks, edges) = proposal::stacks_and_edges(&proposed.proposal);
    if global.json {
        report::json(&document(&proposed, &stacks, &edges, written.as_deref()))?;
        return Ok(ExitStatus::Done);
    }
    if args.dry_run {
        report::data(&proposed.text)?;
    }
    report::say(&summary(&proposed, &stacks, &edges, written.is_some()))?;
    Ok(ExitStatus::Done)
}

fn told(err: &ProposeError) -> CommandError {
    CommandError::from_error(err)
}

fn nothing_found(proposed: &InitProposal, root: &Path) -> CommandError {
    let error = CommandError::new(format!(
        "no root module was found in `{}`: a directory with `.tf` or `.tofu` files that no other module calls",
        root.display()
    ));
    let uncalled = &proposed.survey.uncalled;
    if uncalled.is_empty() {
        return error
            .hint("run it where the modules are, or name the directory: `--project DIR`")
            .hint("`examples/quickstart` is a project to start from");
    }
    error.hint(format!(
        "no module calls {}: add a root module that does, or write `terrane.hcl` yourself",
        listed(uncalled)
    ))
}

fn document(
    proposed: &InitProposal,
    stacks: &BTreeMap<String, String>,
    edges: &[ProposedEdge],
    written: Option<&Path>,
) -> serde_json::Value {
    let roots: Vec<_> = proposed
        .survey
        .roots
        .iter()
        .map(|found| {
            json!({
                "stack": stacks.get(&found.dir),
                "path": found.dir,
                "backend": found.backend,
                "remote_states": found.remote_states.iter().map(|remote| &remote.name).collect::<Vec<_>>(),
            })
        })
        .collect();
    let edges: Vec<_> = edges
        .iter()
        .map(|edge| {
            let (kind, name) = match &edge.why {
                EdgeReason::ReadsState { remote } => ("reads-state", remote),
                EdgeReason::SeemsToReadState { remote } => ("seems-to-read-state", remote),
                EdgeReason::SameName { variable } => ("same-name", variable),
            };
            json!({ "stack": edge.stack, "upstream": edge.upstream, "because": kind, "name": name })
        })
        .collect();
    json!({
        "written": written,
        "roots": roots,
        "edges": edges,
        "modules": proposed.survey.called,
        "unreadable": proposed.survey.unreadable,
        "text": proposed.text,
    })
}

fn summary(
    proposed: &InitProposal,
    stacks: &BTreeMap<String, String>,
    edges: &[ProposedEdge],
    is_written: bool,
) -> String {
    let survey = &proposed.survey;
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!(
        "Found {}:",
        count(survey.roots.len(), "root module")
    ));
    let width = stacks.values().map(String::len).max().unwrap_or(0);
    let dir_width = stacks.keys().map(String::len).max().unwrap_or(0);
    for found in &survey.roots {
        let name = stacks.get(&found.dir).map_or("", String::as_str);
        let dir = if found.dir.is_empty() {
            "."
        } else {
            &found.dir
        };
        let backend = found.backend.as_ref();
        let backend = backend.map_or_else(String::new, |kind| format!("backend `{kind}`"));
        let row = format!("  {name:<width$}   {dir:<dir_width$}   {backend}");
        line(row.trim_end().to_owned());
    }
    let certain = edges
        .iter()
        .filter(|edge| matches!(edge.why, EdgeReason::ReadsState { .. }))
        .count();
    if certain > 0 {
        line(format!(
            "{} written: a stack reads the state of another.",
            count(certain, "edge")
        ));
    }
    let kept = proposal::states_to_hand_over(&proposed.proposal);
    if kept > 0 {
        line(format!(
            "{} that terrane will keep: the file says what to put in {}.",
            match kept {
                1 => "1 data source reads a state".to_owned(),
                many => format!("{many} data sources read states"),
            },
            if kept == 1 {
                "its place"
            } else {
                "their place"
            },
        ));
    }
    let guesses: BTreeSet<(&str, &str)> = edges
        .iter()
        .filter(|edge| !matches!(edge.why, EdgeReason::ReadsState { .. }))
        .map(|edge| (edge.stack.as_str(), edge.upstream.as_str()))
        .collect();
    if !guesses.is_empty() {
        line(format!(
            "{} proposed as comments, by equal names: uncomment what is right.",
            count(guesses.len(), "edge")
        ));
    }
    if !survey.called.is_empty() {
        line(format!(
            "Not stacks, because other modules call them: {}.",
            listed(&survey.called)
        ));
    }
    if !survey.uncalled.is_empty() {
        line(format!(
            "Skipped, because they are below `modules` and no module calls them: {}.",
            listed(&survey.uncalled)
        ));
    }
    for message in &survey.unreadable {
        line(format!("Could not read all of it: {message}."));
    }
    line(if is_written {
        format!("Wrote `{FILE}`. Read it, then run `terrane validate`.")
    } else {
        format!("Nothing was written: `terrane init` writes it to `{FILE}`.")
    });
    out
}

/// The first few directories, and the number of the rest.
fn listed(dirs: &[String]) -> String {
    const MOST: usize = 5;
    let mut words: Vec<String> = dirs
        .iter()
        .take(MOST)
        .map(|dir| format!("`{dir}`"))
        .collect();
    if dirs.len() > MOST {
        words.push(format!("{} more", dirs.len() - MOST));
    }
    words.join(", ")
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
