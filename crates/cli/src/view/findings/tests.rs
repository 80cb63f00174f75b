//! Findings as they are seen, whole.

use std::collections::BTreeMap;

use model::base::diagnostic::{Finding, Location};

use super::*;
use crate::view::color_tags::tagged;

const FILE: &str = "terrane.hcl";

/// The place of the first `words` in the text.
fn place(text: &str, words: &str) -> Location {
    let start = text.find(words).expect("the words are in the text");
    span(text, start, start + words.len())
}

fn span(text: &str, start: usize, end: usize) -> Location {
    let before = &text[..start];
    Location {
        file: FILE.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before.rsplit('\n').next().unwrap_or("").chars().count() + 1,
        start,
        end,
    }
}

fn seen(findings: &[Finding], text: &str, look: ViewOptions) -> String {
    render(
        findings,
        &BTreeMap::from([(FILE.to_owned(), text.to_owned())]),
        look,
    )
}

/// One error at the first `words` of the text, 80 columns wide.
fn marked(text: &str, words: &str) -> String {
    let finding = Finding::error("test", "this is wrong").at(place(text, words), "here");
    seen(&[finding], text, ViewOptions::plain(80))
}

const PROJECT: &str = r#"stack "network" {
  dir = "infra/azure/network"
}

stack "k8s-prod" {
  dir    = "infra/azure/cluster"
  inputs = { subnet = stack.network.output.subnet_id }
}
"#;

fn unknown_input() -> Finding {
    Finding::error("unknown-input", "stack `k8s-prod` has no input `subnet`")
        .at(
            place(PROJECT, "subnet"),
            "the module in `infra/azure/cluster` declares no such variable",
        )
        .hint("it declares `subnet_id` (string, required)")
}

fn circle() -> Finding {
    let at = |line, column| Location {
        file: FILE.to_owned(),
        line,
        column,
        start: 0,
        end: 0,
    };
    Finding::error("cycle", "stacks depend on each other in a circle")
        .at(at(12, 12), "`dns` needs an output of `gateway`")
        .at(at(22, 12), "`gateway` needs an output of `cluster`")
        .at(at(131, 2), "`cluster` waits for `dns`")
}

#[test]
fn mistakes_in_a_project_file() {
    insta::assert_snapshot!(seen(&[unknown_input(), circle()], PROJECT, ViewOptions::plain(100)), @"
    error: stack `k8s-prod` has no input `subnet`
      --> terrane.hcl:7:14
       |
     7 |   inputs = { subnet = stack.network.output.subnet_id }
       |              ^^^^^^ the module in `infra/azure/cluster` declares no such variable
       |
       = hint: it declares `subnet_id` (string, required)

    error: stacks depend on each other in a circle
      --> terrane.hcl:12:12   `dns` needs an output of `gateway`
      --> terrane.hcl:22:12   `gateway` needs an output of `cluster`
      --> terrane.hcl:131:2   `cluster` waits for `dns`

    2 errors in terrane.hcl
    ");
}

#[test]
fn colours() {
    let look = ViewOptions {
        color: true,
        ..ViewOptions::plain(100)
    };
    insta::assert_snapshot!(tagged(&seen(&[unknown_input(), circle()], PROJECT, look)), @"
    <bold red>error:</> <bold>stack `k8s-prod` has no input `subnet`</>
      <faint>--></> terrane.hcl:7:14
    <faint>   |</>
    <faint> 7 |</>   inputs = { subnet = stack.network.output.subnet_id }
    <faint>   |</>              <bold red>^^^^^^</> the module in `infra/azure/cluster` declares no such variable
    <faint>   |</>
       <faint>=</> <bold cyan>hint:</> it declares `subnet_id` (string, required)

    <bold red>error:</> <bold>stacks depend on each other in a circle</>
      <faint>--></> terrane.hcl:12:12   `dns` needs an output of `gateway`
      <faint>--></> terrane.hcl:22:12   `gateway` needs an output of `cluster`
      <faint>--></> terrane.hcl:131:2   `cluster` waits for `dns`

    2 errors in terrane.hcl
    ");
}

#[test]
fn worst_first_and_notes_in_one_line() {
    let findings = [
        Finding::note("not-yet", "block `drift` is checked, but has no effect yet")
            .at(place(PROJECT, "stack"), ""),
        Finding::warning("path-cwd", "`path.cwd` differs between machines")
            .at(
                Location {
                    file: "infra/main.tf".to_owned(),
                    line: 3,
                    column: 9,
                    start: 40,
                    end: 48,
                },
                "",
            )
            .hint("use `path.module`"),
        Finding::error("no-stacks", "the project has no stacks")
            .hint("`terrane init` proposes some"),
        unknown_input(),
    ];
    insta::assert_snapshot!(seen(&findings, PROJECT, ViewOptions::ascii(100)), @"
    error: the project has no stacks
      = hint: `terrane init` proposes some

    error: stack `k8s-prod` has no input `subnet`
      --> terrane.hcl:7:14
       |
     7 |   inputs = { subnet = stack.network.output.subnet_id }
       |              ^^^^^^ the module in `infra/azure/cluster` declares no such variable
       |
       = hint: it declares `subnet_id` (string, required)

    warning: `path.cwd` differs between machines
      --> infra/main.tf:3:9
      = hint: use `path.module`

    note: block `drift` is checked, but has no effect yet   terrane.hcl:1:1

    2 errors and 1 warning in 2 files
    ");
}

#[test]
fn notes_alone_are_not_counted() {
    let note = Finding::note(
        "home",
        "the project has no `id`: only worktrees of this clone share its state",
    )
    .hint("`terrane init` writes one");
    insta::assert_snapshot!(seen(&[note], PROJECT, ViewOptions::plain(60)), @"
    note: the project has no `id`: only worktrees of this clone
          share its state
      = hint: `terrane init` writes one
    ");
}

#[test]
fn nothing_found_nothing_said() {
    assert_eq!(render(&[], &BTreeMap::new(), ViewOptions::plain(80)), "");
}

#[test]
fn a_long_label_goes_below() {
    insta::assert_snapshot!(seen(&[unknown_input()], PROJECT, ViewOptions::plain(60)), @"
    error: stack `k8s-prod` has no input `subnet`
      --> terrane.hcl:7:14
       |
     7 |   inputs = { subnet = stack.network.output.subnet_id }
       |              ^^^^^^
       |              the module in `infra/azure/cluster`
       |              declares no such variable
       |
       = hint: it declares `subnet_id` (string, required)

    1 error in terrane.hcl
    ");
}

#[test]
fn tabs_and_wide_characters() {
    insta::assert_snapshot!(marked("\tname\t= \"東京\" + 値 # x\n", "値"), @r#"
    error: this is wrong
      --> terrane.hcl:1:16
       |
     1 |     name    = "東京" + 値 # x
       |                        ^^ here

    1 error in terrane.hcl
    "#);
}

#[test]
fn line_ends_of_another_system() {
    insta::assert_snapshot!(marked("a = 1\r\nb = two\r\nc = 3\r\n", "two"), @"
    error: this is wrong
      --> terrane.hcl:2:5
       |
     2 | b = two
       |     ^^^ here

    1 error in terrane.hcl
    ");
}

#[test]
fn a_long_line_is_cut_around_its_caret() {
    let text = format!("{} wrong {}\n", "before ".repeat(60), "after ".repeat(600));
    insta::assert_snapshot!(marked(&text, "wrong"), @"
    error: this is wrong
      --> terrane.hcl:1:422
       |
     1 | …e before before before  wrong after after after after after after after a…
       |                          ^^^^^ here

    1 error in terrane.hcl
    ");
}

#[test]
fn a_long_line_with_its_caret_at_the_start() {
    let text = format!("wrong {}\n", "after ".repeat(60));
    insta::assert_snapshot!(marked(&text, "wrong"), @"
    error: this is wrong
      --> terrane.hcl:1:1
       |
     1 | wrong after after after after after after after after after after after af…
       | ^^^^^ here

    1 error in terrane.hcl
    ");
}

#[test]
fn a_long_line_with_its_caret_at_the_end() {
    let text = format!("{} wrong", "before ".repeat(600));
    insta::assert_snapshot!(marked(&text, "wrong"), @"
    error: this is wrong
      --> terrane.hcl:1:4202
       |
     1 | …ore before before before before before before before before before  wrong
       |                                                                      ^^^^^
       |   here

    1 error in terrane.hcl
    ");
}

#[test]
fn a_long_line_of_wide_characters() {
    let text = format!("{} wrong {}", "東京".repeat(60), "東京".repeat(60));
    insta::assert_snapshot!(marked(&text, "wrong"), @"
    error: this is wrong
      --> terrane.hcl:1:122
       |
     1 | …京東京東京東京東京東京 wrong 東京東京東京東京東京東京東京東京東京東京東京…
       |                         ^^^^^ here

    1 error in terrane.hcl
    ");
}

#[test]
fn a_span_of_a_few_lines() {
    insta::assert_snapshot!(marked(PROJECT, "stack \"network\" {\n  dir = \"infra/azure/network\"\n}"), @r#"
    error: this is wrong
      --> terrane.hcl:1:1
       |
     1 | > stack "network" {
     2 | >   dir = "infra/azure/network"
     3 | > }
       |   here

    1 error in terrane.hcl
    "#);
}

#[test]
fn a_span_of_many_lines() {
    insta::assert_snapshot!(marked(PROJECT, PROJECT.trim_end()), @r#"
    error: this is wrong
      --> terrane.hcl:1:1
       |
     1 | > stack "network" {
     2 | >   dir = "infra/azure/network"
     3 | > }
       | …
     8 | > }
       |   here

    1 error in terrane.hcl
    "#);
}

#[test]
fn the_end_of_the_file() {
    let text = "stack \"a\" {\n";
    let finding = Finding::error("syntax", "the file ends inside of a block")
        .at(span(text, text.len(), text.len()), "a `}` is missing");
    insta::assert_snapshot!(seen(&[finding], text, ViewOptions::plain(80)), @"
    error: the file ends inside of a block
      --> terrane.hcl:2:1
       |
     2 |
       | ^ a `}` is missing

    1 error in terrane.hcl
    ");
}

#[test]
fn harmful_text_is_harmless() {
    insta::assert_snapshot!(marked("a = \"\x1b[2J\u{202e}\" wrong\n", "wrong"), @r#"
    error: this is wrong
      --> terrane.hcl:1:13
       |
     1 | a = "\u001b[2J\u202e" wrong
       |                       ^^^^^ here

    1 error in terrane.hcl
    "#);
}

#[test]
fn offsets_that_do_not_fit_the_line() {
    let at = Location {
        file: FILE.to_owned(),
        line: 2,
        column: 3,
        start: 999,
        end: 1200,
    };
    let finding = Finding::error("test", "this is wrong").at(at, "here");
    insta::assert_snapshot!(seen(&[finding], PROJECT, ViewOptions::plain(80)), @r#"
    error: this is wrong
      --> terrane.hcl:2:3
       |
     2 |   dir = "infra/azure/network"
       |   ^ here

    1 error in terrane.hcl
    "#);
}

#[test]
fn every_span_of_a_difficult_text_can_be_shown() {
    let text = "a\t値\r\n\n\u{feff}東\x1b é\n\nend";
    let offsets: Vec<usize> = (0..=text.len())
        .filter(|at| text.is_char_boundary(*at))
        .collect();
    for start in &offsets {
        for end in offsets.iter().filter(|end| *end >= start) {
            for width in [0, 30, 80, usize::MAX] {
                let finding = Finding::error("test", "wrong").at(span(text, *start, *end), "here");
                let shown = seen(&[finding], text, ViewOptions::plain(width));
                assert!(shown.contains("here"), "{start}..{end}: {shown}");
                assert!(!shown.contains('\x1b'), "{start}..{end}: {shown}");
            }
        }
    }
}

#[test]
fn the_caret_stands_below_what_is_marked() {
    let line: String = (0..200)
        .map(|n| ["a", "東", "é", "b\t", "x"][n % 5])
        .collect();
    for (start, marked) in line.char_indices().filter(|(_, c)| *c != '\t') {
        for look in [ViewOptions::plain(60), ViewOptions::ascii(33)] {
            let end = start + marked.len_utf8();
            let finding = Finding::error("test", "wrong").at(span(&line, start, end), "");
            let shown = seen(&[finding], &line, look);
            let rows: Vec<&str> = shown.lines().collect();
            assert!(
                rows.iter().all(|row| text::width(row) <= look.width),
                "{shown}"
            );
            let caret = rows[4].find('^').unwrap();
            let below = text::head(rows[3], caret);
            assert_eq!(
                rows[3][below.len()..].chars().next(),
                Some(marked),
                "{shown}"
            );
        }
    }
}

#[test]
fn the_same_as_data() {
    insta::assert_json_snapshot!(findings_json(&[unknown_input()]), @r#"
    {
      "errors": 1,
      "warnings": 0,
      "notes": 0,
      "findings": [
        {
          "severity": "error",
          "code": "unknown-input",
          "message": "stack `k8s-prod` has no input `subnet`",
          "places": [
            {
              "file": "terrane.hcl",
              "line": 7,
              "column": 14,
              "start": 116,
              "end": 122,
              "label": "the module in `infra/azure/cluster` declares no such variable"
            }
          ],
          "hint": "it declares `subnet_id` (string, required)"
        }
      ]
    }
    "#);
}
