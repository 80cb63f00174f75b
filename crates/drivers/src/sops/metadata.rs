//! The encryption metadata of a file: the `sops` block, or its flat form.

use super::selection::{EncryptionFilter, EncryptionFilterError};
use super::tree::{Document, Element, Entry, Map, Node, Scalar};
use super::{SopsFormat, flat_metadata};
use model::base::error::{Explain, NextStep, advice, command};

/// The SOPS version whose format is written.
const VERSION: &str = "3.13.3";
const BLOCK: &str = "sops";
/// Prefix of metadata names in formats without nesting.
const PREFIX: &str = "sops_";

/// The hint for a damaged file.
pub(super) const LAST_GOOD: &str = "bring back the last good version, for example from Git";

/// Keys of key management services: preserved, but never used.
const FOREIGN: [&str; 6] = ["azure_kv", "gcp_kms", "hc_vault", "hckms", "kms", "pgp"];

#[derive(Clone, Debug)]
pub(super) struct Metadata {
    /// The data key, wrapped for each recipient.
    pub(super) age: Vec<Wrapped>,
    /// The data key, wrapped by master keys that terrane cannot use.
    pub(super) foreign: Vec<(String, Node)>,
    pub(super) last_modified: String,
    pub(super) mac: String,
    pub(super) selection: EncryptionFilter,
    pub(super) mac_only_encrypted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) recipient: String,
    /// An armoured age file.
    pub(super) key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("it is not encrypted: it has no `sops` block")]
    None,
    #[error("it has encrypted values but no `sops` block, so it is truncated")]
    Cut,
    #[error("its `sops` block is incomplete: `{name}` is missing or has a wrong type")]
    Missing { name: &'static str },
    #[error("its data key is split over key groups, which are not supported")]
    KeyGroups,
    #[error("its data key is not wrapped by age, only by {kinds}, which is not supported")]
    NotAge { kinds: String },
    #[error("its `sops` block contains no keys")]
    NoKeys,
    #[error(transparent)]
    Selection(#[from] EncryptionFilterError),
}

impl Explain for MetadataError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::None => command("secret encrypt FILE --in-place", "encrypts a plain file"),
            Self::Cut | Self::Missing { .. } | Self::NoKeys => advice(LAST_GOOD),
            Self::KeyGroups => advice("only `sops` can decrypt it: encrypt it for one key group"),
            Self::NotAge { .. } => {
                advice("`sops rotate -i --add-age age1… FILE` adds an age recipient")
            }
            Self::Selection(_) => return Vec::new(),
        }]
    }
}

/// Removes the metadata from a document and returns it.
pub(super) fn take(document: &mut Document, format: SopsFormat) -> Result<Metadata, MetadataError> {
    let block = match format {
        SopsFormat::Yaml | SopsFormat::Json => take_block(document),
        SopsFormat::Dotenv => take_prefixed(document).and_then(flat_metadata::unflatten),
        SopsFormat::Ini => take_block(document)
            .map(|block| with_texts(block, |text| text.replace("\\n", "\n")))
            .and_then(flat_metadata::unflatten),
    };
    read(&block.ok_or(MetadataError::None)?)
}

/// Whether a plain document already uses the name of the metadata.
pub(super) fn is_taken(document: &Document, format: SopsFormat) -> bool {
    let reserved = |key: &str| match format {
        SopsFormat::Yaml | SopsFormat::Json | SopsFormat::Ini => key == BLOCK,
        SopsFormat::Dotenv => key.starts_with(PREFIX),
    };
    document.0.iter().flatten().any(|entry| match entry {
        Entry::Item(key, _) => reserved(key),
        Entry::Comment(_) => false,
    })
}

/// Adds the metadata to an encrypted document.
pub(super) fn add(document: &mut Document, metadata: &Metadata, format: SopsFormat) {
    let block = metadata.block();
    for map in &mut document.0 {
        match format {
            SopsFormat::Yaml | SopsFormat::Json => {
                map.push(Entry::Item(BLOCK.to_owned(), Node::Map(block.clone())));
            }
            SopsFormat::Dotenv => {
                let flat = flat_metadata::flatten(block.clone()).into_iter();
                map.extend(flat.filter_map(|entry| match entry {
                    Entry::Item(key, node) => Some(Entry::Item(format!("{PREFIX}{key}"), node)),
                    Entry::Comment(_) => None,
                }));
            }
            SopsFormat::Ini => {
                let flat = flat_metadata::flatten(block.clone());
                let flat = with_texts(flat, |text| text.replace('\n', "\\n"));
                map.push(Entry::Item(BLOCK.to_owned(), Node::Map(flat)));
            }
        }
    }
}

fn take_block(document: &mut Document) -> Option<Map> {
    let mut first = None;
    for map in &mut document.0 {
        let place = map
            .iter()
            .position(|entry| matches!(entry, Entry::Item(key, _) if key == BLOCK));
        if let Some(place) = place
            && let Entry::Item(_, Node::Map(block)) = map.remove(place)
            && first.is_none()
        {
            first = Some(block);
        }
    }
    first
}

fn take_prefixed(document: &mut Document) -> Option<Map> {
    let map = document.0.first_mut()?;
    let mut block = Map::new();
    map.retain(|entry| match entry {
        Entry::Item(key, node) => match key.strip_prefix(PREFIX) {
            Some(name) => {
                block.push(Entry::Item(name.to_owned(), node.clone()));
                false
            }
            None => true,
        },
        Entry::Comment(_) => true,
    });
    (!block.is_empty()).then_some(block)
}

/// Applies a change to each text of a flat map.
fn with_texts(map: Map, change: impl Fn(&str) -> String) -> Map {
    let entries = map.into_iter().map(|entry| match entry {
        Entry::Item(key, Node::Scalar(scalar)) => {
            let text = change(scalar.spoken().expose());
            Entry::Item(key, Node::Scalar(Scalar::text(text)))
        }
        entry @ (Entry::Item(..) | Entry::Comment(_)) => entry,
    });
    entries.collect()
}

fn read(block: &Map) -> Result<Metadata, MetadataError> {
    let node = |name: &str| {
        block.iter().find_map(|entry| match entry {
            Entry::Item(key, node) if key == name => Some(node),
            Entry::Item(..) | Entry::Comment(_) => None,
        })
    };
    let text = |name: &str| node(name).and_then(Node::text);
    let missing = |name| MetadataError::Missing { name };
    let is_empty = |node: &Node| matches!(node, Node::List(list) if list.is_empty());

    let has_groups = node("key_groups").is_some_and(|groups| !is_empty(groups));
    let is_split = text("shamir_threshold").is_some_and(|threshold| threshold != "0");
    if has_groups || is_split {
        return Err(MetadataError::KeyGroups);
    }
    let foreign: Vec<(String, Node)> = FOREIGN
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), node(name)?.clone())))
        .filter(|(_, keys)| !is_empty(keys) && *keys != Node::Null)
        .collect();
    let mut age = Vec::new();
    if let Some(Node::List(wrapped)) = node("age") {
        for node in wrapped.iter().filter_map(Element::node) {
            let field = |name| match node {
                Node::Map(map) => Document(vec![map.clone()]).find(name).and_then(Node::text),
                Node::List(_) | Node::Scalar(_) | Node::Null => None,
            };
            age.push(Wrapped {
                recipient: field("recipient").ok_or(missing("age.recipient"))?,
                key: field("enc").ok_or(missing("age.enc"))?,
            });
        }
    }
    if age.is_empty() {
        let kinds: Vec<String> = foreign
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        return Err(match kinds.join(", ") {
            kinds if kinds.is_empty() => MetadataError::NoKeys,
            kinds => MetadataError::NotAge { kinds },
        });
    }
    Ok(Metadata {
        age,
        foreign,
        last_modified: text("lastmodified").ok_or(missing("lastmodified"))?,
        mac: text("mac").ok_or(missing("mac"))?,
        selection: EncryptionFilter::read(text)?,
        mac_only_encrypted: text("mac_only_encrypted").is_some_and(|said| said == "true"),
    })
}

impl Metadata {
    /// Sorted by name, as the official tool writes it.
    fn block(&self) -> Map {
        let text = |value: &str| Node::Scalar(Scalar::text(value));
        let item = |name: &str, node| Entry::Item(name.to_owned(), node);
        let wrapped = self.age.iter().map(|wrapped| {
            Element::Node(Node::Map(vec![
                item("enc", text(&wrapped.key)),
                item("recipient", text(&wrapped.recipient)),
            ]))
        });
        let mut fields = vec![
            ("age".to_owned(), Node::List(wrapped.collect())),
            ("lastmodified".to_owned(), text(&self.last_modified)),
            ("mac".to_owned(), text(&self.mac)),
            ("version".to_owned(), text(VERSION)),
        ];
        let (name, value) = self.selection.said();
        fields.push((name.to_owned(), text(value)));
        if self.mac_only_encrypted {
            let only = Node::Scalar(Scalar::bool(true));
            fields.push(("mac_only_encrypted".to_owned(), only));
        }
        fields.extend(self.foreign.iter().cloned());
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        let entries = fields.into_iter();
        entries
            .map(|(name, node)| Entry::Item(name, node))
            .collect()
    }
}

impl Node {
    /// A value as text. Metadata is no secret.
    fn text(&self) -> Option<String> {
        match self {
            Self::Scalar(scalar) => Some(scalar.spoken().expose().to_owned()),
            Self::Map(_) | Self::List(_) | Self::Null => None,
        }
    }
}
