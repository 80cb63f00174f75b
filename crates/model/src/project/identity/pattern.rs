//! A pattern for claims: `*` matches anything except `/`, and `**` matches anything. So `release/*` does not match
//! `release/a/b`, and `example/*` does not match a repository of another owner.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Exactly(char),
    /// Any sequence of characters, including `/` only if it may cross them.
    Any {
        crosses: bool,
    },
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '*' {
                parts.push(Part::Exactly(c));
                continue;
            }
            let mut crosses = false;
            while chars.next_if_eq(&'*').is_some() {
                crosses = true;
            }
            parts.push(Part::Any { crosses });
        }
        Self(parts)
    }

    /// Whether it restricts nothing: it contains no letter and no digit besides its stars.
    pub fn is_free(&self) -> bool {
        let says = |part: &Part| matches!(part, Part::Exactly(c) if c.is_alphanumeric());
        !self.0.is_empty() && !self.0.iter().any(says)
    }

    /// Whether it determines one owner: a literal text, or one that is literal at least up to its first `/`.
    pub fn names_an_owner(&self) -> bool {
        let star = |part: &Part| matches!(part, Part::Any { .. });
        let mut start = self.0.iter().take_while(|part| !star(part));
        start.any(|part| *part == Part::Exactly('/')) || !self.0.iter().any(star)
    }

    pub fn fits(&self, text: &str) -> bool {
        // `reached[n]`: the first n parts match the text so far.
        let mut reached = vec![false; self.0.len() + 1];
        reached[0] = true;
        self.skip_empty(&mut reached);
        for c in text.chars() {
            let mut next = vec![false; self.0.len() + 1];
            for (n, part) in self.0.iter().enumerate() {
                match part {
                    Part::Exactly(wanted) => next[n + 1] |= reached[n] && *wanted == c,
                    Part::Any { crosses } => {
                        next[n + 1] |= reached[n + 1] && (*crosses || c != '/');
                    }
                }
            }
            self.skip_empty(&mut next);
            reached = next;
        }
        reached[self.0.len()]
    }

    /// `*` also matches the empty text.
    fn skip_empty(&self, reached: &mut [bool]) {
        for (n, part) in self.0.iter().enumerate() {
            if matches!(part, Part::Any { .. }) && reached[n] {
                reached[n + 1] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_met_by_itself_only() {
        let fits = |pattern: &str, text: &str| Pattern::new(pattern).fits(text);
        assert!(fits("refs/heads/main", "refs/heads/main"));
        for other in [
            "",
            "refs/heads/main2",
            "xrefs/heads/main",
            "refs/heads/Main",
            "refs/heads/",
        ] {
            assert!(!fits("refs/heads/main", other), "{other}");
        }
        assert!(fits("", "") && !fits("", "a"));
        // No other character has a special meaning.
        assert!(fits("a?[b]{c}.", "a?[b]{c}.") && !fits("a?", "ab"));
    }

    #[test]
    fn stars() {
        let fits = |pattern: &str, text: &str| Pattern::new(pattern).fits(text);
        assert!(fits("refs/heads/release-*", "refs/heads/release-1.2"));
        assert!(fits("refs/heads/release-*", "refs/heads/release-"));
        assert!(!fits("refs/heads/*", "refs/heads/a/b"));
        assert!(fits("refs/heads/**", "refs/heads/a/b"));
        assert!(!fits("example/*", "example/infra/more"));
        assert!(!fits("example/*", "other/example/infra"));
        assert!(fits(
            "repo:example/*:ref:refs/heads/main",
            "repo:example/infra:ref:refs/heads/main"
        ));
        assert!(fits(
            "**:environment:prod",
            "repo:example/infra:environment:prod"
        ));
        assert!(fits("a*b*c", "aXbYbZc") && !fits("a*b*c", "aXbYbZ"));
    }

    #[test]
    fn a_long_pattern_is_answered_at_once() {
        let pattern = Pattern::new(&"*a".repeat(200));
        assert!(!pattern.fits(&"a".repeat(5000).replace("aaaaa", "aaaab")));
    }

    #[test]
    fn what_rules_nothing_out() {
        assert!(Pattern::new("*").is_free() && Pattern::new("**").is_free());
        assert!(Pattern::new("*/*").is_free() && Pattern::new("**:*").is_free());
        assert!(!Pattern::new("").is_free() && !Pattern::new("a*").is_free());
        for good in [
            "example/infra",
            "example/*",
            "example",
            "repo:example/*:ref:main",
        ] {
            assert!(Pattern::new(good).names_an_owner(), "{good}");
        }
        for open in ["exam*", "*/infra", "repo:*/infra:ref:main", "exam*/infra"] {
            assert!(!Pattern::new(open).names_an_owner(), "{open}");
        }
    }
}
