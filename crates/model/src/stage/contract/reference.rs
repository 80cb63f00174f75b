//! Resolves references inside a schema: by pointer, by anchor, or by the `$id` of a part.
//!
//! Not here: references to other documents, which are not followed.

use serde_json::Value;

/// The part that a node refers to. None without a reference, or if it does not resolve within the schema.
pub(super) fn referred<'a>(schema: &'a Value, node: &Value) -> Option<&'a Value> {
    let mut words = ["$ref", "$dynamicRef"].iter();
    let target = words.find_map(|word| node.get(*word)?.as_str())?;
    let (name, fragment) = target.split_once('#').unwrap_or((target, ""));
    let base = base_of(schema, "", node)?;
    let wanted = if name.is_empty() {
        base
    } else {
        joined(&base, name)
    };
    let resource = named(schema, "", &wanted)?;
    let fragment = decoded(fragment);
    if fragment.is_empty() || fragment.starts_with('/') {
        return resource.pointer(&fragment);
    }
    anchored(resource, &fragment, true)
}

/// The base URI of a node.
fn base_of(at: &Value, base: &str, node: &Value) -> Option<String> {
    let base = own_name(at, base);
    if std::ptr::eq(at, node) {
        return Some(base);
    }
    children(at).find_map(|child| base_of(child, &base, node))
}

/// The part with this URI; the whole schema if it has none.
fn named<'a>(at: &'a Value, base: &str, wanted: &str) -> Option<&'a Value> {
    let own = own_name(at, base);
    if own == wanted {
        return Some(at);
    }
    children(at).find_map(|child| named(child, &own, wanted))
}

/// The part with this anchor. A part with its own URI has its own anchors.
fn anchored<'a>(at: &'a Value, anchor: &str, is_first: bool) -> Option<&'a Value> {
    if !is_first && at.get("$id").is_some() {
        return None;
    }
    let is_it = |word: &str| at.get(word).and_then(Value::as_str) == Some(anchor);
    if ["$anchor", "$dynamicAnchor"].into_iter().any(is_it) {
        return Some(at);
    }
    children(at).find_map(|child| anchored(child, anchor, false))
}

fn own_name(at: &Value, base: &str) -> String {
    let id = at.get("$id").and_then(Value::as_str);
    let id = id.map(|id| id.trim_end_matches('#'));
    id.map_or_else(|| base.to_owned(), |id| joined(base, id))
}

fn children(at: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match at {
        Value::Object(fields) => Box::new(fields.values()),
        Value::Array(items) => Box::new(items.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(std::iter::empty())
        }
    }
}

/// Resolves a relative URI: `sub.json` relative to `https://x.io/s.json` is `https://x.io/sub.json`.
fn joined(base: &str, name: &str) -> String {
    if name.contains("://") || name.starts_with("urn:") {
        return name.to_owned();
    }
    let path = base.find("://").map_or(0, |at| {
        let host = at + 3;
        base[host..].find('/').map_or(base.len(), |at| host + at)
    });
    if name.starts_with('/') {
        return format!("{}{name}", &base[..path]);
    }
    let name = name.trim_start_matches("./");
    match base[path..].rfind('/') {
        Some(at) => format!("{}{name}", &base[..=path + at]),
        None if path > 0 => format!("{base}/{name}"),
        None => name.to_owned(),
    }
}

/// `%20` is a space.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = more.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = code.filter(|_| *first == b'%') {
            bytes.push(byte);
            rest = &more[2..];
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, name: &str, expected: &str) {
        assert_eq!(joined(base, name), expected);
    }

    #[test]
    fn names_beside_names() {
        check(
            "https://x.io/a/s.json",
            "sub.json",
            "https://x.io/a/sub.json",
        );
        check(
            "https://x.io/a/s.json",
            "/sub.json",
            "https://x.io/sub.json",
        );
        check("https://x.io", "sub.json", "https://x.io/sub.json");
        check("https://x.io/s.json", "urn:x:y", "urn:x:y");
        check("s.json", "sub.json", "sub.json");
        check("", "./sub.json", "sub.json");
        check("/a/s.json", "sub.json", "/a/sub.json");
    }
}
