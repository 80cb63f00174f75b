//! `terrane graph`

use clap::ValueEnum;
use model::graph::{Graph, dot, json, mermaid, svg, text};

use super::{selection, sound_project};
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Show stacks, edges, layers and waves
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane graph\n  terrane graph --format svg > graph.svg\n  terrane graph +web")]
pub struct GraphArgs {
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

pub(crate) fn graph(args: &GraphArgs, global: &Global, process: &Process) -> Result<ExitStatus, CommandError> {
    let (open, mut project) = sound_project(global, process)?;
    if !args.selectors.is_empty() {
        let chosen = selection::resolve(&args.selectors, &open, &project, process)?;
        project.stacks.retain(|name, _| chosen.contains(name));
        for stack in project.stacks.values_mut() {
            stack.edges.retain(|edge| chosen.contains(&edge.upstream));
        }
    }
    let graph = Graph::new(&project);
    let look = process.data_look(global);
    let drawn = match args.format {
        _ if global.json => json::render(&graph),
        Format::Json => json::render(&graph),
        Format::Text => text::render(&graph, look.width, look.unicode),
        Format::Dot => dot::render(&graph),
        Format::Mermaid => mermaid::render(&graph),
        Format::Svg => svg::render(&graph),
    };
    report::data(&drawn)?;
    Ok(ExitStatus::Done)
}
