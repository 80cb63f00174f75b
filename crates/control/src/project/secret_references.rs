//! Checks secret references for `validate` without decrypting anything: missing files, and keys that an
//! encrypted file does not have. The keys of encrypted files are in plain text.

use std::collections::BTreeMap;
use std::path::Path;

use drivers::secrets::SecretReference;
use drivers::sops::{self, SopsFormat};
use model::base::diagnostic::{Finding, Location};
use model::hcl::suggest::nearest;
use model::project::config::LoadedProject;

/// Adds warnings, not errors, because a later step such as `render` may create the file.
pub fn check(loaded: &mut LoadedProject, root: &Path) {
    let mut files: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut findings = Vec::new();
    for (reference, at) in &loaded.secrets {
        let Ok(SecretReference::Sops { path, key }) = reference.parse() else {
            continue;
        };
        // The file belongs to the caller, not to the project.
        if path.starts_with("~/") || Path::new(&path).is_absolute() {
            continue;
        }
        let read = || std::fs::read_to_string(root.join(&path)).ok();
        let text = files.entry(path.clone()).or_insert_with(read);
        findings.extend(finding(text.as_deref(), &path, &key, at));
    }
    let texts = |finding: &Finding| {
        let file = finding.places.first()?.at.file.clone();
        let text = std::fs::read_to_string(root.join(&file)).ok()?;
        Some((file, text))
    };
    let texts = findings.iter().filter_map(texts).collect();
    loaded.add(findings, &texts);
}

fn finding(text: Option<&str>, path: &str, key: &str, at: &Location) -> Option<Finding> {
    let warn = |message: String, label: &str| {
        Finding::warning("missing-secret", message).at(at.clone(), label)
    };
    let Some(text) = text else {
        let message = format!("there is no file `{path}`");
        let hint = format!("`terrane secret set {path} {key}` makes it");
        return Some(warn(message, "needed by this reference").hint(hint));
    };
    let format = SopsFormat::of(Path::new(path))?;
    // A file that cannot be parsed is reported when it is opened.
    let paths = sops::paths_in_clear(text, format)?;
    if paths.finds(key) {
        return None;
    }
    let mut finding = warn(
        format!("`{path}` has no value at `{key}`"),
        "needed by this reference",
    );
    finding.hint = nearest(key, paths.all().iter().map(String::as_str))
        .map(|near| format!("did you mean `{near}`?"));
    Some(finding)
}
