//! Why a change set could not be prepared.

use std::io;
use std::path::PathBuf;

use drivers::engine::LocateError;
use drivers::snapshot::SnapshotError;
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, StackName};
use model::project::ignored_files::IgnoredFile;
use model::run::changeset::ReopenError;
use model::run::exception::GateOfStack;
use model::run::hold::Hold;
use render::StaleRender;
use store::ChangeSetError;

use crate::access::writers::NotAWriterError;
use crate::changeset::backends::{RefreshCopyError, export_to_engine};
use crate::changeset::staleness::StateChangedError;
use crate::changeset::upstreams::UnfinishedUpstream;
use crate::secrets::caller_env::MissingValuesError;
use crate::state::outputs::OutputsError;
use crate::state::quarantine::QuarantineError;

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    NotAWriter(#[from] NotAWriterError),
    #[error(transparent)]
    Engine(#[from] LocateError),
    #[error(
        "stack `{stack}` would store its state on the disk of this CI job, which is lost when the job ends"
    )]
    NoHome { stack: StackName },
    #[error("stack `{stack}` needs output `{output}` of `{upstream}`, which does not exist yet")]
    NotApplied {
        stack: StackName,
        upstream: StackName,
        output: String,
    },
    #[error("cannot apply stack `{stack}`: {}", undone.words())]
    UpstreamNotDone {
        stack: StackName,
        undone: Box<UnfinishedUpstream>,
    },
    #[error(transparent)]
    StateMoved(#[from] Box<StateChangedError>),
    #[error("there is no gate `{gate}` here")]
    NoSuchGate {
        gate: GateOfStack,
        known: Vec<String>,
    },
    #[error("gate `{gate}` is not checked here: it {}", if *is_after_destroy { "proves that what was destroyed is gone" } else { "belongs to an apply" })]
    GateOfOtherTime {
        gate: GateOfStack,
        is_after_destroy: bool,
    },
    #[error("none of these stacks has a `bootstrap` that installs something")]
    NothingToReinstall,
    #[error(transparent)]
    LookAgain(#[from] RefreshCopyError),
    #[error("stack `{by}` still depends on `{stack}`: it is applied, and not part of this destroy")]
    StillNeeded {
        stack: StackName,
        by: StackName,
        /// The project was read from an older commit.
        is_of_commit: bool,
    },
    #[error("stack `{by}`, which is no longer in the project, still depends on `{stack}`")]
    StillNeededByRemoved { stack: StackName, by: StackName },
    #[error("cannot apply stack `{stack}` now")]
    KeptAside {
        stack: StackName,
        source: Box<QuarantineError>,
    },
    #[error(
        "stack `{stack}` has no state in this home, but `{file}` contains one: all its resources would be created again"
    )]
    StateFile { stack: StackName, file: String },
    #[error(
        "stack `{stack}` has no state in this home, but its source names backend `{kind}` ({file}, line {line}): what was \
         applied there would be created again"
    )]
    StateElsewhere {
        stack: StackName,
        kind: String,
        file: String,
        line: usize,
    },
    #[error(
        "the state of stack `{stack}` is in this home (serial {serial}), but target `{target}` uses backend `{kind}`: \
         what was applied would be created again"
    )]
    StateHere {
        stack: StackName,
        serial: u64,
        target: String,
        kind: String,
    },
    #[error("{} is {}", hold.on.words(), hold.words())]
    Held { hold: Box<Hold> },
    #[error(
        "{}{}",
        ignored.message(stack.as_str()),
        ignored.named_at().map_or_else(String::new, |at| format!(", named in `{at}`"))
    )]
    Ignored {
        stack: StackName,
        ignored: IgnoredFile,
    },
    #[error("stack `{stack}` is no longer in the project")]
    Gone { stack: StackName },
    #[error("change set {set} runs an engine command, which is not retried automatically")]
    ExecAgain { set: ChangeSetId },
    #[error(
        "cannot resume change set `{set}`: it {}",
        if *is_bundle { "applies a bundle, as it is or not at all" } else { "destroys stacks" }
    )]
    NotResumed { set: ChangeSetId, is_bundle: bool },
    #[error("change set `{set}` was rejected by `{by}`: {reason}")]
    Rejected {
        set: ChangeSetId,
        by: Actor,
        reason: String,
    },
    #[error(
        "change set {waits} awaits confirmation and is newer than the stopped change set {stopped}"
    )]
    NewerWaits {
        waits: ChangeSetId,
        stopped: ChangeSetId,
    },
    #[error("there is no stopped change set to resume; change set {waits} awaits confirmation")]
    OnlyWaits { waits: ChangeSetId },
    #[error("nothing to resume: no change set is stopped")]
    NothingStopped,
    #[error("no engine is known for stack `{stack}`")]
    NoEngine { stack: StackName },
    #[error(transparent)]
    Gather(#[from] MissingValuesError),
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    #[error(
        "stack `{stack}` needs the provider `{provider}` ({at}), which target `{target}` does not list"
    )]
    Provider {
        stack: StackName,
        target: String,
        provider: String,
        at: String,
    },
    #[error(transparent)]
    Stale(#[from] StaleRender),
    #[error(
        "context `{context}` provides `{file}` to stack `{stack}`, but the source already has `{path}`"
    )]
    FileTwice {
        stack: StackName,
        context: String,
        file: String,
        path: String,
    },
    #[error("stack `{stack}` lists `{file}` in `artifacts`, but the source already has `{path}`")]
    ArtifactTwice {
        stack: StackName,
        file: String,
        path: String,
    },
    #[error("could not take a snapshot of the source")]
    Snapshot(#[from] SnapshotError),
    #[error("cannot store the snapshot of the source in `{}`", path.display())]
    Keep { path: PathBuf, source: io::Error },
    #[error("could not seal the snapshot of the source")]
    Seal(#[source] store::StoreError),
    #[error("cannot record the values of the request")]
    Digest(#[source] store::StoreError),
    #[error("cannot read or reserve a state")]
    Reserve(#[source] store::StoreError),
    #[error("cannot read where the facts are published")]
    FactLocations(#[source] store::StoreError),
    #[error(transparent)]
    Reopen(#[from] ReopenError),
    #[error("there is no change set `{id}`")]
    Unknown { id: ChangeSetId },
    #[error("could not store the change set")]
    Store(#[from] ChangeSetError),
}

impl Explain for PrepareError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAWriter(_)
            | Self::UpstreamNotDone { .. }
            | Self::StateMoved(_)
            | Self::ExecAgain { .. }
            | Self::NoHome { .. }
            | Self::Provider { .. }
            | Self::StillNeeded { .. }
            | Self::StillNeededByRemoved { .. }
            | Self::StateFile { .. }
            | Self::StateElsewhere { .. }
            | Self::StateHere { .. }
            | Self::Stale(_)
            | Self::Rejected { .. }
            | Self::NotResumed { .. }
            | Self::NewerWaits { .. }
            | Self::OnlyWaits { .. }
            | Self::Held { .. } => ErrorKind::Refused,
            Self::KeptAside { source, .. } => source.kind(),
            Self::LookAgain(err) => err.kind(),
            Self::Gone { .. } | Self::NothingStopped | Self::Unknown { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NotAWriter(err) => err.next_steps(),
            Self::Engine(err) => err.next_steps(),
            Self::StateMoved(err) => err.next_steps(),
            Self::Stale(err) => err.next_steps(),
            Self::Gather(err) => err.next_steps(),
            Self::Outputs(err) => err.next_steps(),
            Self::LookAgain(err) => err.next_steps(),
            Self::Reopen(err) => err.next_steps(),
            Self::KeptAside { source, .. } => source.next_steps(),
            Self::UpstreamNotDone { undone, .. } => vec![undone.next_step.clone()],
            Self::Held { hold } => vec![
                hold.release_step(),
                advice("`terrane plan` works meanwhile"),
            ],
            Self::StateElsewhere { stack, kind, .. } => state_elsewhere(stack, kind),
            Self::NoSuchGate { gate, known } => vec![no_such_gate(gate, known)],
            Self::StateFile { stack, file } => vec![
                command(format!("state import {stack} --from {file}"), "imports it"),
                advice("if none of its resources exist any more, remove the file"),
            ],
            Self::NewerWaits { waits, stopped } => vec![
                command(format!("run confirm {waits}"), "applies it"),
                command(
                    format!("apply --resume {stopped}"),
                    "continues the older one",
                ),
            ],
            Self::Ignored { ignored, .. } => vec![advice(ignored.hint())],
            _ => self.one_step().into_iter().collect(),
        }
    }
}

impl PrepareError {
    /// The next step of a reason that has just one.
    fn one_step(&self) -> Option<NextStep> {
        Some(match self {
            Self::ExecAgain { .. } => advice("start it again: `terrane exec STACK -- …`"),
            Self::NoHome { .. } => {
                advice("name a home that outlives the job: `--data DIR` or `TERRANE_HOME`")
            }
            Self::GateOfOtherTime { .. } => advice("omit `--skip-gate` for it"),
            Self::NothingToReinstall => {
                advice("name the stack that has one: `terrane apply STACK --reinstall`")
            }
            Self::NotApplied { stack, .. } => {
                command(format!("apply +{stack}"), "applies its dependencies first")
            }
            Self::Provider { target, .. } => advice(format!(
                "add it to `providers` of target `{target}`, if its stacks may use it"
            )),
            Self::StillNeededByRemoved { by, .. } => command(
                format!("destroy {by}"),
                "names the commit to destroy it with first",
            ),
            Self::StillNeeded {
                stack,
                by,
                is_of_commit: true,
            } => advice(format!(
                "name all its dependents: `terrane destroy {stack} {by} --from …`"
            )),
            Self::StillNeeded { stack, .. } => {
                command(format!("destroy {stack}+"), "destroys its dependents first")
            }
            Self::StateHere { stack, .. } => export_to_engine(stack),
            Self::NotResumed {
                is_bundle: true, ..
            } => command("plan --out FILE", "makes a new one"),
            Self::NotResumed { .. } => command("destroy", "plans the remaining stacks again"),
            Self::Rejected { .. } => command("apply", "requests a new one, with its own approvals"),
            Self::Gone { .. } => command("apply", "starts a new change set"),
            Self::NothingStopped | Self::Unknown { .. } => {
                command("run list --all", "lists all change sets")
            }
            Self::FileTwice { .. } => {
                advice("give it another name, or remove the one in the source")
            }
            Self::ArtifactTwice { path, .. } => advice(format!(
                "remove it from the source, or add it to `.gitignore`: `{path}`"
            )),
            Self::OnlyWaits { waits } => command(format!("run confirm {waits}"), "applies it"),
            _ => return None,
        })
    }
}

fn state_elsewhere(stack: &StackName, kind: &str) -> Vec<NextStep> {
    let import = command(format!("state import {stack} --from engine"), "imports it");
    // The engine does not find a relative path from its own working directory.
    let stays = (kind != "local").then(|| {
        advice(format!(
            "`backend \"{kind}\" {{}}` in the target leaves it there"
        ))
    });
    let remove = advice("if nothing was ever applied there, remove the block from the source");
    [Some(import), stays, Some(remove)]
        .into_iter()
        .flatten()
        .collect()
}

fn no_such_gate(gate: &GateOfStack, known: &[String]) -> NextStep {
    if known.is_empty() {
        return advice(format!(
            "`{}` is not a stack of this change set with a gate",
            gate.stack
        ));
    }
    let names = known.iter().map(|name| format!("`{}/{name}`", gate.stack));
    let names: Vec<String> = names.collect();
    advice(format!("there is {}", names.join(", ")))
}
