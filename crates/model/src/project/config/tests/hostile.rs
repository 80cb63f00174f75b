//! Five megabytes of hostile input: an error or a project, never a panic or a hang. Each case runs on a thread with the
//! usual 2 MB stack.

use super::*;

/// Just below the size limit. A debug build needs seconds for each of these.
const FULL: usize = 5 * 1024 * 1024 - 64;
/// Enough for quadratic time to show as a hang.
const SOME: usize = 400 * 1024;

fn size(name: &str) -> usize {
    match name {
        "brackets" | "blocks in blocks" | "string" | "object keys" | "unterminated comment" => FULL,
        _ => SOME,
    }
}

/// Loads a hostile file as a project file and as a module, and returns the codes of the findings.
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
    let out = thread.join().unwrap();
    format!("{name}: {out}\n")
}

fn codes(loaded: &LoadedProject) -> String {
    let codes: BTreeSet<&str> = loaded.findings.iter().map(|finding| finding.code).collect();
    codes.into_iter().collect::<Vec<_>>().join(" ")
}

fn repeated(name: &str, head: &str, unit: &str, tail: &str) -> Vec<u8> {
    let count = (size(name) - head.len() - tail.len()) / unit.len();
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
        out += &check_hostile(name, repeated(name, "x = ", unit, ""));
    }
    out += &check_hostile(
        "blocks in blocks",
        repeated("blocks in blocks", "", "b {\n", ""),
    );
    out += &check_hostile("heredocs", repeated("heredocs", "x = ", "<<E\n${", ""));
    insta::assert_snapshot!(out, @r#"
brackets: too-complex | too-complex
braces: too-complex | too-complex
parentheses: too-complex | too-complex
calls: too-complex | too-complex
templates: too-complex | too-complex
directives: too-complex | too-complex
minus: too-complex | too-complex
not: too-complex | too-complex
conditionals: too-complex | too-complex
conditionals in a row: too-complex | too-complex
operators: syntax | syntax
indexes: too-complex | too-complex
for: too-complex | too-complex
blocks in blocks: too-complex | too-complex
heredocs: too-complex | too-complex
"#);
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
        out += &check_hostile(name, repeated(name, head, unit, tail));
    }
    insta::assert_snapshot!(out, @r#"
string: empty-project missing-project unknown-attribute | 
unterminated string: syntax | syntax
number: syntax | syntax
word: empty-project missing-project unknown-attribute | 
traversal: empty-project missing-project unknown-attribute | 
comment: empty-project missing-project | 
unterminated comment: syntax | syntax
comments: empty-project missing-project | 
empty lines: empty-project missing-project | 
spaces: empty-project missing-project | 
list: empty-project missing-project unknown-attribute | 
splats: empty-project missing-project unknown-attribute | 
blocks: too-many-findings unknown-block | 
stacks: duplicate-name too-many-findings | 
escapes: empty-project missing-project unknown-attribute | 
markers: empty-project missing-project unknown-attribute | 
labels: empty-project missing-project unknown-block |
"#);
}

/// Name, prefix, suffix, and the numbered part that is repeated.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    fn(usize) -> String,
);

#[test]
fn many_different_names_do_not_take_square_time() {
    let mut out = String::new();
    let cases: [Case; 8] = [
        ("object keys", "x = {\n", "}\n", |n| format!("k{n}=1\n")),
        ("object keys in for", "x = [for a in {\n", "} : a]\n", |n| {
            format!("k{n}=1\n")
        }),
        ("attributes", "", "", |n| format!("k{n}=1\n")),
        ("stack attributes", "stack \"a\" {\n", "}\n", |n| {
            format!("k{n}=1\n")
        }),
        ("stacks", "", "", |n| {
            format!(
                "stack \"s{n}\" {{\n path=\"m\"\n after=[stack.s{}]\n}}\n",
                n + 1
            )
        }),
        ("variables", "", "", |n| format!("variable \"v{n}\" {{}}\n")),
        ("calls", "", "", |n| {
            format!("module \"m{n}\" {{ source = \"./x\" }}\n")
        }),
        (
            "references",
            "project \"p\" {\n platforms = [",
            "]\n}\n",
            |n| format!("nam{n},"),
        ),
    ];
    for (name, head, tail, each) in cases {
        let mut text = head.to_owned();
        for n in 0.. {
            text += &each(n);
            if text.len() + 128 > size(name) {
                break;
            }
        }
        out += &check_hostile(name, (text + tail).into_bytes());
    }
    insta::assert_snapshot!(out, @r#"
object keys: too-complex | too-complex
object keys in for: too-complex | too-complex
attributes: too-complex | too-complex
stack attributes: too-complex | too-complex
stacks: missing-attribute missing-project too-many-findings | 
variables: too-many-findings unknown-block | missing-input too-many-findings
calls: too-many-findings unknown-block | missing-directory too-many-findings
references: empty-project unknown-reference |
"#);
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
    insta::assert_snapshot!(check(&nested) + &check(&doubling), @r#"
error empty-project: this project has no stacks
  terrane.hcl:1:9 nothing to do here
  hint: add a `stack` or a `discover` block
error invalid-expression: the expressions of this project cost too much to evaluate
  terrane.hcl:2:1586 here
error empty-project: this project has no stacks
  terrane.hcl:1:9 nothing to do here
  hint: add a `stack` or a `discover` block
error invalid-expression: the expressions of this project cost too much to evaluate
  terrane.hcl:2:112 here
"#);
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
    insta::assert_snapshot!(invalid + &nul + &large, @r#"
error not-utf8: `terrane.hcl` is not UTF-8 text
  terrane.hcl:2:9 the byte at offset 22 belongs to no character
  hint: save the file as UTF-8
error nul-byte: `terrane.hcl` holds a NUL byte
  terrane.hcl:2:9 here
  hint: is this a text file?
error unreadable-file: could not read `terrane.hcl`: it is larger than 5242880 bytes
  terrane.hcl:1:1 this file
"#);
}

#[test]
fn windows_line_ends_and_a_mark_at_the_start_are_fine() {
    let mut text =
        format!("\u{feff}{BASE}stack \"s\" {{\n  paht = \"m\"\n}}\n").replace('\n', "\r\n");
    insta::assert_snapshot!(check(&text), @"
    error missing-attribute: stack `s` has no `target`
      terrane.hcl:5:1 `target` is required
      hint: add `target = …`: the target it is deployed to
    error missing-attribute: stack `s` has no `layer`
      terrane.hcl:5:1 `layer` is required
      hint: add `layer = …`: the layer it belongs to
    error unknown-attribute: `stack` has no attribute `paht`
      terrane.hcl:6:3 unknown attribute
      hint: did you mean `path`?
    ");
    text = "\u{feff}projet \"p\" {}\n".to_owned();
    insta::assert_snapshot!(check(&text), @r#"
error missing-project: there is no `project` block
  hint: add `project "NAME" { … }` to `terrane.hcl`
error empty-project: this project has no stacks
  hint: add a `stack` or a `discover` block
error unknown-block: there is no block `projet`
  terrane.hcl:1:1 unknown block
  hint: did you mean `project`?
"#);
}

/// The deepest allowed nesting must fit the stack, including evaluation.
#[test]
fn what_is_allowed_fits_the_stack() {
    let run = || {
        let deep = 60;
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
    insta::assert_snapshot!(thread.join().unwrap(), @r#"
empty-project wrong-type
empty-project wrong-type
empty-project wrong-type
empty-project
empty-project unknown-reference
empty-project wrong-type
empty-project wrong-type
empty-project wrong-type
empty-project wrong-type
empty-project wrong-type
"#);
}

/// Small texts whose parts multiply.
#[test]
fn products_are_bounded() {
    let keys: Vec<String> = (0..9000).map(|n| format!("\"a{n}\"")).collect();
    let each = format!(
        "stack \"s\" {{\n  for_each = [{}]\n  path = \"m\"\n  target = \"t\"\n  layer = \"low\"\n}}\n== m/main.tf\noutput \"o\" {{ value = 1 }}\n",
        keys.join(",")
    );
    let contexts: Vec<String> = (0..800)
        .map(|n| format!("context \"c{n}\" {{ autoattach = [\"*\"] }}\n"))
        .collect();
    let contexts = contexts.concat();
    let list = vec!["1"; 3000].join(",");
    let copies = format!(
        "project \"p\" {{\n  platforms = [for a in [[{list}]] : [for b in a : a[0]]]\n}}\n"
    );
    let backend = format!(
        "target \"t\" {{\n  writers = [\"anyone\"]\n  backend \"s3\" {{\n    key = \"{}${{stack.state}}\"\n  }}\n}}\nproject \"p\" {{}}\nlayer \"low\" {{ order = 0 }}\n",
        "x".repeat(20_000)
    );
    let mut out = String::new();
    for (name, text) in [
        ("contexts", format!("{BASE}{contexts}{each}")),
        ("copies", copies),
        ("backends", format!("{backend}{each}")),
    ] {
        _ = writeln!(out, "{name}: {}", codes(&load_tree(&tree(&text))));
    }
    insta::assert_snapshot!(out, @r#"
contexts: too-complex
copies: empty-project invalid-expression
backends:
"#);
}
