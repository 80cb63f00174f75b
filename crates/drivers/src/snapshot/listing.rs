//! Lists the paths of a snapshot; some may turn out to be deleted, or not to be files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use globset::GlobBuilder;

use super::{ExtraFiles, SnapshotError, is_absent, read_error, text};
use crate::git::Repository;
use crate::tree::normalised;

/// `root` is a real path.
pub(super) fn paths(
    root: &Path,
    repository: Option<&Repository>,
    extras: &ExtraFiles,
) -> Result<BTreeSet<String>, SnapshotError> {
    let mut paths = BTreeSet::new();
    match repository {
        Some(repository) => tracked(repository, root, "", &mut paths)?,
        None => walk(root, "", &mut paths)?,
    }
    for dir in &extras.stack_dirs {
        automatic_variables(root, dir, &mut paths)?;
    }
    for patterns in &extras.include {
        for pattern in patterns {
            if included(root, pattern, &mut paths)? {
                break;
            }
        }
    }
    leave_homes_out(&mut paths);
    // Git may still track files of a directory that is now a link.
    let mut real: BTreeMap<String, bool> = BTreeMap::new();
    paths.retain(|path| {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        belongs(path)
            && *real
                .entry(dir.to_owned())
                .or_insert_with(|| real_dir(root, dir).as_deref() == Some(dir))
    });
    Ok(paths)
}

/// Leaves out a terrane home inside the project: otherwise each run would copy it into itself.
fn leave_homes_out(paths: &mut BTreeSet<String>) {
    let home = |path: &String| path.strip_suffix("terrane.db").map(str::to_owned);
    let homes: Vec<String> = paths.iter().filter_map(home).collect();
    let is_home = |home: &&String| home.ends_with('/');
    for home in homes.iter().filter(is_home) {
        paths.retain(|path| !path.starts_with(home));
    }
}

fn tracked(
    repository: &Repository,
    root: &Path,
    dir: &str,
    paths: &mut BTreeSet<String>,
) -> Result<(), SnapshotError> {
    let files = repository
        .files_below(dir)
        .map_err(|source| SnapshotError::Git { source })?;
    for file in files {
        let path = below(dir, &file);
        let place = root.join(&path);
        let is_dir = fs::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_dir());
        if !is_dir {
            paths.insert(path);
        } else if place.join(".git").exists() && belongs(&path) {
            // A submodule, or a nested repository.
            tracked(repository, root, &path, paths)?;
        }
    }
    Ok(())
}

/// All files below a directory; links are listed, not followed.
fn walk(root: &Path, dir: &str, paths: &mut BTreeSet<String>) -> Result<(), SnapshotError> {
    for (name, is_dir) in entries(root, dir)? {
        let path = below(dir, &name);
        if !belongs(&path) {
            continue;
        }
        if is_dir {
            walk(root, &path, paths)?;
        } else {
            paths.insert(path);
        }
    }
    Ok(())
}

/// Names in a directory, and whether they are directories; none if it does not exist.
fn entries(root: &Path, dir: &str) -> Result<Vec<(String, bool)>, SnapshotError> {
    let listing = match fs::read_dir(root.join(dir)) {
        Ok(listing) => listing,
        Err(err) if is_absent(&err) => return Ok(Vec::new()),
        Err(err) => return Err(read_error(dir)(err)),
    };
    listing
        .map(|entry| {
            let entry = entry.map_err(read_error(dir))?;
            let kind = entry.file_type().map_err(read_error(dir))?;
            Ok((text(entry.file_name().into())?, kind.is_dir()))
        })
        .collect()
}

/// Adds the variable files that an engine reads automatically.
fn automatic_variables(
    root: &Path,
    dir: &str,
    paths: &mut BTreeSet<String>,
) -> Result<(), SnapshotError> {
    let Some(dir) = real_dir(root, dir) else {
        return Ok(());
    };
    for (name, is_dir) in entries(root, &dir)? {
        let stem = name.strip_suffix(".json").unwrap_or(&name);
        if !is_dir && (stem == "terraform.tfvars" || stem.ends_with(".auto.tfvars")) {
            paths.insert(below(&dir, &name));
        }
    }
    Ok(())
}

/// Adds the files that match a pattern. Returns whether there were any.
fn included(
    root: &Path,
    pattern: &str,
    paths: &mut BTreeSet<String>,
) -> Result<bool, SnapshotError> {
    let Some(pattern) = normalised("", pattern) else {
        return Ok(false); // it leads outside: `config` reports this
    };
    // The part before the first wildcard is the directory to search.
    let literal: Vec<&str> = pattern
        .split('/')
        .take_while(|part| !part.contains(['*', '?', '[', '{']))
        .collect();
    let base = literal.join("/");
    if base == pattern {
        let (dir, name) = base.rsplit_once('/').unwrap_or(("", &base));
        let Some(dir) = real_dir(root, dir) else {
            return Ok(false);
        };
        let path = below(&dir, name);
        let Ok(metadata) = fs::symlink_metadata(root.join(&path)) else {
            return Ok(false);
        };
        if metadata.is_dir() {
            walk(root, &path, paths)?;
        } else {
            paths.insert(path);
        }
        return Ok(true);
    }
    let matcher = GlobBuilder::new(&pattern)
        .literal_separator(true)
        .build()
        .map_err(|source| SnapshotError::Glob {
            glob: pattern.clone(),
            source,
        })?
        .compile_matcher();
    if real_dir(root, &base).as_deref() != Some(&base) {
        return Ok(false);
    }
    let mut found = BTreeSet::new();
    walk(root, &base, &mut found)?;
    found.retain(|path| matcher.is_match(path));
    let is_there = !found.is_empty();
    paths.extend(found);
    Ok(is_there)
}

/// The directory with links resolved, if it exists inside the project: no path in a snapshot goes through a link.
pub(super) fn real_dir(root: &Path, dir: &str) -> Option<String> {
    let real = root.join(dir).canonicalize().ok()?;
    let inside = real.strip_prefix(root).ok()?;
    inside.to_str().map(str::to_owned)
}

/// Whether a path may be in a snapshot at all.
pub(super) fn belongs(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let never = [".git", ".terraform", ".terrane"];
    let is_state = name.ends_with(".tfstate") || name.contains(".tfstate.");
    let is_plan = name == "tfplan" || name.ends_with(".tfplan");
    !is_state && !is_plan && !path.split('/').any(|part| never.contains(&part))
}

fn below(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}
