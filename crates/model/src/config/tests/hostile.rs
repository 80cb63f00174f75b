//! Five megabytes of malice: an error or a project, never a panic, never a hang. Each case runs on a
//! thread with the usual 2 MB stack.

use super::*;

const SIZE: usize = 5 * 1024 * 1024 - 64;

/// Loads a hostile file as project file and as module, and gives the codes that were found.
#[track_caller]
fn check_hostile(name: &str, bytes: Vec<u8>) -> String {
    let run = move || {
        let mut tree = tree("== m/main.tf\nvariable \"x\" {}\n");
        tree.insert("terrane.hcl", bytes.clone());
        let project = codes(&load_tree(&tree));
        let mut tree = super::tree(&format!(
            "{BASE}stack \"s\" {{\n path = \"m\"\n target = \"t\"\n layer = \"low\"\n}}\n"
        ));
        tree.insert("m/main.tf", bytes);
        format!("{project} | {}", codes(&load_tree(&tree)))
    };
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run)
        .unwrap();
    format!("{name}: {}\n", thread.join().unwrap())
}

fn codes(loaded: &Loaded) -> String {
    let codes: BTreeSet<&str> = loaded.findings.iter().map(|finding| finding.code).collect();
    codes.into_iter().collect::<Vec<_>>().join(" ")
}

fn repeated(head: &str, unit: &str, tail: &str) -> Vec<u8> {
    let count = (SIZE - head.len() - tail.len()) / unit.len();
    format!("{head}{}{tail}", unit.repeat(count)).into_bytes()
}

#[test]
fn deep_nesting_is_refused() {
    let mut out = String::new();
    for (name, unit) in [
        ("brackets", "["),
        ("braces", "{a="),
        ("parentheses", "("),
        ("calls", "f("),
        ("templates", "\"${"),
        ("directives", "\"%{if true}"),
        ("minus", "-"),
        ("not", "!"),
        ("conditionals", "a?"),
        ("conditionals in a row", "a?b:"),
        ("operators", "1+"),
        ("indexes", "a["),
        ("for", "[for a in "),
    ] {
        out += &check_hostile(name, repeated("x = ", unit, ""));
    }
    out += &check_hostile("blocks", repeated("", "b {\n", ""));
    out += &check_hostile("heredocs", repeated("x = ", "<<E\n${", ""));
    insta::assert_snapshot!(out, @"");
}

#[test]
fn long_things_are_read_or_refused() {
    let mut out = String::new();
    for (name, head, unit, tail) in [
        ("string", "x = \"", "a", "\"\n"),
        ("unterminated string", "x = \"", "a", ""),
        ("number", "x = ", "1", "\n"),
        ("word", "", "a", " = 1\n"),
        ("traversal", "x = a", ".b", "\n"),
        ("comment", "/*", " *", "/\n"),
        ("unterminated comment", "/*", "a", ""),
        ("comments", "", "#\n", ""),
        ("empty lines", "", "\r\n", ""),
        ("spaces", "", " ", ""),
        ("list", "x = [", "1,", "]\n"),
        ("splats", "x = a", "[*]", "\n"),
        ("blocks", "", "b {}\n", ""),
        ("stacks", "", "stack \"a\" {}\n", ""),
        ("escapes", "x = \"", "\\n", "\"\n"),
        ("markers", "x = \"", "$${", "\"\n"),
        ("labels", "b ", "\"a\" ", "{}\n"),
    ] {
        out += &check_hostile(name, repeated(head, unit, tail));
    }
    insta::assert_snapshot!(out, @"");
}

#[test]
fn many_different_names_do_not_take_square_time() {
    let mut out = String::new();
    let numbered = |head: &str, tail: &str, each: &dyn Fn(usize) -> String| {
        let mut text = head.to_owned();
        let mut at = 0;
        while text.len() < SIZE - 128 {
            text += &each(at);
            at += 1;
        }
        (text + tail).into_bytes()
    };
    out += &check_hostile(
        "object keys",
        numbered("x = {\n", "}\n", &|n| format!("k{n}=1\n")),
    );
    out += &check_hostile(
        "object keys in for",
        numbered("x = [for a in {\n", "} : a]\n", &|n| format!("k{n}=1\n")),
    );
    out += &check_hostile("attributes", numbered("", "", &|n| format!("k{n}=1\n")));
    out += &check_hostile(
        "stack attributes",
        numbered("stack \"a\" {\n", "}\n", &|n| format!("k{n}=1\n")),
    );
    out += &check_hostile(
        "stacks",
        numbered("", "", &|n| {
            format!(
                "stack \"s{n}\" {{\n path=\"m\"\n after=[stack.s{}]\n}}\n",
                n + 1
            )
        }),
    );
    out += &check_hostile(
        "variables",
        numbered("", "", &|n| format!("variable \"v{n}\" {{}}\n")),
    );
    out += &check_hostile(
        "calls",
        numbered("", "", &|n| {
            format!("module \"m{n}\" {{ source = \"./x\" }}\n")
        }),
    );
    out += &check_hostile(
        "references",
        numbered("project \"p\" {\n platforms = [", "]\n}\n", &|n| {
            format!("nam{n},")
        }),
    );
    insta::assert_snapshot!(out, @"");
}

#[test]
fn loops_are_bounded() {
    let list = format!("[{}]", vec!["1"; 200].join(","));
    let nested = format!(
        "project \"p\" {{\n  platforms = [for a in {list} : [for b in {list} : [for c in {list} : [for d in {list} : a]]]]\n}}\n"
    );
    let doubling = format!(
        "project \"p\" {{\n  id = {}\n}}\n",
        "replace(".repeat(20) + "\"aa\"" + &", \"a\", \"aaaaaaaaaaaaaaaa\")".repeat(20)
    );
    insta::assert_snapshot!(check(&nested) + &check(&doubling), @"");
}

#[test]
fn bytes_that_are_no_text() {
    let mut tree = MemoryTree::default();
    tree.insert(
        "terrane.hcl",
        b"project \"p\" {\n  id = \"\xff\"\n}\n".to_vec(),
    );
    let invalid = rendered(&load_tree(&tree));
    tree.insert(
        "terrane.hcl",
        b"project \"p\" {\n  id = \"\0\"\n}\n".to_vec(),
    );
    let nul = rendered(&load_tree(&tree));
    tree.insert("terrane.hcl", vec![b' '; 6 * 1024 * 1024]);
    let large = rendered(&load_tree(&tree));
    insta::assert_snapshot!(invalid + &nul + &large, @"");
}

#[test]
fn windows_line_ends_and_a_mark_at_the_start_are_fine() {
    let mut text =
        format!("\u{feff}{BASE}stack \"s\" {{\n  paht = \"m\"\n}}\n").replace('\n', "\r\n");
    insta::assert_snapshot!(check(&text), @"");
    text = "\u{feff}projet \"p\" {}\n".to_owned();
    insta::assert_snapshot!(check(&text), @"");
}

/// As deep as it may be: all of it must fit the stack, evaluation included.
#[test]
fn what_is_allowed_fits_the_stack() {
    let run = || {
        let deep = 40;
        let cases = [
            format!("{}1{}", "[".repeat(deep), "]".repeat(deep)),
            format!("{}1{}", "{a=".repeat(deep), "}".repeat(deep)),
            format!("{}1{}", "(".repeat(deep), ")".repeat(deep)),
            format!("{}1{}", "\"a${".repeat(deep / 2), "}\"".repeat(deep / 2)),
            format!("{}a{}", "try(".repeat(deep), ")".repeat(deep)),
            format!("{}[]{}", "[for a in ".repeat(deep), " : a]".repeat(deep)),
            format!("{}true", "!".repeat(60)),
            format!("{}1", "true ? 1 : ".repeat(60)),
            format!("1{}", "+1".repeat(120)),
            format!(
                "{}1{}{}",
                "(".repeat(deep),
                ")".repeat(deep),
                "+1".repeat(80)
            ),
        ];
        let mut out = String::new();
        for case in cases {
            out += &codes(&load_tree(&tree(&format!(
                "project \"p\" {{\n  id = {case}\n}}\n"
            ))));
            out.push('\n');
        }
        out
    };
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run)
        .unwrap();
    insta::assert_snapshot!(thread.join().unwrap(), @"");
}
