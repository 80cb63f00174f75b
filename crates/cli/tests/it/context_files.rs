//! Files that contexts give: there while a run needs them, readable by nobody else, and gone afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, runs, shown, stack, terrane};

const SECRET: &str = "a-key-nobody-may-see";

/// A stack that copies what it finds in its directory, with a context of files.
fn mounted(files: &str) -> TestTerrane {
    let test = terrane();
    let context =
        format!("context \"files\" {{\n  autoattach = [\"*\"]\n  files = {{\n{files}\n  }}\n}}\n");
    let seen = test.root().join("seen");
    let command = format!(
        "for f in ca.pem deep/key; do stat -c '%n %a' $f; cat $f; echo; done > {}",
        seen.display()
    );
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stack("app", "")),
    )
    .write("app/main.tf", &runs(&command, "filesha256(\"deep/key\")"))
    .write("certs/ca.pem", "PEM");
    test.env("KEY", SECRET)
}

const FILES: &str =
    "    \"ca.pem\"   = file(\"certs/ca.pem\")\n    \"deep/key\" = secret(\"env:KEY\")";

/// Every file below a directory whose bytes hold the secret.
fn holding(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            holding(&path, found);
        } else if let Ok(bytes) = fs::read(&path)
            && bytes
                .windows(SECRET.len())
                .any(|window| window == SECRET.as_bytes())
        {
            found.push(path);
        }
    }
}

#[test]
fn are_there_for_the_engine_and_gone_afterwards() {
    let test = mounted(FILES);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let seen = fs::read_to_string(test.root().join("seen")).unwrap();
    assert_eq!(seen, format!("ca.pem 600\nPEM\ndeep/key 600\n{SECRET}\n"));
    let mut found = Vec::new();
    holding(&test.home(), &mut found);
    assert_eq!(found, Vec::<PathBuf>::new());
    // Neither in the tree that is still laid out.
    let left = test.shell(&format!(
        "find '{}' -path '*/app/*' '(' -name ca.pem -o -name key ')'",
        test.home().display()
    ));
    assert_eq!(left.stdout, "");
}

/// What a secret file holds is a value like any other: a plan made with another content is not applied. It is in no
/// bundle, and none of the source.
#[test]
fn a_changed_content_voids_the_plan() {
    let test = mounted(FILES);
    drop(test.cli(&["plan", "--out", "plan.terrane"]).expect(0));
    let bundle = fs::read(test.project().join("plan.terrane")).unwrap();
    assert!(!String::from_utf8_lossy(&bundle).contains(SECRET));
    let apply = ["apply", "plan.terrane", "--auto-approve"];
    let said = test.cli_with(&[("KEY", "another")], &apply).expect(4);
    assert!(
        said.stderr
            .contains("the value of its input `deep/key` changed after it was made"),
        "{said}"
    );
    drop(test.cli(&apply).expect(0));
}

#[test]
fn are_swept_after_a_crash() {
    let test = mounted(FILES);
    let started = test.root().join("started");
    // The first time the engine waits; its runner is killed meanwhile.
    let command = format!(
        "test -e {0} || {{ echo $PPID > {0}.new; mv {0}.new {0}; while [ -e {0} ]; do sleep 0.1; done; }}",
        started.display()
    );
    test.write("app/main.tf", &runs(&command, "1"));
    let running = test.start("apply", &["apply", "--auto-approve"]);
    test.wait_until("the engine applies", || started.exists());
    let slots = test.shell(&format!("find '{}' -name key", test.home().display()));
    let key = PathBuf::from(slots.stdout.trim());
    assert!(key.is_file(), "{slots}");
    let lock = test.shell(&format!(
        "head -n 1 $(find '{}' -path '*/r1/run.lock')",
        test.home().display()
    ));
    // Nobody is left who watches, and would find it.
    running.kill();
    drop(running.wait());
    testkit::kill(lock.stdout.trim().parse().unwrap());
    assert!(key.exists(), "nobody was left to remove it");
    fs::remove_file(&started).unwrap();
    // Once the engine is gone, whoever finds the lost run, or works there next, removes it.
    test.wait_until("the file is swept", || {
        drop(test.cli(&["plan"]));
        !key.exists()
    });
}

#[test]
fn do_not_take_the_place_of_the_source() {
    let test = mounted(FILES);
    test.write("app/ca.pem", "from the source");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: context `files` provides `ca.pem` to stack `app`, but the source already has `app/ca.pem`
    hint: give it another name, or remove the one in the source
    [exit 1]
    ");
    fs::remove_file(test.project().join("app/ca.pem")).unwrap();
    test.write("app/deep", "a file where a directory should be");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: context `files` provides `deep/key` to stack `app`, but the source already has `app/deep`
    hint: give it another name, or remove the one in the source
    [exit 1]
    ");
}

#[test]
fn stay_in_the_stacks_directory() {
    let test = mounted(
        "    \"../up\" = \"a\"\n    \"/etc/motd\" = \"b\"\n    \"x.tf\" = \"c\"\n    \".terraform/a\" = \"d\"\n    \"sub/in\" = \"e\"\n    \"list\" = [1]",
    );
    let file = test.read("terrane.hcl")
        + &stack("inner", "").replace("path   = \"inner\"", "path   = \"app/sub\"");
    test.write("terrane.hcl", &file)
        .write("app/sub/main.tf", "");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @r#"
    ── stderr
    error: `../up` leaves the stack's directory
      --> terrane.hcl:11:5
       |
    11 |     "../up" = "a"
       |     ^^^^^^^ this file
       |
       = hint: files of a context count from the directory of the stack that gets it

    error: `/etc/motd` is an absolute path: files count from the stack's directory
      --> terrane.hcl:12:5
       |
    12 |     "/etc/motd" = "b"
       |     ^^^^^^^^^^^ this file

    error: a context cannot give the file `x.tf`: it would be a part of the module, which comes from the
           source alone
      --> terrane.hcl:13:5
       |
    13 |     "x.tf" = "c"
       |     ^^^^^^ this file

    error: a context cannot give the file `.terraform/a`: it is the engine's own
      --> terrane.hcl:14:5
       |
    14 |     ".terraform/a" = "d"
       |     ^^^^^^^^^^^^^^ this file

    error: the file `sub/in` of context `files` would lie in `app/sub`, where another stack is
      --> terrane.hcl:15:5
       |
    15 |     "sub/in" = "e"
       |     ^^^^^^^^ this file
       |
       = hint: it is attached to stack `app`: attach it to the other one instead

    error: a file holds text, `list` is a list
      --> terrane.hcl:16:5
       |
    16 |     "list" = [1]
       |     ^^^^^^ this file

    6 errors in terrane.hcl
    [exit 1]
    "#);
}

/// Two stacks of one directory have a tree each; one never sees the other's files.
#[test]
fn stacks_of_one_directory_have_their_own() {
    let test = terrane();
    let context = |name: &str| {
        format!(
            "context \"{name}\" {{\n  autoattach = [\"{name}\"]\n  files      = {{ \"who.txt\" = stack.name }}\n}}\n"
        )
    };
    let same =
        |name: &str| stack(name, "").replace(&format!("path   = \"{name}\""), "path   = \"same\"");
    test.write(
        "terrane.hcl",
        &format!(
            "{HEAD}{}{}{}{}",
            context("one"),
            context("two"),
            same("one"),
            same("two")
        ),
    )
    .write(
        "same/main.tf",
        "output \"who\" { value = file(\"who.txt\") }\n",
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(test.cli(&["output", "one", "who", "--raw"]).stdout, "one");
    assert_eq!(test.cli(&["output", "two", "who", "--raw"]).stdout, "two");
}
