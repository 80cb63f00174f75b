//! Finds the readers of a stack's facts: `FactReaders::load(…)?.of(fact)` returns file and line. Readers are
//! inputs of other stacks, the files that `gitops.paths` names, and the files in directories that Flux
//! applies for them. GitOps files may be outside the project.
//!
//! Not here: how a file reads a fact (`model::stage::fact_readers`), what a change removes (`contracts`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;
use model::base::ids::StackName;
use model::project::{EdgeKind, Project};
use model::stage::fact_readers::{
    Fact, FactReader, Kustomization, ReadAs, Reliance, Syntax, kustomizations, readers_in,
};
use model::stage::facts::is_published;

/// Larger files are neither templates nor values.
const LARGEST: u64 = 1 << 20;

/// A glob that matches more files does not name a GitOps repository.
const MOST: usize = 20_000;

/// How many directories above a file may be the root of its repository.
const MOST_ABOVE: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum ReadGitopsError {
    #[error("`{glob}` of `gitops.paths` is not a glob")]
    Glob {
        glob: String,
        source: globset::Error,
    },
    #[error("cannot read `{}`, which `gitops.paths` names", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{glob}` of `gitops.paths` matches more than {MOST} files")]
    TooMany { glob: String },
    #[error(
        "there are more than {MOST} files below `{path}`, which a Kustomization in `{file}` applies"
    )]
    TooManyBelow { path: String, file: String },
}

/// The readers that the project defines: inputs of other stacks, and the location of GitOps files.
pub fn reliance(project: &Project, stack: &StackName) -> Reliance {
    let mut inputs: BTreeMap<String, Vec<FactReader>> = BTreeMap::new();
    for (name, other) in &project.stacks {
        for edge in other.edges.iter().filter(|edge| edge.upstream == *stack) {
            if let EdgeKind::Output { output, input } = &edge.kind {
                inputs.entry(output.clone()).or_default().push(FactReader {
                    file: edge.at.file.clone(),
                    line: edge.at.line,
                    text: format!("input `{input}` of stack `{name}`"),
                    how: ReadAs::Input,
                });
            }
        }
    }
    Reliance {
        inputs,
        gitops: project.gitops.clone(),
    }
}

/// All places that may read the facts of a stack.
#[derive(Debug)]
pub(crate) struct FactReaders<'a> {
    inputs: &'a BTreeMap<String, Vec<FactReader>>,
    /// By path relative to the root.
    files: BTreeMap<String, (String, Syntax)>,
    /// Kustomizations whose directory is not in these repositories: it contains published files.
    of_published: Vec<Kustomization>,
}

impl<'a> FactReaders<'a> {
    /// Skips binary files and large files. A repository that is not checked out here counts as empty.
    pub(crate) fn load(root: &Path, relied: &'a Reliance) -> Result<Self, ReadGitopsError> {
        let mut readers = Self {
            inputs: &relied.inputs,
            files: BTreeMap::new(),
            of_published: Vec::new(),
        };
        for glob in &relied.gitops {
            readers.load_glob(root, glob)?;
        }
        let named = readers.files.iter();
        let named: Vec<Kustomization> = named
            .flat_map(|(file, (text, _))| kustomizations(file, text))
            .collect();
        for kustomization in named {
            readers.load_directory(root, kustomization)?;
        }
        Ok(readers)
    }

    /// The readers of a fact, ordered by file and line.
    pub(crate) fn of(&self, fact: Fact<'_>) -> Vec<FactReader> {
        let mut found = Vec::new();
        match fact {
            Fact::Output(name) => {
                found.extend(self.inputs.get(name).into_iter().flatten().cloned());
            }
            Fact::Field { .. } => {}
            Fact::File(path) => {
                let applied = self.of_published.iter().filter(|one| one.applies(path));
                found.extend(applied.map(|one| one.place.clone()));
            }
        }
        for (file, (text, syntax)) in &self.files {
            found.extend(readers_in(file, text, syntax, fact));
        }
        found.sort();
        found.dedup();
        found
    }

    fn load_glob(&mut self, root: &Path, glob: &str) -> Result<(), ReadGitopsError> {
        let whole = lexical(&root.join(glob));
        let pattern = GlobBuilder::new(&whole.to_string_lossy())
            .literal_separator(true)
            .build();
        let pattern = pattern.map_err(|source| ReadGitopsError::Glob {
            glob: glob.to_owned(),
            source,
        })?;
        let matcher = pattern.compile_matcher();
        let is_plain = |part: &Component<'_>| {
            let part = part.as_os_str().to_string_lossy();
            !part.contains(['*', '?', '[', '{'])
        };
        let start: PathBuf = whole.components().take_while(is_plain).collect();
        let mut seen = 0;
        let is_match = |path: &Path| matcher.is_match(path);
        walk(&start, &is_match, &mut seen, &mut |path| {
            // A published file reads nothing.
            if let Ok(text) = std::fs::read_to_string(path)
                && !is_published(&text)
            {
                self.files
                    .insert(from_root(root, path), (text, Syntax::Any));
            }
        })?;
        if seen > MOST {
            return Err(ReadGitopsError::TooMany {
                glob: glob.to_owned(),
            });
        }
        Ok(())
    }

    /// The directory that a Kustomization applies, if it substitutes variables there.
    fn load_directory(&mut self, root: &Path, one: Kustomization) -> Result<(), ReadGitopsError> {
        let file = lexical(&root.join(&one.place.file));
        let Some(dir) = directory(&file, &one.path) else {
            self.of_published.push(one);
            return Ok(());
        };
        if !one.substitutes {
            return Ok(());
        }
        let mut seen = 0;
        walk(&dir, &|_| true, &mut seen, &mut |path| {
            let Ok(text) = std::fs::read_to_string(path) else {
                return;
            };
            let except = one.sets.clone();
            let entry = self.files.entry(from_root(root, path));
            let (_, syntax) = entry.or_insert_with(|| {
                (
                    text,
                    Syntax::Variables {
                        except: except.clone(),
                    },
                )
            });
            // Of two Kustomizations for one directory, either may substitute.
            if let Syntax::Variables { except: known } = syntax {
                known.retain(|name| except.contains(name));
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
/// A directory that a file names from the root of its repository, which has a `.git`. Without one, the nearest
/// directory above from which the path exists.
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
    is_match: &dyn Fn(&Path) -> bool,
    seen: &mut usize,
    found: &mut impl FnMut(&Path),
) -> Result<(), ReadGitopsError> {
    let failed = |source| ReadGitopsError::Read {
        path: path.to_owned(),
        source,
    };
    // Symbolic links could lead in circles.
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
    };
    if metadata.is_file() {
        *seen += 1;
        if metadata.len() <= LARGEST && is_match(path) {
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
        walk(&entry.map_err(failed)?.path(), is_match, seen, found)?;
    }
    Ok(())
}

/// Removes `.` and `..` from the path without accessing the disk.
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

/// The path relative to the root, with `..` if it is outside.
fn from_root(root: &Path, path: &Path) -> String {
    for (up, ancestor) in root.ancestors().enumerate().take(4) {
        if let Ok(rest) = path.strip_prefix(ancestor) {
            return format!("{}{}", "../".repeat(up), rest.display());
        }
    }
    path.display().to_string()
}
