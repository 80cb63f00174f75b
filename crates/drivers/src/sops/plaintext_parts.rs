//! The parts of a text that stay in clear when it is encrypted: keys, values that the rule leaves out, and the
//! structure.

use super::rules::EncryptionRule;
use super::seal::EncryptError;
use super::tree::{Leaf, Scalar, walk};
use super::{SopsFormat, read, write};

/// Replaces every encrypted value.
const SEALED: &str = "ENC[]";

/// The text as anyone can read it once it is encrypted, without the SOPS metadata.
pub(super) fn clear(
    plain: &str,
    format: SopsFormat,
    rule: &EncryptionRule,
) -> Result<String, EncryptError> {
    let mut document = read(plain, format)?;
    // Decide by path, not by content: a plain value may look like an encrypted one.
    walk(&mut document, &mut |leaf, place| {
        let is_comment = matches!(leaf, Leaf::Comment(_));
        if rule.selection.takes(&place, is_comment) {
            return Ok::<_, EncryptError>(Leaf::Scalar(Scalar::text(SEALED)));
        }
        Ok(leaf)
    })?;
    Ok(write(&document, format, rule.layout).expose().to_owned())
}
