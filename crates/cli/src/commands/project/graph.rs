//! `terrane graph`

use clap::ValueEnum;
use model::graph::{self, Graph, TextStyle};

use crate::commands::{selection, valid_project};
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Show stacks, edges, layers and waves
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane graph\n  terrane graph --format svg > graph.svg\n  terrane graph +web"
)]
pub(crate) struct GraphArgs {
    /// Stacks to show, such as `web`, `layer:platform`, `+web`; none: all
    selectors: Vec<String>,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Dot,
    Mermaid,
    Json,
    Svg,
}

pub(crate) fn graph(
    args: &GraphArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, mut project) = valid_project(global, process)?;
    if !args.selectors.is_empty() {
        let chosen = selection::resolve(&args.selectors, &open, &project, process, None)?;
        project.stacks.retain(|name, _| chosen.contains(name));
        for stack in project.stacks.values_mut() {
            stack.edges.retain(|edge| chosen.contains(&edge.upstream));
        }
    }
    let drawn = Graph::new(&project);
    let look = process.data_look(global);
    let picture = match args.format {
        _ if global.json => graph::json(&drawn),
        Format::Json => graph::json(&drawn),
        Format::Text => graph::text(
            &drawn,
            TextStyle {
                width: look.width,
                unicode: look.unicode,
                cuts: !look.piped,
            },
        ),
        Format::Dot => graph::dot(&drawn),
        Format::Mermaid => graph::mermaid(&drawn),
        Format::Svg => graph::svg(&drawn),
    };
    report::data(&picture)?;
    Ok(ExitStatus::Done)
}
