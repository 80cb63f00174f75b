//! Each rule passes on a good tree and fails on a tree with one violation.

use super::{File, SourceTree, check};

const MANIFEST: &str = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
    rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
    [lints]\nworkspace = true\n[dependencies]\n";

const ROOT_BANS: &str = "disallowed-methods = [\n  { path = \"std::thread::sleep\" },\n]\n";

/// A tree without problems, in which `changed` replaces files of the same path.
fn tree(changed: &[(&str, &str)]) -> SourceTree {
    let mut files: Vec<(String, String)> = crate::layers::LAYERS
        .iter()
        .map(|(name, _)| match *name {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            name => format!("crates/{name}/Cargo.toml"),
        })
        .map(|path| (path, MANIFEST.to_owned()))
        .collect();
    files.push(("clippy.toml".to_owned(), ROOT_BANS.to_owned()));
    files.push(("crates/model/clippy.toml".to_owned(), model_bans()));
    files.push((
        "crates/model/src/lib.rs".to_owned(),
        "//! Pure.\n".to_owned(),
    ));
    for (path, text) in changed {
        files.retain(|(found, _)| found != path);
        files.push(((*path).to_owned(), (*text).to_owned()));
    }
    SourceTree {
        files: files
            .into_iter()
            .map(|(path, text)| File { path, text })
            .collect(),
    }
}

/// The crate's real file, so that a ban removed there fails here too.
fn model_bans() -> String {
    include_str!("../../../crates/model/clippy.toml").to_owned()
}

#[track_caller]
fn finds(changed: &[(&str, &str)], expected: &str) {
    let seen: Vec<String> = check(&tree(changed))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(seen.join("\n"), expected);
}

fn with(lines: &str) -> String {
    format!("{MANIFEST}{lines}\n")
}

#[test]
fn a_good_tree_is_quiet() {
    finds(&[], "");
}

#[test]
fn a_template_language_elsewhere_is_found() {
    let uses = with("minijinja.workspace = true");
    finds(&[("crates/render/Cargo.toml", &uses)], "");
    finds(
        &[("crates/drivers/Cargo.toml", &uses)],
        "crates/drivers/Cargo.toml:11: `minijinja` is used by `render` alone",
    );
}

#[test]
fn a_dependency_against_the_table() {
    finds(
        &[("crates/store/Cargo.toml", &with("drivers.workspace = true"))],
        "crates/store/Cargo.toml:11: `store` may not depend on `drivers`: see `xtask/src/layers.rs`",
    );
}

#[test]
fn testkit_is_for_tests() {
    finds(
        &[(
            "crates/store/Cargo.toml",
            &with("[dev-dependencies]\ntestkit.workspace = true"),
        )],
        "",
    );
    finds(
        &[("crates/store/Cargo.toml", &with("testkit.workspace = true"))],
        "crates/store/Cargo.toml:11: `store` may not depend on `testkit`: see `xtask/src/layers.rs`",
    );
}

#[test]
fn a_test_may_not_reach_across_either() {
    finds(
        &[(
            "crates/store/Cargo.toml",
            &with("[dev-dependencies]\ndrivers.workspace = true"),
        )],
        "crates/store/Cargo.toml:12: `store` may not depend on `drivers`: see `xtask/src/layers.rs`",
    );
}

#[test]
fn a_crate_without_a_row() {
    finds(
        &[("crates/extra/Cargo.toml", MANIFEST)],
        "crates/extra/Cargo.toml:1: crate `extra` has no row in `xtask/src/layers.rs`",
    );
}

#[test]
fn a_row_without_a_crate() {
    let mut tree = tree(&[]);
    tree.files
        .retain(|file| file.path != "crates/server/Cargo.toml");
    let seen: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        seen,
        ["xtask/src/layers.rs:1: there is a row for `server`, and no such crate"]
    );
}

#[test]
fn a_version_in_a_crate() {
    finds(
        &[("crates/cli/Cargo.toml", &with("serde = \"1\""))],
        "crates/cli/Cargo.toml:11: `serde` is not inherited: its version belongs into the root, \
         then `serde.workspace = true`",
    );
    finds(
        &[(
            "crates/cli/Cargo.toml",
            &MANIFEST.replace(
                "version.workspace = true\nedition",
                "version = \"1\"\nedition",
            ),
        )],
        "crates/cli/Cargo.toml:1: `[package]` requires `version.workspace = true`",
    );
}

#[test]
fn lints_of_its_own() {
    finds(
        &[(
            "crates/cli/Cargo.toml",
            &MANIFEST.replace("[lints]\nworkspace = true\n", ""),
        )],
        "crates/cli/Cargo.toml:1: no `[lints]` with `workspace = true`",
    );
}

#[test]
fn a_file_that_does_not_say_what_it_is() {
    for text in ["", "use std::fmt;\n", "//!\n//! Late.\n"] {
        finds(
            &[("crates/cli/src/main.rs", text)],
            "crates/cli/src/main.rs:1: the first line is not a `//!` that says what this file is",
        );
    }
}

#[test]
fn a_file_too_long() {
    let long = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
    finds(&[("crates/cli/src/args.rs", &long(800))], "");
    finds(
        &[("crates/cli/src/args.rs", &long(801))],
        "crates/cli/src/args.rs:801: 801 lines: split it by noun, or list it with a reason \
         (800 is the limit)",
    );
}

#[test]
fn names_that_say_nothing() {
    finds(
        &[("crates/cli/src/view/mod.rs", "//! Views.\n")],
        "crates/cli/src/view/mod.rs:1: `foo.rs` beside `foo/`, never `foo/mod.rs`",
    );
    finds(
        &[("crates/cli/src/utils.rs", "//! Things.\n")],
        "crates/cli/src/utils.rs:1: `utils` says nothing: name the module after its noun",
    );
    finds(
        &[(
            "crates/cli/src/args.rs",
            "//! Arguments.\npub(crate) mod helpers {\n}\n",
        )],
        "crates/cli/src/args.rs:2: `helpers` says nothing: name the module after its noun",
    );
}

#[test]
fn model_forgets_a_ban() {
    finds(
        &[(
            "crates/model/clippy.toml",
            &model_bans().replace("jiff::Zoned::now", "jiff::Zoned::later"),
        )],
        "crates/model/clippy.toml:1: `jiff::Zoned::now` is not banned: `model` is pure",
    );
    finds(
        &[(
            "clippy.toml",
            "disallowed-methods = [\n  { path = \"std::process::exit\" },\n]\n",
        )],
        "crates/model/clippy.toml:1: `std::process::exit` is not banned: the root bans it, and \
         this file replaces the root's",
    );
}

#[test]
fn a_path_of_one_machine() {
    for path in [
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
    ] {
        finds(
            &[("README.md", &format!("first\nsee {path}x\n"))],
            &format!("README.md:2: `{path}…` is a path of one machine"),
        );
    }
    finds(
        &[(
            "README.md",
            "net/work/a ${dir}/work/b https://example.io/home/x\n",
        )],
        "",
    );
}

#[test]
fn a_store_type_handed_on() {
    let handed = "crates/control/src/runs.rs:2: `control` may not hand on a type of `store`: convert it, or move it to `model`";
    for line in [
        "pub use store::Damage;",
        "pub use store::{",
        "pub use ::store::Damage;",
        "pub type Found = store::Damage;",
    ] {
        let text = format!("//! Runs.\n{line}\n");
        finds(&[("crates/control/src/runs.rs", &text)], handed);
        finds(&[("crates/store/src/runs.rs", &text)], "");
    }
    for line in ["use store::Damage;", "pub use crate::store::Damage;"] {
        let text = format!("//! Runs.\n{line}\n");
        finds(&[("crates/control/src/runs.rs", &text)], "");
    }
}

#[test]
fn the_store_named_above_control() {
    let uses = "//! Runs.\nuse store::Damage;\n";
    for name in ["cli", "server"] {
        let path = format!("crates/{name}/src/runs.rs");
        let expected = format!("{path}:2: `{name}` may not use `store`: it calls `control`");
        finds(&[(&path, uses)], &expected);
        finds(&[(&path, "//! Runs.\nuse object_store::path;\n")], "");
    }
    finds(&[("crates/server/tests/it/runs.rs", uses)], "");
}

#[test]
fn sql_outside_the_store() {
    let query = concat!("//! Reads.\nconst Q: &str = \"SEL", "ECT 1\";\n");
    finds(
        &[("crates/control/src/runs.rs", query)],
        "crates/control/src/runs.rs:2: SQL is written in `store` alone",
    );
    finds(&[("crates/store/src/runs.rs", query)], "");
}

#[test]
fn a_process_born_elsewhere() {
    let birth = concat!(
        "//! Starts.\nfn start() {\n    Command",
        "::new(\"git\");\n}\n"
    );
    finds(
        &[("crates/control/src/runs.rs", birth)],
        "crates/control/src/runs.rs:3: a child process is born in `drivers::process` alone",
    );
    for allowed in [
        "crates/drivers/src/process.rs",
        "crates/drivers/src/git/tests.rs",
        "crates/cli/tests/it/main.rs",
    ] {
        finds(&[(allowed, birth)], "");
    }
}

#[test]
fn a_test_module_at_the_end_may_start_one() {
    let text = concat!(
        "//! Starts nothing.\n#[cfg(test)]\nmod tests {\n    fn t() { Command",
        "::new(\"git\"); }\n}\n"
    );
    finds(&[("crates/control/src/runs.rs", text)], "");
}

#[test]
fn a_link_that_leads_nowhere() {
    let page = "see [a](../README.md#top), [b](guide) and [c](https://example.io/x)\n\
                ```\n[d](no/link/in/code)\n```\n[e](lost.md)\n[f](../../outside.md)\n";
    finds(
        &[
            ("docs/index.md", page),
            ("docs/guide/start.md", "# Start\n"),
            ("README.md", "# Read\n"),
        ],
        "docs/index.md:5: the link to `lost.md` leads nowhere\n\
         docs/index.md:6: the link to `../../outside.md` leads nowhere",
    );
}

#[test]
fn rooms_that_import_each_other_are_found() {
    finds(
        &[
            ("crates/store/src/blob.rs", "//! B.\nuse crate::key::Key;\n"),
            (
                "crates/store/src/key/ring.rs",
                "//! K.\nuse crate::{Store, blob};\n",
            ),
        ],
        "crates/store/src/blob.rs:2: `blob` imports `key`, which imports `blob`: move what both need to a room below them\n\
         crates/store/src/key/ring.rs:2: `key` imports `blob`, which imports `key`: move what both need to a room below them",
    );
}

#[test]
fn a_room_may_import_in_one_direction() {
    finds(
        &[
            ("crates/store/src/blob.rs", "//! B.\nuse crate::key::Key;\n"),
            ("crates/store/src/key.rs", "//! K.\npub struct Key;\n"),
        ],
        "",
    );
}
