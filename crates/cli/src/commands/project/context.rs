//! `terrane context`: lists contexts, and shows where each value of a stack comes from.

use control::secrets::caller_env::{engine_names, matches_name, may_pass};
use model::base::ids::StackName;
use model::project::Project;
use model::project::context::ValueOrigins;
use serde_json::json;

use crate::commands::{selection, valid_project};
use crate::global::Global;
use crate::view::contexts;
use crate::view::table::Table;
use crate::{CommandError, ExitStatus, Process, report};

/// Show where the values of stacks come from
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane context show dns\n  terrane context list")]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    command: ContextCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ContextCommand {
    Show(ShowArgs),
    List(ListArgs),
}

/// Show where every value of a stack comes from, and what it overrides
///
/// Environment, variables, files and hooks, the strongest first, with file and line. Secrets are shown by their
/// reference; nothing is resolved.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane context show dns\n  terrane context show dns --json")]
struct ShowArgs {
    /// The stack
    stack: String,
}

/// List the contexts of the project and the stacks that have them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane context list\n  terrane context list --json")]
struct ListArgs {}

pub(crate) fn context(
    args: &ContextArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    match &args.command {
        ContextCommand::List(ListArgs {}) => list(&project, global, process),
        ContextCommand::Show(args) => {
            let stack = &project.stacks[selection::one(&args.stack, &project)?];
            let base = engine_names(&process.env, &project.targets[&stack.target]);
            let names = process.env.keys().filter(|name| may_pass(name));
            let caller: Vec<String> = names.cloned().collect();
            let module = open.loaded.modules.get(&stack.path);
            let origins = ValueOrigins::of(&project, stack, module, &caller, matches_name);
            if global.json {
                report::json(&contexts::document(stack, &origins, &base))?;
            } else {
                let look = process.data_look(global);
                report::data(&contexts::text(stack, &origins, &base, look))?;
            }
            Ok(ExitStatus::Done)
        }
    }
}

fn list(project: &Project, global: &Global, process: &Process) -> Result<ExitStatus, CommandError> {
    if global.json {
        let contexts = project.contexts.values().map(|context| {
            json!({
                "name": context.name,
                "priority": context.priority,
                "autoattach": context.written.autoattach,
                "stacks": context.written.attached.keys().collect::<Vec<_>>(),
                "at": format!("{}:{}", context.written.at.file, context.written.at.line),
            })
        });
        report::json(&contexts.collect())?;
        return Ok(ExitStatus::Done);
    }
    if project.contexts.is_empty() {
        report::say("this project has no contexts\n")?;
        return Ok(ExitStatus::Done);
    }
    let mut table = Table::new(["CONTEXT", "PRIORITY", "ATTACHES TO", "AT", "STACKS"]).right(1);
    for context in project.contexts.values() {
        let stacks: Vec<&str> = context
            .written
            .attached
            .keys()
            .map(StackName::as_str)
            .collect();
        let attaches = match context.written.autoattach.as_slice() {
            [] => "those that name it".to_owned(),
            selectors => selectors.join(", "),
        };
        table.row([
            context.name.clone(),
            context.priority.to_string(),
            attaches,
            format!("{}:{}", context.written.at.file, context.written.at.line),
            match stacks.as_slice() {
                [] => "none".to_owned(),
                stacks => stacks.join(", "),
            },
        ]);
    }
    report::data(&table.render(process.data_look(global)))?;
    Ok(ExitStatus::Done)
}
