//! What changed between two texts, line by line.

/// Above this size an exact diff takes too long: everything between the common ends is shown as replaced.
const MOST_CELLS: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffLine<'a> {
    Same(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The lines of both texts in one sequence, with as few changed ones as possible.
pub(crate) fn lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let old: Vec<&str> = before.split_terminator('\n').collect();
    let new: Vec<&str> = after.split_terminator('\n').collect();
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..]
        .iter()
        .rev()
        .zip(new[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut all: Vec<DiffLine<'a>> = old[..start]
        .iter()
        .map(|line| DiffLine::Same(line))
        .collect();
    middle(
        &old[start..old.len() - end],
        &new[start..new.len() - end],
        &mut all,
    );
    all.extend(
        old[old.len() - end..]
            .iter()
            .map(|line| DiffLine::Same(line)),
    );
    all
}

/// Walks the table of longest common subsequences.
fn middle<'a>(old: &[&'a str], new: &[&'a str], all: &mut Vec<DiffLine<'a>>) {
    let columns = new.len() + 1;
    if (old.len() + 1).saturating_mul(columns) > MOST_CELLS {
        all.extend(old.iter().map(|line| DiffLine::Old(line)));
        all.extend(new.iter().map(|line| DiffLine::New(line)));
        return;
    }
    // `common[a * columns + b]`: how many lines the ends from `a` and from `b` have in common.
    let mut common = vec![0_u32; (old.len() + 1) * columns];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            common[a * columns + b] = if old[a] == new[b] {
                common[(a + 1) * columns + b + 1] + 1
            } else {
                common[(a + 1) * columns + b].max(common[a * columns + b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        let take_old = || common[(a + 1) * columns + b] >= common[a * columns + b + 1];
        if a < old.len() && b < new.len() && old[a] == new[b] {
            all.push(DiffLine::Same(old[a]));
            (a, b) = (a + 1, b + 1);
        } else if b == new.len() || (a < old.len() && take_old()) {
            all.push(DiffLine::Old(old[a]));
            a += 1;
        } else {
            all.push(DiffLine::New(new[b]));
            b += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, expected: &str) {
        let words = |line: &DiffLine<'_>| match line {
            DiffLine::Same(line) => format!(" {line}"),
            DiffLine::Old(line) => format!("-{line}"),
            DiffLine::New(line) => format!("+{line}"),
        };
        let seen: Vec<String> = lines(before, after).iter().map(words).collect();
        assert_eq!(seen.join("\n"), expected);
    }

    #[test]
    fn few_lines() {
        check("", "", "");
        check("a\nb\n", "a\nb\n", " a\n b");
        check("a\nb\nc\n", "a\nx\nc\n", " a\n-b\n+x\n c");
        check("a\nb\n", "a\nb\nc\n", " a\n b\n+c");
        check("a\nb\nc\nd\n", "b\nx\nd\n", "-a\n b\n-c\n+x\n d");
        check("a\na\n", "a\n", " a\n-a");
    }

    #[test]
    fn both_sides_can_be_told_apart_again() {
        let texts = [
            "",
            "a\n",
            "a\nb\nc\n",
            "c\nb\na\n",
            "b\nb\nb\na\n",
            "a\nc\na\nc\nb\n",
        ];
        for before in texts {
            for after in texts {
                let all = lines(before, after);
                let side = |keep_old: bool| -> String {
                    all.iter()
                        .filter_map(|line| match line {
                            DiffLine::Same(line) => Some(*line),
                            DiffLine::Old(line) => keep_old.then_some(*line),
                            DiffLine::New(line) => (!keep_old).then_some(*line),
                        })
                        .flat_map(|line| [line, "\n"])
                        .collect()
                };
                assert_eq!(
                    (side(true), side(false)),
                    (before.to_owned(), after.to_owned())
                );
            }
        }
    }

    #[test]
    fn huge_texts_are_bounded() {
        let text = |from: usize| {
            let lines: Vec<String> = (from..from + 3000).map(|n| n.to_string()).collect();
            lines.join("\n")
        };
        let (before, after) = (text(0), text(5000));
        let all = lines(&before, &after);
        assert_eq!(all.len(), 6000);
    }
}
