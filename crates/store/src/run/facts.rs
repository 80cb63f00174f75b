//! The history of publications: commit ids, stored before they are pushed, and digests of the files in them.
//!
//! Not here: the facts themselves; they are in Git, and in states.

mod locations;

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::db::{Row, Value};
use crate::{Store, StoreError};

/// A commit that is about to be pushed.
#[derive(Clone, Debug)]
pub struct NewFactCommit<'a> {
    pub project: &'a str,
    /// The repository and its branch.
    pub place: &'a str,
    pub commit: &'a str,
    pub stack: &'a str,
    pub files: &'a [FactDigest],
}

/// A file as it was published in one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactDigest {
    pub path: String,
    /// Empty for a file of the project as a whole.
    pub stack: String,
    /// Keyed digest of its bytes; empty if it was withdrawn.
    pub bytes: String,
    /// Keyed digest of its encrypted content and the recipients.
    pub plain: Option<String>,
}

/// One entry of a file's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFact {
    pub digest: FactDigest,
    /// Whether its commit is known to be on the branch.
    pub is_pushed: bool,
}

impl Store {
    /// Stores a commit. A commit that was stored before is not stored again.
    pub async fn fact_commit_insert(&self, new: &NewFactCommit<'_>) -> Result<(), StoreError> {
        const INSERT: &str = "INSERT INTO fact_commit (project, place, commit_id, stack, made_at) \
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project, place, commit_id) DO NOTHING RETURNING id";
        let mut tx = self.db.begin_write().await?;
        let args: [Value; 5] = [
            new.project.into(),
            new.place.into(),
            new.commit.into(),
            new.stack.into(),
            Timestamp::now().into(),
        ];
        if let Some(row) = tx.fetch_optional(INSERT, &args).await? {
            let id = row.int(0)?;
            for file in new.files {
                let args: [Value; 7] = [
                    id.into(),
                    new.project.into(),
                    new.place.into(),
                    file.path.as_str().into(),
                    file.stack.as_str().into(),
                    file.bytes.as_str().into(),
                    file.plain.as_deref().into(),
                ];
                tx.execute(
                    "INSERT INTO fact_file \
                     (fact_commit, project, place, path, stack, bytes_digest, plain_digest) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7)",
                    &args,
                )
                .await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Records that a commit is on its branch.
    pub async fn fact_commit_pushed(
        &self,
        project: &str,
        place: &str,
        commit: &str,
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin_write().await?;
        tx.execute(
            "UPDATE fact_commit SET pushed_at = $4 \
             WHERE project = $1 AND place = $2 AND commit_id = $3 AND pushed_at IS NULL",
            &[
                project.into(),
                place.into(),
                commit.into(),
                Timestamp::now().into(),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// The newest commit that is known to be on its branch.
    pub async fn fact_commit_last(
        &self,
        project: &str,
        place: &str,
    ) -> Result<Option<String>, StoreError> {
        const SELECT: &str = "SELECT commit_id FROM fact_commit \
            WHERE project = $1 AND place = $2 AND pushed_at IS NOT NULL \
            ORDER BY pushed_at DESC, id DESC LIMIT 1";
        let row = self
            .db
            .fetch_optional(SELECT, &[project.into(), place.into()])
            .await?;
        row.map(|row| Ok(row.text(0)?.to_owned())).transpose()
    }

    /// Those of these commits that this home made.
    pub async fn fact_commit_known(
        &self,
        project: &str,
        place: &str,
        commits: &[String],
    ) -> Result<BTreeSet<String>, StoreError> {
        const SELECT: &str = "SELECT commit_id FROM fact_commit WHERE project = $1 AND place = $2 AND commit_id = $3";
        let mut known = BTreeSet::new();
        for commit in commits {
            let args = [project.into(), place.into(), commit.as_str().into()];
            if self.db.fetch_optional(SELECT, &args).await?.is_some() {
                known.insert(commit.clone());
            }
        }
        Ok(known)
    }

    /// The history of a file, newest first.
    pub async fn fact_file_history(
        &self,
        project: &str,
        place: &str,
        path: &str,
    ) -> Result<Vec<PastFact>, StoreError> {
        const SELECT: &str = "SELECT f.path, f.stack, f.bytes_digest, f.plain_digest, c.pushed_at \
            FROM fact_file f JOIN fact_commit c ON c.id = f.fact_commit \
            WHERE f.project = $1 AND f.place = $2 AND f.path = $3 ORDER BY f.fact_commit DESC";
        let args = [project.into(), place.into(), path.into()];
        let rows = self.db.fetch_all(SELECT, &args).await?;
        rows.iter().map(read).collect()
    }

    /// The files that a stack published there, except those that were certainly withdrawn.
    pub async fn fact_file_paths(
        &self,
        project: &str,
        place: &str,
        stack: &str,
    ) -> Result<BTreeSet<String>, StoreError> {
        const SELECT: &str = "SELECT DISTINCT f.path FROM fact_file f \
            WHERE f.project = $1 AND f.place = $2 AND f.stack = $3 AND f.bytes_digest <> '' \
            AND NOT EXISTS (SELECT 1 FROM fact_file g JOIN fact_commit c ON c.id = g.fact_commit \
              WHERE g.project = f.project AND g.place = f.place AND g.path = f.path \
              AND g.fact_commit > f.fact_commit AND g.bytes_digest = '' AND c.pushed_at IS NOT NULL)";
        let args = [project.into(), place.into(), stack.into()];
        let rows = self.db.fetch_all(SELECT, &args).await?;
        let path = |row: &Row| Ok(row.text(0)?.to_owned());
        rows.iter().map(path).collect()
    }
}

fn read(row: &Row) -> Result<PastFact, StoreError> {
    Ok(PastFact {
        digest: FactDigest {
            path: row.text(0)?.to_owned(),
            stack: row.text(1)?.to_owned(),
            bytes: row.text(2)?.to_owned(),
            plain: row.opt_text(3)?.map(str::to_owned),
        },
        is_pushed: row.opt_int(4)?.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestHome;

    fn file(path: &str, bytes: &str, plain: Option<&str>) -> FactDigest {
        FactDigest {
            path: path.to_owned(),
            stack: "one".to_owned(),
            bytes: bytes.to_owned(),
            plain: plain.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn a_commit_is_known_before_it_is_pushed_and_the_last_one_after() {
        let home = TestHome::new();
        let store = home.open().await;
        let (a, b) = (
            [file("x.yaml", "1", None)],
            [file("x.yaml", "2", Some("p"))],
        );
        for (commit, files) in [("a", &a), ("b", &b), ("b", &b)] {
            let new = NewFactCommit {
                project: "p",
                place: "r#main",
                commit,
                stack: "one",
                files,
            };
            store.fact_commit_insert(&new).await.unwrap();
        }
        let asked = ["a", "b", "c"].map(str::to_owned);
        let known = store
            .fact_commit_known("p", "r#main", &asked)
            .await
            .unwrap();
        assert_eq!(known, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(store.fact_commit_last("p", "r#main").await.unwrap(), None);
        store.fact_commit_pushed("p", "r#main", "a").await.unwrap();
        let last = store.fact_commit_last("p", "r#main").await.unwrap();
        assert_eq!(last.as_deref(), Some("a"));
        let history = store
            .fact_file_history("p", "r#main", "x.yaml")
            .await
            .unwrap();
        let seen: Vec<_> = history
            .iter()
            .map(|past| (past.digest.bytes.as_str(), past.is_pushed))
            .collect();
        assert_eq!(seen, [("2", false), ("1", true)]);
        assert_eq!(history[0].digest, b[0]);
        let paths = store.fact_file_paths("p", "r#main", "one").await.unwrap();
        assert_eq!(paths, BTreeSet::from(["x.yaml".to_owned()]));
        assert_eq!(store.fact_commit_last("q", "r#main").await.unwrap(), None);
    }
}
