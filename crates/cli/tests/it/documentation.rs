//! README, guides and examples can be followed: their `console` blocks are run, one page in one shell, in a scratch
//! project; every other `terrane` command in them is read by the real argument parser. CONTRIBUTING.md has the rules.
//!
//! Not here: reference pages that code writes (`xtask docs`), links (`xtask tidy`).

mod page;
mod shell;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use testkit::{AgeKey, TestTerrane};

use crate::project::terrane;
use page::{Command, Page};

fn repository() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the repository's root")
}

/// README, every guide, every example.
fn pages() -> Vec<Page> {
    let below = |dir: &'static str| {
        let entries = std::fs::read_dir(repository().join(dir)).expect("a directory");
        entries.map(move |entry| Path::new(dir).join(entry.expect("an entry").file_name()))
    };
    let examples = below("examples").map(|dir| dir.join("README.md"));
    let mut paths: Vec<PathBuf> = below("docs/guide").chain(examples).collect();
    paths.push("README.md".into());
    paths.retain(|path| path.extension().is_some_and(|it| it == "md"));
    paths.sort();
    assert!(paths.len() > 10, "the pages were not found: {paths:?}");
    paths
        .iter()
        .map(|path| Page::read(repository(), path))
        .collect()
}

#[test]
fn every_console_block_works_in_a_scratch_project() {
    let mut failures = String::new();
    for page in pages() {
        for command in page.unmarked() {
            let at = page.at(&command);
            let _ = writeln!(
                failures,
                "{at}: a command of a `console` block begins with `$ `"
            );
        }
        let commands = page.console();
        // The README brings its own home and project.
        if commands.is_empty() || page.path == "README.md" {
            continue;
        }
        let test = scratch(&page);
        if let Err(failure) = run(&test, &page, &commands, &test.project()) {
            let _ = writeln!(failures, "{failure}");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn the_tour_of_the_readme_works_and_leaves_nothing_behind() {
    let page = Page::read(repository(), Path::new("README.md"));
    let commands = page.console();
    assert!(commands.len() > 10, "{} commands", commands.len());
    let test = terrane().without_env("TERRANE_HOME");
    let key = test.root().join("user/.config/terrane/master.key");
    std::fs::remove_file(&key).unwrap();
    let said = run(&test, &page, &commands, repository());
    let said = said.unwrap_or_else(|failure| panic!("\n{failure}"));
    assert!(said.contains("web-production"), "{said}");
    assert!(!key.exists(), "a master key is left behind");
}

#[test]
fn every_terrane_command_can_be_parsed() {
    let mut failures = String::new();
    for page in pages() {
        for command in page.commands() {
            for words in shell::terrane_commands(&command.text) {
                if let Err(why) = parse(&words, command.is_inline) {
                    let _ = writeln!(failures, "{}: {why}", page.at(&command));
                }
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// A next step that cannot be typed sends a user in a circle.
#[test]
fn every_next_step_can_be_parsed() {
    let (mut failures, mut count) = (String::new(), 0);
    for_each_source(&mut |path, text| {
        for line in next_steps(text) {
            count += 1;
            for words in shell::terrane_commands(&line) {
                if let Err(why) = parse(&words, false) {
                    let _ = writeln!(failures, "{}: `{line}`: {why}", path.display());
                }
            }
        }
    });
    assert!(count > 60, "{count} next steps were found");
    assert!(failures.is_empty(), "\n{failures}");
}

/// The lines of `command("…", …)` and `command(format!("…"), …)`, with `X` for each value.
fn next_steps(text: &str) -> Vec<String> {
    let steps = text.split("command(").skip(1).filter_map(|rest| {
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
        let rest = rest.strip_prefix('"')?.replace("\\\"", "'");
        let line = rest.split('"').next()?;
        let mut parts = line.split('{');
        let mut whole = format!("terrane {}", parts.next()?);
        for part in parts {
            let (_, rest) = part.split_once('}')?;
            whole.push('X');
            whole.push_str(rest);
        }
        Some(whole)
    });
    steps.collect()
}

#[test]
fn every_variable_of_the_environment_is_documented() {
    let documented = std::fs::read_to_string(repository().join("docs/reference/environment.md"));
    let documented = documented.expect("docs/reference/environment.md");
    let mut names = BTreeSet::new();
    for_each_source(&mut |_, text| variables(text, &mut names));
    assert!(names.contains("TERRANE_HOME"), "{names:?}");
    let is_missing = |name: &&String| !documented.contains(&format!("`{name}`"));
    let missing: Vec<&String> = names.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "docs/reference/environment.md does not name {missing:?}"
    );
}

/// A copy of what the page's `<!-- console: DIR -->` names; an example's own directory; else the quickstart.
fn scratch(page: &Page) -> TestTerrane {
    let test = terrane();
    let key = test.root().join("age.key");
    AgeKey::generate().save(&key);
    let test = test.env("SOPS_AGE_KEY_FILE", &key.display().to_string());
    let own = Path::new(&page.path).parent();
    let own = own.and_then(|dir| dir.strip_prefix("examples").ok());
    let named = page.scratch().map(Path::new);
    let example = named
        .map(|dir| {
            dir.strip_prefix("examples")
                .expect("a directory in `examples`")
        })
        .or(own)
        .unwrap_or(Path::new("quickstart"));
    test.copy_example(example.to_str().expect("a name"));
    test
}

/// Runs the commands in one shell, in this directory; fails with file, line, command and reason.
fn run(
    test: &TestTerrane,
    page: &Page,
    commands: &[Command],
    dir: &Path,
) -> Result<String, String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_terrane"));
    let mut script = format!(
        "exec 2>&1\ntrap 'jobs -p | xargs --no-run-if-empty kill' EXIT\nPATH={}:$PATH\ncd '{}'\n",
        binary.parent().expect("its directory").display(),
        dir.display()
    );
    for (number, command) in commands.iter().enumerate() {
        let _ = write!(
            script,
            "echo '@@ {number}'\n{}\nended=$?\n[ $ended = {} ] || {{ echo \"@@ exit $ended\"; exit 1; }}\n",
            command.text,
            command.exit()
        );
    }
    let said = test.shell(&script);
    if said.code == Some(0) {
        return Ok(said.stdout);
    }
    let last = said.stdout.rsplit("@@ ").find_map(|part| {
        let (number, output) = part.split_once('\n')?;
        Some((number.parse::<usize>().ok()?, output))
    });
    let (number, output) = last.unwrap_or((0, &said.stdout));
    let ended = said.stdout.trim_end().rsplit("@@ ").next();
    Err(format!(
        "{}: ended with {}, expected exit {}\n{output}{}",
        page.at(&commands[number]),
        ended.unwrap_or_default(),
        commands[number].exit(),
        said.stderr
    ))
}

/// Words in capitals and `…` stand for what a reader fills in.
fn is_placeholder(value: &str) -> bool {
    value.contains('…') || (!value.is_empty() && value.chars().all(|c| !c.is_lowercase()))
}

/// A word without the brackets that mark what may be left out: `[STACK…]`.
fn unbracketed(word: &str) -> &str {
    let word = word.strip_prefix('[').unwrap_or(word);
    let closed = word.strip_suffix(']').filter(|_| !word.contains('['));
    closed.unwrap_or(word)
}

/// What only names a command, in a sentence, need not be whole.
fn parse(words: &[String], is_inline: bool) -> Result<(), String> {
    let Err(err) = cli::Args::try_parse_from(words.iter().map(|word| unbracketed(word))) else {
        return Ok(());
    };
    let value = match err.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    let is_fine = match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::MissingRequiredArgument => is_inline,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => is_placeholder(value),
        _ => false,
    };
    if is_fine {
        return Ok(());
    }
    let message = err.render().to_string();
    let message = message.lines().next().unwrap_or_default();
    Err(message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .to_owned())
}

/// Every source of the product, without its tests.
fn for_each_source(see: &mut dyn FnMut(&Path, &str)) {
    for name in ["cli", "control", "drivers", "model", "server", "store"] {
        sources_below(&repository().join("crates").join(name).join("src"), see);
    }
}

fn sources_below(dir: &Path, see: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            sources_below(&path, see);
        } else if path.extension().is_some_and(|it| it == "rs") && !is_test {
            let text = std::fs::read_to_string(&path).expect("a source");
            see(&path, text.split("#[cfg(test)]").next().unwrap_or_default());
        }
    }
}

/// Names such as `TERRANE_HOME` in a source.
fn variables(text: &str, names: &mut BTreeSet<String>) {
    for (at, _) in text.match_indices("TERRANE_") {
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        let rest = &text[at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        // A prefix is the beginning of several.
        let is_whole = !name.ends_with('_') && !rest[name.len()..].starts_with('…');
        let is_ours = !name.starts_with("TERRANE_TEST") && !name.starts_with("TERRANE_BENCH");
        if is_whole && is_ours {
            names.insert(name.to_owned());
        }
    }
}
