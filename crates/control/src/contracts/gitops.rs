//! The files of a GitOps repository that `gitops.paths` names, and those of the directories that Flux applies for them.
//! They may lie beside the project.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::facts::is_published;
use globset::GlobBuilder;
use model::contract::{
    Consumer, Kustomization, consumers, consumers_by_variable, consumers_of_path, kustomizations,
};

/// Larger files are no templates or values.
const LARGEST: u64 = 1 << 20;

/// More than this is not a GitOps repository, but a glob that leads astray.
const MOST: usize = 20_000;

/// So many directories above a file are looked at for the root of its repository.
const MOST_ABOVE: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum ReadGitopsError {
    #[error("`{glob}` of `gitops.paths` is not a glob")]
    Glob {
        glob: String,
        source: globset::Error,
    },
    #[error("could not read `{}`, which `gitops.paths` leads to", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{glob}` of `gitops.paths` leads to more than {MOST} files")]
    TooMany { glob: String },
    #[error(
        "there are more than {MOST} files below `{path}`, which a Kustomization in `{file}` applies"
    )]
    TooManyBelow { path: String, file: String },
}

/// Files in which facts may be used.
#[derive(Debug, Default)]
pub(super) struct GitopsFiles {
    /// Texts by path, as seen from the root.
    texts: BTreeMap<String, String>,
    /// Files of directories that Flux applies, of which it fills in variables.
    filled_in: Vec<FilledIn>,
    /// Kustomizations whose directory is not in these repositories: it is one of published files.
    elsewhere: Vec<Kustomization>,
}

#[derive(Debug)]
struct FilledIn {
    file: String,
    text: String,
    /// Variables that come from somewhere else.
    sets: BTreeSet<String>,
}

impl GitopsFiles {
    /// What is no text, and what is too large, is left out; a place that does not exist is empty: not everybody has the
    /// other repository at hand.
    pub(super) fn read(root: &Path, globs: &[String]) -> Result<Self, ReadGitopsError> {
        let mut files = Self::default();
        for glob in globs {
            files.read_glob(root, glob)?;
        }
        let texts = files.texts.iter();
        let kustomizations: Vec<Kustomization> = texts
            .flat_map(|(file, text)| kustomizations(file, text))
            .collect();
        for kustomization in kustomizations {
            files.follow(root, kustomization)?;
        }
        Ok(files)
    }

    /// Who uses a field that is published, or one of its parts.
    pub(super) fn using(&self, field: &[String], parts: &[Vec<String>]) -> Vec<Consumer> {
        let texts = self.texts.iter();
        let mut used: Vec<Consumer> = texts
            .flat_map(|(file, text)| consumers(file, text, field, parts))
            .collect();
        for one in &self.filled_in {
            let found = consumers_by_variable(&one.file, &one.text, field, parts, &one.sets);
            used.extend(found);
        }
        used.sort();
        used.dedup();
        used
    }

    /// Who reads a published file.
    pub(super) fn naming(&self, path: &str) -> Vec<Consumer> {
        let texts = self.texts.iter();
        let mut used: Vec<Consumer> = texts
            .flat_map(|(file, text)| consumers_of_path(file, text, path))
            .collect();
        let applied = self.elsewhere.iter().filter(|one| one.applies(path));
        used.extend(applied.map(|one| one.place.clone()));
        used.sort();
        used.dedup();
        used
    }

    fn read_glob(&mut self, root: &Path, glob: &str) -> Result<(), ReadGitopsError> {
        let whole = lexical(&root.join(glob));
        let pattern = GlobBuilder::new(&whole.to_string_lossy())
            .literal_separator(true)
            .build();
        let matcher = match pattern {
            Ok(pattern) => pattern.compile_matcher(),
            Err(source) => {
                return Err(ReadGitopsError::Glob {
                    glob: glob.to_owned(),
                    source,
                });
            }
        };
        let is_plain = |part: &Component<'_>| {
            let part = part.as_os_str().to_string_lossy();
            !part.contains(['*', '?', '[', '{'])
        };
        let start: PathBuf = whole.components().take_while(is_plain).collect();
        let mut seen = 0;
        let is_meant = |path: &Path| matcher.is_match(path);
        walk(&start, &is_meant, &mut seen, &mut |path| {
            // What terrane published there uses nothing.
            if let Ok(text) = std::fs::read_to_string(path)
                && !is_published(&text)
            {
                self.texts.insert(from_root(root, path), text);
            }
        })?;
        if seen > MOST {
            return Err(ReadGitopsError::TooMany {
                glob: glob.to_owned(),
            });
        }
        Ok(())
    }

    /// The directory that a Kustomization applies, with the files in which it fills in variables.
    fn follow(&mut self, root: &Path, one: Kustomization) -> Result<(), ReadGitopsError> {
        let file = lexical(&root.join(&one.place.file));
        let Some(dir) = directory(&file, &one.path) else {
            self.elsewhere.push(one);
            return Ok(());
        };
        if !one.fills_in {
            return Ok(());
        }
        let mut seen = 0;
        walk(&dir, &|_| true, &mut seen, &mut |path| {
            let file = from_root(root, path);
            if let Ok(text) = std::fs::read_to_string(path)
                && !self.texts.contains_key(&file)
            {
                let sets = one.sets.clone();
                self.filled_in.push(FilledIn { file, text, sets });
            }
        })?;
        if seen > MOST {
            return Err(ReadGitopsError::TooManyBelow {
                path: from_root(root, &dir),
                file: one.place.file,
            });
        }
        Ok(())
    }
}

/// A directory that a file names from the root of its repository. Where that is, `.git` says; without one, the nearest
/// place from which there is such a directory.
fn directory(file: &Path, path: &str) -> Option<PathBuf> {
    for above in file.ancestors().skip(1).take(MOST_ABOVE) {
        let dir = above.join(path);
        let is_root = above.join(".git").exists();
        if (is_root || !path.is_empty()) && dir.is_dir() {
            return Some(dir);
        }
        if is_root {
            return None;
        }
    }
    None
}

fn walk(
    path: &Path,
    is_meant: &dyn Fn(&Path) -> bool,
    seen: &mut usize,
    found: &mut impl FnMut(&Path),
) -> Result<(), ReadGitopsError> {
    let failed = |source| ReadGitopsError::Read {
        path: path.to_owned(),
        source,
    };
    // Links are not followed: they could lead in circles.
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
    };
    if metadata.is_file() {
        *seen += 1;
        if metadata.len() <= LARGEST && is_meant(path) {
            found(path);
        }
        return Ok(());
    }
    if !metadata.is_dir() || path.file_name().is_some_and(|name| name == ".git") {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        if *seen > MOST {
            break;
        }
        walk(&entry.map_err(failed)?.path(), is_meant, seen, found)?;
    }
    Ok(())
}

/// Without `.` and `..`, by the letters alone.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

/// How people would write it: below the root, or with `..` to a place beside it.
fn from_root(root: &Path, path: &Path) -> String {
    for (up, ancestor) in root.ancestors().enumerate().take(4) {
        if let Ok(rest) = path.strip_prefix(ancestor) {
            return format!("{}{}", "../".repeat(up), rest.display());
        }
    }
    path.display().to_string()
}
