//! What of a text stays in clear when it is encrypted: keys, what the rule leaves out, and the shape of the whole.

use super::rules::Rule;
use super::seal::EncryptError;
use super::tree::{Leaf, Scalar, walk};
use super::{Format, read, write};

/// Stands for everything that is encrypted.
const SEALED: &str = "ENC[]";

/// The text as anybody may read it once it is encrypted, without what SOPS adds.
pub(super) fn clear(plain: &str, format: Format, rule: &Rule) -> Result<String, EncryptError> {
    let mut document = read(plain, format)?;
    // By place, not by looks: a value that stays in clear may look like one that does not.
    walk(&mut document, &mut |leaf, place| {
        let is_comment = matches!(leaf, Leaf::Comment(_));
        if rule.selection.takes(&place, is_comment) {
            return Ok::<_, EncryptError>(Leaf::Scalar(Scalar::text(SEALED)));
        }
        Ok(leaf)
    })?;
    Ok(write(&document, format, rule.layout).expose().to_owned())
}
