//! The manifest of a render. It is stored in the generated tree and lists the generated files.
//!
//! It is written twice: first with the digests of the files that are about to be written (`writing`), and at the end
//! without them. So all files that a crash leaves behind are known to be generated.
//!
//! It ends with a digest of itself. If a person or a merge changed the manifest, the digest does not match, and no file
//! is removed because of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the file format and of the input digest.
const VERSION: u32 = 1;

/// Computes the digest of bytes.
pub type BytesDigestFn = fn(&[u8]) -> String;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderManifest {
    terrane_render: u32,
    pub render: String,
    /// Digest of templates, data and settings: equal as long as nothing that affects the result has changed.
    pub inputs: String,
    /// Digests of generated files, by path relative to the project's root.
    pub files: BTreeMap<String, String>,
    /// Digests of files that are being written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub writing: BTreeMap<String, String>,
    #[serde(skip)]
    is_as_written: bool,
}

/// The file format.
#[derive(Serialize, Deserialize)]
struct ManifestFile {
    #[serde(flatten)]
    manifest: RenderManifest,
    /// The digest of all the rest.
    #[serde(default)]
    list: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadRenderManifestError {
    #[error("the file is not a render manifest")]
    Json(#[from] serde_json::Error),
    #[error("the manifest has version {0}, which a newer terrane wrote")]
    Newer(u32),
    #[error("the manifest lists `{0}`, which a render to this output cannot have created")]
    Foreign(String),
}

impl RenderManifest {
    pub fn new(render: &str, inputs: String, files: BTreeMap<String, String>) -> Self {
        Self {
            terrane_render: VERSION,
            render: render.to_owned(),
            inputs,
            files,
            writing: BTreeMap::new(),
            is_as_written: true,
        }
    }

    /// Reads the manifest of a render to `output`. Others can write the manifest, and listed files may be removed. So
    /// entries that could not have been generated there are ignored.
    pub fn read(
        text: &str,
        output: &str,
        digest: BytesDigestFn,
    ) -> Result<Self, ReadRenderManifestError> {
        let ManifestFile { mut manifest, list } = serde_json::from_str(text)?;
        manifest.is_as_written = list == digest(manifest.bare().as_bytes());
        if manifest.terrane_render > VERSION {
            return Err(ReadRenderManifestError::Newer(manifest.terrane_render));
        }
        let foreign = manifest.paths().find(|path| !is_below(output, path));
        match foreign.map(str::to_owned) {
            Some(path) => Err(ReadRenderManifestError::Foreign(path)),
            None => Ok(manifest),
        }
    }

    /// One line per file, sorted. A manifest that others changed stays marked as such.
    pub fn write(&self, digest: BytesDigestFn) -> String {
        let list = if self.is_as_written {
            digest(self.bare().as_bytes())
        } else {
            String::new()
        };
        let manifest = self.clone();
        let mut text =
            serde_json::to_string_pretty(&ManifestFile { manifest, list }).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The text without its digest.
    fn bare(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it is unchanged since it was written. Only then does it prove that a file was generated.
    pub fn is_as_written(&self) -> bool {
        self.is_as_written
    }

    /// Whether it lists a file as generated or being written.
    pub fn owns(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.writing.contains_key(path)
    }

    /// Whether a file with this digest is as a render left it.
    pub fn made(&self, path: &str, digest: &str) -> bool {
        let is_it =
            |files: &BTreeMap<String, String>| files.get(path).is_some_and(|known| known == digest);
        is_it(&self.files) || is_it(&self.writing)
    }

    /// All files that it lists.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let new = self.writing.keys();
        let new = new.filter(|path| !self.files.contains_key(*path));
        self.files.keys().chain(new).map(String::as_str)
    }

    /// The manifest while `next` is being written. `lie` are the digests of the existing files: files written by an
    /// earlier, incomplete render stay known as generated.
    #[must_use]
    pub fn towards<'a>(&self, next: &Self, lie: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut files = self.files.clone();
        for (path, digest) in &self.writing {
            files.entry(path.clone()).or_insert_with(|| digest.clone());
        }
        for (path, digest) in lie.filter(|(path, digest)| self.made(path, digest)) {
            files.insert(path.to_owned(), digest.to_owned());
        }
        Self {
            terrane_render: VERSION,
            render: next.render.clone(),
            inputs: String::new(),
            files,
            writing: next.files.clone(),
            is_as_written: self.is_as_written,
        }
    }
}

/// Whether a path is below a directory of the project, and not inside the data of Git or terrane.
fn is_below(output: &str, path: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let top = path.split('/').next().unwrap_or_default();
    let rest = match output {
        "" | "." => Some(path),
        output => path
            .strip_prefix(output)
            .and_then(|rest| rest.strip_prefix('/')),
    };
    rest.is_some()
        && path.split('/').all(is_plain)
        && !matches!(top, ".git" | ".terrane")
        && !path.contains('\0')
}
