//! Edits a file of secrets in an editor. The plain text is in memory where possible, only readable by its
//! owner, and removed when this process ends.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use drivers::process::split_words;
use drivers::process::{self, DirGuard, Environment};
use drivers::sops::{self, DecryptedDocument, EncryptionRule, Plugins, SopsFormat};
use jiff::Timestamp;
use model::base::secret::Secret;

use super::{SecretFile, SecretFileError, SecretFileWrite, SecretFiles, run};

/// A plain copy in an editor. It is removed, with the editor's own files beside it, on drop or when this
/// process is killed.
pub struct EditSession {
    file: SecretFile,
    opened: DecryptedDocument,
    rule: EncryptionRule,
    plugins: Plugins,
    copy: PathBuf,
    before: Secret,
    /// The encrypted text as it was opened, if there was one.
    seen: Option<String>,
    _keeper: DirGuard,
}

impl SecretFiles<'_> {
    /// Opens a file for editing; a missing file counts as empty.
    pub fn edit(&self, path: &Path) -> Result<EditSession, SecretFileError> {
        let file = self.find(path)?;
        let layout = Self::layout_for(&file)?;
        let seen = fs::read_to_string(&file.path).ok();
        let (opened, rule, before) = if file.has_something() {
            let opened = self.open(&file)?;
            let rule = opened.rule(layout)?;
            let plain = opened.plain(layout);
            (opened, rule, plain)
        } else {
            let nothing = match file.format {
                SopsFormat::Json => "{}\n",
                SopsFormat::Yaml | SopsFormat::Dotenv | SopsFormat::Ini => "",
            };
            (
                self.empty(&file)?,
                Self::rule_for(&file)?,
                Secret::new(nothing),
            )
        };
        let dir = self
            .memory()
            .join(format!("terrane-edit-{}", uuid::Uuid::new_v4()));
        let name = path.file_name().unwrap_or(path.as_os_str());
        let copy = dir.join(name);
        let failed = |source| SecretFileError::Write {
            path: copy.clone(),
            source,
        };
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(failed)?;
        // Set this up before the directory contains anything.
        let keeper = process::remove_on_exit(&dir).map_err(failed)?;
        fs::File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&copy)
            .and_then(|mut file| file.write_all(before.expose().as_bytes()))
            .map_err(failed)?;
        Ok(EditSession {
            file,
            opened,
            rule,
            plugins: self.plugins(),
            copy,
            before,
            seen,
            _keeper: keeper,
        })
    }

    /// Runs the editor: `SOPS_EDITOR`, `VISUAL`, `EDITOR`, or `vi`.
    pub async fn run_editor(&self, editing: &EditSession) -> Result<(), SecretFileError> {
        let named = ["SOPS_EDITOR", "VISUAL", "EDITOR"]
            .iter()
            .find_map(|name| self.env.get(*name).filter(|editor| !editor.is_empty()));
        let editor = named.map_or("vi", String::as_str);
        let words = split_words(editor).ok_or_else(|| SecretFileError::EditorQuote {
            editor: editor.to_owned(),
        });
        let mut words = words?;
        words.push(editing.copy.display().to_string());
        let env: Environment = self.env.iter().collect();
        let exit = run(&words, self.cwd, &env, self.env).await?;
        if exit.success() {
            return Ok(());
        }
        Err(SecretFileError::Editor {
            program: editor.to_owned(),
            exit,
        })
    }

    /// A memory file system if there is one, else the directory for temporary files.
    fn memory(&self) -> PathBuf {
        let own = self.env.get("XDG_RUNTIME_DIR").map(PathBuf::from);
        let shared = PathBuf::from("/dev/shm");
        let mut places = own
            .into_iter()
            .chain([shared])
            .filter(|place| place.is_dir());
        places.next().unwrap_or_else(std::env::temp_dir)
    }
}

impl EditSession {
    /// Encrypts the edited text; unchanged values keep their ciphertext.
    pub fn save(&self) -> Result<SecretFileWrite, SecretFileError> {
        let text = fs::read_to_string(&self.copy).map_err(|source| SecretFileError::Read {
            path: self.copy.clone(),
            source,
        })?;
        let text = Secret::new(text);
        if text == self.before {
            return Ok(SecretFileWrite {
                is_new: false,
                changed: false,
                recipients: super::names(&self.rule),
            });
        }
        if text.expose().trim().is_empty() && !self.before.expose().trim().is_empty() {
            return Err(SecretFileError::Emptied {
                path: self.file.shown.clone(),
            });
        }
        let format = self.file.format;
        let sealed = sops::encrypt_again(
            text.expose(),
            format,
            &self.rule,
            &self.plugins,
            &self.opened,
            Timestamp::now(),
        );
        let sealed = sealed.map_err(|source| self.file.not_encrypted(source))?;
        let _turn = self.file.turn()?;
        if fs::read_to_string(&self.file.path).ok() != self.seen {
            return Err(self.keep_aside(&sealed));
        }
        self.file.write(&sealed, &self.rule)
    }

    /// Another process wrote the file meanwhile. So that no work is lost, the edited text is saved beside the
    /// file, encrypted.
    fn keep_aside(&self, sealed: &str) -> SecretFileError {
        let aside = |path: &Path| {
            let suffix = path.extension().unwrap_or_default();
            path.with_extension(format!("edited.{}", suffix.to_string_lossy()))
        };
        let kept = aside(&self.file.path);
        match super::write_atomically(&kept, sealed.as_bytes(), None) {
            Ok(()) => SecretFileError::Moved {
                path: self.file.shown.clone(),
                kept: aside(&self.file.shown),
            },
            Err(source) => SecretFileError::Write { path: kept, source },
        }
    }
}
