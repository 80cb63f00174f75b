//! `terrane facts`: what stacks publish for GitOps, whether the branch says it, and saying it again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use control::Control;
use control::facts::{
    self, Compared, ComparedElsewhere, Current, CurrentFactsError, Elsewhere, PublishFactsError,
    Standpoint, TakeOver,
};
use control::projects::OpenProject;
use model::facts::{Encrypt, FactFile, FileChange, Format, Published, PublishedFile, render};
use model::ids::StackName;
use model::project::Project;
use serde_json::{Value, json};

use super::by_hand::ReasonArg;
use super::{open_home, selection, sound_project};
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process, report, view};

/// Show, compare or publish what stacks say to GitOps
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane facts show k8s-prod\n  terrane facts diff\n  terrane facts publish"
)]
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

/// Say whether branches, clusters, files and states agree
///
/// What differs is shown field by field, as it is published → as it would be; sensitive values are not shown. Exit code 2
/// if something differs, is not there, or was written by somebody else; 1 if something could not be looked at.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts diff\n  terrane facts diff k8s-prod")]
struct DiffArgs {
    /// Stacks, as selectors; none: those here
    stacks: Vec<String>,
}

/// Publish the facts of stacks again, without a run
///
/// What stacks no longer say is withdrawn; without STACKS also what stacks said that the project no longer has.
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
    /// The stacks that are meant and publish anything, or did.
    async fn stacks(&self, words: &[String]) -> Result<Vec<StackName>, CommandError> {
        let all = &self.project.stacks;
        let mut stacks = selection::resolve(words, &self.open, &self.project, self.process, None)?;
        if !words.is_empty() {
            return Ok(stacks.into_iter().collect());
        }
        let standing = self.standing().await?;
        stacks.retain(|stack| {
            !all[stack].stages.publish.is_empty() || standing.contains(stack.as_str())
        });
        let mut stacks: Vec<StackName> = stacks.into_iter().collect();
        let removed = standing.iter().filter_map(|name| name.parse().ok());
        stacks.extend(removed.filter(|name: &StackName| !all.contains_key(name)));
        if stacks.is_empty() {
            return Err(CommandError::new("no stack here publishes facts")
                .hint("a `publish` block in a stack does"));
        }
        Ok(stacks)
    }

    /// Whose facts stand anywhere.
    async fn standing(&self) -> Result<BTreeSet<String>, CommandError> {
        let standing = facts::stacks_standing(&self.control).await;
        standing.map_err(|err| CommandError::judged(&err, false, None))
    }

    async fn current(&self, stack: &StackName) -> Result<Current, CommandError> {
        let env = &self.process.env;
        let (control, open, project) = (&self.control, &self.open, &self.project);
        let read = if project.stacks.contains_key(stack) {
            Current::read(control, open, project, stack, env).await
        } else {
            Current::of_removed(control, open, project, stack, env).await
        };
        read.map_err(|err| refused(&err, err.hint()))
    }

    async fn show(&self, words: &[String]) -> Result<ExitStatus, CommandError> {
        let mut documents = Vec::new();
        for stack in self.stacks(words).await? {
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
        for stack in self.stacks(words).await? {
            let current = self.current(&stack).await?;
            let compared = facts::compare(&self.control, &current.publication(None)).await;
            let compared = compared.map_err(|err| publishing(&err))?;
            let places = compared.places.iter().map(|place| {
                if place.agrees() {
                    ExitStatus::Done
                } else {
                    ExitStatus::Changes
                }
            });
            let elsewhere = compared.elsewhere.iter().map(|one| match &one.found {
                Standpoint::Agrees => ExitStatus::Done,
                Standpoint::Differs(_) | Standpoint::Missing | Standpoint::Left => {
                    ExitStatus::Changes
                }
                Standpoint::Unknown(_) => ExitStatus::Failed,
            });
            // Not to know outweighs to know that something differs.
            for found in places.chain(elsewhere) {
                if found == ExitStatus::Failed || status == ExitStatus::Done {
                    status = found;
                }
            }
            for compared in &compared.places {
                if self.global.json {
                    documents.push(difference_json(&stack, compared));
                } else {
                    report::data(&difference(&stack, compared))?;
                }
            }
            for compared in &compared.elsewhere {
                if self.global.json {
                    documents.push(json!({ "stack": stack, "elsewhere": compared }));
                } else {
                    report::data(&elsewhere_difference(&stack, compared))?;
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
        for stack in self.stacks(words).await? {
            let current = self.current(&stack).await?;
            let done = facts::publish(&self.control, &current.publication(take_over)).await;
            let done = done.map_err(|err| publishing(&err))?;
            for published in &done.places {
                if self.global.json {
                    documents.push(json!({ "stack": stack, "published": published }));
                } else {
                    report::data(&publication(&stack, published))?;
                }
            }
            for elsewhere in &done.elsewhere {
                if self.global.json {
                    documents.push(json!({ "stack": stack, "elsewhere": elsewhere }));
                } else {
                    let Elsewhere { what, outcome, .. } = elsewhere;
                    report::data(&format!("{stack} → {what}: {outcome}\n"))?;
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
    if compared.is_gone {
        text.push_str("  ! the branch was there, and is gone\n");
    }
    let words = [
        "differs from the state",
        "as in the state",
        "nothing names it any more",
    ];
    for file in &would.files {
        text.push_str(&file_line(would, file, words));
        let Some(fields) = compared.fields.get(&file.path) else {
            continue;
        };
        if fields.is_empty() {
            text.push_str(if file.encrypted {
                "      encrypted values, or who may read them\n"
            } else {
                "      only in how it is written\n"
            });
        }
        for field in fields {
            let _ = writeln!(text, "      {field}");
        }
    }
    if let Some(foreign) = &compared.foreign {
        text.extend(["  ! ", &*view::text::clean(&foreign.to_string()), "\n"]);
    }
    for undone in &would.undone {
        text.extend(["  · ", undone, "\n"]);
    }
    text
}

fn elsewhere_difference(stack: &StackName, compared: &ComparedElsewhere) -> String {
    let what = &compared.what;
    let (word, fields) = match &compared.found {
        Standpoint::Agrees => ("agrees".to_owned(), [].as_slice()),
        Standpoint::Differs(fields) => ("differs".to_owned(), fields.as_slice()),
        Standpoint::Missing => ("is not there".to_owned(), [].as_slice()),
        Standpoint::Left => (
            "nothing names it any more, and it is still there".to_owned(),
            [].as_slice(),
        ),
        Standpoint::Unknown(why) => (format!("could not be looked at: {why}"), [].as_slice()),
    };
    let mut text = format!("{stack} → {what}: {word}\n");
    for field in fields {
        let _ = writeln!(text, "      {field}");
    }
    text
}

fn files(published: &Published, words: [&str; 3]) -> String {
    let files = published.files.iter();
    let mut text: String = files
        .map(|file| file_line(published, file, words))
        .collect();
    for undone in &published.undone {
        text.extend(["  · ", undone, "\n"]);
    }
    text
}

fn file_line(
    published: &Published,
    file: &PublishedFile,
    [written, unchanged, withdrawn]: [&str; 3],
) -> String {
    let longest = published.files.iter().map(|file| file.path.len()).max();
    let width = longest.unwrap_or_default();
    let (mark, word) = match file.what {
        FileChange::Written => ("+", written),
        FileChange::Unchanged => ("=", unchanged),
        FileChange::Withdrawn => ("-", withdrawn),
        FileChange::Left => ("·", "left as it is: somebody else changed it"),
    };
    let sealed = if file.encrypted { ", encrypted" } else { "" };
    format!("  {mark} {:width$}  {word}{sealed}\n", file.path)
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
        "gone": compared.is_gone, "fields": compared.fields,
    })
}

/// A rule's no is told from something that broke.
fn publishing(err: &PublishFactsError) -> CommandError {
    CommandError::judged(err, err.is_refusal(), err.hint())
}

fn refused(err: &CurrentFactsError, hint: Option<String>) -> CommandError {
    CommandError::judged(err, false, hint)
}
