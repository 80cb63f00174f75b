//! Publishing facts: one stack's files, to every place it names, as one commit each, whoever else is writing there.
//!
//! The order that makes a crash harmless: everything is prepared and checked first; a commit is made here and its id
//! stored; then it is pushed; then it is noted as pushed. A branch that stands at a stored id is ours. Whoever loses a
//! push looks again and builds anew.
//!
//! Not here: what files hold and whose commit it was (`model::facts`), Git (`drivers::git::publish`).

mod answers;
mod branch;
mod claims;
mod current;
mod early;
mod elsewhere;
mod forecast;
mod foreign;
mod former;
mod place;
mod records;
mod sealed;
mod sinks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use drivers::git::publish::{AccessError, Credential, PublishError, Remote, RemoteUrl};
use jiff::Timestamp;
use model::break_glass::Act;
use model::contract::{Contract, ContractName, Problem};
use model::facts::{
    Clash, FactFile, Outputs, Paths, PrepareFactsError, Publish, Published, ReadManifestError,
    StateMark, TakenPath, prepare,
};
use model::ids::{RunId, StackName};
use model::state::StateName;
use serde_json::{Map, Value};
use store::{NewBreakGlass, StoreError};

use crate::Control;
use crate::bootstrap::Ground;
use crate::contracts::{FindContractError, find_all};
use crate::outputs::Output;
use crate::sinks::SinkError;

pub use answers::{answer, place_inputs};
pub use branch::Compared;
pub(crate) use branch::is_published;
pub use current::{Current, CurrentFactsError, publishers, stacks_standing};
pub(crate) use current::{add_standing, stand_as_named};
pub(crate) use early::check;
pub use elsewhere::{
    ClusterSink, ComparedElsewhere, Elsewhere, ReadSinkError, Standpoint, sinks_of,
};
pub use forecast::forecast_of;
pub(crate) use forecast::{Outlook, note_forecast};
pub use foreign::ForeignCommit;
pub use former::{Former, Searching, find_former};
pub use place::{Place, ReadPlaceError, own_remote};
use records::key_of;
pub use records::{Untold, tell};
pub use sealed::SealFactsError;

/// What is published, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The project's root: paths start there.
    pub root: &'a Path,
    /// The source: contracts and `.sops.yaml` lie there. What a run planned with, or the root itself.
    pub tree: &'a Path,
    /// The environment of whoever asks.
    pub asker: &'a BTreeMap<String, String>,
    pub places: &'a BTreeMap<String, Place>,
    pub stack: &'a StackName,
    /// The name of its state.
    pub state_name: &'a str,
    pub run: Option<RunId>,
    pub state: Option<&'a StateMark>,
    /// The commit of the source.
    pub source: Option<&'a str>,
    /// When it is published: the date of its commits.
    pub at: Timestamp,
    pub outputs: &'a BTreeMap<String, Output>,
    /// None: everything of this stack is withdrawn.
    pub blocks: &'a [Publish],
    /// The objects in clusters that they name.
    pub sinks: &'a [ClusterSink],
    /// Where its facts stand from before and are named no more.
    pub former: &'a [Former],
    /// The version of the state that the facts come from.
    pub version: Option<i64>,
    /// What it takes to reach clusters.
    pub ground: Ground<'a>,
    /// The stack is gone: a cluster that cannot be reached is gone with it.
    pub is_destroyed: bool,
    /// By place, the stacks of the project that publish there; files of others of its stacks are withdrawn. A place
    /// that is missing here keeps them.
    pub stacks: &'a BTreeMap<String, BTreeSet<String>>,
    pub take_over: Option<&'a TakeOver>,
}

/// Break-glass: publish over what others wrote.
#[derive(Clone, Debug)]
pub struct TakeOver {
    pub person: String,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishFactsError {
    #[error("`publish \"{place}\"` names no `facts` block")]
    NoPlace { place: String },
    #[error(transparent)]
    Contract(#[from] FindContractError),
    #[error("outputs of stack `{stack}` do not keep the contract `{contract}`: {}", said(.problems))]
    Broken {
        stack: StackName,
        contract: ContractName,
        problems: Vec<Problem>,
    },
    #[error("facts of stack `{stack}` cannot be published")]
    Prepare {
        stack: StackName,
        source: PrepareFactsError,
    },
    #[error("{}", twice(.stack, .place, .path, .there, *.how))]
    Twice {
        stack: StackName,
        place: String,
        path: String,
        /// The other one.
        there: String,
        how: Clash,
    },
    #[error("could not encrypt `{path}`")]
    Seal {
        path: String,
        source: SealFactsError,
    },
    #[error("could not use the facts at `{place}`")]
    Git { place: String, source: PublishError },
    #[error("could not use the facts at `{place}`")]
    Manifest {
        place: String,
        source: ReadManifestError,
    },
    #[error("`{place}` has other facts there")]
    Taken {
        place: String,
        source: Box<TakenPath>,
    },
    #[error("somebody else wrote to `{place}`: {foreign}{}", further(.more))]
    Foreign {
        place: String,
        foreign: Box<ForeignCommit>,
        /// The same at other places.
        more: Vec<(String, ForeignCommit)>,
    },
    #[error("the branch `{branch}` of `{place}` is gone")]
    BranchGone { place: String, branch: String },
    #[error("others were faster {attempts} times at `{place}`")]
    Busy { place: String, attempts: usize },
    #[error("could not use `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{path}` of the project is not as terrane left it, or was never terrane's")]
    NotOurs { path: String },
    #[error("`{path}` leads through a link, and links are not followed here")]
    Link { path: String },
    #[error("could not put facts into a cluster")]
    Sink(#[from] SinkError),
    #[error("could not remember what was published")]
    Store(#[from] StoreError),
}

impl PublishFactsError {
    /// Whether a rule said no, rather than that something broke.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Foreign { .. }
            | Self::BranchGone { .. }
            | Self::Taken { .. }
            | Self::Broken { .. }
            | Self::NotOurs { .. }
            | Self::Link { .. }
            | Self::Twice { .. }
            | Self::Prepare { .. } => true,
            Self::Sink(err) => matches!(err, SinkError::Foreign { .. } | SinkError::Values(_)),
            Self::NoPlace { .. }
            | Self::Contract(_)
            | Self::Seal { .. }
            | Self::Git { .. }
            | Self::Manifest { .. }
            | Self::Busy { .. }
            | Self::File { .. }
            | Self::Store(_) => false,
        }
    }

    /// Whether what is known here could not be read.
    fn is_of_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// The next step, for a stack.
    pub fn hint(&self, stack: &StackName) -> Option<String> {
        let over = || format!("`terrane facts publish {stack} --take-over --reason …`");
        match self {
            Self::Contract(err) => err.hint(),
            Self::Prepare { source, .. } => source.hint(),
            Self::Seal { source, .. } => source.hint(),
            Self::Git { source, .. } => source.hint(),
            Self::Foreign { .. } | Self::BranchGone { .. } | Self::Manifest { .. } => {
                Some(format!("undo it there, or write over it: {}", over()))
            }
            Self::Broken { .. } => Some(
                "mend the outputs, or name what may be missing for now in `partial`".to_owned(),
            ),
            Self::NoPlace { place } => Some(format!("declare it: `facts \"{place}\" {{ … }}`")),
            Self::Busy { .. } => Some(format!("`terrane facts publish {stack}` tries again")),
            Self::Taken { source, .. } => Some(format!(
                "a file has one owner: publish to another path; if `{}` lets go of it, apply that first; what a removed stack left, `terrane facts publish` withdraws",
                source.owner.stack
            )),
            Self::NotOurs { path } => Some(format!(
                "move `{path}` away, name another `path` in `sink \"file\"`, or write over it: {}",
                over()
            )),
            Self::Link { .. } => Some("name a `path` without links".to_owned()),
            Self::Sink(err) => err.hint(),
            Self::Twice { .. } | Self::File { .. } | Self::Store(_) => None,
        }
    }
}

fn further(more: &[(String, ForeignCommit)]) -> String {
    let more = more.iter();
    let more = more.map(|(place, foreign)| format!("; and to `{place}`: {foreign}"));
    more.collect::<Vec<_>>().concat()
}

fn twice(stack: &StackName, place: &str, path: &str, there: &str, how: Clash) -> String {
    match how {
        Clash::Same => {
            format!("two `publish` blocks of stack `{stack}` write `{path}` of `{place}`")
        }
        Clash::Directory | Clash::Case => format!(
            "stack `{stack}` cannot publish both `{path}` and `{there}` to `{place}`: {}",
            how.why()
        ),
    }
}

/// Two files of a stack that cannot lie on one branch.
fn check_beside(
    publication: &Publication<'_>,
    place: &str,
    files: &[FactFile],
    more: &[FactFile],
) -> Result<(), PublishFactsError> {
    let mut paths = Paths::default();
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

fn said(problems: &[Problem]) -> String {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// Files of a stack by place, checked against their contracts; nothing was touched. Values are in clear.
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
pub struct Done {
    pub places: Vec<Published>,
    /// Files of the project and objects in clusters.
    pub elsewhere: Vec<Elsewhere>,
}

/// How everything that holds a stack's facts differs from what the stack says.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    pub places: Vec<Compared>,
    pub elsewhere: Vec<ComparedElsewhere>,
}

/// Compares what a stack's blocks say with what every place, file and cluster holds; nothing is changed.
pub async fn compare(
    control: &Control,
    publication: &Publication<'_>,
) -> Result<Differences, PublishFactsError> {
    let mut differences = Differences::default();
    for job in jobs(control, publication).await? {
        differences.places.push(job.compare().await?);
    }
    for former in publication.former {
        let Former::Branch { key, place, .. } = former else {
            continue;
        };
        match place {
            Ok(place) => {
                let job = withdrawal(control, publication, place, key.clone()).await?;
                differences.places.push(job.compare().await?);
            }
            Err(why) => differences
                .elsewhere
                .push(ComparedElsewhere::unknown(former.to_string(), why.clone())),
        }
    }
    let files = prepare_files(publication)?;
    let elsewhere = elsewhere::compare(control, publication, &files).await?;
    differences.elsewhere.extend(elsewhere);
    Ok(differences)
}

/// Publishes what a stack's blocks say, at every place, and withdraws what they no longer say. Dropping this ends it
/// after the call of Git that is under way; doing it again goes on from there.
pub async fn publish(
    control: &Control,
    publication: &Publication<'_>,
) -> Result<Done, PublishFactsError> {
    let mut done = Done::default();
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
    let put = elsewhere::put(control, publication, &files).await?;
    done.elsewhere.extend(put);
    for former in publication.former {
        match former {
            Former::Branch { key, place, .. } => {
                let left = match place {
                    Err(why) => why.clone(),
                    Ok(place) => {
                        let job = withdrawal(control, publication, place, key.clone()).await?;
                        match job.publish().await {
                            Ok((published, _)) => {
                                done.places.push(published);
                                continue;
                            }
                            Err(PublishFactsError::BranchGone { .. }) => {
                                former.forget(control, publication.stack).await?;
                                done.elsewhere.push(Elsewhere::gone(former.to_string()));
                                continue;
                            }
                            Err(err @ PublishFactsError::Git { .. }) => chain(&err),
                            Err(err) => return Err(err),
                        }
                    }
                };
                let keep = publication.take_over.is_none();
                if !keep {
                    former.forget(control, publication.stack).await?;
                }
                done.elsewhere
                    .push(Elsewhere::left(former.to_string(), &left, keep));
            }
            Former::File { .. } | Former::Object { .. } => {
                let withdrawn = elsewhere::withdraw(control, publication, former).await?;
                done.elsewhere.push(withdrawn);
            }
        }
    }
    Ok(done)
}

/// Who finds that others wrote there wants to hear of all places at once.
async fn with_others(err: PublishFactsError, rest: &[branch::Job<'_>]) -> PublishFactsError {
    let PublishFactsError::Foreign {
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
        place,
        foreign,
        more,
    }
}

/// An error with all its causes, on one line.
fn chain(err: &dyn std::error::Error) -> String {
    let mut said = err.to_string();
    let mut next = err.source();
    while let Some(cause) = next {
        said = format!("{said}: {cause}");
        next = cause.source();
    }
    said
}

/// What is to be done at each place where the stack has facts, or had some.
async fn jobs<'a>(
    control: &'a Control,
    publication: &'a Publication<'a>,
) -> Result<Vec<branch::Job<'a>>, PublishFactsError> {
    let mut files = prepare_files(publication)?;
    let mut jobs: Vec<branch::Job<'a>> = Vec::new();
    for (name, place) in publication.places {
        let files = files.remove(name).unwrap_or_default();
        let key = place_key(publication.root, place)?;
        // Two blocks that lead to one branch are one place: it gets one commit.
        if let Some(job) = jobs.iter_mut().find(|job| job.key == key) {
            check_beside(publication, name, &job.files, &files)?;
            job.files.extend(files);
            job.names.push(name);
            continue;
        }
        let mut job = withdrawal(control, publication, place, key).await?;
        job.files = files;
        job.names.push(name);
        jobs.push(job);
    }
    jobs.retain(|job| !job.files.is_empty() || !job.remembered.is_empty());
    Ok(jobs)
}

/// Everything of a stack goes from a place.
async fn withdrawal<'a>(
    control: &'a Control,
    publication: &'a Publication<'a>,
    place: &'a Place,
    key: String,
) -> Result<branch::Job<'a>, PublishFactsError> {
    let (project, stack) = (control.home.project(), publication.stack.as_str());
    let remembered = control.store.fact_file_paths(project, &key, stack).await?;
    Ok(branch::Job {
        control,
        publication,
        place,
        names: Vec::new(),
        key,
        files: Vec::new(),
        remembered,
        is_record: false,
    })
}

/// A file as it is published at a place now; none if it is not there, or is encrypted.
pub async fn read_file(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    place: &Place,
    path: &str,
) -> Result<Option<Value>, PublishFactsError> {
    let key = place_key(root, place)?;
    let bytes = branch::read_file(control, root, asker, place, &key, path).await?;
    Ok(bytes.and_then(|bytes| model::facts::read_values(&bytes)))
}

/// What the store calls a place: two blocks that lead to one branch are one, and so are two paths to one directory.
fn place_key(root: &Path, place: &Place) -> Result<String, PublishFactsError> {
    let url = url_of(root, place)?;
    let url = url
        .local()
        .map_or_else(|| url.to_string(), |path| real(path).display().to_string());
    Ok(format!("{url}#{}", place.branch))
}

/// Where a path leads, also while nothing is there: a repository that is away for a while is no other one.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        // Part by part: joined with nothing, it would end with a slash.
        Some(above.canonicalize().ok()?.iter().chain(rest).collect())
    });
    found.unwrap_or_else(|| path.to_owned())
}

fn url_of(root: &Path, place: &Place) -> Result<RemoteUrl, PublishFactsError> {
    let wrong = |err: AccessError| PublishFactsError::Git {
        place: place.name.clone(),
        source: err.into(),
    };
    RemoteUrl::parse(&place.repository, root).map_err(wrong)
}

fn remote_of(root: &Path, place: &Place) -> Result<Remote, PublishFactsError> {
    Ok(Remote {
        url: url_of(root, place)?,
        branch: place.branch.clone(),
        credential: place.credential.clone().map(Credential::new),
    })
}

impl Publication<'_> {
    /// What others wrote is written over: that happens on the record.
    async fn record_take_over(
        &self,
        control: &Control,
        detail: String,
    ) -> Result<(), PublishFactsError> {
        let Some(take_over) = self.take_over else {
            return Ok(());
        };
        let new = NewBreakGlass {
            act: Act::FactsTakenOver,
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
}
