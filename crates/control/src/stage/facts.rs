//! Publishing facts: one stack's files, to every branch that its blocks name, as one commit each.
//!
//! The order makes a crash harmless: everything is prepared and checked first; the commit is made and its id stored;
//! then it is pushed; then the store records that. A branch that points to a stored id is ours. A push that loses a
//! race is built again on the new tip.
//!
//! Not here: what files contain (`model::stage::facts`), Git (`drivers::git::publish`), objects in clusters (`crate::stage::sinks`).

mod branch;
mod destination;
mod encrypt;
mod forecast;
mod foreign;
mod lint;
mod project_files;
mod queries;
mod records;
mod sinks;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use drivers::git::publish::{AccessError, GitCredential, PublishError, Remote, RemoteUrl};
use jiff::Timestamp;
use model::base::actor::Actor;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::base::ids::{RunId, StackName};
use model::stage::contract::{Contract, ContractName, ContractViolation};
use model::stage::facts::{
    FactFile, FactLocation, Outputs, PathClash, PathMap, PrepareFactsError, Publish, Published,
    ReadFactsManifestError, StateMark, TakenPath, prepare,
};
use model::state::StateName;
use model::state::break_glass::BreakGlassAction;
use serde_json::{Map, Value};
use store::{NewBreakGlass, StoreError};

use crate::Control;
use crate::project::contracts::{FindContractError, find_all};
use crate::stage::cluster::ClusterContext;
use crate::stage::sinks::SinkError;
use crate::state::outputs::OutputValue;

pub use branch::BranchComparison;
pub use destination::{Destination, ReadDestinationError, own_remote};
pub use encrypt::SealFactsError;
pub use forecast::forecast_of;
pub(crate) use forecast::{ForecastContext, note_forecast};
pub use foreign::ForeignCommit;
pub(crate) use lint::check;
pub use queries::answer;
use records::key_of;
pub use records::{MissedRecord, publish_records};
pub(crate) use sinks::reaches_clusters;
pub use sinks::{ClusterSink, ReadSinkError, SinkComparison, SinkOutcome, SinkState, sinks_of};
pub use snapshot::{FactsSnapshot, ReadFactsError, publishers, stacks_with_facts};
pub(crate) use snapshot::{add_locations, are_on_named_branches};

/// What is published, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The project's root: paths start there.
    pub root: &'a Path,
    /// The source with contracts and `.sops.yaml`: the tree that a run planned, or the root itself.
    pub tree: &'a Path,
    /// The requester's environment.
    pub asker: &'a BTreeMap<String, String>,
    pub places: &'a BTreeMap<String, Destination>,
    pub stack: &'a StackName,
    /// The name of its state.
    pub state_name: &'a str,
    pub run: Option<RunId>,
    pub state: Option<&'a StateMark>,
    /// The commit of the source.
    pub source: Option<&'a str>,
    /// When it is published: the date of its commits.
    pub at: Timestamp,
    pub outputs: &'a BTreeMap<String, OutputValue>,
    /// Empty: everything of this stack is withdrawn.
    pub blocks: &'a [Publish],
    /// The objects in clusters that the blocks name; for a destroyed stack, those that they named.
    pub sinks: &'a [ClusterSink],
    /// Where its facts were published before.
    pub locations: &'a [FactLocation],
    pub cluster: ClusterContext<'a>,
    /// Its facts are withdrawn.
    pub is_destroyed: bool,
    /// By place, the stacks of the project that publish there: files of removed stacks are withdrawn. A place that is
    /// missing here keeps them.
    pub stacks: &'a BTreeMap<String, BTreeSet<String>>,
    pub take_over: Option<&'a TakeOver>,
}

/// Break-glass: publish over what others wrote.
#[derive(Clone, Debug)]
pub struct TakeOver {
    pub person: Actor,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishFactsError {
    #[error("`publish \"{place}\"` names no `facts` block")]
    NoPlace { place: String },
    #[error(transparent)]
    Contract(#[from] FindContractError),
    #[error("outputs of stack `{stack}` violate the contract `{contract}`: {}", said(.problems))]
    Broken {
        stack: StackName,
        contract: ContractName,
        problems: Vec<ContractViolation>,
    },
    #[error("cannot publish facts of stack `{stack}`")]
    Prepare {
        stack: StackName,
        source: PrepareFactsError,
    },
    #[error("{}", twice(.stack, .place, .path, .there, *.how))]
    Twice {
        stack: StackName,
        place: String,
        path: String,
        /// The other path.
        there: String,
        how: PathClash,
    },
    #[error("cannot encrypt `{path}`")]
    Seal {
        path: String,
        source: SealFactsError,
    },
    #[error("cannot use the facts at `{place}`")]
    Git { place: String, source: PublishError },
    #[error("cannot use the facts at `{place}`")]
    Manifest {
        stack: StackName,
        place: String,
        source: ReadFactsManifestError,
    },
    #[error("cannot publish to `{place}`")]
    Taken {
        place: String,
        source: Box<TakenPath>,
    },
    #[error("another writer changed `{place}`: {foreign}{}", further(.more))]
    Foreign {
        stack: StackName,
        place: String,
        foreign: Box<ForeignCommit>,
        /// The same for other places.
        more: Vec<(String, ForeignCommit)>,
    },
    #[error("the branch `{branch}` of `{place}` is gone")]
    BranchGone {
        stack: StackName,
        place: String,
        branch: String,
    },
    #[error("cannot push to `{place}`: other pushes won {attempts} times")]
    Busy {
        stack: StackName,
        place: String,
        attempts: usize,
    },
    #[error("cannot use `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "`{path}` of the project was changed since terrane wrote it, or was not written by terrane"
    )]
    NotOurs { stack: StackName, path: String },
    #[error("cannot write `{path}`: part of the path is a symbolic link")]
    Link { path: String },
    #[error("cannot put facts into a cluster")]
    Sink(#[from] SinkError),
    #[error("cannot record what was published")]
    Store(#[from] StoreError),
}

impl PublishFactsError {
    /// Whether the store failed.
    fn is_of_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

impl Explain for PublishFactsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Foreign { .. }
            | Self::BranchGone { .. }
            | Self::Taken { .. }
            | Self::Broken { .. }
            | Self::NotOurs { .. }
            | Self::Link { .. }
            | Self::Twice { .. }
            | Self::Prepare { .. } => ErrorKind::Refused,
            Self::Sink(err) => err.kind(),
            Self::NoPlace { .. }
            | Self::Contract(_)
            | Self::Seal { .. }
            | Self::Git { .. }
            | Self::Manifest { .. }
            | Self::Busy { .. }
            | Self::File { .. }
            | Self::Store(_) => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let take_over = |stack: &StackName| {
            command(
                format!("facts publish {stack} --take-over --reason …"),
                "overwrites it",
            )
        };
        match self {
            Self::Contract(err) => err.next_steps(),
            Self::Prepare { source, .. } => source.next_steps(),
            Self::Seal { source, .. } => source.next_steps(),
            Self::Git { source, .. } => source.next_steps(),
            Self::Sink(err) => err.next_steps(),
            Self::Foreign { stack, .. }
            | Self::BranchGone { stack, .. }
            | Self::Manifest { stack, .. } => {
                vec![advice("undo the change there"), take_over(stack)]
            }
            Self::Broken { .. } => vec![advice(
                "fix the outputs, or list those that may be missing for now in `partial`",
            )],
            Self::NoPlace { place } => {
                vec![advice(format!("declare it: `facts \"{place}\" {{ … }}`"))]
            }
            Self::Busy { stack, .. } => {
                vec![command(format!("facts publish {stack}"), "tries again")]
            }
            Self::Taken { source, .. } => vec![
                advice(format!(
                    "publish to another path, or apply `{}` first if it no longer publishes this file",
                    source.owner.stack
                )),
                command("facts publish", "withdraws files of removed stacks"),
            ],
            Self::NotOurs { stack, path } => vec![
                advice(format!(
                    "move `{path}` away, or set another `path` in `sink \"file\"`"
                )),
                take_over(stack),
            ],
            Self::Link { .. } => vec![advice("set a `path` without links")],
            Self::Twice { .. } | Self::File { .. } | Self::Store(_) => Vec::new(),
        }
    }
}

fn further(more: &[(String, ForeignCommit)]) -> String {
    let more = more.iter();
    let more = more.map(|(place, foreign)| format!("; and to `{place}`: {foreign}"));
    more.collect::<Vec<_>>().concat()
}

fn twice(stack: &StackName, place: &str, path: &str, there: &str, how: PathClash) -> String {
    match how {
        PathClash::Same => {
            format!("two `publish` blocks of stack `{stack}` write `{path}` of `{place}`")
        }
        PathClash::Directory | PathClash::Case => format!(
            "stack `{stack}` cannot publish both `{path}` and `{there}` to `{place}`: {}",
            how.why()
        ),
    }
}

/// Refuses two files of a stack that cannot be on one branch.
fn check_beside(
    publication: &Publication<'_>,
    place: &str,
    files: &[FactFile],
    more: &[FactFile],
) -> Result<(), PublishFactsError> {
    let mut paths = PathMap::default();
    for file in files {
        paths.add(&file.path, ());
    }
    for file in more {
        if let Some((there, (), how)) = paths.clash(&file.path) {
            return Err(PublishFactsError::Twice {
                stack: publication.stack.clone(),
                place: place.to_owned(),
                path: file.path.clone(),
                there: there.to_owned(),
                how,
            });
        }
        paths.add(&file.path, ());
    }
    Ok(())
}

fn said(problems: &[ContractViolation]) -> String {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// The files of a stack by place, checked against their contracts; nothing is written. Values are in clear.
pub fn prepare_files(
    publication: &Publication<'_>,
) -> Result<BTreeMap<String, Vec<FactFile>>, PublishFactsError> {
    let stack = publication.stack;
    let values: Map<String, Value> = publication
        .outputs
        .iter()
        .filter(|(_, output)| !output.value.is_null())
        .map(|(name, output)| (name.clone(), output.value.clone()))
        .collect();
    let sensitive: BTreeSet<String> = publication
        .outputs
        .iter()
        .filter(|(_, output)| output.sensitive)
        .map(|(name, _)| name.clone())
        .collect();
    let names = publication.blocks.iter();
    let names = names.filter_map(|block| block.contract.clone()).collect();
    let contracts = find_all(publication.tree, &names)?;
    for block in publication.blocks {
        let contract = block.contract.as_ref().and_then(|name| contracts.get(name));
        let problems = contract.map(|it: &Contract| it.check(&values, &block.partial, &sensitive));
        if let (Some(contract), Some(problems)) = (contract, problems)
            && !problems.is_empty()
        {
            return Err(PublishFactsError::Broken {
                stack: stack.clone(),
                contract: contract.name.clone(),
                problems,
            });
        }
    }
    let outputs = Outputs {
        values: &values,
        sensitive: &sensitive,
    };
    let mut files: BTreeMap<String, Vec<FactFile>> = BTreeMap::new();
    for block in publication.blocks {
        let place = publication.places.get(&block.place);
        let place = place.ok_or_else(|| PublishFactsError::NoPlace {
            place: block.place.clone(),
        })?;
        let contract = block.contract.as_ref().and_then(|name| contracts.get(name));
        let (on_sensitive, all) = (place.on_sensitive, place.encrypt_all);
        let file = prepare(block, stack.as_str(), contract, outputs, on_sensitive, all);
        let file = file.map_err(|source| PublishFactsError::Prepare {
            stack: stack.clone(),
            source,
        })?;
        files.entry(block.place.clone()).or_default().push(file);
    }
    for (place, files) in &files {
        check_beside(publication, place, &[], files)?;
    }
    Ok(files)
}

/// What a publication did.
#[derive(Clone, Debug, Default)]
pub struct PublishOutcome {
    pub places: Vec<Published>,
    /// Files of the project and objects in clusters.
    pub elsewhere: Vec<SinkOutcome>,
}

/// How the places with a stack's facts differ from what the stack would publish.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    pub places: Vec<BranchComparison>,
    pub elsewhere: Vec<SinkComparison>,
}

/// Compares what a stack would publish with what every branch, file and cluster holds; nothing is changed.
pub async fn compare(
    control: &Control,
    publication: &Publication<'_>,
) -> Result<Differences, PublishFactsError> {
    let mut places = Vec::new();
    for job in jobs(control, publication).await? {
        places.push(job.compare().await?);
    }
    let (files, keys) = (prepare_files(publication)?, publication.keys()?);
    let elsewhere = sinks::compare(control, publication, &files, &keys).await?;
    Ok(Differences { places, elsewhere })
}

/// Publishes what a stack's blocks declare, at every place, and withdraws what they no longer declare.
/// Dropping the future stops it after the current call of Git; the next publication continues from there.
pub async fn publish(
    control: &Control,
    publication: &Publication<'_>,
) -> Result<PublishOutcome, PublishFactsError> {
    let mut done = PublishOutcome::default();
    let jobs = jobs(control, publication).await?;
    for (at, job) in jobs.iter().enumerate() {
        match job.publish().await {
            Ok((published, files)) => {
                done.places.push(published);
                done.elsewhere.extend(files);
            }
            Err(err) => return Err(with_others(err, &jobs[at + 1..]).await),
        }
    }
    let files = prepare_files(publication)?;
    let put = sinks::put(control, publication, &files).await?;
    let withdrawn = sinks::withdraw(control, publication, &publication.keys()?).await?;
    done.elsewhere.extend(put.into_iter().chain(withdrawn));
    Ok(done)
}

/// Adds the foreign changes at the remaining places, so that the user sees all of them at once.
async fn with_others(err: PublishFactsError, rest: &[branch::BranchJob<'_>]) -> PublishFactsError {
    let PublishFactsError::Foreign {
        stack,
        place,
        foreign,
        mut more,
    } = err
    else {
        return err;
    };
    for job in rest {
        if let Ok(Some(foreign)) = job.foreign_there().await {
            more.push((job.place.name.clone(), foreign));
        }
    }
    PublishFactsError::Foreign {
        stack,
        place,
        foreign,
        more,
    }
}

/// One publication for each branch where the stack has facts, or had some.
async fn jobs<'a>(
    control: &'a Control,
    publication: &'a Publication<'a>,
) -> Result<Vec<branch::BranchJob<'a>>, PublishFactsError> {
    let mut files = prepare_files(publication)?;
    let mut jobs: Vec<branch::BranchJob<'a>> = Vec::new();
    for (name, place) in publication.places {
        let files = files.remove(name).unwrap_or_default();
        let key = place_key(publication.root, place)?;
        // Two blocks with one branch share one commit.
        if let Some(job) = jobs.iter_mut().find(|job| job.key == key) {
            check_beside(publication, name, &job.files, &files)?;
            job.files.extend(files);
            job.names.push(name);
            continue;
        }
        let (project, stack) = (control.home.project(), publication.stack.as_str());
        let remembered = control.store.fact_file_paths(project, &key, stack).await?;
        jobs.push(branch::BranchJob {
            control,
            publication,
            place,
            names: vec![name.as_str()],
            key,
            files,
            remembered,
            is_record: false,
        });
    }
    jobs.retain(|job| !job.files.is_empty() || !job.remembered.is_empty());
    Ok(jobs)
}

/// A published file; none if it does not exist, or is encrypted.
pub async fn read_file(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    place: &Destination,
    path: &str,
) -> Result<Option<Value>, PublishFactsError> {
    let key = place_key(root, place)?;
    let bytes = branch::read_file(control, root, asker, place, &key, path).await?;
    Ok(bytes.and_then(|bytes| model::stage::facts::read_values(&bytes)))
}

/// The identity of a branch in the store: the same for two blocks that name it, and for two paths to one repository.
fn place_key(root: &Path, place: &Destination) -> Result<String, PublishFactsError> {
    let url = url_of(root, place)?;
    let url = url
        .local()
        .map_or_else(|| url.to_string(), |path| real(path).display().to_string());
    Ok(format!("{url}#{}", place.branch))
}

/// The canonical path, also while a repository is missing for a time.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        // `join` with an empty rest would append a slash.
        Some(above.canonicalize().ok()?.iter().chain(rest).collect())
    });
    found.unwrap_or_else(|| path.to_owned())
}

fn url_of(root: &Path, place: &Destination) -> Result<RemoteUrl, PublishFactsError> {
    let wrong = |err: AccessError| PublishFactsError::Git {
        place: place.name.clone(),
        source: err.into(),
    };
    RemoteUrl::parse(&place.repository, root).map_err(wrong)
}

fn remote_of(root: &Path, place: &Destination) -> Result<Remote, PublishFactsError> {
    Ok(Remote {
        url: url_of(root, place)?,
        branch: place.branch.clone(),
        credential: place.credential.clone().map(GitCredential::new),
    })
}

impl Publication<'_> {
    /// Records that somebody else's change is overwritten.
    async fn record_take_over(
        &self,
        control: &Control,
        detail: String,
    ) -> Result<(), PublishFactsError> {
        let Some(take_over) = self.take_over else {
            return Ok(());
        };
        let new = NewBreakGlass {
            act: BreakGlassAction::FactsTakenOver,
            state: &self.state_of(control),
            actor: &take_over.person,
            reason: Some(&take_over.reason),
            detail,
        };
        control.store.break_glass_open(&new).await?;
        Ok(())
    }

    fn state_of(&self, control: &Control) -> StateName {
        control.state_name(self.state_name)
    }

    /// The branches that the project names.
    fn keys(&self) -> Result<Vec<String>, PublishFactsError> {
        let places = self.places.values();
        places.map(|place| place_key(self.root, place)).collect()
    }
}
