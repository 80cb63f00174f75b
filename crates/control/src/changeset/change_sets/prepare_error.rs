//! Why a change set was not put together.

use std::io;
use std::path::PathBuf;

use drivers::snapshot::SnapshotError;
use model::changeset::ReopenError;
use model::exception::GateOfStack;
use model::hold::Hold;
use model::ids::{ChangeSetId, StackName};
use model::ignored::Ignored;
use render::Stale;
use store::ChangeSetError;

use crate::access::writers::NotAWriterError;
use crate::changeset::backends::LookAgainError;
use crate::changeset::staleness::StateMovedError;
use crate::changeset::upstreams::Undone;
use crate::secrets::caller_env::GatherError;
use crate::state::outputs::OutputsError;
use crate::state::quarantine::KeptAsideError;

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    NotAWriter(#[from] NotAWriterError),
    #[error(
        "stack `{stack}` would keep its state on the disk of this CI job, which goes when the job ends"
    )]
    NoHome { stack: StackName },
    #[error("stack `{stack}` needs output `{output}` of `{upstream}`, which is not there yet")]
    NotApplied {
        stack: StackName,
        upstream: StackName,
        output: String,
    },
    #[error("stack `{stack}` is not applied: {}", undone.words())]
    UpstreamNotDone {
        stack: StackName,
        undone: Box<Undone>,
    },
    #[error(transparent)]
    StateMoved(#[from] Box<StateMovedError>),
    #[error("there is no gate `{gate}` here")]
    NoSuchGate {
        gate: GateOfStack,
        known: Vec<String>,
    },
    #[error("gate `{gate}` is not looked at here: it {}", if *is_after_destroy { "proves that what was destroyed is gone" } else { "belongs to an apply" })]
    GateOfOtherTime {
        gate: GateOfStack,
        is_after_destroy: bool,
    },
    #[error("none of these stacks has a `bootstrap` that installs something")]
    NothingToReinstall,
    #[error(transparent)]
    LookAgain(#[from] LookAgainError),
    #[error("stack `{by}` still stands on `{stack}`: it is applied, and not part of this")]
    StillNeeded {
        stack: StackName,
        by: StackName,
        /// As a commit has them that is no more.
        is_of_commit: bool,
    },
    #[error("stack `{by}`, which is not in the project any more, still stands on `{stack}`")]
    StillNeededByRemoved { stack: StackName, by: StackName },
    #[error("stack `{stack}` may not be applied now")]
    KeptAside {
        stack: StackName,
        source: Box<KeptAsideError>,
    },
    #[error(
        "stack `{stack}` has no state here, and `{file}` holds one: everything in it would be made again"
    )]
    StateFile { stack: StackName, file: String },
    #[error(
        "stack `{stack}` has no state here, and its source names backend `{kind}` ({file}, line {line}): what was applied \
         there would be made again"
    )]
    StateElsewhere {
        stack: StackName,
        kind: String,
        file: String,
        line: usize,
    },
    #[error(
        "stack `{stack}` has its state here (serial {serial}), and target `{target}` keeps states in backend `{kind}`: what was \
         applied would be made again"
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
    Ignored { stack: StackName, ignored: Ignored },
    #[error("stack `{stack}` is no longer in the project")]
    Gone { stack: StackName },
    #[error("change set {set} is a command of the engine, which is not tried again by itself")]
    ExecAgain { set: ChangeSetId },
    #[error(
        "change set `{set}` {} and is not resumed",
        if *is_bundle { "applies a bundle, as it is or not at all," } else { "destroys," }
    )]
    NotResumed { set: ChangeSetId, is_bundle: bool },
    #[error("change set `{set}` was rejected by `{by}`: {reason}")]
    Rejected {
        set: ChangeSetId,
        by: String,
        reason: String,
    },
    #[error("change set {waits} awaits confirmation, and is newer than {stopped}, which stopped")]
    NewerWaits {
        waits: ChangeSetId,
        stopped: ChangeSetId,
    },
    #[error("change set {waits} awaits confirmation, and none has stopped")]
    OnlyWaits { waits: ChangeSetId },
    #[error("there is no stopped change set to resume")]
    NothingStopped,
    #[error("no engine is known for stack `{stack}`")]
    NoEngine { stack: StackName },
    #[error(transparent)]
    Gather(#[from] GatherError),
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
    Stale(#[from] Stale),
    #[error(
        "context `{context}` gives stack `{stack}` the file `{file}`, and the source has one at `{path}`"
    )]
    FileTwice {
        stack: StackName,
        context: String,
        file: String,
        path: String,
    },
    #[error(
        "stack `{stack}` says that it writes `{file}` (`artifacts`), and the source has `{path}`"
    )]
    ArtifactTwice {
        stack: StackName,
        file: String,
        path: String,
    },
    #[error("could not take a snapshot of the source")]
    Snapshot(#[from] SnapshotError),
    #[error("could not keep the snapshot of the source in `{}`", path.display())]
    Keep { path: PathBuf, source: io::Error },
    #[error("could not seal the snapshot of the source")]
    Seal(#[source] store::StoreError),
    #[error("could not note with which values it was asked for")]
    Digest(#[source] store::StoreError),
    #[error("could not look after a state")]
    Reserve(#[source] store::StoreError),
    #[error("could not read where its facts stand")]
    FactLocations(#[source] store::StoreError),
    #[error(transparent)]
    Reopen(#[from] ReopenError),
    #[error("there is no change set `{id}`")]
    Unknown { id: ChangeSetId },
    #[error("could not store the change set")]
    Store(#[from] ChangeSetError),
}

impl PrepareError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotAWriter(refused) => Some(refused.hint()),
            Self::ExecAgain { .. } => Some("give it anew: `terrane exec STACK -- …`".to_owned()),
            Self::NoHome { .. } => {
                Some("name a home that outlives the job: `--data DIR` or `TERRANE_HOME`".to_owned())
            }
            Self::UpstreamNotDone { undone, .. } => Some(undone.way_on.clone()),
            Self::StateMoved(moved) => Some(moved.hint()),
            Self::NoSuchGate { gate, known } => Some(match known.as_slice() {
                [] => format!("`{}` is no stack of this with a gate", gate.stack),
                known => {
                    let names: Vec<String> = known
                        .iter()
                        .map(|name| format!("`{}/{name}`", gate.stack))
                        .collect();
                    format!("there is {}", names.join(", "))
                }
            }),
            Self::GateOfOtherTime { .. } => Some("leave `--skip-gate` out for it".to_owned()),
            Self::NothingToReinstall => {
                Some("name the stack that has it: `terrane apply STACK --reinstall`".to_owned())
            }
            Self::NotApplied { stack, .. } => Some(format!(
                "`terrane apply +{stack}` applies what it needs first"
            )),
            Self::Provider { target, .. } => Some(format!(
                "add it to `providers` of target `{target}`, if its stacks may use it"
            )),
            Self::StillNeededByRemoved { by, .. } => Some(format!(
                "`terrane destroy {by}` names the commit to destroy it with first"
            )),
            Self::StillNeeded {
                stack,
                by,
                is_of_commit: true,
            } => Some(format!(
                "name all that stands on it: `terrane destroy {stack} {by} --from …`"
            )),
            Self::StillNeeded { stack, .. } => Some(format!(
                "`terrane destroy {stack}+` destroys its dependents first"
            )),
            Self::KeptAside { stack, source } => source.hint(stack.as_str()),
            Self::Stale(stale) => stale.hint(),
            Self::StateFile { stack, file } => Some(format!(
                "`terrane state import {stack} --from {file}` brings it in; if nothing of it exists any more, remove the file"
            )),
            Self::Ignored { ignored, .. } => Some(ignored.hint()),
            Self::StateElsewhere { stack, kind, .. } => {
                // A file that is named from where the source lies is not found from where the engine works.
                let stays = match kind.as_str() {
                    "local" => String::new(),
                    kind => format!(" `backend \"{kind}\" {{}}` in the target leaves it there;"),
                };
                Some(format!(
                    "`terrane state import {stack} --from engine` brings it in;{stays} if nothing was ever applied there, take \
                     the block out of the source"
                ))
            }
            Self::StateHere { stack, .. } => Some(format!(
                "`terrane state export {stack} --to engine` brings it there, and is enough if it is there already"
            )),
            Self::Held { hold } => Some(format!(
                "{}; `terrane plan` works meanwhile",
                hold.way_out()
            )),
            Self::NotResumed {
                is_bundle: true, ..
            } => Some("`terrane plan --out FILE` makes a fresh one".to_owned()),
            Self::NotResumed { .. } => {
                Some("`terrane destroy` again asks about what is left".to_owned())
            }
            Self::Rejected { .. } => {
                Some("`terrane apply` asks for a new one, with approvals of its own".to_owned())
            }
            Self::Gone { .. } => Some("`terrane apply` starts a new change set".to_owned()),
            Self::NothingStopped => Some("`terrane run list --all` shows them all".to_owned()),
            Self::Gather(err) => err.hint(),
            Self::FileTwice { .. } => {
                Some("give it another name, or remove the one in the source".to_owned())
            }
            Self::ArtifactTwice { path, .. } => Some(format!(
                "remove it from the source, or name it in `.gitignore`: `{path}`"
            )),
            Self::Outputs(err) => err.hint(),
            Self::LookAgain(err) => err.hint(),
            Self::NoEngine { .. }
            | Self::Snapshot(_)
            | Self::Keep { .. }
            | Self::Seal(_)
            | Self::FactLocations(_)
            | Self::Digest(_)
            | Self::Reserve(_)
            | Self::Store(_) => None,
            Self::Reopen(err) => Some(err.hint()),
            Self::Unknown { .. } => Some("`terrane run list --all` shows them all".to_owned()),
            Self::OnlyWaits { waits } => Some(format!("`terrane run confirm {waits}` applies it")),
            Self::NewerWaits { waits, stopped } => Some(format!(
                "`terrane run confirm {waits}` applies it; `terrane apply --resume {stopped}` goes on with the older one"
            )),
        }
    }

    /// Whether a rule refused it, rather than something breaking.
    pub fn is_refusal(&self) -> bool {
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
            | Self::Held { .. } => true,
            Self::KeptAside { source, .. } => source.is_refusal(),
            Self::LookAgain(err) => err.is_refusal(),
            Self::NotApplied { .. }
            | Self::FileTwice { .. }
            | Self::ArtifactTwice { .. }
            | Self::Ignored { .. }
            | Self::NoSuchGate { .. }
            | Self::GateOfOtherTime { .. }
            | Self::NothingToReinstall
            | Self::Gone { .. }
            | Self::NothingStopped
            | Self::NoEngine { .. }
            | Self::Gather(_)
            | Self::Outputs(_)
            | Self::Snapshot(_)
            | Self::Keep { .. }
            | Self::Seal(_)
            | Self::FactLocations(_)
            | Self::Digest(_)
            | Self::Reserve(_)
            | Self::Reopen(_)
            | Self::Unknown { .. }
            | Self::Store(_) => false,
        }
    }
}
