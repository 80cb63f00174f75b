//! Whether somebody else changed what terrane published.
//!
//! | `owns` | this home published there | foreign is |
//! |---|---|---|
//! | `branch` | yes | any change since our last commit, except to files that the manifest gives to other projects |
//! | `branch` | no | a branch whose last commit was not made by terrane |
//! | `paths` | yes | a file of ours that differs from what we pushed |
//! | `paths` | no | a file whose last commit does not name this project |
//!
//! A change that was reverted does not count.

use std::collections::BTreeSet;
use std::fmt;

use drivers::git::publish::{Commit, Publisher};
use jiff::Timestamp;
use model::stage::facts::BranchOwnership;
use model::stage::facts::{
    FactsManifest, FileOwner, MANIFEST, PathClash, PathMap, TRAILER_PROJECT, TakenPath,
    foreign_files, trailer,
};
use store::{KeyedDigester, PastFact};

use super::PublishFactsError;
use super::branch::{BranchJob, BranchState};

/// A change by somebody else, as the commit that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommit {
    pub commit: String,
    pub author: String,
    pub at: Option<Timestamp>,
    pub subject: String,
    /// The files that are not as we left them.
    pub files: Vec<String>,
    /// Whether our last commit is no longer in the branch's history.
    pub rewritten: bool,
}

impl fmt::Display for ForeignCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.commit.get(..10).unwrap_or(&self.commit);
        if self.rewritten {
            // Git does not record who moved a branch, only who made the commit that it points to.
            write!(
                f,
                "what was published last is no longer in the branch's history, which now ends at commit `{short}` (`{}`) by {}",
                self.subject, self.author
            )?;
        } else {
            write!(
                f,
                "{} made commit `{short}` (`{}`)",
                self.author, self.subject
            )?;
        }
        if let Some(at) = self.at {
            write!(f, " at {}", at.strftime("%Y-%m-%d %H:%M UTC"))?;
        }
        if !self.files.is_empty() {
            let files: Vec<String> = self.files.iter().map(|file| format!("`{file}`")).collect();
            write!(f, ", which changes {}", files.join(", "))?;
        }
        Ok(())
    }
}

impl BranchJob<'_> {
    /// Refuses if somebody else changed what is ours.
    pub(super) async fn check_foreign(
        &self,
        publisher: &Publisher,
        now: &BranchState,
        digester: &KeyedDigester,
    ) -> Result<(), PublishFactsError> {
        match self.place.owns {
            BranchOwnership::Branch => self.check_branch(publisher, now).await,
            BranchOwnership::Paths => self.check_files(publisher, now, digester).await,
        }
    }

    async fn check_branch(
        &self,
        publisher: &Publisher,
        now: &BranchState,
    ) -> Result<(), PublishFactsError> {
        let git = |err| self.git(err);
        let (store, project) = (&self.control.store, self.project());
        let last = store.fact_commit_last(project, &self.key).await?;
        let Some(tip) = &now.tip else {
            return match last {
                None => Ok(()),
                Some(_) => Err(PublishFactsError::BranchGone {
                    stack: self.publication.stack.clone(),
                    place: self.place.name.clone(),
                    branch: self.place.branch.clone(),
                }),
            };
        };
        let tips = std::slice::from_ref(tip);
        let known = store.fact_commit_known(project, &self.key, tips).await?;
        if !known.is_empty() {
            return self.note_pushed(tip).await;
        }
        let Some(last) = last else {
            let commit = publisher.commit_read(tip).await.map_err(git)?;
            return match trailer(&commit.message, TRAILER_PROJECT) {
                Some(_) => Ok(()),
                None => Err(self.foreign(commit, Vec::new(), false)),
            };
        };
        let Some(ours) = self.newest_own(publisher, &last, tip).await? else {
            let commit = publisher.commit_read(tip).await.map_err(git)?;
            return Err(self.foreign(commit, Vec::new(), true));
        };
        let changed = publisher.changed_between(&ours, tip).await.map_err(git)?;
        let before = self.manifest_at(publisher, &ours).await?;
        let after = (!now.is_broken).then_some(&now.manifest);
        let files = foreign_files(project, &before, after, &changed);
        // Other projects change the manifest as well, so another file shows the author more reliably.
        let telling = files.iter().find(|path| *path != MANIFEST);
        match telling.or(files.first()).cloned() {
            None => Ok(()),
            Some(path) => Err(self.foreign_at(publisher, tip, &path, files).await?),
        }
    }

    /// The newest commit of this home between its last known one and the tip; none if the branch was
    /// rewritten.
    async fn newest_own(
        &self,
        publisher: &Publisher,
        last: &str,
        tip: &str,
    ) -> Result<Option<String>, PublishFactsError> {
        let git = |err| self.git(err);
        let mut since = publisher.between(last, tip).await.map_err(git)?;
        if since.is_none() {
            publisher.fetch(true).await.map_err(git)?;
            since = publisher.between(last, tip).await.map_err(git)?;
        }
        let Some(since) = since else {
            return Ok(None);
        };
        let store = &self.control.store;
        let known = store.fact_commit_known(self.project(), &self.key, &since);
        let known = known.await?;
        let newest = since.into_iter().rev().find(|id| known.contains(id));
        Ok(Some(newest.unwrap_or_else(|| last.to_owned())))
    }

    /// The manifest of one of our own commits.
    async fn manifest_at(
        &self,
        publisher: &Publisher,
        commit: &str,
    ) -> Result<FactsManifest, PublishFactsError> {
        let files = publisher.files(commit, &[MANIFEST]).await;
        let files = files.map_err(|err| self.git(err))?.unwrap_or_default();
        let manifest = FactsManifest::read(files.get(MANIFEST).map(Vec::as_slice));
        manifest.map_err(|source| PublishFactsError::Manifest {
            stack: self.publication.stack.clone(),
            place: self.place.name.clone(),
            source,
        })
    }

    async fn check_files(
        &self,
        publisher: &Publisher,
        now: &BranchState,
        digester: &KeyedDigester,
    ) -> Result<(), PublishFactsError> {
        let Some(tip) = &now.tip else {
            return Ok(());
        };
        for file in &self.files {
            let path = &file.path;
            let past = self.history(path).await?;
            self.check_owner(path, path, PathClash::Same, &past)?;
            let foreign = match now.files.get(path) {
                None if is_as_we_left_it(&past, None) => {
                    self.in_the_way(publisher, now, tip, path, digester).await?
                }
                Some(_) if past.is_empty() => {
                    let is_ours = self.is_of_project(publisher, tip, path).await?;
                    (!is_ours).then(|| path.clone())
                }
                there => {
                    let digest = there.map(|bytes| digester.digest(bytes));
                    let is_ours = is_as_we_left_it(&past, digest.as_deref());
                    (!is_ours).then(|| path.clone())
                }
            };
            if let Some(foreign) = foreign {
                publisher.fetch(true).await.map_err(|err| self.git(err))?;
                let files = vec![foreign.clone()];
                return Err(self.foreign_at(publisher, tip, &foreign, files).await?);
            }
        }
        Ok(())
    }

    async fn history(&self, path: &str) -> Result<Vec<PastFact>, PublishFactsError> {
        let store = &self.control.store;
        let past = store.fact_file_history(self.project(), &self.key, path);
        Ok(past.await?)
    }

    /// Refuses a path that another stack of this project publishes.
    fn check_owner(
        &self,
        path: &str,
        there: &str,
        how: PathClash,
        past: &[PastFact],
    ) -> Result<(), PublishFactsError> {
        let Some(owner) = owner(past) else {
            return Ok(());
        };
        let stacks = self.names.first();
        let stacks = stacks.and_then(|name| self.publication.stacks.get(*name));
        let is_removed = stacks.is_some_and(|stacks| !stacks.contains(owner));
        if owner == self.publication.stack.as_str() || is_removed {
            return Ok(());
        }
        Err(taken(
            self.project(),
            &self.place.name,
            (path, there, how),
            owner,
        ))
    }

    /// A file of others that a path cannot lie beside, such as a file where it needs a directory.
    async fn in_the_way(
        &self,
        publisher: &Publisher,
        now: &BranchState,
        tip: &str,
        path: &str,
        digester: &KeyedDigester,
    ) -> Result<Option<String>, PublishFactsError> {
        let all = publisher.list(tip).await.map_err(|err| self.git(err))?;
        // This publication removes what it no longer names.
        let ours = self.still_ours(now, digester).await?;
        let is_named = |other: &String| self.files.iter().any(|file| file.path == *other);
        let mut others = PathMap::default();
        for other in all.iter().filter(|it| !ours.contains(*it) || is_named(it)) {
            others.add(other, ());
        }
        let Some((there, (), how)) = others.clash(path) else {
            return Ok(None);
        };
        self.check_owner(path, there, how, &self.history(there).await?)?;
        Ok(Some(there.to_owned()))
    }

    /// The files that this stack published before and that have no foreign changes since.
    pub(super) async fn still_ours(
        &self,
        now: &BranchState,
        digester: &KeyedDigester,
    ) -> Result<BTreeSet<String>, PublishFactsError> {
        let mut ours = BTreeSet::new();
        for path in &self.remembered {
            if let Some(bytes) = now.files.get(path)
                && is_as_we_left_it(&self.history(path).await?, Some(&digester.digest(bytes)))
            {
                ours.insert(path.clone());
            }
        }
        Ok(ours)
    }

    /// Whether another home wrote a file for this project.
    async fn is_of_project(
        &self,
        publisher: &Publisher,
        tip: &str,
        path: &str,
    ) -> Result<bool, PublishFactsError> {
        let git = |err| self.git(err);
        publisher.fetch(true).await.map_err(git)?;
        let Some(id) = publisher.last_touched(tip, path).await.map_err(git)? else {
            return Ok(false);
        };
        let commit = publisher.commit_read(&id).await.map_err(git)?;
        Ok(trailer(&commit.message, TRAILER_PROJECT) == Some(self.project()))
    }

    /// The refusal, with the commit that last changed a file.
    async fn foreign_at(
        &self,
        publisher: &Publisher,
        tip: &str,
        path: &str,
        files: Vec<String>,
    ) -> Result<PublishFactsError, PublishFactsError> {
        let git = |err| self.git(err);
        let id = publisher.last_touched(tip, path).await.map_err(git)?;
        let commit = publisher.commit_read(id.as_deref().unwrap_or(tip)).await;
        Ok(self.foreign(commit.map_err(git)?, files, false))
    }

    fn foreign(&self, commit: Commit, files: Vec<String>, rewritten: bool) -> PublishFactsError {
        PublishFactsError::Foreign {
            stack: self.publication.stack.clone(),
            place: self.place.name.clone(),
            foreign: Box::new(ForeignCommit {
                subject: commit.message.lines().next().unwrap_or_default().to_owned(),
                commit: commit.id,
                author: commit.author,
                at: commit.at,
                files,
                rewritten,
            }),
            more: Vec::new(),
        }
    }
}

/// The stack that published a file last, unless it was withdrawn since.
pub(super) fn owner(past: &[PastFact]) -> Option<&str> {
    let is_written = |past: &&PastFact| !past.digest.bytes.is_empty();
    let mut past = past.iter();
    let last = past.find(|past| past.is_pushed || is_written(past));
    last.filter(is_written)
        .map(|past| past.digest.stack.as_str())
}

/// The refusal of a path that a stack of this project has.
pub(super) fn taken(
    project: &str,
    place: &str,
    (path, there, how): (&str, &str, PathClash),
    owner: &str,
) -> PublishFactsError {
    PublishFactsError::Taken {
        place: place.to_owned(),
        source: Box::new(TakenPath {
            path: path.to_owned(),
            there: there.to_owned(),
            how,
            owner: FileOwner {
                project: project.to_owned(),
                stack: owner.to_owned(),
            },
        }),
    }
}

/// Whether a file is what was pushed last, or what may have been pushed since.
fn is_as_we_left_it(past: &[PastFact], now: Option<&str>) -> bool {
    let certain = past.iter().position(|past| past.is_pushed);
    let valid = &past[..certain.map_or(past.len(), |at| at + 1)];
    let is_now = |past: &PastFact| past.digest.bytes == now.unwrap_or_default();
    valid.iter().any(is_now) || (certain.is_none() && now.is_none())
}
