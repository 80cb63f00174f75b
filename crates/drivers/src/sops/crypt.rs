//! Encrypts or decrypts a whole document value by value, and computes its MAC.

use aws_lc_rs::digest;

use super::cipher::{Cipher, CipherError};
use super::selection::EncryptionFilter;
use super::tree::{Comment, Document, Element, Entry, Leaf, Map, Node, TreePosition, walk};

mod lists;

/// SHA-256 of `sops`. It starts the MAC of files in which only encrypted values count, so that it differs from a
/// MAC over all values.
const ONLY_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
    0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// A value that cannot be processed, by its path.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("cannot use the value of `{path}`: {source}")]
    Value { path: String, source: CipherError },
    #[error(
        "a comment at `{path}` matches `unencrypted_comment_regex` once it is encrypted, so it would not be recognised as encrypted"
    )]
    Comment { path: String },
    #[error(
        "in the list `{path}` a comment is between a value and the comment that matches `encrypted_comment_regex`: encrypted, it would look like a value, and `sops` could not open the file; put the comment that matches last"
    )]
    Between { path: String },
}

/// Encrypts in place; returns the MAC of the plain values, not yet encrypted.
pub(super) fn encrypt(
    document: &mut Document,
    selection: &EncryptionFilter,
    only_encrypted: bool,
    cipher: &Cipher,
) -> Result<String, ValueError> {
    let mut mac = Mac::new(only_encrypted);
    for map in &mut document.0 {
        if let EncryptionFilter::EncryptedCommentRegex(regex) = selection {
            lists::check(map, regex)?;
        }
        mark_empty_comments(map);
    }
    walk(document, &mut |leaf, place| {
        let is_comment = matches!(leaf, Leaf::Comment(_));
        let taken = selection.takes(&place, is_comment);
        mac.add(&leaf, taken);
        if !taken {
            return Ok(leaf);
        }
        let sealed = cipher
            .encrypt(&leaf, &aad(place.path))
            .map_err(|source| failed(&place, source))?;
        if let (true, EncryptionFilter::UnencryptedCommentRegex(regex)) = (is_comment, selection)
            && regex.is_match(&sealed)
        {
            let path = place.path.join(".");
            return Err(ValueError::Comment { path });
        }
        Ok(Leaf::Scalar(super::tree::Scalar::text(sealed)))
    })?;
    Ok(mac.finish())
}

/// Decrypts in place; returns the MAC of the plain values.
pub(super) fn decrypt(
    document: &mut Document,
    selection: &EncryptionFilter,
    only_encrypted: bool,
    cipher: &mut Cipher,
) -> Result<String, ValueError> {
    let mut mac = Mac::new(only_encrypted);
    walk(document, &mut |leaf, place| {
        let taken = selection.takes(&place, matches!(leaf, Leaf::Comment(_)));
        let leaf = match leaf {
            // Try it even where values are plain: it may have been encrypted with the values around it.
            Leaf::Comment(comment) => open_comment(comment, cipher, &place),
            leaf if !taken => leaf,
            Leaf::Scalar(scalar) => cipher
                .decrypt(scalar.text.expose(), &aad(place.path))
                .map_err(|source| failed(&place, source))?,
        };
        mac.add(&leaf, taken);
        Ok(leaf)
    })?;
    Ok(mac.finish())
}

/// Comments are not part of the MAC, and old versions left them plain: a comment that cannot be decrypted stays as
/// it is. The official tool encrypts a comment at the end of a map under that map's path. It reads the comment as
/// part of the preceding list or map.
fn open_comment(comment: Comment, cipher: &mut Cipher, place: &TreePosition<'_>) -> Leaf {
    if comment.text.expose().is_empty() {
        return Leaf::Comment(comment);
    }
    let inline = comment.inline;
    for above in (0..=place.path.len()).rev() {
        let bound_to = aad(&place.path[..above]);
        if let Ok(Leaf::Comment(opened)) = cipher.decrypt(comment.text.expose(), &bound_to) {
            return Leaf::Comment(Comment { inline, ..opened });
        }
    }
    Leaf::Comment(comment)
}

/// In a list, an encrypted comment becomes a value, and an empty one would become an empty value: add a space
/// instead.
fn mark_empty_comments(map: &mut Map) {
    for entry in map {
        if let Entry::Item(_, node) = entry {
            mark_in(node);
        }
    }
}

fn mark_in(node: &mut Node) {
    match node {
        Node::Map(map) => mark_empty_comments(map),
        Node::List(list) => {
            for element in list {
                match element {
                    Element::Comment(comment) if comment.text.expose().is_empty() => {
                        *comment = Comment::new(" ", comment.inline);
                    }
                    Element::Comment(_) => {}
                    Element::Node(node) => mark_in(node),
                }
            }
        }
        Node::Scalar(_) | Node::Null => {}
    }
}

/// The additional data that binds a value to its path: the keys above it.
fn aad(path: &[String]) -> String {
    format!("{}:", path.join(":"))
}

fn failed(place: &TreePosition<'_>, source: CipherError) -> ValueError {
    let path = place.path.join(".");
    ValueError::Value { path, source }
}

struct Mac {
    only_encrypted: bool,
    hash: digest::Context,
}

impl Mac {
    fn new(only_encrypted: bool) -> Self {
        let mut hash = digest::Context::new(&digest::SHA512);
        if only_encrypted {
            hash.update(&ONLY_ENCRYPTED);
        }
        Self {
            only_encrypted,
            hash,
        }
    }

    fn add(&mut self, leaf: &Leaf, encrypted: bool) {
        match leaf {
            Leaf::Scalar(scalar) if encrypted || !self.only_encrypted => {
                self.hash.update(scalar.text.expose().as_bytes());
            }
            Leaf::Scalar(_) | Leaf::Comment(_) => {}
        }
    }

    fn finish(self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for byte in self.hash.finish().as_ref() {
            let _ = write!(text, "{byte:02X}");
        }
        text
    }
}
