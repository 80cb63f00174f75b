//! The master keys that a person keeps. The first one wraps data keys; older ones only unwrap keys that were not
//! wrapped again since a rotation.
//!
//! As text a key is one line, `terrane-key-1 ID BASE64`; a keyring is one or more of them.
//!
//! Not here: data keys (`data_keys`), and where a person keeps the text (`control::home::master_keys`).

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::base::age_identity::AgeIdentity;
use model::base::secret::Secret;

use crate::blob::Disk;
use crate::blob::files::make_dir;
use crate::crypto::Key;

mod current;

pub(crate) use current::CurrentKeyring;

const KEY_FORMAT: &str = "terrane-key-1";

/// Master keys. With them and the home's files every state can be read.
#[derive(Clone)]
pub struct Keyring {
    first: Master,
    /// For unwrapping only.
    others: Vec<Master>,
    created: bool,
}

#[derive(Clone)]
pub(crate) struct Master {
    pub(crate) id: String,
    pub(crate) key: Key,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenKeyringError {
    #[error("could not {action} the master key `{path}`")]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{origin} is not a master key: lines of `terrane-key-1 ID BASE64` are expected")]
    Shape { origin: String },
    #[error("cannot decrypt the master key with the age identity: there is no `{path}`")]
    NoAgeFile { path: PathBuf },
    #[error("{origin} is not an age identity")]
    Identity { origin: String, source: io::Error },
    #[error("could not decrypt `{path}` with {identity}")]
    Age {
        path: PathBuf,
        identity: String,
        source: age::DecryptError,
    },
    #[error("cannot get random bytes from the system")]
    Random,
}

impl Keyring {
    /// Reads the master keys, and creates one if there is no file. If several processes create it at once, one wins
    /// and the others read its file.
    pub fn open_or_create(path: &Path) -> Result<Self, OpenKeyringError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &shown(path)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let created = Self::generate()?.write_new(path)?;
                let text = fs::read_to_string(path).map_err(failed("read", path))?;
                let read = Self::parse(&text, &shown(path))?;
                Ok(Self { created, ..read })
            }
            Err(err) => Err(failed("read", path)(err)),
        }
    }

    /// Reads the master keys; an error if there is no file.
    pub fn open(path: &Path) -> Result<Self, OpenKeyringError> {
        let text = fs::read_to_string(path).map_err(failed("read", path))?;
        Self::parse(&text, &shown(path))
    }

    /// Decrypts a file of master keys with an age identity.
    pub fn open_age(path: &Path, identity: &AgeIdentity) -> Result<Self, OpenKeyringError> {
        let wrong_identity = |source| OpenKeyringError::Identity {
            origin: described(identity),
            source,
        };
        let undecrypted = |source| OpenKeyringError::Age {
            path: path.to_owned(),
            identity: described(identity),
            source,
        };
        let known = read_identity(identity).map_err(wrong_identity)?;
        let known = known.expose().as_bytes();
        let known = age::IdentityFile::from_buffer(known).map_err(wrong_identity)?;
        let known = known.into_identities().map_err(undecrypted)?;
        let sealed = fs::read(path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => OpenKeyringError::NoAgeFile {
                path: path.to_owned(),
            },
            _ => failed("read", path)(err),
        })?;
        let sealed = age::armor::ArmoredReader::new(sealed.as_slice());
        let opened = age::Decryptor::new_buffered(sealed).map_err(undecrypted)?;
        let known = known.iter().map(|one| &**one as &dyn age::Identity);
        let mut opened = opened.decrypt(known).map_err(undecrypted)?;
        let mut text = String::new();
        let read = opened.read_to_string(&mut text);
        read.map_err(failed("read", path))?;
        Self::parse(&text, &shown(path))
    }

    /// From text; `origin` names its source, for messages.
    pub fn from_text(text: &Secret, origin: &str) -> Result<Self, OpenKeyringError> {
        Self::parse(text.expose(), origin)
    }

    /// All keys as text, to be passed on in memory.
    pub fn to_text(&self) -> Secret {
        Secret::new(self.lines())
    }

    /// A new master key.
    pub fn generate() -> Result<Self, OpenKeyringError> {
        let key = Key::random().ok_or(OpenKeyringError::Random)?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let id = id[..8].to_owned();
        Ok(Self {
            first: Master { id, key },
            others: Vec::new(),
            created: false,
        })
    }

    /// This key wraps from now on; the old ones still unwrap.
    #[must_use]
    pub fn followed_by(mut self, old: &Self) -> Self {
        for master in old.masters() {
            if self.find(&master.id).is_none() {
                self.others.push(master.clone());
            }
        }
        self
    }

    /// Replaces an existing file. Durable when this returns.
    pub fn write(&self, path: &Path) -> Result<(), OpenKeyringError> {
        let (disk, name) = place(path)?;
        disk.write(name, self.lines().as_bytes())
            .map_err(|err| failed("write", path)(io::Error::other(err)))
    }

    /// Durable when this returns; false if the file existed.
    pub fn write_new(&self, path: &Path) -> Result<bool, OpenKeyringError> {
        let (disk, name) = place(path)?;
        disk.write_new(name, self.lines().as_bytes())
            .map_err(|err| failed("write", path)(io::Error::other(err)))
    }

    /// Whether it was created just now, so that the user can be told to back it up.
    pub fn created(&self) -> bool {
        self.created
    }

    /// The id of the key that wraps.
    pub fn id(&self) -> &str {
        &self.first.id
    }

    /// The ids of all keys; the first wraps.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.masters().map(|master| master.id.as_str())
    }

    pub(crate) fn first(&self) -> &Master {
        &self.first
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Master> {
        self.masters().find(|master| master.id == id)
    }

    fn masters(&self) -> impl Iterator<Item = &Master> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn lines(&self) -> String {
        let line = |master: &Master| {
            let key = BASE64.encode(master.key.bytes());
            format!("{KEY_FORMAT} {} {key}\n", master.id)
        };
        self.masters().map(line).collect()
    }

    fn parse(text: &str, origin: &str) -> Result<Self, OpenKeyringError> {
        let shape = || OpenKeyringError::Shape {
            origin: origin.to_owned(),
        };
        let mut masters = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [KEY_FORMAT, id, encoded] = words[..] else {
                return Err(shape());
            };
            let (id, key) = (id.to_owned(), Key::from_base64(encoded));
            let key = key.ok_or_else(shape)?;
            masters.push(Master { id, key });
        }
        let mut masters = masters.into_iter();
        Ok(Self {
            first: masters.next().ok_or_else(shape)?,
            others: masters.collect(),
            created: false,
        })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.ids().collect();
        write!(f, "Keyring({})", ids.join(", "))
    }
}

/// For messages, without the identity itself.
fn described(identity: &AgeIdentity) -> String {
    match identity {
        AgeIdentity::File(path) => shown(path),
        AgeIdentity::Text(_) => "the identity in `TERRANE_KEY_AGE`".to_owned(),
    }
}

fn read_identity(identity: &AgeIdentity) -> io::Result<Secret> {
    match identity {
        AgeIdentity::File(path) => fs::read_to_string(path).map(Secret::new),
        AgeIdentity::Text(text) => Ok(text.clone()),
    }
}

fn place(path: &Path) -> Result<(Disk, &str), OpenKeyringError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    make_dir(dir).map_err(failed("make a directory for", path))?;
    let name = path.file_name().and_then(|name| name.to_str());
    Ok((Disk::new(dir), name.unwrap_or_default()))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenKeyringError {
    let path = path.to_owned();
    move |source| OpenKeyringError::File {
        action,
        path,
        source,
    }
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display())
}

#[cfg(test)]
mod tests;
