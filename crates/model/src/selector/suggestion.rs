//! The known name a mistyped one most likely means.

/// The nearest of `known`, if it is near enough to be a slip: a third of its letters at most.
pub(super) fn nearest(word: &str, known: impl Iterator<Item = impl AsRef<str>>) -> Option<String> {
    known
        .map(|name| (distance(word, name.as_ref()), name))
        .filter(|(distance, name)| *distance <= (name.as_ref().len().max(word.len()) / 3).max(1))
        .min_by(|(one, a), (other, b)| (one, a.as_ref()).cmp(&(other, b.as_ref())))
        .map(|(_, name)| name.as_ref().to_owned())
}

/// Letters to add, drop, change or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let changed = usize::from(from[i - 1] != to[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + changed);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}
