//! An opened file: verified as a whole, then read value by value.

use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;

use super::cipher::{Cipher, CipherError};
use super::crypt::{self, ValueError};
use super::identities::Identities;
use super::metadata::{self, Metadata, MetadataError};
use super::plugin::PluginError;
use super::recipient::{Recipient, RecipientError};
use super::rules::EncryptionRule;
use super::tree::{self, Document, Element, Entry, Leaf, Node, PathError, Scalar};
use super::{ReadError, SopsFormat, SopsLayout};

/// Why a text cannot be decrypted. No variant holds a value.
#[derive(Debug, thiserror::Error)]
pub enum DecryptError {
    #[error("cannot parse it: it may be damaged or truncated")]
    Read(#[source] ReadError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("{}: it is encrypted for {recipients}", not_opened(*count))]
    WrongKey { count: usize, recipients: String },
    #[error("there is no age key to decrypt it with: it is encrypted for {recipients}")]
    NoKey {
        recipients: String,
        sought: Vec<String>,
    },
    #[error("none of the age keys can decrypt it: it is encrypted for {recipients}")]
    Plugin {
        recipients: String,
        source: PluginError,
    },
    #[error(transparent)]
    Value(#[from] ValueError),
    #[error("cannot read its MAC: it was changed after it was encrypted")]
    Mac(#[source] CipherError),
    #[error("its MAC does not match its values: it was changed after it was encrypted")]
    Changed,
}

impl Explain for DecryptError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::NoKey { sought, .. } if !sought.is_empty() => vec![advice(format!(
                "provide the private key in one of these: {}",
                sought.join(", ")
            ))],
            Self::WrongKey { .. } => vec![advice(
                "ask somebody who can decrypt it to add your key: `terrane secret rotate`",
            )],
            Self::Plugin { source, .. } => source.next_steps(),
            Self::Changed | Self::Mac(_) | Self::Value(_) | Self::Read(_) => {
                vec![advice(metadata::LAST_GOOD)]
            }
            Self::Metadata(err) => err.next_steps(),
            Self::NoKey { .. } => Vec::new(),
        }
    }
}

fn not_opened(count: usize) -> String {
    match count {
        1 => "the only available age key cannot decrypt it".to_owned(),
        _ => format!("none of the {count} available age keys can decrypt it"),
    }
}

/// A decrypted document. It can be read and changed, but never printed.
#[derive(Clone)]
pub struct DecryptedDocument {
    pub(super) document: Document,
    pub(super) metadata: Metadata,
    pub(super) cipher: Cipher,
    pub(super) format: SopsFormat,
    /// The text as it was read.
    pub(super) text: String,
}

pub(super) fn open(
    text: &str,
    format: SopsFormat,
    identities: &Identities,
) -> Result<DecryptedDocument, DecryptError> {
    let mut document = super::read(text, format).map_err(DecryptError::Read)?;
    let metadata = metadata::take(&mut document, format).map_err(|err| match err {
        MetadataError::None if text.contains("ENC[AES256_GCM,") => MetadataError::Cut,
        err => err,
    })?;
    let wrapped = metadata.age.iter();
    let copies: Vec<&str> = wrapped.clone().map(|it| it.key.as_str()).collect();
    let key = identities.unwrap(&copies).map_err(|failed| {
        let names: Vec<String> = wrapped
            .map(|wrapped| format!("`{}`", wrapped.recipient))
            .collect();
        let recipients = names.join(", ");
        match (failed, identities.len()) {
            (Some(source), _) => DecryptError::Plugin { recipients, source },
            (None, 0) => DecryptError::NoKey {
                recipients,
                sought: identities.sought().to_vec(),
            },
            (None, count) => DecryptError::WrongKey { count, recipients },
        }
    })?;
    let mut cipher = Cipher::new(key);
    let only_encrypted = metadata.mac_only_encrypted;
    let mac = crypt::decrypt(
        &mut document,
        &metadata.selection,
        only_encrypted,
        &mut cipher,
    )?;
    let said = cipher
        .decrypt(&metadata.mac, &metadata.last_modified)
        .map_err(DecryptError::Mac)?;
    match said {
        Leaf::Scalar(said) if said.text.expose() == mac => {}
        Leaf::Scalar(_) | Leaf::Comment(_) => return Err(DecryptError::Changed),
    }
    Ok(DecryptedDocument {
        document,
        metadata,
        cipher,
        format,
        text: text.to_owned(),
    })
}

impl DecryptedDocument {
    /// The whole document in clear, in its own format.
    pub fn plain(&self, layout: SopsLayout) -> Secret {
        super::write(&self.document, self.format, layout)
    }

    /// One value by its path, such as `database.password` or `hosts.0.key`; a map or list as JSON.
    pub fn value(&self, path: &str) -> Option<Secret> {
        Some(match self.document.find(path)? {
            Node::Scalar(scalar) => scalar.spoken(),
            Node::Null => Secret::new(""),
            node @ (Node::Map(_) | Node::List(_)) => {
                let node = match self.format {
                    SopsFormat::Yaml => &tree::merged_node(node),
                    SopsFormat::Json | SopsFormat::Dotenv | SopsFormat::Ini => node,
                };
                Secret::new(super::json::write_node(node))
            }
        })
    }

    /// Whether a path leads to a map or a list.
    pub fn is_container(&self, path: &str) -> bool {
        matches!(self.document.find(path), Some(Node::Map(_) | Node::List(_)))
    }

    /// Top-level values by name, for an environment; maps and lists are left out.
    pub fn variables(&self) -> Vec<(String, Secret)> {
        let entries = self.merged();
        let values = entries.iter().filter_map(|entry| match entry {
            Entry::Item(key, Node::Scalar(scalar)) => Some((key.clone(), scalar.spoken())),
            Entry::Item(key, Node::Null) => Some((key.clone(), Secret::new(""))),
            Entry::Item(_, Node::Map(_) | Node::List(_)) | Entry::Comment(_) => None,
        });
        values.collect()
    }

    /// All top-level entries, as readers of the format see them.
    fn merged(&self) -> Vec<Entry> {
        let maps = self.document.0.iter();
        match self.format {
            SopsFormat::Yaml => maps.flat_map(tree::merged).collect(),
            SopsFormat::Json | SopsFormat::Dotenv | SopsFormat::Ini => {
                maps.flatten().cloned().collect()
            }
        }
    }

    /// All values, named by their keys and list positions joined by `_`.
    pub fn flattened(&self) -> Vec<(String, Secret)> {
        let mut values = Vec::new();
        for entry in &self.merged() {
            if let Entry::Item(key, node) = entry {
                flatten(node, key.clone(), &mut values);
            }
        }
        values
    }

    /// Names of top-level maps and lists: what [`Self::variables`] leaves out.
    pub fn structures(&self) -> Vec<String> {
        let entries = self.merged().into_iter();
        let names = entries.filter_map(|entry| match entry {
            Entry::Item(key, Node::Map(_) | Node::List(_)) => Some(key),
            Entry::Item(_, Node::Scalar(_) | Node::Null) | Entry::Comment(_) => None,
        });
        names.collect()
    }

    /// Paths of all values, in order.
    pub fn paths(&self) -> Vec<String> {
        paths_of(&self.document)
    }

    /// Sets a text at a path; missing maps are created.
    pub fn set(&mut self, path: &str, value: &Secret) -> Result<(), PathError> {
        let scalar = Scalar::text(value.expose());
        self.document
            .put(&self.steps(path)?, Node::Scalar(scalar))?;
        self.check_names(path)
    }

    /// Sets the value of a JSON text at a path, with its types.
    pub fn set_json(
        &mut self,
        path: &str,
        json: &Secret,
    ) -> Result<Result<(), PathError>, ReadError> {
        let node = super::json::read_node(json.expose())?;
        let is_flat = matches!(self.format, SopsFormat::Dotenv | SopsFormat::Ini);
        let node = match node {
            Node::Map(_) | Node::List(_) if is_flat => return Ok(Err(PathError::OnlyTexts)),
            Node::Scalar(scalar) if is_flat => Node::Scalar(Scalar::text(scalar.spoken().expose())),
            node => node,
        };
        Ok(match self.steps(path) {
            Ok(steps) => self
                .document
                .put(&steps, node)
                .and_then(|()| self.check_names(path)),
            Err(err) => Err(err),
        })
    }

    /// Refuses a name that would be read back differently: the file could not be decrypted any more.
    fn check_names(&self, path: &str) -> Result<(), PathError> {
        if matches!(self.format, SopsFormat::Yaml | SopsFormat::Json) {
            return Ok(()); // any name can be quoted
        }
        let text = self.plain(SopsLayout::default());
        let again = super::read(text.expose(), self.format).ok();
        if again.is_some_and(|again| paths_of(&again) == self.paths()) {
            return Ok(());
        }
        let name = path.to_owned();
        Err(PathError::Unwritable { name })
    }

    /// The steps of a path in this format.
    fn steps(&self, path: &str) -> Result<Vec<String>, PathError> {
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        match self.format {
            SopsFormat::Yaml | SopsFormat::Json if path.contains("\\.") => {
                Err(PathError::Backslash)
            }
            SopsFormat::Yaml | SopsFormat::Json if !path.matches('"').count().is_multiple_of(2) => {
                Err(PathError::OpenQuote)
            }
            SopsFormat::Yaml | SopsFormat::Json => {
                let steps = tree::steps(path);
                if steps.iter().any(String::is_empty) && self.document.find(path).is_none() {
                    return Err(PathError::NoName);
                }
                Ok(steps)
            }
            SopsFormat::Dotenv => Ok(vec![path.to_owned()]),
            // The name of a section may contain dots, a name inside it may not.
            SopsFormat::Ini => match path.rsplit_once('.') {
                Some((section, name)) => Ok(vec![section.to_owned(), name.to_owned()]),
                None => Err(PathError::NoSection),
            },
        }
    }

    /// How this file is encrypted now.
    pub fn rule(&self, layout: SopsLayout) -> Result<EncryptionRule, RecipientError> {
        let recipients = self.recipients().map(str::parse);
        Ok(EncryptionRule {
            recipients: recipients.collect::<Result<Vec<Recipient>, _>>()?,
            selection: self.metadata.selection.clone(),
            mac_only_encrypted: self.metadata.mac_only_encrypted,
            layout,
        })
    }

    /// The recipients of the file.
    pub fn recipients(&self) -> impl Iterator<Item = &str> {
        self.metadata
            .age
            .iter()
            .map(|wrapped| wrapped.recipient.as_str())
    }

    /// Other kinds of master keys that also open it.
    pub fn foreign_keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.foreign.iter().map(|(name, _)| name.as_str())
    }
}

/// The keys of an encrypted document.
pub struct EncryptedPaths(pub(super) Document);

impl EncryptedPaths {
    /// Whether a path exists.
    pub fn finds(&self, path: &str) -> bool {
        self.0.find(path).is_some()
    }

    /// Paths of all values, in order.
    pub fn all(&self) -> Vec<String> {
        paths_of(&self.0)
    }
}

fn paths_of(document: &Document) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in document.0.iter().flatten() {
        if let Entry::Item(key, node) = entry {
            collect_paths(node, key.clone(), &mut paths);
        }
    }
    paths
}

fn collect_paths(node: &Node, at: String, paths: &mut Vec<String>) {
    match node {
        Node::Map(map) => {
            for entry in map {
                if let Entry::Item(key, node) = entry {
                    collect_paths(node, format!("{at}.{key}"), paths);
                }
            }
        }
        Node::List(list) => {
            for (position, node) in list.iter().filter_map(Element::node).enumerate() {
                collect_paths(node, format!("{at}.{position}"), paths);
            }
        }
        Node::Scalar(_) | Node::Null => paths.push(at),
    }
}

impl std::fmt::Debug for DecryptedDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("format", &self.format)
            .field("document", &self.document)
            .finish_non_exhaustive()
    }
}

fn flatten(node: &Node, name: String, values: &mut Vec<(String, Secret)>) {
    match node {
        Node::Scalar(scalar) => values.push((name, scalar.spoken())),
        Node::Null => values.push((name, Secret::new(""))),
        Node::Map(map) => {
            for entry in map {
                if let Entry::Item(key, node) = entry {
                    flatten(node, format!("{name}_{key}"), values);
                }
            }
        }
        Node::List(list) => {
            let nodes = list.iter().filter_map(|element| match element {
                Element::Node(node) => Some(node),
                Element::Comment(_) => None,
            });
            for (place, node) in nodes.enumerate() {
                flatten(node, format!("{name}_{place}"), values);
            }
        }
    }
}
