//! Valid names of namespaces and entries.

/// Whether the text is a valid namespace name.
pub fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether the text is a valid key in a Secret or a `ConfigMap`.
pub fn is_key(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(plain) && text != "." && text != ".."
}
