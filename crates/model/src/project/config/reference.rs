//! Generates the reference page of the project file from the reader's tables.

use std::fmt::Write as _;

use crate::hcl::functions::FUNCTIONS;
use crate::project::config::kinds::SECRETS;
use crate::project::config::schema::{Attr, Block, TOP, ValueKind};

/// `docs/reference/project-file.md`.
pub fn render() -> String {
    let mut out = String::from(HEAD);
    for block in TOP {
        write_block(&mut out, block, &[]);
    }
    out.push_str("\n## Functions\n\n| call | gives |\n|---|---|\n");
    for (_, usage, doc) in FUNCTIONS {
        _ = writeln!(out, "| `{usage}` | {doc} |");
    }
    out.push_str("\n## Secret references\n\n| reference | is |\n|---|---|\n");
    for (_, shape, doc) in SECRETS {
        _ = writeln!(out, "| `{shape}` | {doc} |");
    }
    out
}

const HEAD: &str = "# The project file

<!-- Made from the tables in `crates/model/src/project/config`: change those, not this. -->

`terrane.hcl` lies at the project's root. More `*.terrane.hcl` files may lie beside it: they are read as one, and a name
defined twice is an error. A `stack.hcl` beside a root module holds one `stack` block without `path`.

Names begin with a letter, then come lower case letters, digits and single dashes, at most 63 in all. A stack may not be
called `name` or `state`, nor like `c42` or `r44`. Paths count from the project's root and do not leave it. Durations
are written `500ms`, `90s`, `10m`, `24h`, `30d`, `4w`. What is marked *not yet effective* is validated but has no effect yet.

## References

| reference | where | meaning |
|---|---|---|
| `stack.NAME.output.KEY` | `inputs` | the value the other stack last applied; makes an `output` edge |
| `stack.NAME`, `stack[\"NAME\"]` | `after` | makes an `order` edge |
| `output.KEY`, `resource[\"ADDRESS\"].ATTR` | `publish`, `bootstrap`, `gate` | of this stack, after its apply |
| `fact.NAME[\"PATH\"].KEY` | `gate` | a value as published |
| `secret(\"REF\")` | context `env`, `vars`, `files`, `secret`; `facts`; `bootstrap`; `gate` | a secret, read only in the stage that needs it, never stored |
| `env(\"NAME\")`, `env(\"NAME\", \"default\")` | anywhere but in names | the caller's environment |
| `each.key`, `each.value` | beside `for_each` | the entry at hand |
| `dir[N]`, `dir.path` | `discover` | parts of the directory that was found |
| `project.name`, `target.name`, `stack.name`, `stack.state`, `git.commit`, `git.branch` | anywhere | names, and the source in use |
";

fn write_block(out: &mut String, block: &Block, outer: &[&str]) {
    let labels = block
        .labels
        .iter()
        .fold(String::new(), |mut labels, label| {
            _ = write!(labels, " \"{}\"", label.name);
            labels
        });
    let level = "#".repeat(2 + outer.len().min(2));
    _ = writeln!(out, "\n{level} `{}{labels}`\n", block.word);
    let place = match outer {
        [] => String::new(),
        outer => format!(" Part of `{}`.", outer.join("` in `")),
    };
    let later = if block.later {
        " *Not yet effective.*"
    } else {
        ""
    };
    _ = writeln!(out, "{}{place}{later}", block.doc);
    for label in block.labels.iter().filter(|label| !label.words.is_empty()) {
        let words: Vec<String> = label.words.iter().map(|word| format!("`{word}`")).collect();
        _ = writeln!(out, "\n`{}` is one of {}.", label.name, words.join(", "));
    }
    if block.open {
        _ = writeln!(out, "\nIts attributes are those of the engine's backend.");
    }
    write_attrs(out, block.attrs);
    for variant in block.variants {
        _ = writeln!(
            out,
            "\n`{} \"{}\"`: {}.",
            block.word, variant.label, variant.doc
        );
        write_attrs(out, variant.attrs);
    }
    let mut place = vec![block.word];
    place.extend(outer);
    for inner in block.blocks {
        if block.word == "discover"
            || (block.word == "stack" && inner.block.word == "engine")
            || (block.word == "stack" && inner.block.word == "approval")
        {
            continue; // described at their first occurrence
        }
        write_block(out, inner.block, &place);
    }
    let again: Vec<String> = block
        .blocks
        .iter()
        .filter(|inner| {
            block.word == "discover"
                || (block.word == "stack" && matches!(inner.block.word, "engine" | "approval"))
        })
        .map(|inner| format!("`{}`", inner.block.word))
        .collect();
    if !again.is_empty() {
        _ = writeln!(
            out,
            "\n`{}` may also hold {}, as described elsewhere on this page.",
            block.word,
            again.join(", ")
        );
    }
}

fn write_attrs(out: &mut String, attrs: &[Attr]) {
    if attrs.is_empty() {
        return;
    }
    out.push_str("\n| attribute | type | default | meaning |\n|---|---|---|---|\n");
    for attr in attrs {
        let default = match (attr.required, attr.default) {
            (true, _) => "required",
            (false, default) => default,
        };
        let more = if attr.refs.allows_secrets() && attr.kind != ValueKind::Each {
            "; takes secrets"
        } else {
            ""
        };
        let later = if attr.later {
            " (*not yet effective*)"
        } else {
            ""
        };
        let line = format!(
            "| `{}` | {} | {default} | {}{more}{later} |",
            attr.name,
            attr.kind.title(),
            attr.doc
        );
        _ = writeln!(out, "{line}");
    }
}
