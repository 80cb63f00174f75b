//! `terrane output`

use std::path::{Path, PathBuf};

use control::state::artifacts::{self, ArtifactFacts, ArtifactsError};
use control::state::outputs::{self, OutputValue, OutputsError};
use model::base::exact_number::digits;
use model::base::ids::StackName;
use model::stage::artifact::ArtifactSet;
use serde_json::{Value, json};

use super::state::say_if_copy;
use super::{open_home, selection, valid_project};
use crate::global::Global;
use crate::view;
use crate::{CommandError, ExitStatus, Process, report};

/// Show the outputs a stack last applied, or copy the files it wrote
///
/// Sensitive outputs are shown only when asked for by name. Of artifacts, nothing but name, size and digest is shown.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane output network\n  terrane output network subnet_id --raw\n  terrane output database --json\n  \
    terrane output cluster --artifacts          # which files are kept\n  terrane output cluster --artifacts ~/.kube"
)]
pub(crate) struct OutputArgs {
    /// The stack
    stack: String,
    /// One output
    name: Option<String>,
    /// Print the value alone, without quotes
    #[arg(long, requires = "name")]
    raw: bool,
    /// List the files that the stack wrote (`artifacts` in its block), or copy them into a directory
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["name", "raw"])]
    #[expect(
        clippy::option_option,
        reason = "not said, said alone, or with a directory"
    )]
    artifacts: Option<Option<PathBuf>>,
    /// Replace other files that are in the directory
    #[arg(long, requires = "artifacts")]
    force: bool,
}

pub(crate) async fn output(
    args: OutputArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    let stack: &StackName = selection::one(&args.stack, &project)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let kept = artifacts::of_state(&control, &project.stacks[stack].state).await;
    let kept = kept.map_err(|err| failed(&err))?;
    if let Some(to) = &args.artifacts {
        let to = to.as_ref().map(|dir| process.cwd.join(dir));
        return artifacts_of(stack, &kept, to.as_deref(), args.force, global, process);
    }
    let known = outputs::of_state(
        &control,
        &project.stacks[stack].state,
        project.is_on_terrane_backend(stack),
    )
    .await
    .map_err(|err| match &err {
        OutputsError::Encrypted { .. } => CommandError::new(err.to_string()).hint(format!(
            "`terrane plan {stack}` reads them through the engine"
        )),
        _ => CommandError::from_error(&err),
    })?;
    if known.is_empty() && kept.is_empty() {
        let state = control.state_name(&project.stacks[stack].state);
        let head = control.state_head(&state).await;
        let is_applied = head.is_ok_and(|head| head.is_some());
        if !is_applied {
            return Err(
                CommandError::new(format!("stack `{stack}` was not applied yet"))
                    .hint(format!("`terrane apply {stack}`")),
            );
        }
        if args.name.is_none() && !global.json {
            report::say(&format!("Stack `{stack}` has no outputs.\n"))?;
        }
    }
    if !global.json && !args.raw {
        let state = control.state_name(&project.stacks[stack].state);
        let head = control.state_head(&state).await;
        head.ok().flatten().iter().try_for_each(say_if_copy)?;
    }
    match &args.name {
        Some(name) => {
            let output = known
                .get(name)
                .ok_or_else(|| no_output(stack, name, &known))?;
            one(name, output, args.raw, global, process)
        }
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
            let shown: Vec<view::outputs::OutputView> = known
                .into_iter()
                .map(|(name, output)| view::outputs::OutputView {
                    name,
                    value: (!output.sensitive).then_some(output.value),
                })
                .collect();
            report::data(&view::outputs::render(&shown, process.data_look(global)))?;
            if !kept.is_empty() {
                let (count, look) = (kept.len(), process.look(global));
                report::say(&view::artifacts::mention(stack, count, look))?;
            }
            Ok(ExitStatus::Done)
        }
    }
}

/// Lists artifacts, or copies them into a directory.
fn artifacts_of(
    stack: &StackName,
    kept: &ArtifactSet,
    to: Option<&Path>,
    force: bool,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    if kept.is_empty() {
        return Err(CommandError::new(format!(
            "stack `{stack}` has no artifacts: it was not applied, or wrote none"
        ))
        .hint("`artifacts` in its block names the files that are kept"));
    }
    if let Some(dir) = to {
        artifacts::copy_out(kept, dir, force).map_err(|err| failed(&err))?;
    }
    let facts: Vec<ArtifactFacts> = artifacts::facts(kept);
    if global.json {
        report::json(&json!({ "stack": stack, "copied_to": to, "artifacts": facts }))?;
        return Ok(ExitStatus::Done);
    }
    match to {
        None => report::data(&view::artifacts::list(&facts, process.data_look(global)))?,
        Some(dir) => report::say(&view::artifacts::copied(&facts, dir))?,
    }
    Ok(ExitStatus::Done)
}

fn failed(err: &ArtifactsError) -> CommandError {
    CommandError::from_error(err)
}

fn no_output(
    stack: &StackName,
    name: &str,
    known: &std::collections::BTreeMap<String, OutputValue>,
) -> CommandError {
    let names: Vec<String> = known.keys().map(|name| format!("`{name}`")).collect();
    CommandError::new(format!("stack `{stack}` has no output `{name}`"))
        .hint(format!("it has {}", names.join(", ")))
}

fn one(
    name: &str,
    output: &OutputValue,
    raw: bool,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match &output.value {
        value if raw && digits(value).is_some() => report::data(digits(value).unwrap_or_default())?,
        Value::String(text) if raw => report::data(text)?,
        Value::Array(_) | Value::Object(_) if raw => {
            return Err(CommandError::new(format!(
                "output `{name}` is not a string, a number or a bool"
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
