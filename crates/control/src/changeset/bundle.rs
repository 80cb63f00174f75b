//! Bundles: a whole change set, planned here, as one sealed file that another job applies, on this machine or
//! on another.
//!
//! A bundle contains everything that an apply needs: the source, each plan as the engine wrote it and as
//! users saw it, and its seal. It also contains the keys of the digests in the seals: without them, another
//! home could not compare values.
//!
//! Not here: making a change set from a bundle (`prepare::from_bundle`), sealing (`store::bundles`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::plan::coverage::ReviewedPlan;
use model::project::ApprovalBlock;
use model::project::{Project, Stack, Target};
use model::run::bundle::{BundleParts, UnpackPartsError, pack, unpack};
use model::run::changeset::{BundleOrigin, ChangeSet, Request};
use model::run::{Outcome, Run, RunEvent, RunSpec, RunState};
use serde::{Deserialize, Serialize};
use store::{KeyScope, OpenBundleError, StoreError};

use crate::Control;
use crate::home::{make_private, write_private};
use crate::run::keyed_digests::{self, DigestKeys};
use crate::run::{cleanup, client_presence};

/// The hint for a missing key of a bundle.
pub const GIVE_KEY: &str =
    "give this job the key of the one that planned: `TERRANE_KEY`, or `TERRANE_KEY_FILE`";

/// The size limit of a bundle file.
const LARGEST: u64 = 1 << 30;

/// One run of a bundle. It is stored in bundles, so fields are only added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BundledRun {
    pub(crate) spec: RunSpec,
    /// How its plan ended: with changes, without, or deferred.
    pub(crate) outcome: Outcome,
    /// The state that a plan without changes was made from.
    #[serde(default)]
    pub(crate) unchanged: Option<UnchangedState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnchangedState {
    pub(crate) serial: Option<i64>,
    pub(crate) lineage: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct BundleIndex {
    request: Request,
    planned_as: String,
    planned_at: jiff::Timestamp,
    digests: DigestKeys,
    runs: Vec<BundledRun>,
}

/// An opened bundle: it belongs to this project and is unmodified.
pub struct Bundle {
    pub(crate) request: Request,
    pub(crate) digests: DigestKeys,
    pub(crate) runs: Vec<BundledRun>,
    parts: BundleParts,
    /// Who made the plans, when, and as which change set.
    pub origin: BundleOrigin,
}

/// A summary of a written bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleSummary {
    pub id: String,
    pub bytes: u64,
    pub stacks: usize,
    /// Stacks whose plan has changes, and stacks that are planned after others are applied.
    pub changing: usize,
    pub deferred: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteBundleError {
    #[error("the plan of stack `{stack}` {why}: a bundle only contains complete change sets")]
    NotPlanned { stack: StackName, why: &'static str },
    #[error("cannot write a bundle: a policy denies stack `{stack}`")]
    Denied { stack: StackName },
    #[error("the {what} of stack `{stack}` is gone")]
    Gone {
        what: &'static str,
        stack: StackName,
    },
    #[error("could not read the source of change set `{set}`")]
    Source { set: String, source: io::Error },
    #[error("cannot decrypt the stored plans")]
    Unseal(#[source] StoreError),
    #[error("cannot read the change set")]
    Read(#[from] store::ChangeSetError),
    #[error("cannot encode the bundle")]
    Encode(#[source] serde_json::Error),
    #[error("could not seal the bundle")]
    Seal(#[source] StoreError),
    #[error("could not write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Explain for WriteBundleError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Denied { stack } => vec![
                advice("change what the policy denies"),
                command(
                    format!("apply {stack} --override-policy --reason \"…\""),
                    "plans and applies it without a bundle, in an emergency and on the record",
                ),
            ],
            _ => vec![advice("no bundle was written")],
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadBundleError {
    #[error("could not read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` exceeds the size limit of bundles", path.display())]
    TooLarge { path: PathBuf },
    #[error("cannot use the bundle `{}`", path.display())]
    Open {
        path: PathBuf,
        source: OpenBundleError,
    },
    #[error("cannot use the bundle `{}`", path.display())]
    Parts {
        path: PathBuf,
        source: UnpackPartsError,
    },
    #[error("cannot read the bundle `{}`: another version of terrane made it", path.display())]
    Index {
        path: PathBuf,
        source: serde_json::Error,
    },
}

impl Explain for ReadBundleError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } | Self::Parts { .. } | Self::Index { .. } => ErrorKind::Refused,
            Self::Open {
                source: OpenBundleError::Interrupted,
                ..
            }
            | Self::Read { .. } => ErrorKind::Failed,
            Self::Open { .. } => ErrorKind::Refused,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let Self::Open { source, .. } = self else {
            return Vec::new();
        };
        let plan = command("plan --out FILE", "makes a new one");
        match source {
            OpenBundleError::OtherMaster { .. } => vec![advice(GIVE_KEY)],
            OpenBundleError::Foreign { .. } => {
                vec![advice("run this in the project that it was made for"), plan]
            }
            OpenBundleError::Shape
            | OpenBundleError::Format { .. }
            | OpenBundleError::Changed
            | OpenBundleError::Interrupted => vec![plan],
        }
    }
}

/// Whether the file at this path starts like a bundle.
pub fn is_bundle(path: &Path) -> io::Result<bool> {
    let mut start = [0; 32];
    let mut file = fs::File::open(path)?;
    let mut length = 0;
    while length < start.len() {
        match file.read(&mut start[length..])? {
            0 => break,
            read => length += read,
        }
    }
    Ok(store::is_bundle(&start[..length]))
}

/// Writes the plans of a finished change set into a file, atomically.
pub async fn write(
    control: &Control,
    set: &ChangeSet,
    runs: &[Run],
    path: &Path,
) -> Result<BundleSummary, WriteBundleError> {
    let mut parts = BundleParts::new();
    let mut planned = Vec::new();
    for run in runs {
        let outcome = planned_outcome(run)?;
        let spec = control.store.run_spec(run.id).await?;
        let all: &[PlanFile] = match outcome {
            Outcome::Planned { .. } => &PlanFile::ALL,
            // Its preview, if there is one.
            Outcome::Deferred { .. } => &[PlanFile::Difference],
            _ => &[],
        };
        for kept in all {
            let plain = kept.read(control, run.id, &spec).await;
            match plain.map_err(WriteBundleError::Unseal)? {
                Some(plain) => {
                    parts.insert(kept.part(&run.stack), plain);
                }
                None if matches!(outcome, Outcome::Deferred { .. }) => {}
                None => {
                    return Err(WriteBundleError::Gone {
                        what: kept.what(),
                        stack: run.stack.clone(),
                    });
                }
            }
        }
        let unchanged = match outcome {
            Outcome::Unchanged => unchanged(control, run.id).await?,
            _ => None,
        };
        planned.push(BundledRun {
            spec,
            outcome,
            unchanged,
        });
    }
    let snapshot = read_source(control, set).await?;
    parts.insert("source".to_owned(), snapshot);
    let changing = planned.iter();
    let changing = changing.filter(|run| matches!(run.outcome, Outcome::Planned { .. }));
    let changing = changing.count();
    let deferred = planned_later(&planned).len();
    let stacks = planned.len();
    let index = BundleIndex {
        request: set.request.clone(),
        planned_as: set.id.to_string(),
        planned_at: set.created_at,
        digests: DigestKeys::of_home(&control.store)
            .await
            .map_err(WriteBundleError::Seal)?,
        runs: planned,
    };
    let index = serde_json::to_vec(&index).map_err(WriteBundleError::Encode)?;
    parts.insert("index".to_owned(), index);
    let id = uuid::Uuid::new_v4().simple().to_string();
    let sealed = control
        .store
        .bundle_seal(control.home.project(), &id, pack(&parts))
        .await
        .map_err(WriteBundleError::Seal)?;
    put(path, &sealed).map_err(|source| WriteBundleError::Write {
        path: path.to_owned(),
        source,
    })?;
    Ok(BundleSummary {
        id,
        bytes: sealed.len() as u64,
        stacks,
        changing,
        deferred,
    })
}

/// The stacks that are planned after others are applied, as they would be without a bundle. These are
/// deferred stacks, and stacks that depend on one that changes, by value or by order. No earlier plan
/// contains what such an upstream changes in real resources.
fn planned_later(runs: &[BundledRun]) -> BTreeSet<&StackName> {
    let (mut changing, mut later) = (BTreeSet::new(), BTreeSet::new());
    // Each run comes after all its upstreams.
    for BundledRun { spec, outcome, .. } in runs {
        let stands_on = |stacks: &BTreeSet<&StackName>| {
            let mut upstreams = spec.upstreams.iter();
            upstreams.any(|need| stacks.contains(&need.stack))
        };
        let is_later = match outcome {
            Outcome::Deferred { .. } => true,
            // Changes that are already planned do not affect it; changes that are not planned yet may.
            Outcome::Untouched => stands_on(&later),
            _ => stands_on(&later) || stands_on(&changing),
        };
        if is_later {
            later.insert(&spec.stack.name);
        } else if matches!(outcome, Outcome::Planned { .. }) {
            changing.insert(&spec.stack.name);
        }
    }
    later
}

/// The state in which a plan found nothing to change.
async fn unchanged(
    control: &Control,
    run: RunId,
) -> Result<Option<UnchangedState>, WriteBundleError> {
    let events = control.store.run_events(run).await?;
    Ok(events.into_iter().rev().find_map(|(_, event)| match event {
        RunEvent::NothingToChange {
            serial, lineage, ..
        } => Some(UnchangedState { serial, lineage }),
        _ => None,
    }))
}

/// The outcome of a run's plan. Failed and unfinished plans are refused.
fn planned_outcome(run: &Run) -> Result<Outcome, WriteBundleError> {
    let not_planned = |why| {
        let stack = run.stack.clone();
        Err(WriteBundleError::NotPlanned { stack, why })
    };
    let RunState::Finished { outcome, .. } = &run.state else {
        return not_planned("is not finished");
    };
    match outcome {
        Outcome::Planned { .. }
        | Outcome::Deferred { .. }
        | Outcome::Unchanged
        | Outcome::Untouched => Ok(outcome.clone()),
        Outcome::Failed { problem } if problem.policy.denies() => Err(WriteBundleError::Denied {
            stack: run.stack.clone(),
        }),
        Outcome::Failed { .. } => not_planned("failed"),
        Outcome::Skipped { .. } => not_planned("was skipped"),
        Outcome::Applied { .. } | Outcome::NotDone { .. } | Outcome::Unknown { .. } => {
            not_planned("was applied")
        }
    }
}

/// The stored source, packed and compressed.
async fn read_source(control: &Control, set: &ChangeSet) -> Result<Vec<u8>, WriteBundleError> {
    let digest = &set.request.source;
    let sealed =
        fs::read(control.home.snapshot(digest)).map_err(|source| WriteBundleError::Source {
            set: set.id.to_string(),
            source,
        })?;
    let purpose = format!("snapshot {digest}");
    let plain = control
        .store
        .unseal(KeyScope::Project, &purpose, sealed)
        .await;
    plain.map_err(WriteBundleError::Unseal)
}

/// Reads and opens a bundle. The number of bytes that are read is limited, whatever the file is.
pub async fn read(control: &Control, path: &Path) -> Result<Bundle, ReadBundleError> {
    let path = path.to_owned();
    let failed = |source| ReadBundleError::Read {
        path: path.clone(),
        source,
    };
    let file = fs::File::open(&path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(ReadBundleError::TooLarge { path });
    }
    let opened = control
        .store
        .bundle_open(control.home.project(), bytes)
        .await;
    let (id, plain) = match opened {
        Ok(opened) => opened,
        Err(source) => return Err(ReadBundleError::Open { path, source }),
    };
    let parts = match unpack(&plain) {
        Ok(parts) => parts,
        Err(source) => return Err(ReadBundleError::Parts { path, source }),
    };
    let index = parts.get("index").map_or(&[][..], Vec::as_slice);
    let index: BundleIndex = match serde_json::from_slice(index) {
        Ok(index) => index,
        Err(source) => return Err(ReadBundleError::Index { path, source }),
    };
    Ok(Bundle {
        origin: BundleOrigin {
            id,
            planned_as: index.planned_as,
            planned_by: index.request.asker.clone(),
            planned_at: index.planned_at,
        },
        request: index.request,
        digests: index.digests,
        runs: index.runs,
        parts,
    })
}

impl Bundle {
    pub fn stacks(&self) -> impl Iterator<Item = &StackName> {
        self.runs.iter().map(|run| &run.spec.stack.name)
    }

    /// The stacks whose plans are not applied, but made again after others are applied.
    pub(crate) fn later(&self) -> BTreeSet<&StackName> {
        planned_later(&self.runs)
    }

    /// The stacks that the bundle applies, or may apply.
    pub(crate) fn changing(&self) -> BTreeSet<&StackName> {
        let runs = self.runs.iter();
        let planned = runs.filter(|run| matches!(run.outcome, Outcome::Planned { .. }));
        let mut changing = self.later();
        changing.extend(planned.map(|run| &run.spec.stack.name));
        changing
    }

    /// The source, packed and compressed.
    pub(crate) fn source(&self) -> &[u8] {
        self.parts.get("source").map_or(&[], Vec::as_slice)
    }

    /// The project with the rules that the bundle was planned under, where its own rules are weaker now.
    /// Removing writers or approvals from the project file does not loosen the rules for a bundle.
    #[must_use]
    pub fn with_planned_rules(&self, mut project: Project) -> Project {
        for BundledRun { spec, .. } in &self.runs {
            let rule = |target: &Target, stack: &Stack| {
                ApprovalBlock::rule(target.approval.as_ref(), stack.approval.as_ref())
            };
            let Some(stack) = project.stacks.get_mut(&spec.stack.name) else {
                continue;
            };
            let Some(target) = project.targets.get_mut(&stack.target) else {
                continue;
            };
            if target.is_open() {
                target.writers.clone_from(&spec.target.writers);
            }
            if let Some(then) = rule(&spec.target, &spec.stack)
                && !rule(target, stack).is_some_and(|now| now.asks_as_much_as(&then))
            {
                stack.approval = Some(then.into());
            }
        }
        project
    }

    /// Stores the files of a run where its runner expects them. For a run that is planned here, stores only
    /// what its plan is compared with.
    pub(crate) async fn lay_out(
        &self,
        control: &Control,
        run: RunId,
        spec: &RunSpec,
    ) -> Result<(), LayOutBundleError> {
        let stack = &spec.stack.name;
        make_private(&control.home.run_dir(run))?;
        keyed_digests::keep(control, run, spec, &self.digests).await?;
        let is_later = self.later().contains(stack);
        if is_later {
            if let Some(shown) = self.shown(spec) {
                let plain = serde_json::to_vec(&shown).map_err(io::Error::other)?;
                PlanFile::Difference
                    .write(control, run, spec, plain)
                    .await?;
            }
            return Ok(());
        }
        for kept in PlanFile::ALL {
            if let Some(plain) = self.parts.get(&kept.part(stack)) {
                kept.write(control, run, spec, plain.clone()).await?;
            }
        }
        Ok(())
    }

    /// What the bundle shows of a stack that is planned where it is applied; none if it has no preview.
    fn shown(&self, spec: &RunSpec) -> Option<ReviewedPlan> {
        let stack = &spec.stack.name;
        let shown = if self.shows_nothing(stack) {
            ReviewedPlan {
                own_source: spec.own_source.clone(),
                ..ReviewedPlan::default()
            }
        } else {
            let plain = self.parts.get(&PlanFile::Difference.part(stack))?;
            serde_json::from_slice(plain).ok()?
        };
        Some(ReviewedPlan {
            from_bundle: true,
            ..shown
        })
    }

    /// Whether the bundle shows a stack as unchanged.
    fn shows_nothing(&self, stack: &StackName) -> bool {
        self.runs.iter().any(|run| {
            let is_unchanged = matches!(run.outcome, Outcome::Unchanged | Outcome::Untouched);
            run.spec.stack.name == *stack && is_unchanged
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LayOutBundleError {
    #[error("could not seal a plan of the bundle")]
    Seal(#[from] StoreError),
    #[error("cannot write a plan of the bundle")]
    Write(#[from] io::Error),
}

/// A part of a run's plan that is stored as its own file.
#[derive(Clone, Copy)]
enum PlanFile {
    /// The plan as the engine wrote it.
    File,
    /// The plan as users saw it.
    View,
    /// What later plans are compared with.
    Difference,
    /// The document that policies evaluate.
    Case,
}

impl PlanFile {
    const ALL: [Self; 4] = [Self::File, Self::View, Self::Difference, Self::Case];

    fn what(self) -> &'static str {
        match self {
            Self::File => "plan file",
            Self::View => "plan",
            Self::Difference => "difference",
            Self::Case => "document for policies",
        }
    }

    /// Its name among the parts of a bundle.
    fn part(self, stack: &StackName) -> String {
        match self {
            Self::File => format!("plan {stack}"),
            Self::View => format!("view {stack}"),
            Self::Difference => format!("difference {stack}"),
            Self::Case => format!("case {stack}"),
        }
    }

    fn place(self, control: &Control, run: RunId) -> (PathBuf, String) {
        let home = &control.home;
        match self {
            Self::File => (home.plan_file(run), format!("plan-file {run}")),
            Self::View => (home.plan_view(run), format!("plan-view {run}")),
            Self::Difference => (home.plan_difference(run), format!("plan-difference {run}")),
            Self::Case => crate::policy::place(control, run),
        }
    }

    async fn read(
        self,
        control: &Control,
        run: RunId,
        spec: &RunSpec,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (path, purpose) = self.place(control, run);
        let Ok(sealed) = fs::read(path) else {
            return Ok(None);
        };
        let scope = KeyScope::State(control.state_name(&spec.stack.state));
        control
            .store
            .unseal(scope, &purpose, sealed)
            .await
            .map(Some)
    }

    async fn write(
        self,
        control: &Control,
        run: RunId,
        spec: &RunSpec,
        plain: Vec<u8>,
    ) -> Result<(), LayOutBundleError> {
        let (path, purpose) = self.place(control, run);
        let scope = KeyScope::State(control.state_name(&spec.stack.state));
        let sealed = control.store.seal(scope, &purpose, plain).await?;
        if let Self::View = self {
            control.store.plan_view_keep(run, &sealed).await?;
        }
        write_private(&path, &sealed)?;
        Ok(())
    }
}

/// Writes a file atomically, readable by its owner only.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(dir.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Records that the plans of a change set are kept until they are written into a bundle.
pub(crate) fn mark_plans_kept(control: &Control, set: ChangeSetId) -> io::Result<()> {
    let dir = control.home.kept_plans();
    make_private(&dir)?;
    fs::write(dir.join(set.to_string()), b"")
}

/// Removes the kept plans of a change set: they are in their bundle, or no bundle will be written.
pub async fn drop_kept_plans(control: &Control, set: &ChangeSet, runs: &[Run]) {
    cleanup::remove_plans(control, set, runs).await;
    drop(fs::remove_file(
        control.home.kept_plans().join(set.id.to_string()),
    ));
}

/// Removes plans that were kept for a bundle that no client will write any more.
pub(crate) async fn forget_abandoned(control: &Control) -> Result<(), store::ChangeSetError> {
    let Ok(kept) = fs::read_dir(control.home.kept_plans()) else {
        return Ok(());
    };
    for entry in kept.flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let set = control.store.change_set_get(id).await?;
        if set.status.is_over()
            && let Some(_unwatched) = client_presence::unattended(control, &set)
        {
            let runs = control.store.run_list(id).await?;
            drop_kept_plans(control, &set, &runs).await;
        }
    }
    Ok(())
}
