//! As much of the shell's grammar as documentation uses: words, quotes, comments, and what stands between commands.

/// The words of each `terrane` command in a line of shell.
pub(super) fn terrane_commands(line: &str) -> Vec<Vec<String>> {
    let is_setting = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let mut found = Vec::new();
    for words in commands(line) {
        let words: Vec<String> = words.into_iter().skip_while(is_setting).collect();
        if words.first().is_some_and(|word| word == "terrane") {
            found.push(words);
        }
    }
    found
}

fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut is_redirected) = (None::<String>, None, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '(' | ')' | '<' | '>') => {
                if let Some(word) = word.take().filter(|word| !is_redirection(word, c))
                    && !std::mem::take(&mut is_redirected)
                {
                    all.last_mut().expect("a command").push(word);
                }
                match c {
                    ' ' => {}
                    '<' | '>' => is_redirected = true,
                    _ => all.push(Vec::new()),
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(word) = word.filter(|_| !is_redirected) {
        all.last_mut().expect("a command").push(word);
    }
    all
}

/// The `2` of `2>`, the `$` of `$(`.
fn is_redirection(word: &str, next: char) -> bool {
    (next == '>' && word == "2") || (next == '(' && word == "$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let found = terrane_commands(line);
        let found: Vec<String> = found.iter().map(|words| words.join("·")).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn commands_are_found_in_lines_of_shell() {
        check("terrane plan web --full", &["terrane·plan·web·--full"]);
        check(
            "terrane lock break a --reason \"a b\"  # c",
            &["terrane·lock·break·a·--reason·a b"],
        );
        check("terrane plan | less; echo terrane", &["terrane·plan"]);
        check(
            "A=b terrane run list && terrane apply",
            &["terrane·run·list", "terrane·apply"],
        );
        check(
            "x=$(terrane output a --raw) 2> log",
            &["terrane·output·a·--raw"],
        );
        check(
            "terrane state pull a > a.tfstate",
            &["terrane·state·pull·a"],
        );
        check("git commit -m terrane", &[]);
    }
}
