//! Files of contexts in a stack's directory, present only while a run needs them. A note beside the tree
//! lists them. What a killed runner left is removed when the stack's directory in that tree is next taken.
//!
//! Not here: where their contents come from (`inputs`), whether the source has such a file
//! (`changeset::prepare`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::base::ids::StackName;
use model::base::secret::Secret;

use super::Workspace;
use crate::home::write_private;
use crate::runner::Failure;

/// Removes the files when dropped.
pub(super) struct MountedFiles {
    note: PathBuf,
}

impl Drop for MountedFiles {
    fn drop(&mut self) {
        // Files that cannot be removed now stay in the note and are removed later.
        drop(sweep(&self.note));
    }
}

impl Workspace {
    /// Writes the files. The source contains none of them: that was checked when the change set was created.
    pub(in crate::runner) fn mount(
        &mut self,
        files: &BTreeMap<String, Secret>,
    ) -> Result<(), Failure> {
        if files.is_empty() || self.mounted.is_some() {
            return Ok(());
        }
        let made = plan(&self.dir, files);
        let noted = made
            .and_then(|made| {
                let bytes = serde_json::to_vec(&made)?;
                write_private(&self.note, &bytes)
            })
            .map(|()| MountedFiles {
                note: self.note.clone(),
            });
        let failed =
            |err: &io::Error| Failure::because("could not put a file of a context in place", err);
        // From here on, the files are removed whatever happens.
        self.mounted = Some(noted.map_err(|err| failed(&err))?);
        for (path, content) in files {
            put(&self.dir, path, content).map_err(|err| failed(&err).named(path))?;
        }
        Ok(())
    }
}

/// The path of the note about a stack's files in a tree.
pub(super) fn note_path(slots: &Path, number: usize, stack: &StackName) -> PathBuf {
    slots.join(format!("{number}.{stack}.files"))
}

/// Removes the files in the note, and the note. The caller holds the stack's directory exclusively.
pub(super) fn sweep(note: &Path) -> io::Result<()> {
    let bytes = match fs::read(note) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    // The note is incomplete, so no file was written yet.
    let made: Vec<PathBuf> = serde_json::from_slice(&bytes).unwrap_or_default();
    for path in made.iter().rev() {
        let gone = match fs::symlink_metadata(path) {
            Err(err) if is_absent(&err) => continue,
            Err(err) => return Err(err),
            Ok(found) if found.is_dir() => fs::remove_dir(path),
            Ok(_) => fs::remove_file(path),
        };
        match gone {
            // An engine wrote its own files there.
            Err(err) if err.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            gone => gone?,
        }
    }
    fs::remove_file(note)
}

/// The files in a note that are below a directory, relative to it.
pub(super) fn noted_below(note: &Path, dir: &Path) -> io::Result<BTreeSet<String>> {
    let bytes = match fs::read(note) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        bytes => bytes?,
    };
    let made: Vec<PathBuf> = serde_json::from_slice(&bytes).unwrap_or_default();
    let below = made.iter().filter_map(|path| path.strip_prefix(dir).ok());
    let text = below.filter_map(|path| path.to_str());
    Ok(text.map(str::to_owned).collect())
}

/// All paths that will be created, directories before their contents.
fn plan(dir: &Path, files: &BTreeMap<String, Secret>) -> io::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for path in files.keys() {
        for (at, _) in path.match_indices('/') {
            let parent = dir.join(&path[..at]);
            match fs::symlink_metadata(&parent) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => {
                    let parent = &path[..at];
                    return Err(io::Error::other(format!("`{parent}` is not a directory")));
                }
                Err(err) if is_absent(&err) => {
                    if !made.contains(&parent) {
                        made.push(parent);
                    }
                }
                Err(err) => return Err(err),
            }
        }
        made.push(dir.join(path));
    }
    Ok(made)
}

/// Never writes through an existing file or link, which an engine may have left under that name.
fn put(dir: &Path, path: &str, content: &Secret) -> io::Result<()> {
    for (at, _) in path.match_indices('/') {
        let parent = dir.join(&path[..at]);
        match fs::DirBuilder::new().mode(0o700).create(&parent) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    let place = dir.join(path);
    match fs::remove_file(&place) {
        Err(err) if !is_absent(&err) => return Err(err),
        _ => {}
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(place)?;
    file.write_all(content.expose().as_bytes())
}

fn is_absent(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> BTreeMap<String, Secret> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), Secret::new("a secret")))
            .collect()
    }

    fn left(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_runner_left_goes_by_its_note() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("0.app.files");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("main.tf"), "").unwrap();
        let files = files(&["ca.pem", "deep/er/key", "deep/cert"]);
        let made = plan(&tree, &files).unwrap();
        fs::write(&note, serde_json::to_vec(&made).unwrap()).unwrap();
        for (path, content) in &files {
            put(&tree, path, content).unwrap();
        }
        assert_eq!(left(&tree), ["ca.pem", "deep", "main.tf"]);
        sweep(&note).unwrap();
        assert_eq!(left(&tree), ["main.tf"]);
        assert!(!note.exists());
        sweep(&note).unwrap();
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "untouched").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("ca.pem")).unwrap();
        std::os::unix::fs::symlink(dir.path(), tree.join("up")).unwrap();
        put(&tree, "ca.pem", &Secret::new("a secret")).unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
        let refused = plan(&tree, &files(&["up/key"])).unwrap_err();
        assert_eq!(refused.to_string(), "`up` is not a directory");
    }
}
