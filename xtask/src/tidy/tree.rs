//! The files that the rules check: those that Git tracks or would add.

use std::io;
use std::path::Path;

use crate::child;

#[derive(Debug, Default)]
pub(crate) struct SourceTree {
    pub(crate) files: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceTree {
    /// Reads the repository; files that are not text are left out.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let listing = child::stdout(
            root,
            "git",
            &[
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
        )?;
        let mut tree = Self::default();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            // Git still lists a deleted file until the deletion is committed.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                tree.files.push(File {
                    path: path.to_owned(),
                    text,
                });
            }
        }
        Ok(tree)
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }
}

impl File {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }

    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.starts_with("crates/testkit/")
    }

    /// Numbered lines of code, without comment lines and without a test module at the end of the file.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .windows(2)
            .position(|pair| {
                pair[0].trim() == "#[cfg(test)]"
                    && pair[1].starts_with("mod ")
                    && pair[1].ends_with('{')
            })
            .unwrap_or(lines.len());
        lines
            .into_iter()
            .take(end)
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}
