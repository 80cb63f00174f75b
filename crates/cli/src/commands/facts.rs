//! `terrane facts`: what stacks publish for GitOps, whether the branch says it, and saying it again.

use std::collections::BTreeSet;

use control::Control;
use control::facts::{self, Compared, Current, CurrentFactsError, PublishFactsError, TakeOver};
use control::projects::OpenProject;
use model::facts::{Encrypt, FactFile, FileChange, Format, Published, render};
use model::ids::StackName;
use model::project::Project;
use serde_json::{Value, json};

use super::by_hand::ReasonArg;
use super::{open_home, selection, sound_project};
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Show, compare or publish what stacks say to GitOps
#[derive(Debug, clap::Args)]
pub(crate) struct FactsArgs {
    #[command(subcommand)]
    command: FactsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FactsCommand {
    Show(ShowArgs),
    Diff(DiffArgs),
    Publish(PublishArgs),
}

/// Show the facts of stacks, as their states say them now
///
/// Sensitive values are not shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts show\n  terrane facts show k8s-prod --json")]
struct ShowArgs {
    /// Stacks, as selectors; none: those here
    stacks: Vec<String>,
}

/// Say whether the places that facts are published to agree with the states
///
/// Exit code 2 if something differs, or somebody else wrote there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts diff\n  terrane facts diff k8s-prod")]
struct DiffArgs {
    /// Stacks, as selectors; none: those here
    stacks: Vec<String>,
}

/// Publish the facts of stacks again, without a run
///
/// `--take-over` writes over what others committed there: a break-glass act, recorded with its reason in the home and in
/// the branch itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts publish k8s-prod\n  \
                  terrane facts publish k8s-prod --take-over --reason \"edited by hand in the incident\"")]
struct PublishArgs {
    /// Stacks, as selectors; none: those here
    stacks: Vec<String>,
    /// Write over what others wrote there
    #[arg(long, requires = "reason")]
    take_over: bool,
    /// Why, in a sentence: it stays in the record
    #[arg(long, value_name = "TEXT", requires = "take_over")]
    reason: Option<String>,
}

pub(crate) async fn facts(
    args: FactsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = sound_project(global, process)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let asked = Asked {
        control,
        open,
        project,
        global,
        process,
    };
    match args.command {
        FactsCommand::Show(args) => asked.show(&args.stacks).await,
        FactsCommand::Diff(args) => asked.diff(&args.stacks).await,
        FactsCommand::Publish(args) => {
            let take_over = match args.reason {
                Some(reason) => {
                    let reason = ReasonArg::from(reason).read(process)?;
                    Some(TakeOver {
                        person: reason.actor,
                        reason: reason.text,
                    })
                }
                None => None,
            };
            asked.publish(&args.stacks, take_over.as_ref()).await
        }
    }
}

struct Asked<'a> {
    control: Control,
    open: OpenProject,
    project: Project,
    global: &'a Global,
    process: &'a Process,
}

impl Asked<'_> {
    /// The stacks that are meant and publish anything.
    fn stacks(&self, words: &[String]) -> Result<BTreeSet<StackName>, CommandError> {
        let mut stacks = selection::resolve(words, &self.open, &self.project, self.process, None)?;
        if words.is_empty() {
            stacks.retain(|stack| !self.project.stacks[stack].stages.publish.is_empty());
        }
        if stacks.is_empty() {
            return Err(CommandError::new("no stack here publishes facts")
                .hint("a `publish` block in a stack does"));
        }
        Ok(stacks)
    }

    async fn current(&self, stack: &StackName) -> Result<Current, CommandError> {
        let env = &self.process.env;
        let read = Current::read(&self.control, &self.open, &self.project, stack, env);
        read.await.map_err(|err| refused(&err, err.hint()))
    }

    async fn show(&self, words: &[String]) -> Result<ExitStatus, CommandError> {
        let mut documents = Vec::new();
        for stack in self.stacks(words)? {
            let current = self.current(&stack).await?;
            let files = facts::prepare_files(&current.publication(None));
            for (place, files) in files.map_err(|err| publishing(&err))? {
                for file in files {
                    let values = shown(&file);
                    if self.global.json {
                        documents.push(json!({
                            "stack": stack, "place": place, "path": file.path, "values": values,
                        }));
                        continue;
                    }
                    let values = values.as_object().cloned().unwrap_or_default();
                    let header = format!("{stack}: `{}` of `{place}`", file.path);
                    let text = render(Format::Yaml, &values, Some(&header));
                    report::data(&String::from_utf8_lossy(&text))?;
                }
            }
        }
        if self.global.json {
            report::json(&Value::Array(documents))?;
        }
        Ok(ExitStatus::Done)
    }

    async fn diff(&self, words: &[String]) -> Result<ExitStatus, CommandError> {
        let mut status = ExitStatus::Done;
        let mut documents = Vec::new();
        for stack in self.stacks(words)? {
            let current = self.current(&stack).await?;
            let compared = facts::compare(&self.control, &current.publication(None)).await;
            for compared in compared.map_err(|err| publishing(&err))? {
                if !compared.agrees() {
                    status = ExitStatus::Changes;
                }
                if self.global.json {
                    documents.push(difference_json(&stack, &compared));
                } else {
                    report::data(&difference(&stack, &compared))?;
                }
            }
        }
        if self.global.json {
            report::json(&Value::Array(documents))?;
        }
        Ok(status)
    }

    async fn publish(
        &self,
        words: &[String],
        take_over: Option<&TakeOver>,
    ) -> Result<ExitStatus, CommandError> {
        let mut documents = Vec::new();
        for stack in self.stacks(words)? {
            let current = self.current(&stack).await?;
            let done = facts::publish(&self.control, &current.publication(take_over)).await;
            for published in done.map_err(|err| publishing(&err))? {
                if self.global.json {
                    documents.push(json!({ "stack": stack, "published": published }));
                } else {
                    report::data(&publication(&stack, &published))?;
                }
            }
        }
        if self.global.json {
            report::json(&Value::Array(documents))?;
        }
        Ok(ExitStatus::Done)
    }
}

/// What may be shown of a file.
fn shown(file: &FactFile) -> Value {
    let mut values = Value::Object(file.values.clone());
    if let Encrypt::Leaves(hidden) = &file.encrypt {
        for pointer in hidden {
            if let Some(leaf) = values.pointer_mut(pointer) {
                *leaf = Value::from("(sensitive)");
            }
        }
    }
    values
}

fn publication(stack: &StackName, published: &Published) -> String {
    let commit = published.commit.as_deref().unwrap_or_default();
    let short = commit.get(..10).unwrap_or(commit);
    let what = if published.is_new {
        format!("published as `{short}`")
    } else {
        format!("already there, at `{short}`")
    };
    let mut text = format!(
        "{stack} → {} ({}, branch `{}`): {what}\n",
        published.place, published.repository, published.branch
    );
    text.push_str(&files(published, ["written", "unchanged", "withdrawn"]));
    text
}

fn difference(stack: &StackName, compared: &Compared) -> String {
    let would = &compared.would;
    let what = if compared.agrees() {
        "agrees"
    } else {
        "differs"
    };
    let mut text = format!(
        "{stack} → {} ({}, branch `{}`): {what}\n",
        would.place, would.repository, would.branch
    );
    text.push_str(&files(
        would,
        [
            "differs from the state",
            "as in the state",
            "no longer in the state",
        ],
    ));
    if let Some(foreign) = &compared.foreign {
        text.extend(["  ! ", &foreign.to_string(), "\n"]);
    }
    text
}

fn files(published: &Published, [written, unchanged, withdrawn]: [&str; 3]) -> String {
    let longest = published.files.iter().map(|file| file.path.len()).max();
    let width = longest.unwrap_or_default();
    let line = |file: &model::facts::PublishedFile| {
        let (mark, word) = match file.what {
            FileChange::Written => ("+", written),
            FileChange::Unchanged => ("=", unchanged),
            FileChange::Withdrawn => ("-", withdrawn),
        };
        let sealed = if file.encrypted { ", encrypted" } else { "" };
        format!("  {mark} {:width$}  {word}{sealed}\n", file.path)
    };
    published.files.iter().map(line).collect()
}

fn difference_json(stack: &StackName, compared: &Compared) -> Value {
    let foreign = compared.foreign.as_ref().map(|foreign| {
        json!({
            "commit": foreign.commit, "author": foreign.author, "subject": foreign.subject,
            "files": foreign.files, "rewritten": foreign.rewritten,
        })
    });
    json!({
        "stack": stack, "agrees": compared.agrees(), "would": compared.would, "foreign": foreign,
    })
}

/// A rule's no is told from something that broke.
fn publishing(err: &PublishFactsError) -> CommandError {
    CommandError::judged(err, err.is_refusal(), err.hint())
}

fn refused(err: &CurrentFactsError, hint: Option<String>) -> CommandError {
    CommandError::judged(err, false, hint)
}
