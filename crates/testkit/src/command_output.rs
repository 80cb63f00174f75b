//! The output of a command, in the form that snapshots use.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl CommandOutput {
    /// Fails the test, with the whole output, unless the exit code is the expected one.
    #[track_caller]
    #[must_use]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }
}

/// Standard output, then standard error, then the exit code; times and digests are normalised.
impl fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&level(&self.stdout))?;
        if !self.stderr.is_empty() {
            write!(f, "── stderr\n{}", level(&self.stderr))?;
        }
        match self.code {
            Some(0) => Ok(()),
            Some(code) => write!(f, "[exit {code}]"),
            None => f.write_str("[killed]"),
        }
    }
}

/// Normalises clocks (`00:41` to `00:00`) and durations (`in 1 m 03 s` to `in 0 s`), so that texts compare equal.
pub fn level(text: &str) -> String {
    text.lines().map(|line| level_line(line) + "\n").collect()
}

fn level_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        let starts_span =
            matches!(word, "in" | "after") && words.get(at + 1).is_some_and(|next| is_number(next));
        if starts_span {
            let mut end = at + 1;
            while words.get(end).is_some_and(|number| is_number(number))
                && words.get(end + 1).is_some_and(|unit| is_unit(unit))
            {
                end += 2;
            }
            if end > at + 1 {
                let last = words[end - 1];
                let tail = &last[last
                    .find(|c: char| !c.is_ascii_alphabetic())
                    .unwrap_or(last.len())..];
                out.push(format!("{word} 0 s{tail}"));
                at = end;
                continue;
            }
        }
        out.push(if is_clock(word) {
            "00:00".to_owned()
        } else {
            word.to_owned()
        });
        at += 1;
    }
    out.join(" ").trim_end().to_owned()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn is_unit(word: &str) -> bool {
    let letters: String = word.chars().take_while(char::is_ascii_alphabetic).collect();
    matches!(letters.as_str(), "s" | "m" | "h" | "ms")
}

fn is_clock(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    parts.len() == 2 && parts.iter().all(|part| part.len() == 2 && is_number(part))
}
