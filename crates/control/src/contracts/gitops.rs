//! The files of a GitOps repository that `gitops.paths` names. They may lie beside the project.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// Larger files are no templates or values.
const LARGEST: u64 = 1 << 20;

/// More than this is not a GitOps repository, but a glob that leads astray.
const MOST: usize = 20_000;

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
}

/// Texts by path, as seen from the root. What is no text, and what is too large, is left out; a place that does not
/// exist is empty: not everybody has the other repository at hand.
pub(super) fn read(
    root: &Path,
    globs: &[String],
) -> Result<BTreeMap<String, String>, ReadGitopsError> {
    let mut texts = BTreeMap::new();
    for glob in globs {
        let whole = lexical(&root.join(glob));
        let pattern = GlobBuilder::new(&whole.to_string_lossy())
            .literal_separator(true)
            .build();
        let matcher = match pattern {
            Ok(pattern) => pattern.compile_matcher(),
            Err(source) => {
                return Err(ReadGitopsError::Glob {
                    glob: glob.clone(),
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
        walk(&start, &matcher, &mut seen, &mut |path| {
            if let Ok(text) = std::fs::read_to_string(path) {
                texts.insert(from_root(root, path), text);
            }
        })?;
        if seen > MOST {
            return Err(ReadGitopsError::TooMany { glob: glob.clone() });
        }
    }
    Ok(texts)
}

fn walk(
    path: &Path,
    matcher: &GlobMatcher,
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
        if metadata.len() <= LARGEST && matcher.is_match(path) {
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
        walk(&entry.map_err(failed)?.path(), matcher, seen, found)?;
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
