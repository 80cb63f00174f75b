//! `terrane render`

use std::collections::BTreeMap;
use std::fs;

use model::base::diagnostic::Finding;
use model::render::decide::OverwriteOptions;
use render::{RenderError, RenderRequest};

use crate::commands::{OpenProject, read_project, valid_project};
use crate::global::Global;
use crate::view::{findings, render as view};
use crate::{CommandError, ExitStatus, Process, report};

/// Make files from templates and data, as the project's `render` blocks define
///
/// Templates are Jinja, with the conventions of makejinja. A schema and `check` blocks check the data. Files
/// called `*.sops.*` are encrypted as `.sops.yaml` defines, and only those may contain secrets. The generated tree
/// has a list of digests: terrane removes files that are no longer generated, and replaces edited files only on
/// request.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane render\n  terrane render homelab --diff     # show what would change, write nothing\n  terrane render --check            # exit code 2 if a file would change\n  terrane render homelab --adopt    # take over a tree that another tool made"
)]
pub(crate) struct RenderArgs {
    /// Names of `render` blocks; all, if none is given
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Write nothing; name the files that would change
    #[arg(long)]
    check: bool,
    /// Write nothing; show what would change, line by line
    #[arg(long)]
    diff: bool,
    /// Take over a tree that another tool made: nothing is written but the list, and only if every file agrees
    #[arg(long)]
    adopt: bool,
    /// Replace files that were edited, or that another tool made; removes nothing
    #[arg(long)]
    overwrite: bool,
}

pub(crate) async fn render(
    args: RenderArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let open = read_project(global, process)?;
    // Rendering may fix other errors, such as the missing directory of a stack that it generates.
    let is_ours = |finding: &&Finding| {
        finding.severity == model::base::diagnostic::Severity::Error
            && !view::is_fixed_by_render(finding)
    };
    let Some(project) = open.loaded.project.clone() else {
        return valid_project(global, process).map(|_| ExitStatus::Done);
    };
    if open.loaded.findings.iter().any(|finding| is_ours(&finding)) {
        return valid_project(global, process).map(|_| ExitStatus::Done);
    }
    let only_look = args.check || args.diff;
    let wanted = RenderRequest {
        names: args.names,
        leave: OverwriteOptions {
            adopt: args.adopt,
            overwrite: args.overwrite,
        },
        only_look,
    };
    let look = process.look(global);
    let done = render::render(&open.root, &project, &process.env, &wanted).await;
    let rendered = match done {
        Ok(rendered) => rendered,
        Err(RenderError::Wrong {
            findings, texts, ..
        }) => {
            if global.json {
                report::json(&findings::findings_json(&findings))?;
            } else {
                let mut all = project_texts(&open, &findings);
                all.extend(texts);
                report::say(&findings::render(&findings, &all, look))?;
            }
            return Err(CommandError::said(ExitStatus::Failed));
        }
        Err(err) => return Err(failed(&err)),
    };
    if global.json {
        report::json(&view::json(&rendered, !only_look))?;
    } else {
        report::data(&view::render(&rendered, args.diff, !only_look, look))?;
        report::say(&view::notes(&rendered, look))?;
        let warnings: Vec<_> = rendered
            .iter()
            .flat_map(|one| one.warnings.clone())
            .collect();
        if !warnings.is_empty() {
            let texts = project_texts(&open, &warnings);
            report::say(&findings::render(&warnings, &texts, look))?;
        }
    }
    // `--adopt` compares the files only: the tree has no list of digests yet.
    let differs = rendered.iter().any(|one| {
        if args.adopt {
            one.files_differ()
        } else {
            one.differs()
        }
    });
    Ok(if only_look && differs {
        ExitStatus::Changes
    } else {
        ExitStatus::Done
    })
}

/// The project files that findings refer to.
fn project_texts(open: &OpenProject, findings: &[Finding]) -> BTreeMap<String, String> {
    let mut texts = open.loaded.texts.clone();
    for place in findings.iter().flat_map(|finding| &finding.places) {
        let file = &place.at.file;
        if file.ends_with("terrane.hcl")
            && !texts.contains_key(file)
            && let Ok(text) = fs::read_to_string(open.root.join(file))
        {
            texts.insert(file.clone(), text);
        }
    }
    texts
}

fn failed(err: &RenderError) -> CommandError {
    let shown = CommandError::from_error(err);
    let RenderError::Refused { files, .. } = err else {
        return shown;
    };
    files.iter().fold(shown, |shown, (path, why)| {
        shown.cause(format!("`{path}` {}", view::why(*why)))
    })
}
