//! Whose commits lie between what we last wrote and what the branch is now.
//!
//! | `owns` | memory | foreign is |
//! |---|---|---|
//! | `branch` | ids of commits | a commit after our last one that is none of ours, unless it keeps to files that the manifest gives to other projects, or was undone since |
//! | `branch` | none: a home that never published there | a tip that no terrane made |
//! | `paths` | digests of files | a file of ours that is not as we left it |
//! | `paths` | none | a file that was last touched by a commit which does not name this project |

use std::collections::BTreeSet;
use std::fmt;

use drivers::git::publish::{Commit, Publisher};
use jiff::Timestamp;
use model::facts::{
    Clash, MANIFEST, Manifest, Owner, Paths, TRAILER_PROJECT, TakenPath, foreign_files, trailer,
};
use model::project::Owns;
use store::{KeyedDigester, PastFact};

use super::PublishFactsError;
use super::branch::{Job, Seen};

/// A commit that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommit {
    pub commit: String,
    pub author: String,
    pub at: Option<Timestamp>,
    pub subject: String,
    /// Those by which it is in the way.
    pub files: Vec<String>,
    /// Whether what we last wrote is no longer in the branch's history.
    pub rewritten: bool,
}

impl fmt::Display for ForeignCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.commit.get(..10).unwrap_or(&self.commit);
        if self.rewritten {
            // Who moved the branch, Git does not say: only who made what it stands at.
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

impl Job<'_> {
    /// Refuses if somebody else wrote what is ours. Says what somebody wrote and undid again.
    pub(super) async fn judge(
        &self,
        publisher: &Publisher,
        seen: &Seen,
        digester: &KeyedDigester,
    ) -> Result<Vec<String>, PublishFactsError> {
        match self.place.owns {
            Owns::Branch => self.judge_branch(publisher, seen).await,
            Owns::Paths => {
                self.judge_paths(publisher, seen, digester).await?;
                Ok(Vec::new())
            }
        }
    }

    async fn judge_branch(
        &self,
        publisher: &Publisher,
        seen: &Seen,
    ) -> Result<Vec<String>, PublishFactsError> {
        let store = &self.control.store;
        let last = store.fact_commit_last(self.project(), &self.key).await?;
        let Some(tip) = &seen.tip else {
            return match last {
                None => Ok(Vec::new()),
                Some(_) => Err(PublishFactsError::BranchGone {
                    place: self.place.name.clone(),
                    branch: self.place.branch.clone(),
                }),
            };
        };
        let tips = std::slice::from_ref(tip);
        if !store
            .fact_commit_known(self.project(), &self.key, tips)
            .await?
            .is_empty()
        {
            self.note_pushed(tip).await?;
            return Ok(Vec::new());
        }
        let git = |err| self.git(err);
        let Some(last) = last else {
            let commit = publisher.commit_read(tip).await.map_err(git)?;
            if trailer(&commit.message, TRAILER_PROJECT).is_some() {
                return Ok(Vec::new());
            }
            let files = publisher.changed_by(tip).await.map_err(git)?;
            return Err(self.foreign(commit, files, false));
        };
        let mut since = publisher.between(&last, tip).await.map_err(git)?;
        if since.is_none() {
            publisher.fetch(true).await.map_err(git)?;
            since = publisher.between(&last, tip).await.map_err(git)?;
        }
        let Some(since) = since else {
            let commit = publisher.commit_read(tip).await.map_err(git)?;
            return Err(self.foreign(commit, Vec::new(), true));
        };
        let known = store
            .fact_commit_known(self.project(), &self.key, &since)
            .await?;
        let mut found = Vec::new();
        for id in since.iter().filter(|id| !known.contains(*id)) {
            let commit = publisher.commit_read(id).await.map_err(git)?;
            let changed = publisher.changed_by(id).await.map_err(git)?;
            let before = match commit.parents.first() {
                Some(parent) => self.manifest_at(publisher, parent).await?,
                None => Some(Manifest::default()),
            };
            let after = self.manifest_at(publisher, id).await?;
            let files = match before {
                Some(before) => foreign_files(self.project(), &before, after.as_ref(), &changed),
                None => changed,
            };
            if !files.is_empty() {
                found.push((commit, files));
            }
        }
        // Ours after theirs was made by who looked then, or took over.
        let base = since.iter().rev().find(|id| known.contains(*id));
        let base = base.unwrap_or(&last);
        let touched: BTreeSet<&str> = found
            .iter()
            .flat_map(|(_, files)| files.iter().map(String::as_str))
            .collect();
        if !touched.is_empty() && !self.is_undone(publisher, base, tip, &touched).await? {
            let (commit, files) = found.swap_remove(0);
            return Err(self.foreign(commit, files, false));
        }
        let said = found.into_iter().map(|(commit, files)| {
            let foreign = foreign_commit(commit, files, false);
            format!("{foreign}; it was undone since")
        });
        Ok(said.collect())
    }

    /// Whether the files that others touched are as we left them.
    async fn is_undone(
        &self,
        publisher: &Publisher,
        ours: &str,
        tip: &str,
        touched: &BTreeSet<&str>,
    ) -> Result<bool, PublishFactsError> {
        let paths: Vec<&str> = touched.iter().copied().collect();
        let git = |err| self.git(err);
        let before = publisher.files(ours, &paths).await.map_err(git)?;
        let now = publisher.files(tip, &paths).await.map_err(git)?;
        let (Some(mut before), Some(mut now)) = (before, now) else {
            return Ok(false);
        };
        // Other projects may have published in between: of the manifest, our part counts.
        if let (Some(one), Some(other)) = (before.remove(MANIFEST), now.remove(MANIFEST)) {
            let part = |bytes: &[u8]| {
                let manifest = Manifest::read(Some(bytes)).ok()?;
                let ours = |owner: &Owner| owner.project == self.project();
                let files = manifest.files.into_iter();
                Some(files.filter(|(_, owner)| ours(owner)).collect::<Vec<_>>())
            };
            if part(&one).is_none() || part(&one) != part(&other) {
                return Ok(false);
            }
        }
        Ok(before == now)
    }

    /// None if it cannot be read.
    async fn manifest_at(
        &self,
        publisher: &Publisher,
        commit: &str,
    ) -> Result<Option<Manifest>, PublishFactsError> {
        let files = publisher.files(commit, &[MANIFEST]).await;
        let files = files.map_err(|err| self.git(err))?.unwrap_or_default();
        Ok(Manifest::read(files.get(MANIFEST).map(Vec::as_slice)).ok())
    }

    async fn judge_paths(
        &self,
        publisher: &Publisher,
        seen: &Seen,
        digester: &KeyedDigester,
    ) -> Result<(), PublishFactsError> {
        let Some(tip) = &seen.tip else {
            return Ok(());
        };
        for file in &self.files {
            let path = &file.path;
            let now = seen.files.get(path).map(|bytes| digester.digest(bytes));
            let store = &self.control.store;
            let past = store
                .fact_file_history(self.project(), &self.key, path)
                .await?;
            self.check_owner(path, path, Clash::Same, &past).await?;
            if now.is_none()
                && let Some((there, how)) = self.in_the_way(publisher, seen, path, digester).await?
            {
                let git = |err| self.git(err);
                let past = store.fact_file_history(self.project(), &self.key, &there);
                self.check_owner(path, &there, how, &past.await?).await?;
                publisher.fetch(true).await.map_err(git)?;
                let id = publisher.last_touched(tip, &there).await.map_err(git)?;
                let commit = publisher.commit_read(id.as_ref().unwrap_or(tip)).await;
                return Err(self.foreign(commit.map_err(git)?, vec![there], false));
            }
            let is_ours = match (&now, past.is_empty()) {
                (None, true) => true,
                (Some(_), true) => self.says_it_is_ours(publisher, tip, path).await?,
                (now, false) => is_as_we_left_it(&past, now.as_deref()),
            };
            if !is_ours {
                let git = |err| self.git(err);
                publisher.fetch(true).await.map_err(git)?;
                let id = publisher.last_touched(tip, path).await.map_err(git)?;
                let commit = publisher
                    .commit_read(id.as_ref().unwrap_or(tip))
                    .await
                    .map_err(git)?;
                return Err(self.foreign(commit, vec![path.clone()], false));
            }
        }
        Ok(())
    }

    /// Refuses what another stack of this project has there.
    async fn check_owner(
        &self,
        path: &str,
        there: &str,
        how: Clash,
        past: &[PastFact],
    ) -> Result<(), PublishFactsError> {
        let own = self.publication.stack.as_str();
        let Some(owner) = past.first().map(|past| past.digest.stack.as_str()) else {
            return Ok(());
        };
        let stacks = self.names.first();
        let stacks = stacks.and_then(|name| self.publication.stacks.get(*name));
        if owner == own || stacks.is_some_and(|stacks| !stacks.contains(owner)) {
            return Ok(());
        }
        let store = &self.control.store;
        let kept = store.fact_file_paths(self.project(), &self.key, owner);
        if !kept.await?.contains(there) {
            return Ok(());
        }
        Err(PublishFactsError::Taken {
            place: self.place.name.clone(),
            source: Box::new(TakenPath {
                path: path.to_owned(),
                there: there.to_owned(),
                how,
                owner: Owner {
                    project: self.project().to_owned(),
                    stack: owner.to_owned(),
                },
            }),
        })
    }

    /// A file of others that a path cannot lie beside: one where it wants a directory, say.
    async fn in_the_way(
        &self,
        publisher: &Publisher,
        seen: &Seen,
        path: &str,
        digester: &KeyedDigester,
    ) -> Result<Option<(String, Clash)>, PublishFactsError> {
        let Some(tip) = &seen.tip else {
            return Ok(None);
        };
        let there = publisher.list(tip).await.map_err(|err| self.git(err))?;
        // What this very publication takes away is in nobody's way.
        let ours = self.still_ours(seen, digester).await?;
        let is_named = |other: &String| self.files.iter().any(|file| file.path == *other);
        let mut others = Paths::default();
        for other in there
            .iter()
            .filter(|it| !ours.contains(*it) || is_named(it))
        {
            others.add(other, ());
        }
        let found = others.clash(path);
        Ok(found.map(|(other, (), how)| (other.to_owned(), how)))
    }

    /// Of the files that this stack published before, those that are there as it left them: what others have made of the
    /// rest is theirs.
    pub(super) async fn still_ours(
        &self,
        seen: &Seen,
        digester: &KeyedDigester,
    ) -> Result<BTreeSet<String>, PublishFactsError> {
        let mut ours = BTreeSet::new();
        for path in &self.remembered {
            let Some(bytes) = seen.files.get(path) else {
                continue;
            };
            let store = &self.control.store;
            let past = store.fact_file_history(self.project(), &self.key, path);
            if is_as_we_left_it(&past.await?, Some(&digester.digest(bytes))) {
                ours.insert(path.clone());
            }
        }
        Ok(ours)
    }

    /// Whether a file that this home does not remember was last written for this project, by another home.
    async fn says_it_is_ours(
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

    fn foreign(&self, commit: Commit, files: Vec<String>, rewritten: bool) -> PublishFactsError {
        PublishFactsError::Foreign {
            place: self.place.name.clone(),
            foreign: Box::new(foreign_commit(commit, files, rewritten)),
            more: Vec::new(),
        }
    }
}

fn foreign_commit(commit: Commit, files: Vec<String>, rewritten: bool) -> ForeignCommit {
    ForeignCommit {
        subject: commit.message.lines().next().unwrap_or_default().to_owned(),
        commit: commit.id,
        author: commit.author,
        at: commit.at,
        files,
        rewritten,
    }
}

/// What is on the branch for certain, and whatever may have arrived since.
fn is_as_we_left_it(past: &[PastFact], now: Option<&str>) -> bool {
    let certain = past.iter().position(|past| past.is_pushed);
    let valid = &past[..certain.map_or(past.len(), |at| at + 1)];
    let is_now = |past: &PastFact| past.digest.bytes == now.unwrap_or_default();
    valid.iter().any(is_now) || (certain.is_none() && now.is_none())
}
