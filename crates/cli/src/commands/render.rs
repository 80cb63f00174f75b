//! `terrane render`

use control::render::{self, RenderError, Rendered, Wanted};
use model::render::decide::{Leave, Why};

use super::{read_project, sound_project};
use crate::args::Global;
use crate::view::{findings, render as view};
use crate::{CommandError, ExitStatus, Process, report};

/// Make files from templates and data, as `render` blocks of the project say
///
/// Templates are Jinja's, with the conventions of makejinja. Data are checked by a schema and by `check` blocks; files
/// called `*.sops.*` are encrypted as `.sops.yaml` says, and only those may hold secrets. A list of digests lies in the
/// generated tree: files that nothing makes any more are removed, and what was edited by hand is never replaced unasked.
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
    /// Take over files that are there already and agree
    #[arg(long)]
    adopt: bool,
    /// Replace files that were edited by hand, or that somebody else made
    #[arg(long)]
    overwrite: bool,
}

pub(crate) async fn render(
    args: RenderArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let open = read_project(global, process)?;
    // What is wrong elsewhere may be what rendering mends: the directory of a stack that it makes.
    let is_ours = |finding: &&model::diagnostic::Finding| {
        finding.severity == model::diagnostic::Severity::Error && !view::is_mended(finding)
    };
    let Some(project) = open.loaded.project.clone() else {
        return sound_project(global, process).map(|_| ExitStatus::Done);
    };
    if open.loaded.findings.iter().any(|finding| is_ours(&finding)) {
        return sound_project(global, process).map(|_| ExitStatus::Done);
    }
    let only_look = args.check || args.diff;
    let wanted = Wanted {
        names: args.names,
        leave: Leave {
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
                let mut all = open.loaded.texts.clone();
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
    }
    let differs = rendered.iter().any(Rendered::differs);
    Ok(if only_look && differs {
        ExitStatus::Changes
    } else {
        ExitStatus::Done
    })
}

fn failed(err: &RenderError) -> CommandError {
    let shown = CommandError::from_error(err);
    match err {
        RenderError::None => shown
            .hint("add `render \"NAME\" { templates = …, data = […], output = … }` to `terrane.hcl`"),
        RenderError::Unknown { known, .. } => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            shown
                .hint(format!("there are {}", known.join(", ")))
                .status(ExitStatus::Usage)
        }
        RenderError::Taken { .. } => {
            shown.hint("a file belongs to one `render` block; `when` or `exclude` keeps it out of the other")
        }
        RenderError::Refused { name, files } => {
            let shown = files.iter().fold(shown, |shown, (path, why)| {
                shown.cause(format!("`{path}` {}", view::why(*why)))
            });
            let is_foreign = files
                .values()
                .any(|why| matches!(why, Why::NotOurs | Why::NotOursAndDifferent));
            let shown = shown.hint(format!(
                "`terrane render {name} --diff` shows the difference, `--overwrite` replaces them"
            ));
            let shown = if is_foreign {
                shown.hint(format!(
                    "`terrane render {name} --adopt` takes over files that agree"
                ))
            } else {
                shown
            };
            shown.status(ExitStatus::Refused)
        }
        RenderError::Seal(source) => source.hint().into_iter().fold(shown, CommandError::hint),
        RenderError::Manifest { .. } => shown.hint(
            "bring back the last good one, for example from Git; without it, `--adopt` compares everything anew",
        ),
        RenderError::Disk(_)
        | RenderError::Secret { .. }
        | RenderError::Root { .. }
        | RenderError::Wrong { .. } => shown,
    }
}
