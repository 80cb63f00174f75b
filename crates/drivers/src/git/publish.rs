//! Writes to a branch of a remote repository: read, fetch, commit, and push unless the branch has moved.
//!
//! The work is done in our own bare repository, a cache that may be deleted at any time. One `git fast-import`
//! makes the commit from given values only: the same facts at the same time on the same parent give the same
//! commit. A push carries a lease, so only one of two concurrent pushes succeeds.
//!
//! Not here: what is written and whether it may be (`model::stage::facts`, `control::stage::facts`).

mod access;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use model::base::error::{Explain, NextStep, advice};
use model::stage::facts::CommitChanges;

use crate::process::{Capture, CaptureError, Captured, Environment, capture};

pub use access::{AccessError, GitCredential, Remote, RemoteUrl, sweep_keys};

/// A remote that does not answer in this time counts as unreachable.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Enough for any set of facts.
const LIMIT: usize = 64 << 20;

const TIP: &str = "refs/terrane/tip";

/// The committer is always the same and names no person.
const COMMITTER: &str = "terrane <terrane@localhost>";

/// A branch that can be written, and its local cache.
#[derive(Debug)]
pub struct Publisher {
    cache: PathBuf,
    url: String,
    branch: String,
    env: Environment,
    /// Keeps the directory of the SSH key while this exists.
    _key: Option<access::KeyDir>,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("could not run `git`")]
    Run(#[from] CaptureError),
    #[error("cannot create the cache `{}`", path.display())]
    Cache { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("could not {action} `{url}`: {said}")]
    Failed {
        action: &'static str,
        url: String,
        said: String,
    },
    #[error("`{url}` refused the push to `{branch}`: {said}")]
    Refused {
        url: String,
        branch: String,
        said: String,
    },
    #[error("cannot {action}: unexpected output of Git")]
    Answer { action: &'static str },
}

impl Explain for PublishError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Failed { said, .. } => access::advice_for(said).map(advice).into_iter().collect(),
            Self::Refused { .. } => vec![advice(
                "the branch may be protected: the owner of the credential must be allowed to push",
            )],
            Self::Access(err) => err.next_steps(),
            Self::Run(_) | Self::Cache { .. } | Self::Answer { .. } => Vec::new(),
        }
    }
}

/// Author and message of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub id: String,
    pub author: String,
    pub at: Option<Timestamp>,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    Done,
    /// The branch has moved; nothing was changed.
    Late,
}

impl Publisher {
    /// `asker` is the caller's environment. `private` is a directory for the key that no other user may enter.
    pub async fn open(
        asker: &BTreeMap<String, String>,
        cache: &Path,
        private: &Path,
        remote: &Remote,
    ) -> Result<Self, PublishError> {
        let (env, key) = access::prepare(asker, private, remote)?;
        let publisher = Self {
            cache: cache.to_owned(),
            url: remote.url.as_str().to_owned(),
            branch: remote.branch.clone(),
            env,
            _key: key,
        };
        if !cache.join("objects").is_dir() {
            let failed = |source| PublishError::Cache {
                path: cache.to_owned(),
                source,
            };
            std::fs::create_dir_all(cache).map_err(failed)?;
            let made = publisher
                .git(&["init", "--bare", "--quiet", "."], &[])
                .await?;
            publisher.said(&made, "make a cache for")?;
        }
        Ok(publisher)
    }

    /// The current commit of the branch; `None` if the branch does not exist.
    pub async fn tip(&self) -> Result<Option<String>, PublishError> {
        let wanted = self.reference();
        let args = ["ls-remote", "--refs", "--", &self.url, &wanted];
        let called = self.git(&args, &[]).await?;
        let said = self.said(&called, "read")?;
        let mut lines = said.lines().filter_map(|line| line.split_once('\t'));
        let found = lines.find(|(_, name)| *name == wanted);
        Ok(found.map(|(id, _)| id.to_owned()))
    }

    /// Fetches the branch and returns its commit. The first fetch of a branch gets only the newest commit, unless
    /// `whole`.
    pub async fn fetch(&self, whole: bool) -> Result<String, PublishError> {
        let spec = format!("+{}:{TIP}", self.reference());
        let is_new = !self.cache.join(TIP).exists();
        let is_shallow = self.cache.join("shallow").exists();
        let mut args = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
        match (whole, is_new, is_shallow) {
            (true, _, true) => args.push("--unshallow"),
            (false, true, _) => args.push("--depth=1"),
            (true, _, false) | (false, false, _) => {}
        }
        args.extend(["--", &self.url, &spec]);
        let called = self.git(&args, &[]).await?;
        self.said(&called, "fetch from")?;
        let called = self.git(&["rev-parse", "--verify", TIP], &[]).await?;
        Ok(self.said(&called, "fetch from")?.trim().to_owned())
    }

    /// The contents of those `paths` that the commit has; `None` if the commit is not in the cache.
    pub async fn files(
        &self,
        commit: &str,
        paths: &[&str],
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, PublishError> {
        let mut asked = vec![format!("{commit}^{{commit}}")];
        asked.extend(paths.iter().map(|path| format!("{commit}:{path}")));
        let mut answers = self.objects(&asked).await?.into_iter();
        if answers.next().flatten().is_none() {
            return Ok(None);
        }
        let files = paths.iter().zip(answers);
        let files = files.filter_map(|(path, bytes)| Some(((*path).to_owned(), bytes?)));
        Ok(Some(files.collect()))
    }

    /// All files of a commit.
    pub async fn list(&self, commit: &str) -> Result<Vec<String>, PublishError> {
        let args = ["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit];
        let called = self.git(&args, &[]).await?;
        Ok(names(&self.said(&called, "list the files of")?))
    }

    /// Commits after `from` up to `to`, oldest first; `None` if `from` is not a known ancestor of `to`.
    pub async fn between(&self, from: &str, to: &str) -> Result<Option<Vec<String>>, PublishError> {
        let range = [from, to].map(|id| format!("{id}^{{commit}}"));
        let is_there = self.objects(&range).await?;
        if is_there.iter().any(Option::is_none) {
            return Ok(None);
        }
        let args = ["merge-base", "--is-ancestor", from, to];
        if self.git(&args, &[]).await?.exit.code() != Some(0) {
            return Ok(None);
        }
        let range = format!("{from}..{to}");
        let args = ["rev-list", "--topo-order", "--reverse", &range];
        let called = self.git(&args, &[]).await?;
        let said = self.said(&called, "read the history of")?;
        Ok(Some(said.lines().map(str::to_owned).collect()))
    }

    /// The commit that last touched a file, as far as the fetched history shows.
    pub async fn last_touched(
        &self,
        tip: &str,
        path: &str,
    ) -> Result<Option<String>, PublishError> {
        let args = ["rev-list", "--max-count=1", tip, "--", path];
        let called = self.git(&args, &[]).await?;
        let said = self.said(&called, "read the history of")?;
        Ok(said.lines().next().map(str::to_owned))
    }

    pub async fn commit_read(&self, id: &str) -> Result<Commit, PublishError> {
        let found = self
            .objects(&[format!("{id}^{{commit}}")])
            .await?
            .pop()
            .flatten();
        let text = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        text.and_then(|text| read_commit(id, &text))
            .ok_or(PublishError::Answer {
                action: "read a commit",
            })
    }

    /// The files that differ between two commits.
    pub async fn changed_between(&self, from: &str, to: &str) -> Result<Vec<String>, PublishError> {
        let args = [
            "diff-tree",
            "-r",
            "-z",
            "--name-only",
            "--no-renames",
            from,
            to,
        ];
        let called = self.git(&args, &[]).await?;
        Ok(names(&self.said(&called, "compare commits of")?))
    }

    /// Makes a commit in the cache; nothing is pushed yet.
    pub async fn commit(
        &self,
        parent: Option<&str>,
        changes: &CommitChanges,
        message: &str,
        at: Timestamp,
    ) -> Result<String, PublishError> {
        let input = import_stream(parent, changes, message, at);
        let args = ["fast-import", "--quiet", "--force", "--done"];
        let called = self.git(&args, &input).await?;
        let said = self.said(&called, "make a commit for")?;
        let id = said.trim();
        let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id {
            return Ok(id.to_owned());
        }
        Err(PublishError::Answer {
            action: "make a commit",
        })
    }

    /// Moves the branch to a commit if it still is at `old`; with `None`, if it does not exist.
    pub async fn push(&self, commit: &str, old: Option<&str>) -> Result<PushOutcome, PublishError> {
        let lease = format!(
            "--force-with-lease={}:{}",
            self.reference(),
            old.unwrap_or_default()
        );
        let spec = format!("{commit}:{}", self.reference());
        let args = [
            "push",
            "--porcelain",
            "--quiet",
            &lease,
            "--",
            &self.url,
            &spec,
        ];
        let called = self.git(&args, &[]).await?;
        if called.exit.code() == Some(0) {
            return Ok(PushOutcome::Done);
        }
        // "!\tfrom:to\t[rejected] (stale info)"
        let said = called.stdout_text();
        let refused = said.lines().find_map(|line| line.strip_prefix("!\t"));
        let Some(refused) = refused.map(|line| line.rsplit('\t').next().unwrap_or(line)) else {
            self.said(&called, "push to")?;
            return Err(PublishError::Answer { action: "push" });
        };
        let is_race = [
            "stale info",
            "cannot lock ref",
            "failed to update ref",
            "fetch first",
        ]
        .iter()
        .any(|reason| refused.contains(reason));
        if is_race || self.tip().await?.as_deref() != old {
            return Ok(PushOutcome::Late);
        }
        Err(PublishError::Refused {
            url: self.url.clone(),
            branch: self.branch.clone(),
            said: explain(refused, &called.stderr_text()),
        })
    }

    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Contents of objects by name, in the requested order; `None` for a missing object or one that is neither
    /// file nor commit.
    async fn objects(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, PublishError> {
        let asked = names.join("\n") + "\n";
        let called = self.git(&["cat-file", "--batch"], asked.as_bytes()).await?;
        self.said(&called, "read the cache of")?;
        read_batch(&called.stdout, names.len()).ok_or(PublishError::Answer {
            action: "read objects",
        })
    }

    async fn git(&self, args: &[&str], stdin: &[u8]) -> Result<Captured, PublishError> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let called = capture(Capture {
            stdin,
            timeout: TIMEOUT,
            limit: LIMIT,
            ..Capture::new(Path::new("git"), &args, &self.cache, &self.env)
        });
        Ok(called.await?)
    }

    fn said(&self, called: &Captured, action: &'static str) -> Result<String, PublishError> {
        if called.exit.code() == Some(0) {
            return Ok(called.stdout_text());
        }
        let said = called.stderr_text();
        let said = said.lines();
        let said = said.map(|line| line.trim_start_matches("fatal: ").trim());
        let said = said.filter(|line| !line.is_empty() && !POLITE.contains(line));
        Err(PublishError::Failed {
            action,
            url: self.url.clone(),
            said: said.collect::<Vec<_>>().join("; "),
        })
    }
}

/// Text that Git adds to every failure of a remote; our hint replaces it.
const POLITE: [&str; 2] = [
    "Please make sure you have the correct access rights",
    "and the repository exists.",
];

/// Prefers the message of a server's hook to Git's own "declined".
fn explain(refused: &str, stderr: &str) -> String {
    let remote = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("remote: "));
    let remote: Vec<&str> = remote
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if remote.is_empty() {
        refused.to_owned()
    } else {
        format!("{refused}: {}", remote.join(" "))
    }
}

fn names(said: &str) -> Vec<String> {
    let names = said.split('\0').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// The input of `fast-import`: one commit on its parent, and the command that prints its id.
fn import_stream(
    parent: Option<&str>,
    changes: &CommitChanges,
    message: &str,
    at: Timestamp,
) -> Vec<u8> {
    let mut input = format!(
        "commit refs/terrane/made\nmark :1\ncommitter {COMMITTER} {} +0000\ndata {}\n{message}\n",
        at.as_second(),
        message.len(),
    )
    .into_bytes();
    if let Some(parent) = parent {
        input.extend(format!("from {parent}\n").into_bytes());
    }
    for path in &changes.remove {
        input.extend(format!("D {path}\n").into_bytes());
    }
    for (path, bytes) in &changes.write {
        input.extend(format!("M 100644 inline {path}\ndata {}\n", bytes.len()).into_bytes());
        input.extend(bytes);
        input.push(b'\n');
    }
    input.extend(b"get-mark :1\ndone\n");
    input
}

/// Parses the output of `cat-file --batch`: "ID TYPE SIZE", the bytes, a line feed; or "NAME missing".
fn read_batch(mut rest: &[u8], count: usize) -> Option<Vec<Option<Vec<u8>>>> {
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let words: Vec<&str> = head.rsplitn(3, ' ').collect();
        match words[..] {
            [size, kind, id] if kind != "missing" && !id.contains(' ') && size != "missing" => {
                let size: usize = size.parse().ok()?;
                let bytes = rest.get(..size)?;
                rest = rest.get(size + 1..)?;
                found.push(matches!(kind, "blob" | "commit").then(|| bytes.to_vec()));
            }
            _ => found.push(None),
        }
    }
    Some(found)
}

fn read_commit(id: &str, text: &str) -> Option<Commit> {
    let (head, message) = text.split_once("\n\n").unwrap_or((text, ""));
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let author = field("author ")?;
    let (name, stamp) = author.rsplit_once("> ").unwrap_or((author, ""));
    let seconds = stamp.split(' ').next().and_then(|word| word.parse().ok());
    Some(Commit {
        id: id.to_owned(),
        author: format!("{name}>"),
        at: seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()),
        message: message.to_owned(),
    })
}
