//! Reads past commits.

use super::{GitError, Repository};

impl Repository {
    /// The full id of a revision's commit, and the first line of its message.
    pub fn describe(&self, revision: &str) -> Result<(String, String), GitError> {
        let id = self.commit(revision)?;
        let args = [
            "log",
            "--max-count=1",
            "--format=%s",
            "--no-show-signature",
            &id,
        ];
        let subject = self.call(&args)?;
        let subject = String::from_utf8_lossy(subject.bytes("read a commit")?).into_owned();
        Ok((id, subject.trim_end().to_owned()))
    }

    /// The newest commits up to `HEAD` that touched one of these paths of the project, newest first.
    pub fn touching(&self, paths: &[&str], most: usize) -> Result<Vec<String>, GitError> {
        let most = format!("--max-count={most}");
        let mut args = vec![
            "log",
            "--format=%H",
            "--no-show-signature",
            &most,
            "HEAD",
            "--",
        ];
        args.extend(paths);
        let called = self.call(&args)?;
        let text = called.text("look through the history")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The parents of a commit.
    pub fn parents(&self, commit: &str) -> Result<Vec<String>, GitError> {
        let called = self.call(&[
            "log",
            "--max-count=1",
            "--format=%P",
            "--no-show-signature",
            commit,
        ])?;
        let text = called.text("look through the history")?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }
}
