//! Handles a rendered file that got a new ciphertext with the same values: updates the list of rendered files, so
//! that neither plan nor render takes it for an edit.

use std::fs;
use std::path::Path;

use model::render::join;
use model::render::manifest::RenderManifest;

use crate::disk::{ProjectFiles, digest};

const PROJECT: &str = "terrane.hcl";

/// Replaces the old digest by the new one in the list that has it. A failure is harmless: `terrane render` updates
/// the list as well.
pub fn follow(file: &Path, before: &[u8], after: &[u8]) {
    let Ok(file) = file.canonicalize() else {
        return;
    };
    let root = file.ancestors().find(|dir| dir.join(PROJECT).is_file());
    let Some((root, path)) = root.and_then(|root| Some((root, below(root, &file)?))) else {
        return;
    };
    let disk = ProjectFiles::new(root);
    let dirs = file.ancestors().skip(1);
    for dir in dirs.take_while(|dir| dir.starts_with(root)) {
        let Some(output) = below(root, dir) else {
            continue;
        };
        for name in lists(dir) {
            let list = join(&output, &name);
            let text = disk.read(&list).ok().flatten().unwrap_or_default();
            let known = RenderManifest::read(&String::from_utf8_lossy(&text), &output, digest);
            let Ok(mut known) = known else {
                continue;
            };
            if known.files.get(&path) == Some(&digest(before)) && known.writing.is_empty() {
                known.files.insert(path.clone(), digest(after));
                _ = disk.write_durably(&list, known.write(digest).as_bytes());
            }
        }
    }
}

fn below(root: &Path, path: &Path) -> Option<String> {
    Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
}

fn lists(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_list = |name: &String| name.starts_with(".terrane-render.");
    names.filter(is_list).collect()
}
