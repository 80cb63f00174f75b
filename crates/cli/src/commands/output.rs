//! `terrane output`

use control::changesets;
use control::outputs::{self, Output};
use model::digits::digits;
use model::ids::StackName;
use serde_json::{Value, json};

use super::{open_home, selection, sound_project};
use crate::args::Global;
use crate::view;
use crate::{CommandError, ExitStatus, Process, report};

/// Show the outputs a stack last applied
///
/// Sensitive ones are shown only when asked for by name.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane output network\n  terrane output network subnet_id --raw\n  terrane output database --json"
)]
pub(crate) struct OutputArgs {
    /// The stack
    stack: String,
    /// One output
    name: Option<String>,
    /// Print the value alone, without quotes
    #[arg(long, requires = "name")]
    raw: bool,
}

pub(crate) async fn output(
    args: OutputArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = sound_project(global, process)?;
    let stack: &StackName = selection::one(&args.stack, &project)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let known = outputs::of_state(
        &control,
        &project.stacks[stack].state,
        changesets::is_ours(&project, stack),
    )
    .await
    .map_err(|err| CommandError::from_error(&err))?;
    if known.is_empty() {
        return Err(CommandError::new(format!(
            "stack `{stack}` has no outputs: it was not applied, or declares none"
        ))
        .hint(format!("`terrane apply {stack}`")));
    }
    match &args.name {
        Some(name) => one(
            stack,
            name,
            known.get(name),
            &known,
            args.raw,
            global,
            process,
        ),
        None if global.json => {
            let document = known
                .iter()
                .map(|(name, output)| {
                    let value = if output.sensitive {
                        Value::Null
                    } else {
                        output.value.clone()
                    };
                    (
                        name.clone(),
                        json!({ "value": value, "sensitive": output.sensitive }),
                    )
                })
                .collect::<serde_json::Map<_, _>>();
            report::json(&Value::Object(document))?;
            Ok(ExitStatus::Done)
        }
        None => {
            let shown: Vec<view::outputs::Output> = known
                .into_iter()
                .map(|(name, output)| view::outputs::Output {
                    name,
                    value: (!output.sensitive).then_some(output.value),
                })
                .collect();
            report::data(&view::outputs::render(&shown, process.data_look(global)))?;
            Ok(ExitStatus::Done)
        }
    }
}

fn one(
    stack: &StackName,
    name: &str,
    output: Option<&Output>,
    known: &std::collections::BTreeMap<String, Output>,
    raw: bool,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let Some(output) = output else {
        let names: Vec<String> = known.keys().map(|name| format!("`{name}`")).collect();
        return Err(
            CommandError::new(format!("stack `{stack}` has no output `{name}`"))
                .hint(format!("it has {}", names.join(", "))),
        );
    };
    match &output.value {
        value if raw && digits(value).is_some() => report::data(digits(value).unwrap_or_default())?,
        Value::String(text) if raw => report::data(text)?,
        Value::Array(_) | Value::Object(_) if raw => {
            return Err(CommandError::new(format!(
                "output `{name}` is not a text, a number or a truth value"
            ))
            .hint("use `--json` instead of `--raw`")
            .status(ExitStatus::Usage));
        }
        value if raw => report::data(&value.to_string())?,
        value if global.json => report::json(value)?,
        value => {
            let shown = view::outputs::render_value(value, process.data_look(global));
            report::data(&shown)?;
        }
    }
    Ok(ExitStatus::Done)
}
