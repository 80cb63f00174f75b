//! Runs the `git` program: finds the repository, its differences and its tracked files.
//!
//! Paths are relative to the project's root, which may be a directory inside the repository. Files outside the
//! root do not belong to the project.
//!
//! Not here: which stacks a change affects (`model::project::changed`), the files of a commit (`tree::CommitTree`).

mod blobs;
mod history;
pub mod publish;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::process::{self, Environment};
use model::base::error::{Explain, NextStep, advice};

pub(crate) use blobs::BlobReader;

/// The program and its environment.
#[derive(Clone, Debug)]
pub struct Git {
    env: Environment,
}

/// A project's repository.
#[derive(Clone, Debug)]
pub struct Repository {
    git: Git,
    /// The project's root.
    root: PathBuf,
    top: PathBuf,
    common_dir: PathBuf,
    /// The project's root as seen from the top, with a slash at its end; empty at the top.
    prefix: String,
}

#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("could not start `git`")]
    Start { source: io::Error },
    #[error("could not look for a repository in `{}`", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("could not {action}: {said}")]
    Failed { action: &'static str, said: String },
    #[error("`{revision}` is not a commit that this clone has")]
    UnknownRevision { revision: String, shallow: bool },
    #[error("`{revision}` and `HEAD` have no common commit in this shallow clone")]
    BaseCutOff { revision: String },
    #[error("`{revision}` and `HEAD` have no common commit")]
    Unrelated { revision: String },
    #[error("`{path}` is not UTF-8")]
    NotUtf8 { path: String },
}

impl Explain for GitError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Start { .. } => "install Git, or add it to `PATH`".to_owned(),
            Self::UnknownRevision { shallow: true, .. } | Self::BaseCutOff { .. } => {
                "`git fetch --unshallow` fetches the whole history, `git fetch --deepen=100` a part of it"
                    .to_owned()
            }
            Self::UnknownRevision { revision, .. } => {
                format!("if it is on the remote: `git fetch origin {revision}`")
            }
            Self::NotUtf8 { .. } => "rename it".to_owned(),
            Self::Directory { .. } | Self::Failed { .. } | Self::Unrelated { .. } => {
                return Vec::new();
            }
        })]
    }
}

impl Git {
    /// Takes from the caller's environment only what Git needs to find its settings.
    pub fn new(asker: &BTreeMap<String, String>) -> Self {
        let taken = ["PATH", "HOME", "XDG_CONFIG_HOME"];
        let mut env: Environment = asker
            .iter()
            .filter(|(name, _)| taken.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let fixed = [
            ("GIT_TERMINAL_PROMPT", "0"),
            // Read-only: Git must not write a refreshed index.
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("LC_ALL", "C"),
        ];
        for (name, value) in fixed {
            env.set(name, value);
        }
        Self { env }
    }

    /// The repository that contains a project's root, if any.
    pub fn repository(&self, root: &Path) -> Result<Option<Repository>, GitError> {
        let root = root.canonicalize().map_err(|source| GitError::Directory {
            path: root.to_owned(),
            source,
        })?;
        // Without a `.git` directory, no process is started and Git need not be installed.
        if !root.ancestors().any(|dir| dir.join(".git").exists()) {
            return Ok(None);
        }
        let args = [
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-common-dir",
            "--show-prefix",
        ];
        let called = self.call(&root, &args)?;
        if called.code == Some(128) && called.stderr.contains("not a git repository") {
            return Ok(None);
        }
        let said = called.text("find the Git repository")?;
        let mut lines = said.split('\n');
        let mut line = || lines.next().unwrap_or_default();
        Ok(Some(Repository {
            git: self.clone(),
            root,
            top: line().into(),
            common_dir: line().into(),
            prefix: line().to_owned(),
        }))
    }

    fn call(&self, dir: &Path, args: &[&str]) -> Result<GitOutput, GitError> {
        let mut command = self.command(dir);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = process::spawn_helper(&mut command)
            .and_then(Child::wait_with_output)
            .map_err(|source| GitError::Start { source })?;
        Ok(GitOutput {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    fn command(&self, dir: &Path) -> Command {
        process::command(Path::new("git"), dir, &self.env)
    }
}

impl Repository {
    /// The project's root, without links in its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The top of the working tree.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The directory that all worktrees of a clone share.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The commit checked out; `None` before the first.
    pub fn head(&self) -> Result<Option<String>, GitError> {
        let called = self.call(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        if called.code == Some(1) {
            return Ok(None);
        }
        Ok(Some(called.line("read `HEAD`")?))
    }

    /// The commit checked out and the first line of its message; `None` before the first.
    pub fn head_commit(&self) -> Result<Option<(String, String)>, GitError> {
        let called = self.call(&[
            "log",
            "--max-count=1",
            "--format=%H %s",
            "--no-show-signature",
        ])?;
        if called.code == Some(128) {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(called.bytes("read `HEAD`")?).into_owned();
        let line = line.trim_end_matches('\n');
        let (id, subject) = line.split_once(' ').unwrap_or((line, ""));
        Ok(Some((id.to_owned(), subject.to_owned())))
    }

    /// The branch checked out; `None` if `HEAD` is detached.
    pub fn branch(&self) -> Result<Option<String>, GitError> {
        let called = self.call(&["symbolic-ref", "--short", "--quiet", "HEAD"])?;
        if called.code == Some(1) {
            return Ok(None);
        }
        Ok(Some(called.line("read the name of the branch")?))
    }

    /// The URL of a remote; `None` if this clone has no remote of that name.
    pub fn remote_url(&self, name: &str) -> Result<Option<String>, GitError> {
        let called = self.call(&["config", "--get", &format!("remote.{name}.url")])?;
        if called.code == Some(1) {
            return Ok(None);
        }
        Ok(Some(called.line("read a remote's address")?))
    }

    /// Whether the project has uncommitted changes; ignored files do not count.
    pub fn is_dirty(&self) -> Result<bool, GitError> {
        let args = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=normal",
            "--ignore-submodules=none",
            "--",
            ".",
        ];
        let called = self.call(&args)?;
        Ok(!called.bytes("see what is not committed")?.is_empty())
    }

    /// The full id of a revision's commit.
    pub fn commit(&self, revision: &str) -> Result<String, GitError> {
        let peeled = format!("{revision}^{{commit}}");
        let args = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &peeled,
        ];
        let called = self.call(&args)?;
        if called.code == Some(0) {
            return called.line("resolve a revision");
        }
        Err(GitError::UnknownRevision {
            revision: revision.to_owned(),
            shallow: self.is_shallow()?,
        })
    }

    /// The best common ancestor of `HEAD` and `revision`.
    pub fn merge_base(&self, revision: &str) -> Result<String, GitError> {
        let other = self.commit(revision)?;
        let head = self.commit("HEAD")?;
        let called = self.call(&["merge-base", &other, &head])?;
        if called.code != Some(1) {
            return called.line("find the common commit");
        }
        let revision = revision.to_owned();
        Err(if self.is_shallow()? {
            GitError::BaseCutOff { revision }
        } else {
            GitError::Unrelated { revision }
        })
    }

    fn is_shallow(&self) -> Result<bool, GitError> {
        let called = self.call(&["rev-parse", "--is-shallow-repository"])?;
        Ok(called.line("see whether the clone is shallow")? == "true")
    }

    /// Files of the project that differ from a commit: changed, added or deleted, committed or not. Renamed files
    /// count under both names, untracked ones unless ignored. Submodules are included; a submodule itself counts
    /// by its path.
    pub fn changed_since(&self, commit: &str) -> Result<BTreeSet<String>, GitError> {
        let mut changed = BTreeSet::new();
        self.git.changed(&self.root, commit, "", &mut changed)?;
        Ok(changed)
    }

    /// Files that Git tracks, or would add, below `dir`, which is the project's root or a submodule's. Submodules
    /// are listed by their path.
    pub(crate) fn files_below(&self, dir: &str) -> Result<BTreeSet<String>, GitError> {
        self.git.files(&self.root.join(dir))
    }

    /// Directories of the project that Git ignores completely.
    pub(crate) fn ignored_dirs(&self) -> Result<BTreeSet<String>, GitError> {
        let args = [
            "ls-files",
            "--others",
            "--ignored",
            "--exclude-standard",
            "--directory",
            "-z",
        ];
        let called = self.call(&args)?;
        let mut dirs = BTreeSet::new();
        for path in fields(called.bytes("list what Git ignores")?) {
            dirs.extend(text(path)?.strip_suffix('/').map(str::to_owned));
        }
        Ok(dirs)
    }

    /// All blobs of a commit below the project's root: path to mode and id.
    pub(crate) fn blobs_at(
        &self,
        commit: &str,
    ) -> Result<BTreeMap<String, (String, String)>, GitError> {
        let prefix = self.prefix.as_str();
        let mut args = vec!["ls-tree", "-r", "-z", "--full-tree", commit];
        if !prefix.is_empty() {
            args.extend(["--", prefix]);
        }
        let called = self.call(&args)?;
        let mut blobs = BTreeMap::new();
        for line in fields(called.bytes("list the files of a commit")?) {
            // "mode type id\tpath"
            let Some((head, path)) = text(line)?.split_once('\t') else {
                continue;
            };
            let mut words = head.split(' ');
            let (mode, kind, id) = (words.next(), words.next(), words.next());
            if let (Some(mode), Some("blob"), Some(id)) = (mode, kind, id)
                && let Some(path) = path.strip_prefix(prefix)
            {
                blobs.insert(path.to_owned(), (mode.to_owned(), id.to_owned()));
            }
        }
        Ok(blobs)
    }

    pub(crate) fn blobs(&self) -> Result<BlobReader, GitError> {
        BlobReader::start(self.git.command(&self.root))
    }

    fn call(&self, args: &[&str]) -> Result<GitOutput, GitError> {
        self.git.call(&self.root, args)
    }
}

const SUBMODULE: &str = "160000";

impl Git {
    fn changed(
        &self,
        dir: &Path,
        commit: &str,
        prefix: &str,
        changed: &mut BTreeSet<String>,
    ) -> Result<(), GitError> {
        let args = [
            "diff",
            "--raw",
            "-z",
            "--no-abbrev",
            "--no-renames",
            "--no-ext-diff",
            "--ignore-submodules=none",
            "--relative",
            commit,
            "--",
            ".",
        ];
        let called = self.call(dir, &args)?;
        let mut parts = fields(called.bytes("compare with a commit")?);
        // ":mode mode id id status", then the path, each ended by a NUL
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let (head, path) = (text(head)?, text(path)?);
            let inside = format!("{prefix}{path}/");
            changed.insert(format!("{prefix}{path}"));
            let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old_id, ..] = words[..] else {
                continue;
            };
            let sub = dir.join(path);
            if new_mode != SUBMODULE || !sub.join(".git").exists() {
                continue;
            }
            if old_mode == SUBMODULE && self.has_commit(&sub, old_id)? {
                self.changed(&sub, old_id, &inside, changed)?;
            } else {
                let files = self.files(&sub)?;
                changed.extend(files.iter().map(|file| format!("{inside}{file}")));
            }
        }
        let args = ["ls-files", "--others", "--exclude-standard", "-z"];
        let called = self.call(dir, &args)?;
        for path in fields(called.bytes("list untracked files")?) {
            changed.insert(format!("{prefix}{}", text(path)?.trim_end_matches('/')));
        }
        Ok(())
    }

    fn has_commit(&self, dir: &Path, id: &str) -> Result<bool, GitError> {
        let commit = format!("{id}^{{commit}}");
        Ok(self.call(dir, &["cat-file", "-e", &commit])?.code == Some(0))
    }

    fn files(&self, dir: &Path) -> Result<BTreeSet<String>, GitError> {
        let args = [
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            // These files are never needed, often huge, and not always ignored.
            "--exclude=.terraform/",
            "--exclude=.terrane/",
            "-z",
        ];
        let called = self.call(dir, &args)?;
        fields(called.bytes("list the files that Git knows")?)
            .map(|path| Ok(text(path)?.trim_end_matches('/').to_owned()))
            .collect()
    }
}

/// The result of a call.
struct GitOutput {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl GitOutput {
    fn bytes(&self, action: &'static str) -> Result<&[u8], GitError> {
        if self.code == Some(0) {
            return Ok(&self.stdout);
        }
        Err(GitError::Failed {
            action,
            said: self.stderr.clone(),
        })
    }

    fn text(&self, action: &'static str) -> Result<&str, GitError> {
        text(self.bytes(action)?)
    }

    fn line(&self, action: &'static str) -> Result<String, GitError> {
        Ok(self.text(action)?.trim_end_matches('\n').to_owned())
    }
}

fn fields(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty())
}

fn text(bytes: &[u8]) -> Result<&str, GitError> {
    std::str::from_utf8(bytes).map_err(|_| GitError::NotUtf8 {
        path: String::from_utf8_lossy(bytes).into_owned(),
    })
}
