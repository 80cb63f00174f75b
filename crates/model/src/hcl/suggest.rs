//! "Did you mean": suggests the most similar valid word.

/// The maximum number of candidates to compare.
const MAX_CANDIDATES: usize = 2000;

/// The candidate that is most similar to `seen`, if it is similar enough.
pub fn nearest<'a>(seen: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match seen.chars().count() {
        0 | 1 => return None,
        length => (length / 3).clamp(1, 3),
    };
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        // Long words are not typos, and the cost of comparing grows with the product of the lengths.
        .filter(|word| word.len() <= 48 && seen.len() <= 48)
        .map(|word| (rank(seen, word), word))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// A hint that names the most similar word, or all words if there are few.
pub(crate) fn hint<'a>(
    seen: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let all: Vec<&str> = candidates.into_iter().take(MAX_CANDIDATES).collect();
    if let Some(word) = nearest(seen, all.iter().copied()) {
        return Some(format!("did you mean `{word}`?"));
    }
    (1..=24).contains(&all.len()).then(|| {
        format!(
            "there {} {}",
            if all.len() == 1 { "is" } else { "are" },
            list(&all)
        )
    })
}

/// `a`, `b` and `c`.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A word that starts with the other one is similar too: `subnet` for `subnet_id`.
fn rank(seen: &str, word: &str) -> usize {
    let begins =
        seen.len() >= 3 && (word.starts_with(seen) || seen.starts_with(word) && word.len() >= 3);
    // Swapping two adjacent characters counts as one edit.
    let distance = strsim::osa_distance(seen, word);
    if begins { distance.min(1) } else { distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let words = ["path", "target", "layer", "labels"];
        assert_eq!(nearest("paht", words), Some("path"));
        assert_eq!(nearest("label", words), Some("labels"));
        assert_eq!(nearest("engine", words), None);
        assert_eq!(nearest("subnet", ["subnet_id", "nodes"]), Some("subnet_id"));
    }
}
