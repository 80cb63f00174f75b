//! File and object names, safe for any name of a state.

use model::state::StateName;

use crate::crypto::{hex, sha256};

/// A state's directory: safe for any name, on case-insensitive file systems too, and different for every two states.
pub(crate) fn state_dir(state: &StateName) -> String {
    let name = encode(&state.name);
    if state.project.is_empty() {
        name
    } else {
        format!("{}~{name}", encode(&state.project))
    }
}

/// Longer names end in a digest: a file name has at most 255 bytes.
const LONGEST_ENCODED: usize = 120;

/// Any text as a safe file name.
pub fn encode(raw: &str) -> String {
    let mut encoded = String::with_capacity(raw.len());
    for byte in raw.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex(&[byte]));
        }
    }
    if encoded.is_empty() {
        return "%".to_owned();
    }
    if encoded.len() <= LONGEST_ENCODED {
        return encoded;
    }
    let digest = hex(&sha256(raw.as_bytes()));
    let start = LONGEST_ENCODED - 36;
    format!("{}%%{}", &encoded[..start], &digest[..32])
}

/// The state that a directory belongs to, unless its name was too long to be kept.
pub(crate) fn state_of_dir(dir: &str) -> Option<StateName> {
    let (project, name) = dir.split_once('~').unwrap_or(("%", dir));
    Some(StateName::new(decode(project)?, decode(name)?))
}

fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    if encoded == "%" {
        return Some(String::new());
    }
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(project: &str, name: &str, expected: &str) {
        let state = StateName::new(project, name);
        assert_eq!(state_dir(&state), expected);
        let named = (!expected.contains("%%")).then_some(state);
        assert_eq!(state_of_dir(expected), named);
    }

    #[test]
    fn directories_of_states() {
        check("", "network", "network");
        check("p-1", "network", "p-1~network");
        check("", "../etc/passwd", "%2e%2e%2fetc%2fpasswd");
        check("", "Prod", "%50rod");
        check("a~b", "c", "a%7eb~c");
        check("", "ü", "%c3%bc");
        check("", "", "%");
        check(
            "",
            &"x".repeat(300),
            &format!("{}%%0d4e2ca9e9cbced7a7a5380eb29e1a37", "x".repeat(84)),
        );
    }
}
