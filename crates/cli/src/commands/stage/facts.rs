//! `terrane facts`: shows, compares and publishes the facts of stacks.

use std::fmt::Write as _;

use control::Control;
use control::project::contracts::BreakingChanges;
use control::project::open::OpenProject;
use control::stage::facts::{
    self, BranchComparison, FactsSnapshot, PublishOutcome, SinkComparison, SinkOutcome, SinkState,
    TakeOver,
};
use control::state::redact_reason::without_secrets;
use model::base::ids::StackName;
use model::project::Project;
use model::stage::facts::{Encrypt, FactFile, FileChange, Published, PublishedFile, render};
use serde_json::{Value, json};

use crate::commands::manual::{ReasonArg, tell_git};
use crate::commands::{open_home, selection, valid_project};
use crate::global::Global;
use crate::view::errors;
use crate::{CommandError, ExitStatus, Process, report, view};

/// Show, compare or publish facts for GitOps
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

/// Show the facts of stacks, from their current states
///
/// Sensitive values are not shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts show\n  terrane facts show k8s-prod --json")]
struct ShowArgs {
    /// Stacks, as selectors; default: those here
    stacks: Vec<String>,
}

/// Compare published facts with the states
///
/// Differences are shown field by field, published → current; sensitive values are not shown. Exit code 2 if something
/// differs, is missing, or was changed by somebody else; 1 if something cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  terrane facts diff\n  terrane facts diff k8s-prod")]
struct DiffArgs {
    /// Stacks, as selectors; default: those here
    stacks: Vec<String>,
}

/// Publish the facts of stacks again, without a run
///
/// Withdraws what stacks no longer publish; without STACKS, also removes facts of deleted stacks.
///
/// `--take-over` overwrites changes by others, `--withdraw-used` also withdraws facts that have known readers. Both are
/// break-glass actions, recorded with their reason in the home and on the branch.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("emergency").multiple(true))]
#[command(after_help = "Examples:\n  terrane facts publish k8s-prod\n  \
                  terrane facts publish k8s-prod --take-over --reason \"edited by hand in the incident\"\n  \
                  terrane facts publish k8s-old --withdraw-used --reason \"its consumers go today\"")]
struct PublishArgs {
    /// Stacks, as selectors; default: those here
    stacks: Vec<String>,
    /// Overwrite changes by others
    #[arg(long, requires = "reason", group = "emergency")]
    take_over: bool,
    /// Also withdraw facts that have known readers
    #[arg(long, requires = "reason", group = "emergency")]
    withdraw_used: bool,
    /// Why, in a sentence; it is recorded
    #[arg(long, value_name = "TEXT", requires = "emergency")]
    reason: Option<String>,
}

pub(crate) async fn facts(
    args: FactsArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (open, project) = valid_project(global, process)?;
    let settings = process.settings(global)?;
    let control = open_home(&settings, &open, process, process.look(global)).await?;
    let asked = FactsContext {
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
            let by = match args.reason {
                Some(reason) => {
                    let reason = ReasonArg::from(reason).read(global, process)?;
                    Some(TakeOver {
                        person: reason.actor,
                        reason: reason.text,
                    })
                }
                None => None,
            };
            let consent = TakeOverConsent {
                take_over: by.clone().filter(|_| args.take_over),
                withdraw_used: by.filter(|_| args.withdraw_used),
            };
            asked.publish(&args.stacks, &consent).await
        }
    }
}

/// The break-glass actions that are allowed, and why.
struct TakeOverConsent {
    take_over: Option<TakeOver>,
    withdraw_used: Option<TakeOver>,
}

struct FactsContext<'a> {
    control: Control,
    open: OpenProject,
    project: Project,
    global: &'a Global,
    process: &'a Process,
}

impl FactsContext<'_> {
    /// The selected stacks that publish facts, or did so before.
    async fn stacks(&self, words: &[String]) -> Result<Vec<StackName>, CommandError> {
        let all = &self.project.stacks;
        let mut stacks = selection::resolve(words, &self.open, &self.project, self.process, None)?;
        if !words.is_empty() {
            return Ok(stacks.into_iter().collect());
        }
        let published = facts::stacks_with_facts(&self.control).await;
        let published = published.map_err(|err| CommandError::from_error(&err))?;
        stacks.retain(|stack| {
            !all[stack].stages.publish.is_empty() || published.contains(stack.as_str())
        });
        let mut stacks: Vec<StackName> = stacks.into_iter().collect();
        let removed = published.iter().filter_map(|name| name.parse().ok());
        stacks.extend(removed.filter(|name: &StackName| !all.contains_key(name)));
        if stacks.is_empty() {
            return Err(CommandError::new("no stack here publishes facts")
                .hint("a `publish` block in a stack does"));
        }
        Ok(stacks)
    }

    async fn snapshot(&self, stack: &StackName) -> Result<FactsSnapshot, CommandError> {
        let env = &self.process.env;
        let (control, open, project) = (&self.control, &self.open, &self.project);
        let read = FactsSnapshot::read(control, open, project, stack, env).await;
        read.map_err(|err| CommandError::from_error(&err))
    }

    async fn show(&self, words: &[String]) -> Result<ExitStatus, CommandError> {
        let mut documents = Vec::new();
        let mut is_first = true;
        for stack in self.stacks(words).await? {
            let snapshot = self.snapshot(&stack).await?;
            let files = facts::prepare_files(&snapshot.publication(None));
            for (place, files) in files.map_err(|err| CommandError::from_error(&err))? {
                for file in files {
                    let values = shown(&file);
                    if self.global.json {
                        documents.push(json!({
                            "stack": stack, "place": place, "path": file.path, "values": values,
                        }));
                        continue;
                    }
                    let values = values.as_object().cloned().unwrap_or_default();
                    // JSON is also YAML: together they are a stream of documents.
                    let between = if is_first { "" } else { "---\n" };
                    is_first = false;
                    let text = render(file.format, &values, None);
                    let text = String::from_utf8_lossy(&text);
                    report::data(&format!(
                        "{between}# {stack}: `{}` of `{place}`\n{text}",
                        file.path
                    ))?;
                }
            }
        }
        if self.global.json {
            report::json(&Value::Array(documents))?;
        } else if is_first {
            report::say("There are no facts: no stack that publishes any is applied.\n")?;
        }
        Ok(ExitStatus::Done)
    }

    async fn diff(&self, words: &[String]) -> Result<ExitStatus, CommandError> {
        let mut status = ExitStatus::Done;
        let mut is_empty = true;
        let mut documents = Vec::new();
        for stack in self.stacks(words).await? {
            let snapshot = self.snapshot(&stack).await?;
            let compared = facts::compare(&self.control, &snapshot.publication(None)).await;
            let compared = compared.map_err(|err| CommandError::from_error(&err))?;
            is_empty &= compared.places.is_empty() && compared.elsewhere.is_empty();
            let places = compared.places.iter().map(|place| {
                if place.agrees() {
                    ExitStatus::Done
                } else {
                    ExitStatus::Changes
                }
            });
            let elsewhere = compared.elsewhere.iter().map(|one| match &one.found {
                SinkState::Agrees => ExitStatus::Done,
                SinkState::Differs(_) | SinkState::Missing | SinkState::Left => ExitStatus::Changes,
                SinkState::Unknown(_) => ExitStatus::Failed,
            });
            // A failure takes precedence over a difference.
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
        } else if is_empty {
            report::say("There is nothing to compare: no facts are published.\n")?;
        }
        Ok(status)
    }

    /// A refusal of one stack does not stop the others; all refusals are shown.
    async fn publish(
        &self,
        words: &[String],
        consent: &TakeOverConsent,
    ) -> Result<ExitStatus, CommandError> {
        let mut documents = Vec::new();
        let mut refused: Option<CommandError> = None;
        for stack in self.stacks(words).await? {
            match self.publish_one(&stack, consent).await {
                Ok(done) => self.tell(&stack, &done, &mut documents)?,
                Err(err) => {
                    if let Some(before) = refused.replace(err) {
                        self.say(&before)?;
                    }
                }
            }
        }
        if self.global.json {
            report::json(&Value::Array(documents))?;
        }
        if consent.take_over.is_some() || consent.withdraw_used.is_some() {
            let (root, project) = (&self.open.root, Some(&self.project));
            tell_git(&self.control, root, project, self.global, self.process).await?;
        }
        refused.map_or(Ok(ExitStatus::Done), Err)
    }

    fn say(&self, err: &CommandError) -> Result<(), CommandError> {
        let look = self.process.look(self.global);
        let said = errors::render(&err.message, &err.causes, &err.hints, look);
        report::say(&said)
    }

    async fn publish_one(
        &self,
        stack: &StackName,
        consent: &TakeOverConsent,
    ) -> Result<PublishOutcome, CommandError> {
        let snapshot = self.snapshot(stack).await?;
        let breaks = snapshot.takes_away(&self.project);
        let breaks = breaks.map_err(|err| CommandError::from_error(&err))?;
        if !breaks.is_empty() {
            let Some(by) = &consent.withdraw_used else {
                return Err(still_used(stack, &breaks));
            };
            let by = self.kept(by, &snapshot).await;
            let recorded = snapshot
                .record_withdrawal(&self.control, &breaks, &by)
                .await;
            recorded.map_err(|err| CommandError::from_error(&err))?;
        }
        let take_over = match &consent.take_over {
            Some(by) => Some(self.kept(by, &snapshot).await),
            None => None,
        };
        let publication = snapshot.publication(take_over.as_ref());
        let done = facts::publish(&self.control, &publication).await;
        done.map_err(|err| CommandError::from_error(&err))
    }

    /// The reason without secrets of the state: it is stored, and committed for others to read.
    async fn kept(&self, by: &TakeOver, snapshot: &FactsSnapshot) -> TakeOver {
        let states = [snapshot.state(&self.control)];
        TakeOver {
            person: by.person.clone(),
            reason: without_secrets(&self.control, &states, &by.reason).await,
        }
    }

    fn tell(
        &self,
        stack: &StackName,
        done: &PublishOutcome,
        documents: &mut Vec<Value>,
    ) -> Result<(), CommandError> {
        for published in &done.places {
            if self.global.json {
                documents.push(json!({ "stack": stack, "published": published }));
            } else {
                report::data(&publication(stack, published))?;
            }
        }
        for elsewhere in &done.elsewhere {
            if self.global.json {
                documents.push(json!({ "stack": stack, "elsewhere": elsewhere }));
            } else {
                let SinkOutcome { what, outcome, .. } = elsewhere;
                report::data(&format!("{stack} → {what}: {outcome}\n"))?;
            }
        }
        Ok(())
    }
}

/// The same error as for a plan.
fn still_used(stack: &StackName, breaks: &BreakingChanges) -> CommandError {
    let said = format!(
        "cannot withdraw facts of `{stack}`: others still use them: {}\n{}",
        breaks.names().join(", "),
        breaks.lines().join("\n")
    );
    CommandError::new(said)
        .hint(format!(
            "keep publishing them, change the consumers first, or withdraw them anyway: `terrane facts publish {stack} --withdraw-used --reason …`"
        ))
        .status(ExitStatus::Refused)
}

/// The values of a file, without sensitive ones.
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

fn difference(stack: &StackName, compared: &BranchComparison) -> String {
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
        text.push_str("  ! the branch existed and is gone\n");
    }
    let words = [
        "differs from the state",
        "as in the state",
        "the project no longer names it",
    ];
    for file in &would.files {
        let [written, same, gone] = words;
        let is_there = compared.fields.contains_key(&file.path);
        let written = if is_there { written } else { "is not there" };
        text.push_str(&file_line(would, file, [written, same, gone]));
        let Some(fields) = compared.fields.get(&file.path) else {
            continue;
        };
        if compared.unreadable.contains(&file.path) {
            text.push_str("      it has no fields: it is a link or another kind of file\n");
        } else if fields.is_empty() {
            text.push_str(if file.encrypted {
                "      encrypted values, or their recipients\n"
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
    text
}

fn elsewhere_difference(stack: &StackName, compared: &SinkComparison) -> String {
    let what = &compared.what;
    let (word, fields) = match &compared.found {
        SinkState::Agrees => ("agrees".to_owned(), [].as_slice()),
        SinkState::Differs(fields) => ("differs".to_owned(), fields.as_slice()),
        SinkState::Missing => ("is not there".to_owned(), [].as_slice()),
        SinkState::Left => ("the project no longer names it".to_owned(), [].as_slice()),
        SinkState::Unknown(why) => (format!("cannot be read: {why}"), [].as_slice()),
    };
    let mut text = format!("{stack} → {what}: {word}\n");
    for field in fields {
        let _ = writeln!(text, "      {field}");
    }
    text
}

fn files(published: &Published, words: [&str; 3]) -> String {
    let files = published.files.iter();
    files
        .map(|file| file_line(published, file, words))
        .collect()
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
        FileChange::Left => ("·", "not changed: another writer changed it"),
    };
    let sealed = if file.encrypted { ", encrypted" } else { "" };
    format!("  {mark} {:width$}  {word}{sealed}\n", file.path)
}

fn difference_json(stack: &StackName, compared: &BranchComparison) -> Value {
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
