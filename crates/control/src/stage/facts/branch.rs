//! One stack's files on one branch: read, check, build a commit, store its id, push it; again if another push
//! won.
//!
//! Not here: whether somebody else wrote there (`foreign`), the other places of a publication (`facts`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use drivers::git::publish::{PublishError, Publisher, PushOutcome};
use model::base::diagnostic::Location;
use model::stage::facts::{BranchOwnership, FactsBranch};
use model::stage::facts::{
    CommitChanges, CommitMessage, DesiredFiles, Encrypt, FactFile, FactLocation, FactsManifest,
    FieldDifference, FileChange, MANIFEST, Published, PublishedFile, changes, field_differences,
    file_header, holds_fields, shape,
};
use model::state::break_glass::BreakGlass;
use store::{FactDigest, KeyedDigester, NewFactCommit};

use super::{
    Destination, ForeignCommit, Publication, PublishFactsError, SinkOutcome, encrypt,
    project_files, records, remote_of,
};
use crate::Control;
use crate::home::make_private;

/// After so many lost pushes in a row, something else is wrong.
const ATTEMPTS: usize = 64;

/// A publication to one place.
pub(super) struct BranchJob<'a> {
    pub(super) control: &'a Control,
    pub(super) publication: &'a Publication<'a>,
    pub(super) place: &'a Destination,
    /// The `facts` blocks that lead there.
    pub(super) names: Vec<&'a str>,
    pub(super) key: String,
    pub(super) files: Vec<FactFile>,
    /// What this stack published there before.
    pub(super) remembered: BTreeSet<String>,
    /// No facts of a stack: only break-glass records.
    pub(super) is_record: bool,
}

/// How a branch differs from what a stack would publish.
#[derive(Clone, Debug)]
pub struct BranchComparison {
    /// What a publication would do.
    pub would: Published,
    /// The change by somebody else that would stop it.
    pub foreign: Option<ForeignCommit>,
    /// The branch existed once, and does not any more.
    pub is_gone: bool,
    /// By path: how files that would be written differ from what is published.
    pub fields: BTreeMap<String, Vec<FieldDifference>>,
    /// Files without any fields: a link, or a file that somebody else replaced.
    pub unreadable: BTreeSet<String>,
}

impl BranchComparison {
    /// Whether the branch matches the state and has no foreign changes.
    pub fn agrees(&self) -> bool {
        let is_same =
            |file: &PublishedFile| matches!(file.what, FileChange::Unchanged | FileChange::Left);
        self.foreign.is_none() && !self.is_gone && self.would.files.iter().all(is_same)
    }
}

/// The branch as it is now.
pub(super) struct BranchState {
    pub(super) tip: Option<String>,
    pub(super) manifest: FactsManifest,
    /// Whether its manifest cannot be read.
    pub(super) is_broken: bool,
    /// The files that this publication may change.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// The bytes of a file to publish.
pub(super) struct SealedFile {
    pub(super) bytes: Vec<u8>,
    /// Keyed digest of its plaintext and its recipients.
    pub(super) plain: Option<String>,
}

/// The bytes of a file on a branch.
pub(super) async fn read_file(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    place: &Destination,
    key: &str,
    path: &str,
) -> Result<Option<Vec<u8>>, PublishFactsError> {
    let _turn = lock(cache(control, key)).await?;
    let publisher = open(control, root, asker, place, key).await?;
    let git = |source| PublishFactsError::Git {
        place: place.name.clone(),
        source,
    };
    let Some(tip) = publisher.tip().await.map_err(git)? else {
        return Ok(None);
    };
    let mut files = publisher.files(&tip, &[path]).await.map_err(git)?;
    if files.is_none() {
        let tip = publisher.fetch(false).await.map_err(git)?;
        files = publisher.files(&tip, &[path]).await.map_err(git)?;
    }
    Ok(files.and_then(|mut files| files.remove(path)))
}

fn cache(control: &Control, key: &str) -> PathBuf {
    let name = drivers::snapshot::sha256(key.as_bytes());
    control.home.work().join("facts").join(&name[..16])
}

async fn open(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    place: &Destination,
    key: &str,
) -> Result<Publisher, PublishFactsError> {
    let remote = remote_of(root, place)?;
    let cache = cache(control, key).with_extension("git");
    let private = control.home.work().join("facts");
    let opened = Publisher::open(asker, &cache, &private, &remote);
    opened.await.map_err(|source| PublishFactsError::Git {
        place: place.name.clone(),
        source,
    })
}

/// One publisher of this home at a time for each branch: they share a cache, and would lose pushes to each other.
async fn lock(cache: PathBuf) -> Result<File, PublishFactsError> {
    let path = cache.with_extension("lock");
    let open = path.clone();
    let locked = tokio::task::spawn_blocking(move || {
        make_private(open.parent().unwrap_or(&open))?;
        let file = File::options().create(true).append(true).open(&open)?;
        file.lock()?;
        Ok(file)
    });
    let locked = locked
        .await
        .unwrap_or_else(|err| Err(io::Error::other(err)));
    locked.map_err(|source| PublishFactsError::File { path, source })
}

impl BranchJob<'_> {
    /// Publishes, and writes the files of `sink "file"`.
    pub(super) async fn publish(&self) -> Result<(Published, Vec<SinkOutcome>), PublishFactsError> {
        let _turn = lock(self.cache()).await?;
        let publisher = self.open().await?;
        let digester = self.control.store.keyed_digester("facts").await?;
        let mut taken_over = false;
        for _ in 0..ATTEMPTS {
            let seen = self.look(&publisher).await?;
            match self.check_foreign(&publisher, &seen, &digester).await {
                Ok(()) if seen.is_broken => taken_over = self.take_over(taken_over).await?,
                Ok(()) => {}
                // For a take-over it does not matter whose change it was.
                Err(err) if self.publication.take_over.is_some() && !err.is_of_store() => {
                    taken_over = self.take_over(taken_over).await?;
                }
                Err(err) => return Err(err),
            }
            let sealed = self.seal(&seen, &digester).await?;
            let acts = self.acts().await?;
            let changes = self.changes(&seen, &sealed, &acts, &digester).await?;
            let left = self.left(&seen, &changes);
            if changes.is_empty() {
                let files = self.write_files(&sealed, &digester).await?;
                self.note_location(false).await?;
                return Ok((self.report(seen.tip, &changes, &left, false), files));
            }
            let message = self.message(&changes, taken_over);
            let made =
                publisher.commit(seen.tip.as_deref(), &changes, &message, self.publication.at);
            let commit = made.await.map_err(|err| self.git(err))?;
            let files = self.digests(&changes, &sealed, &acts, &digester);
            // Before the push, so that a crash forgets nothing; not sooner, because a refusal publishes nothing.
            self.note_location(true).await?;
            self.remember(&commit, &files).await?;
            let pushed = publisher.push(&commit, seen.tip.as_deref()).await;
            match pushed.map_err(|err| self.git(err))? {
                PushOutcome::Done => {
                    self.note_pushed(&commit).await?;
                    let files = self.write_files(&sealed, &digester).await?;
                    self.note_location(false).await?;
                    return Ok((self.report(Some(commit), &changes, &left, true), files));
                }
                PushOutcome::Late => {}
            }
        }
        Err(PublishFactsError::Busy {
            stack: self.publication.stack.clone(),
            place: self.place.name.clone(),
            attempts: ATTEMPTS,
        })
    }

    /// The foreign change that would stop a publication; nothing is changed.
    pub(super) async fn foreign_there(&self) -> Result<Option<ForeignCommit>, PublishFactsError> {
        let _turn = lock(self.cache()).await?;
        let publisher = self.open().await?;
        let digester = self.control.store.keyed_digester("facts").await?;
        let seen = self.look(&publisher).await?;
        match self.check_foreign(&publisher, &seen, &digester).await {
            Err(PublishFactsError::Foreign { foreign, .. }) => Ok(Some(*foreign)),
            Ok(()) => Ok(None),
            Err(err) => Err(err),
        }
    }

    pub(super) async fn compare(&self) -> Result<BranchComparison, PublishFactsError> {
        let _turn = lock(self.cache()).await?;
        let publisher = self.open().await?;
        let digester = self.control.store.keyed_digester("facts").await?;
        let seen = self.look(&publisher).await?;
        let (mut foreign, mut is_gone) = (None, false);
        match self.check_foreign(&publisher, &seen, &digester).await {
            Ok(()) => {}
            Err(PublishFactsError::Foreign { foreign: found, .. }) => foreign = Some(*found),
            Err(PublishFactsError::BranchGone { .. }) => is_gone = true,
            Err(err) => return Err(err),
        }
        let sealed = self.seal(&seen, &digester).await?;
        let acts = self.acts().await?;
        let changes = self.changes(&seen, &sealed, &acts, &digester).await?;
        let (mut fields, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
        for file in &self.files {
            let published = seen.files.get(&file.path);
            let published = published.filter(|_| changes.write.contains_key(&file.path));
            if let Some(bytes) = published {
                fields.insert(file.path.clone(), field_differences(bytes, file));
                if !holds_fields(bytes) {
                    unreadable.insert(file.path.clone());
                }
            }
        }
        let left = self.left(&seen, &changes);
        Ok(BranchComparison {
            would: self.report(seen.tip, &changes, &left, false),
            foreign,
            is_gone,
            fields,
            unreadable,
        })
    }

    /// Records the files and their fields: before the push the old ones and the new ones, afterwards the new ones.
    async fn note_location(&self, is_before: bool) -> Result<(), PublishFactsError> {
        if self.is_record {
            return Ok(());
        }
        let (store, stack) = (&self.control.store, self.publication.stack.as_str());
        let known = store.fact_location_list(self.project(), stack).await?;
        let known = known.into_iter().find_map(|location| match location {
            FactLocation::Branch { key, place, files } if key == self.key => Some((place, files)),
            FactLocation::Branch { .. }
            | FactLocation::File { .. }
            | FactLocation::Object { .. } => None,
        });
        let now = self.files.iter();
        let mut files: BTreeMap<_, _> = now
            .map(|file| (file.path.clone(), shape(&file.values)))
            .collect();
        if let (true, Some((_, old))) = (is_before, &known) {
            for (path, shape) in old {
                files.entry(path.clone()).or_insert_with(|| shape.clone());
            }
        }
        if files.is_empty() {
            if known.is_some() && !is_before {
                let identity = format!("branch {}", self.key);
                let removed = store.fact_location_remove(self.project(), stack, &identity);
                removed.await?;
            }
            return Ok(());
        }
        let place = Box::new(FactsBranch {
            declared_at: Location::default(),
            ..self.place.declared.clone()
        });
        if known.is_some_and(|(known, old)| known == place && old == files) {
            return Ok(());
        }
        let key = self.key.clone();
        let location = FactLocation::Branch { key, place, files };
        let put = store.fact_location_put(self.project(), stack, &location);
        Ok(put.await?)
    }

    /// Files that the stack no longer publishes and that somebody else changed: they stay.
    fn left(&self, seen: &BranchState, changes: &CommitChanges) -> BTreeSet<String> {
        let remembered = self.remembered.iter();
        let named = |path: &String| self.files.iter().any(|file| file.path == *path);
        remembered
            .filter(|path| self.place.owns == BranchOwnership::Paths && !named(path))
            .filter(|path| seen.files.contains_key(*path) && !changes.remove.contains(*path))
            .cloned()
            .collect()
    }

    pub(super) async fn note_pushed(&self, commit: &str) -> Result<(), PublishFactsError> {
        let store = &self.control.store;
        let noted = store.fact_commit_pushed(self.project(), &self.key, commit);
        Ok(noted.await?)
    }

    pub(super) fn project(&self) -> &str {
        self.control.home.project()
    }

    pub(super) fn git(&self, source: PublishError) -> PublishFactsError {
        PublishFactsError::Git {
            place: self.place.name.clone(),
            source,
        }
    }

    fn cache(&self) -> PathBuf {
        cache(self.control, &self.key)
    }

    async fn open(&self) -> Result<Publisher, PublishFactsError> {
        let publication = self.publication;
        open(
            self.control,
            publication.root,
            publication.asker,
            self.place,
            &self.key,
        )
        .await
    }

    async fn look(&self, publisher: &Publisher) -> Result<BranchState, PublishFactsError> {
        let git = |err| self.git(err);
        let Some(mut tip) = publisher.tip().await.map_err(git)? else {
            return Ok(BranchState {
                tip: None,
                manifest: FactsManifest::default(),
                is_broken: false,
                files: BTreeMap::new(),
            });
        };
        let common = self.break_glass_path();
        let wanted = self.files.iter().map(|file| file.path.as_str());
        let mut paths: BTreeSet<&str> = wanted.collect();
        paths.extend(self.remembered.iter().map(String::as_str));
        paths.extend([MANIFEST, &common]);
        let paths: Vec<&str> = paths.into_iter().collect();
        let mut files = publisher.files(&tip, &paths).await.map_err(git)?;
        if files.is_none() {
            tip = publisher.fetch(false).await.map_err(git)?;
            files = publisher.files(&tip, &paths).await.map_err(git)?;
        }
        let files = files.unwrap_or_default();
        let bytes = files
            .get(MANIFEST)
            .filter(|_| self.place.owns == BranchOwnership::Branch);
        let manifest = FactsManifest::read(bytes.map(Vec::as_slice));
        let is_broken = manifest.is_err();
        let manifest = match (manifest, self.publication.take_over) {
            (Ok(manifest), _) => manifest,
            (Err(_), Some(_)) => FactsManifest::default(),
            (Err(source), None) => {
                return Err(PublishFactsError::Manifest {
                    stack: self.publication.stack.clone(),
                    place: self.place.name.clone(),
                    source,
                });
            }
        };
        Ok(BranchState {
            tip: Some(tip),
            manifest,
            is_broken,
            files,
        })
    }

    /// The bytes of every file. A file with unchanged plaintext and recipients keeps its bytes.
    async fn seal(
        &self,
        seen: &BranchState,
        digester: &KeyedDigester,
    ) -> Result<BTreeMap<String, SealedFile>, PublishFactsError> {
        let mut all = BTreeMap::new();
        for file in &self.files {
            let current = seen.files.get(&file.path);
            let mut past = Vec::new();
            if file.encrypt != Encrypt::Nothing && current.is_some() {
                let store = &self.control.store;
                past = store
                    .fact_file_history(self.project(), &self.key, &file.path)
                    .await?;
            }
            let header = self.header();
            let sealed = encrypt::seal(
                self.publication.tree,
                self.publication.asker,
                file,
                &header,
                self.publication.at,
                |plain| {
                    let plain = digester.digest(plain);
                    let reused = current.filter(|bytes| {
                        let bytes = digester.digest(bytes);
                        past.iter().any(|it| {
                            it.digest.bytes == bytes && it.digest.plain.as_ref() == Some(&plain)
                        })
                    });
                    (plain, reused.cloned())
                },
            );
            let sealed = sealed.map_err(|source| PublishFactsError::Seal {
                path: file.path.clone(),
                source,
            })?;
            all.insert(file.path.clone(), sealed);
        }
        Ok(all)
    }

    /// Writes the files of `sink "file"` that blocks of this place name.
    async fn write_files(
        &self,
        sealed: &BTreeMap<String, SealedFile>,
        digester: &KeyedDigester,
    ) -> Result<Vec<SinkOutcome>, PublishFactsError> {
        let (store, stack) = (&self.control.store, self.publication.stack.as_str());
        let mut done = Vec::new();
        for (path, bytes) in self.sink_files(sealed) {
            let digest = digester.digest(&bytes);
            let location = FactLocation::File {
                path: path.to_owned(),
                digest,
            };
            let noted = store.fact_location_list(self.project(), stack).await?;
            let is_ours = |there: &[u8]| {
                let digest = digester.digest(there);
                let (path, digest) = (path.to_owned(), digest);
                there == bytes || noted.contains(&FactLocation::File { path, digest })
            };
            let there = project_files::read(self.publication.root, path)?;
            if there.is_some_and(|there| !is_ours(&there)) {
                if self.publication.take_over.is_none() {
                    return Err(PublishFactsError::NotOurs {
                        stack: self.publication.stack.clone(),
                        path: path.to_owned(),
                    });
                }
                let detail = format!("file `{path}`");
                self.publication
                    .record_take_over(self.control, detail)
                    .await?;
            }
            if !noted.contains(&location) {
                let put = store.fact_location_put(self.project(), stack, &location);
                put.await?;
            }
            let is_new = project_files::write(self.publication.root, path, &bytes)?;
            done.push(SinkOutcome::file(path, is_new));
        }
        Ok(done)
    }

    fn sink_files(&self, sealed: &BTreeMap<String, SealedFile>) -> Vec<(&str, Vec<u8>)> {
        let mut all = Vec::new();
        for block in self.publication.blocks {
            let file = self.files.iter().find(|file| file.path == block.path);
            let file = file.filter(|_| self.names.contains(&block.place.as_str()));
            let (Some(file), Some(sealed)) = (file, sealed.get(&block.path)) else {
                continue;
            };
            for path in &block.files {
                let bytes = project_files::bytes(file, &sealed.bytes, path, &self.header());
                all.push((path.as_str(), bytes));
            }
        }
        all
    }

    fn header(&self) -> String {
        file_header(self.publication.stack.as_str(), self.project())
    }

    async fn changes(
        &self,
        seen: &BranchState,
        sealed: &BTreeMap<String, SealedFile>,
        acts: &[BreakGlass],
        digester: &KeyedDigester,
    ) -> Result<CommitChanges, PublishFactsError> {
        let files: BTreeMap<String, Vec<u8>> = sealed
            .iter()
            .map(|(path, sealed)| (path.clone(), sealed.bytes.clone()))
            .collect();
        let (common, remembered) = match self.place.owns {
            BranchOwnership::Branch => (self.break_glass(seen, acts), BTreeSet::new()),
            BranchOwnership::Paths => (BTreeMap::new(), self.still_ours(seen, digester).await?),
        };
        let wanted = DesiredFiles {
            project: self.project(),
            stack: self.stack(),
            files: &files,
            common: &common,
            stacks: self
                .names
                .first()
                .and_then(|name| self.publication.stacks.get(*name)),
            remembered: &remembered,
        };
        let changes = changes(self.place.owns, &seen.manifest, &seen.files, &wanted);
        changes.map_err(|source| PublishFactsError::Taken {
            place: self.place.name.clone(),
            source: Box::new(source),
        })
    }

    /// The stack whose files these are; a record belongs to none.
    fn stack(&self) -> &str {
        if self.is_record {
            return "";
        }
        self.publication.stack.as_str()
    }

    fn break_glass_path(&self) -> String {
        records::path(self.project())
    }

    /// The break-glass records of this project, so that they can be found in Git.
    fn break_glass(&self, seen: &BranchState, acts: &[BreakGlass]) -> BTreeMap<String, Vec<u8>> {
        if acts.is_empty() {
            return BTreeMap::new();
        }
        let path = self.break_glass_path();
        let there = seen.files.get(&path).map(Vec::as_slice);
        let bytes = model::stage::facts::records(there, acts);
        BTreeMap::from([(path, bytes)])
    }

    async fn acts(&self) -> Result<Vec<BreakGlass>, PublishFactsError> {
        let store = &self.control.store;
        Ok(store.break_glass_list_of(self.project()).await?)
    }

    fn message(&self, changes: &CommitChanges, taken_over: bool) -> String {
        let publication = self.publication;
        let is_fact = |path: &&String| !path.starts_with(".terrane/");
        let contracts: BTreeSet<_> = self
            .files
            .iter()
            .filter_map(|file| file.contract.as_ref())
            .collect();
        let message = CommitMessage {
            project: self.project(),
            stack: (!self.is_record).then_some(publication.stack.as_str()),
            run: publication.run.map(|run| run.to_string()),
            state: publication.state,
            contracts: contracts.into_iter().collect(),
            source: publication.source,
            written: changes
                .write
                .keys()
                .filter(is_fact)
                .map(String::as_str)
                .collect(),
            withdrawn: changes.remove.iter().map(String::as_str).collect(),
            records: changes.write.contains_key(&self.break_glass_path()),
            taken_over: publication
                .take_over
                .filter(|_| taken_over)
                .map(|it| (it.person.name.as_str(), it.reason.as_str())),
        };
        message.render()
    }

    /// The digests of what a commit changes, as they are stored.
    fn digests(
        &self,
        changes: &CommitChanges,
        sealed: &BTreeMap<String, SealedFile>,
        acts: &[BreakGlass],
        digester: &KeyedDigester,
    ) -> Vec<FactDigest> {
        let (stack, records) = (self.stack(), self.break_glass_path());
        let written = changes.write.iter().map(|(path, bytes)| FactDigest {
            path: path.clone(),
            stack: if sealed.contains_key(path) { stack } else { "" }.to_owned(),
            bytes: digester.digest(bytes),
            plain: match sealed.get(path) {
                Some(sealed) => sealed.plain.clone(),
                // The part of it that this home wrote.
                None if *path == records => {
                    Some(digester.digest(&model::stage::facts::records(None, acts)))
                }
                None => None,
            },
        });
        let withdrawn = changes.remove.iter().map(|path| FactDigest {
            path: path.clone(),
            stack: stack.to_owned(),
            bytes: String::new(),
            plain: None,
        });
        written.chain(withdrawn).collect()
    }

    /// Stores the commit's id before the push.
    async fn remember(&self, commit: &str, files: &[FactDigest]) -> Result<(), PublishFactsError> {
        let new = NewFactCommit {
            project: self.project(),
            place: &self.key,
            commit,
            stack: self.stack(),
            files,
        };
        Ok(self.control.store.fact_commit_insert(&new).await?)
    }

    /// Records the take-over, once for all attempts to push.
    async fn take_over(&self, is_recorded: bool) -> Result<bool, PublishFactsError> {
        if !is_recorded {
            let Destination { name, branch, .. } = self.place;
            let detail = format!("facts `{name}`, branch `{branch}`");
            self.publication
                .record_take_over(self.control, detail)
                .await?;
        }
        Ok(true)
    }

    fn report(
        &self,
        commit: Option<String>,
        changes: &CommitChanges,
        left: &BTreeSet<String>,
        is_new: bool,
    ) -> Published {
        let declared = self.files.iter().map(|file| PublishedFile {
            path: file.path.clone(),
            what: if changes.write.contains_key(&file.path) {
                FileChange::Written
            } else {
                FileChange::Unchanged
            },
            encrypted: file.encrypt != Encrypt::Nothing,
        });
        let withdrawn = changes.remove.iter().map(|path| PublishedFile {
            path: path.clone(),
            what: FileChange::Withdrawn,
            encrypted: false,
        });
        let left = left.iter().map(|path| PublishedFile {
            path: path.clone(),
            what: FileChange::Left,
            encrypted: false,
        });
        Published {
            place: self.place.name.clone(),
            repository: self.place.repository.clone(),
            branch: self.place.branch.clone(),
            commit,
            is_new,
            files: declared.chain(withdrawn).chain(left).collect(),
        }
    }
}
