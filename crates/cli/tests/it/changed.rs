//! `changed:REF` in real repositories.

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, selected, stack, terrane};

/// `a` and `b` call a module that calls another; `c` reads a file and watches charts; `d` is alone.
fn repository() -> TestTerrane {
    let test = terrane();
    let context =
        "\ncontext \"settings\" {\n  autoattach = [\"d\"]\n  vars       = { size = 1 }\n}\n";
    let stacks = [
        stack("a", ""),
        stack("b", ""),
        stack("c", "watch  = [\"charts/**\"]"),
        stack("d", ""),
    ];
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stacks.concat()),
    )
    .write(
        "a/main.tf",
        "module \"x\" { source = \"../modules/outer\" }\n",
    )
    .write(
        "b/main.tf",
        "module \"x\" { source = \"../modules/outer\" }\n",
    )
    .write(
        "c/main.tf",
        "output \"text\" { value = file(\"${path.module}/../texts/hello.txt\") }\n",
    )
    .write("d/main.tf", "variable \"size\" { default = 0 }\n")
    .write("d/extra.tf", "")
    .write(
        "modules/outer/main.tf",
        "module \"y\" { source = \"../inner\" }\n",
    )
    .write("modules/inner/main.tf", "output \"z\" { value = 1 }\n")
    .write("texts/hello.txt", "hello\n")
    .write("texts/other.txt", "other\n")
    .write("charts/app/values.yaml", "a: 1\n");
    test.commit_all();
    test
}

#[track_caller]
fn check(change: impl FnOnce(&TestTerrane), expected: &str) {
    let test = repository();
    change(&test);
    assert_eq!(selected(&test, &["changed:HEAD"]), expected);
    // Committed or not makes no difference.
    test.git(&["checkout", "--quiet", "-b", "topic"]);
    test.commit_all();
    assert_eq!(selected(&test, &["changed:main"]), expected, "committed");
}

#[test]
fn nothing_changed_selects_nothing() {
    let test = repository();
    assert_eq!(selected(&test, &["changed:HEAD"]), "");
    assert_snapshot!(test.cli(&["plan", "changed:HEAD"]).expect(0), @"
    ── stderr
    Nothing is selected, so there is nothing to do.
    ");
}

#[test]
fn its_own_module() {
    check(
        |test| {
            test.write("a/main.tf", "");
        },
        "a",
    );
}

#[test]
fn a_module_behind_a_module() {
    check(
        |test| {
            test.write("modules/inner/main.tf", "output \"z\" { value = 2 }\n");
        },
        "a b",
    );
}

#[test]
fn a_file_it_reads_and_no_other() {
    check(
        |test| {
            test.write("texts/hello.txt", "good evening\n")
                .write("texts/unread.txt", "nobody reads this\n");
        },
        "c",
    );
}

#[test]
fn what_it_watches() {
    check(
        |test| {
            test.write("charts/app/values.yaml", "a: 2\n");
        },
        "c",
    );
}

#[test]
fn a_renamed_file() {
    check(
        |test| {
            test.git(&["mv", "d/extra.tf", "d/renamed.tf"]);
        },
        "d",
    );
}

#[test]
fn a_file_moved_from_one_stack_to_another() {
    let test = repository();
    test.write(
        "d/moved.tf",
        "locals { some = \"thing to recognise it by\" }\n",
    );
    test.commit_all();
    test.git(&["mv", "d/moved.tf", "b/moved.tf"]);
    assert_eq!(selected(&test, &["changed:HEAD"]), "b d");
}

#[test]
fn a_deleted_file() {
    check(
        |test| std::fs::remove_file(test.project().join("d/extra.tf")).unwrap(),
        "d",
    );
}

#[test]
fn an_untracked_file() {
    check(
        |test| {
            test.write("b/new.tf", "");
        },
        "b",
    );
}

#[test]
fn an_ignored_file_does_not_count() {
    let test = repository();
    test.write(".gitignore", "*.log\n");
    test.commit_all();
    test.write("b/debug.log", "");
    assert_eq!(selected(&test, &["changed:HEAD"]), "");
}

#[test]
fn its_own_block() {
    check(
        |test| {
            let file = test.read("terrane.hcl");
            let file = file.replace("path   = \"b\"", "labels = [\"new\"]\n  path = \"b\"");
            test.write("terrane.hcl", &file);
        },
        "b",
    );
}

#[test]
fn a_file_that_the_project_file_reads() {
    let test = repository();
    let file = test.read("terrane.hcl");
    let file = file.replace(
        "path   = \"b\"",
        "labels = [file(\"conf.txt\")]\n  path = \"b\"",
    );
    test.write("terrane.hcl", &file).write("conf.txt", "one");
    test.commit_all();
    assert_eq!(selected(&test, &["changed:HEAD"]), "");
    test.write("conf.txt", "two");
    assert_eq!(selected(&test, &["changed:HEAD"]), "b");
}

#[test]
fn a_context_that_is_attached() {
    check(
        |test| {
            let file = test.read("terrane.hcl").replace("size = 1", "size = 2");
            test.write("terrane.hcl", &file);
        },
        "d",
    );
}

#[test]
fn the_engine_of_all() {
    check(
        |test| {
            let pinned = "engine \"tofu\" { version = \"~> 1.11\" }";
            let file = test
                .read("terrane.hcl")
                .replace("engine \"tofu\" {}", pinned);
            test.write("terrane.hcl", &file);
        },
        "a b c d",
    );
}

#[test]
fn a_comment_in_the_project_file_changes_nothing() {
    check(
        |test| {
            let file = test.read("terrane.hcl");
            test.write("terrane.hcl", &format!("# a remark\n{file}"));
        },
        "",
    );
}

#[test]
fn with_everything_downstream() {
    let test = repository();
    let file = test
        .read("terrane.hcl")
        .replace("path   = \"b\"", "after  = [stack.d]\n  path   = \"b\"");
    test.write("terrane.hcl", &file);
    test.commit_all();
    test.write("d/new.tf", "");
    assert_eq!(selected(&test, &["changed:HEAD+"]), "b d");
}

#[test]
fn a_project_below_the_repositorys_root() {
    let test = terrane();
    let file = format!("{HEAD}{}{}", stack("a", ""), stack("b", ""));
    test.write("deploy/terrane.hcl", &file)
        .write("deploy/a/main.tf", "")
        .write("deploy/b/main.tf", "")
        .write("a/main.tf", "");
    test.commit_all();
    test.write("a/main.tf", "# not part of the project\n")
        .write("deploy/b/main.tf", "# part of it\n");
    let said = test.cli_in("deploy", &["graph", "--json", "changed:HEAD"]);
    assert_eq!(crate::project::names(&said.expect(0).stdout), "b");
}

#[test]
fn an_unknown_revision() {
    let test = repository();
    assert_snapshot!(test.cli(&["plan", "changed:mian"]).expect(1), @"
    ── stderr
    error: cannot determine what changed since `mian`
           `mian` is not a commit that this clone has
    hint: if it is on the remote: `git fetch origin mian`
    [exit 1]
    ");
}

#[test]
fn outside_of_git() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli(&["plan", "changed:main"]).expect(1), @"
    ── stderr
    error: `changed:` needs a Git repository, but this project is not in one
    hint: name the stacks instead
    [exit 1]
    ");
}

#[test]
fn a_file_by_a_path_that_only_the_engine_knows() {
    let read = |test: &TestTerrane| {
        test.write(
            "d/main.tf",
            "variable \"size\" { default = 0 }\nlocals { text = file(\"${path.module}/../texts/${var.size}.txt\") }\n",
        );
        test.commit_all();
    };
    let test = repository();
    read(&test);
    test.write("texts/0.txt", "read by nobody else\n");
    assert_eq!(selected(&test, &["changed:HEAD"]), "d");
    test.git(&["add", "-A"]);
    test.commit_all();
    test.write("charts/app/values.yaml", "a: 3\n");
    assert_eq!(selected(&test, &["changed:HEAD"]), "c");
    test.write(
        "d/main.tf",
        "variable \"size\" { default = \"x\" }\nlocals { text = file(var.size) }\n",
    );
    test.commit_all();
    test.write("charts/app/values.yaml", "a: 4\n");
    assert_eq!(selected(&test, &["changed:HEAD"]), "c d");
}

#[test]
fn what_may_read_any_file_is_never_untouched() {
    let reads = "variable \"from\" { default = \"\" }\nvariable \"path\" { default = \"note.txt\" }\n\
                 output \"text\" { value = file(var.path) }\n";
    let story = crate::story::Story::new("tofu")
        .stack("base", "", &crate::story::link("base"))
        .stack("top", &crate::story::takes("base"), reads);
    story.write("top/note.txt", "one\n");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let plan = story.cli(&["plan"]).expect(0);
    assert!(plan.stdout.contains("top   no changes"), "{plan}");
    // Who names the files is believed.
    let file = story.read("terrane.hcl");
    story.write(
        "terrane.hcl",
        &file.replace(
            "path = \"top\"",
            "path = \"top\"\n  watch = [\"top/*.txt\"]",
        ),
    );
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let plan = story.cli(&["plan"]).expect(0);
    assert!(!plan.stdout.contains("top   no changes"), "{plan}");
}
