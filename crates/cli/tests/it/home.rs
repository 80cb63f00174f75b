//! Where state is kept, who may change it from here, and what does not cost it.

use insta::assert_snapshot;
use testkit::{CommandOutput, TestTerrane};

use crate::project::{HEAD, one_stack, shown, stack, terrane};
use crate::story::{Story, gated};

const MODULE: &str = "resource \"terraform_data\" \"a\" { input = 1 }\noutput \"a\" { value = terraform_data.a.output }\n";

#[track_caller]
fn apply(test: &TestTerrane) -> String {
    test.cli(&["apply", "--auto-approve"]).expect(0).to_string()
}

#[test]
fn a_ci_job_without_a_home_keeps_no_state() {
    let test = one_stack("", MODULE)
        .without_env("TERRANE_HOME")
        .env("CI", "true");
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(4)), @"
    ── stderr
    warning: no home is named: lanes and history are limited to this job
    error: stack `app` would store its state on the disk of this CI job, which is lost when the job ends
    hint: name a home that outlives the job: `--data DIR` or `TERRANE_HOME`
    [exit 4]
    ");
    drop(test.cli(&["plan"]).expect(0));
    let kept = test.root().join("kept").display().to_string();
    drop(
        test.cli(&["apply", "--auto-approve", "--data", &kept])
            .expect(0),
    );
    assert!(test.root().join("kept/terrane.db").exists());
}

#[test]
fn a_target_of_others_is_planned_here_and_applied_there() {
    let test = terrane();
    let target = "writer \"ci\" {\n  issuer   = \"https://token.example.io\"\n  audience = \"terrane\"\n  claims   = { repository = \"example/infra\" }\n}\ntarget \"local\" { writers = [\"ci\", \"server\"] }";
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", target);
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", MODULE);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(4)), @"
    ── stderr
    error: target `local` is applied by CI or a server's own runners only
           no verified CI identity was found: this is not a CI job
           this is not a server's runner: those are not built yet
    hint: `terrane plan` works here; the apply runs in the job that its writers describe
    [exit 4]
    ");
    drop(test.cli(&["destroy", "--auto-approve"]).expect(4));
    let said = test.cli(&["plan"]).expect(0);
    assert!(said.stdout.contains("terraform_data.a"), "{said}");
}

#[test]
fn a_new_master_key_is_announced_once() {
    let test = one_stack("", MODULE);
    std::fs::remove_file(test.root().join("user/.config/terrane/master.key")).unwrap();
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(0)), @"
    ── stderr
    warning: made a new master key: `ROOT/user/.config/terrane/master.key`
    hint: back it up: without it no state can be read any more
    change set c1: apply on `local`
    Done: 1 stack applied in 0 s.
    ");
    assert!(!apply(&test).contains("master key"));
}

#[test]
fn another_master_key_does_not_open_the_home() {
    let test = one_stack("", MODULE);
    apply(&test);
    let key = test.root().join("user/.config/terrane/master.key");
    let text = std::fs::read_to_string(&key).unwrap();
    std::fs::write(&key, text.replace("AAEC", "BBEC")).unwrap();
    let said = test.cli(&["output", "app"]).expect(1);
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: could not read the state `app`
           could not get the data key
           cannot unwrap `ROOT/home/keys/k3v9qd~app/1` with the master key
           it was changed, or sealed for something else
    [exit 1]
    ");
}

#[test]
fn cleaning_the_tree_costs_no_state() {
    let test = one_stack("", MODULE).without_env("TERRANE_HOME");
    test.commit_all();
    apply(&test);
    test.git(&["clean", "-xfd", "--quiet"]);
    assert_eq!(test.git(&["status", "--porcelain"]), "");
    assert!(apply(&test).contains("unchanged"));
    let state = test
        .root()
        .join("user/.local/share/terrane/k3v9qd/terrane.db");
    assert!(state.exists());
}

#[test]
fn nothing_but_the_lock_file_may_appear_in_the_tree() {
    let test = one_stack("", MODULE);
    test.commit_all();
    apply(&test);
    assert_eq!(test.git(&["status", "--porcelain", "--ignored"]), "");
}

/// Without an id, worktrees of a clone share a home; with one, all clones do.
#[test]
fn worktrees_of_a_clone_share_a_home() {
    let test = one_stack("", MODULE);
    let file = test.read("terrane.hcl").replace("  id = \"k3v9qd\"\n", "");
    test.write("terrane.hcl", &file);
    test.commit_all();
    apply(&test);
    test.git(&["worktree", "add", "--quiet", "../tree"]);
    let tree = test.root().join("tree").display().to_string();
    let said = test
        .cli(&["--project", &tree, "output", "app", "a", "--raw"])
        .expect(0);
    assert_eq!(said.stdout, "1");
    test.git(&["clone", "--quiet", ".", "../clone"]);
    let clone = test.root().join("clone").display().to_string();
    drop(
        test.cli(&["--project", &clone, "output", "app", "a"])
            .expect(1),
    );
}

#[test]
fn clones_of_a_project_with_an_id_share_a_home() {
    let test = one_stack("", MODULE);
    test.commit_all();
    apply(&test);
    test.git(&["clone", "--quiet", ".", "../clone"]);
    let clone = test.root().join("clone").display().to_string();
    let said = test
        .cli(&["--project", &clone, "output", "app", "a", "--raw"])
        .expect(0);
    assert_eq!(said.stdout, "1");
}

#[test]
fn a_home_that_is_not_named_whole_is_not_guessed() {
    let test = one_stack("", MODULE);
    assert_snapshot!(test.cli(&["plan", "--data", "postgres://db.example.io/terrane"]).expect(64), @"
    ── stderr
    error: the home `postgres://…` does not name a location for its blobs
    hint: add `?blobs=s3://BUCKET/PREFIX` (or `az://`, `gs://`, `file:///DIR`)
    [exit 64]
    ");
}

#[test]
fn a_lost_master_key_is_not_replaced_in_silence() {
    let test = one_stack("", "output \"o\" { value = 1 }\n");
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
    let key = test.root().join("user/.config/terrane/master.key");
    std::fs::remove_file(&key).unwrap();
    let said = test.cli(&["plan"]).expect(1);
    assert!(said.stderr.contains("is missing, but the"), "{said}");
    assert!(!key.exists(), "no new key hides that the old one is gone");
}

#[test]
fn a_ci_job_without_a_home_makes_no_master_key() {
    let test = one_stack("", MODULE)
        .without_env("TERRANE_HOME")
        .env("CI", "true");
    let key = test.root().join("user/.config/terrane/master.key");
    std::fs::remove_file(&key).unwrap();
    assert_snapshot!(test.cli(&["plan"]).expect(4), @"
    ── stderr
    error: cannot create a master key: no home is named, and the key would be lost when this CI job ends
    hint: name a home that outlives the job: `--data DIR` or `TERRANE_HOME`, and the key of its states:
          `TERRANE_KEY_FILE`
    [exit 4]
    ");
    assert!(!key.exists());
}

#[test]
fn a_state_that_lost_its_stack_is_pointed_out() {
    let test = one_stack("", MODULE);
    apply(&test);
    let file = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &file.replace("stack \"app\"", "stack \"web\""),
    );
    assert_snapshot!(test.cli(&["validate"]).expect(0), @r#"
    Project `shop` is valid: 1 stack, 0 edges, 1 layer.
    ── stderr
    warning: state `app` contains resources, but no stack uses it any more
    hint: if its stack was renamed, set `state = "app"` in the stack's block
    hint: if its stack was removed, `terrane destroy app` names the last commit with it, for `--from`
    hint: `terrane state list` shows all states
    "#);
    let said = test.cli(&["plan"]).expect(0);
    assert!(
        said.stderr.contains("state `app` contains resources"),
        "{said}"
    );
}

/// What was said, in one line however it was wrapped.
fn flat(said: &CommandOutput) -> String {
    let words: Vec<&str> = said.stderr.split_whitespace().collect();
    words.join(" ")
}

/// Everything would be created a second time.
#[test]
fn another_project_id_in_the_same_checkout_is_refused() {
    let kept = |test: &TestTerrane| test.root().join("kept").display().to_string();
    for named in [Some("TERRANE_HOME"), Some("--data"), None] {
        let test = one_stack("", MODULE);
        let data = kept(&test);
        let (test, more) = match named {
            Some("TERRANE_HOME") => (test, vec![]),
            Some(option) => (test, vec![option, data.as_str()]),
            None => (test.without_env("TERRANE_HOME"), vec![]),
        };
        let cli = |words: &[&str]| test.cli(&[words, &more].concat());
        drop(cli(&["apply", "--auto-approve"]).expect(0));
        let file = test.read("terrane.hcl");
        for (other, id) in [
            (file.replace("k3v9qd", "k3v9qe"), "`k3v9qe`"),
            (
                file.replace("  id = \"k3v9qd\"\n", ""),
                "terrane.hcl has no `id`",
            ),
        ] {
            test.write("terrane.hcl", &other);
            for words in [
                &["plan"][..],
                &["apply", "--auto-approve"],
                &["state", "list"],
            ] {
                let said = flat(&cli(words).expect(4));
                assert!(said.contains(id), "{named:?}: {said}");
                assert!(said.contains("`k3v9qd` (project `shop`)"), "{said}");
            }
            let said = cli(&["validate"]).expect(0);
            assert!(said.stderr.contains("warning: cannot use"), "{said}");
        }
        test.write("terrane.hcl", &file);
        let said = cli(&["apply", "--auto-approve"]).expect(0);
        assert!(said.stderr.contains("unchanged"), "{named:?}: {said}");
    }
}

#[test]
fn a_refused_project_id_comes_with_both_ways_on() {
    let test = one_stack("", MODULE);
    let data = test.root().join("kept").display().to_string();
    let cli = |words: &[&str]| test.cli(&[words, &["--data", &data]].concat());
    drop(cli(&["apply", "--auto-approve"]).expect(0));
    let file = test.read("terrane.hcl");
    test.write("terrane.hcl", &file.replace("k3v9qd", "k3v9qe"));
    let said = flat(&cli(&["apply", "--auto-approve"]).expect(4)).replace(&data, "DATA");
    assert_eq!(
        said,
        "error: cannot use the project id `k3v9qe`: this checkout was last used with the id `k3v9qd` (project `shop`), \
         whose states are in `DATA`, and everything in them would be created again \
         hint: to keep them, write `id = \"k3v9qd\"` in the project block \
         hint: if it is meant to be a new project: `terrane plan --new-project --data DATA`"
    );
    // Who says that it is intended says it once.
    let said = cli(&["plan", "--new-project"]).expect(0);
    assert!(said.stdout.contains("terraform_data.a"), "{said}");
    drop(cli(&["apply", "--auto-approve"]).expect(0));
    // From two branches, each with an id of its own, both are used.
    for text in [&file, &file.replace("k3v9qd", "k3v9qe")] {
        test.write("terrane.hcl", text);
        let said = cli(&["apply", "--auto-approve"]).expect(0);
        assert!(said.stderr.contains("unchanged"), "{said}");
    }
}

#[test]
fn an_id_that_leaves_the_states_behind_is_pointed_out() {
    let test = one_stack("", MODULE);
    let with_id = test.read("terrane.hcl");
    test.write("terrane.hcl", &with_id.replace("  id = \"k3v9qd\"\n", ""));
    apply(&test);
    test.write("terrane.hcl", &with_id);
    let said = flat(&test.cli(&["validate"]).expect(0));
    assert!(
        said.contains("cannot use the project id `k3v9qd`"),
        "{said}"
    );
    // Nobody creates everything again beside it.
    let refused = flat(&test.cli(&["apply", "--auto-approve"]).expect(4));
    let (_, hint) = refused.split_once("write `id = \"").expect("a next step");
    let (id, _) = hint.split_once('"').unwrap();
    test.write("terrane.hcl", &with_id.replace("k3v9qd", id));
    let said = test.cli(&["plan", "--detailed-exitcode"]).expect(0);
    assert!(said.stdout.contains("No changes"), "{said}");
}

#[test]
fn a_worktree_with_another_project_id_is_refused() {
    let test = one_stack("", MODULE).without_env("TERRANE_HOME");
    test.commit_all();
    apply(&test);
    test.git(&["worktree", "add", "--quiet", "../tree"]);
    let tree = test.root().join("tree");
    let file = test.read("terrane.hcl").replace("k3v9qd", "k3v9qe");
    std::fs::write(tree.join("terrane.hcl"), file).unwrap();
    let tree = tree.display().to_string();
    drop(test.cli(&["--project", &tree, "plan"]).expect(4));
}

#[test]
fn moved_and_copied_checkouts_are_not_refused() {
    let test = one_stack("", MODULE);
    apply(&test);
    // A copy becomes a project of its own.
    drop(
        test.shell("cp -r . ../copy; sed -i s/k3v9qd/k3v9qe/ ../copy/terrane.hcl")
            .expect(0),
    );
    let copy = test.root().join("copy").display().to_string();
    drop(
        test.cli(&["--project", &copy, "apply", "--auto-approve"])
            .expect(0),
    );
    // What was moved keeps its home.
    drop(test.shell("mkdir ../moved; mv * ../moved").expect(0));
    let moved = test.root().join("moved").display().to_string();
    let said = test
        .cli(&["--project", &moved, "apply", "--auto-approve"])
        .expect(0);
    assert!(said.stderr.contains("unchanged"), "{said}");
    // Another project takes the path, as in CI jobs, with a stack of the same name.
    drop(
        test.shell(
            "mkdir ../other; cp -r ../moved/* ../other; rmdir ../project; mv ../other ../project",
        )
        .expect(0),
    );
    let file = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &file
            .replace("k3v9qd", "k3v9qf")
            .replace("\"shop\"", "\"bank\""),
    );
    apply(&test);
}

#[test]
fn a_state_in_a_backend_that_the_source_names_is_brought_in_first() {
    let test = one_stack(
        "",
        "terraform {\n  backend \"local\" { path = \"../old.tfstate\" }\n}\n\
         resource \"terraform_data\" \"it\" { input = 1 }\n",
    );
    for action in [&["plan"][..], &["apply", "--auto-approve"]] {
        insta::allow_duplicates! {
            assert_snapshot!(shown(&test, &test.cli(action).expect(4)), @"
            ── stderr
            error: stack `app` has no state in this home, but its source names backend `local` (app/main.tf,
                   line 2): what was applied there would be created again
            hint: `terrane state import app --from engine` imports it
            hint: if nothing was ever applied there, remove the block from the source
            [exit 4]
            ");
        }
    }
    // An empty one is a file beside the module, and there is none.
    test.write(
        "app/main.tf",
        "terraform {\n  backend \"local\" {}\n}\nresource \"terraform_data\" \"it\" { input = 1 }\n",
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn a_file_that_cannot_be_read_leads_to_no_other_home() {
    let test = one_stack("", MODULE);
    apply(&test);
    let file = test.read("terrane.hcl");
    for broken in [
        file.replace("  id = ", "<<<<<<< ours\n  id = "),
        file.replace("k3v9qd", "not an id"),
        file.replace("k3v9qd", "../elsewhere"),
        String::new(),
    ] {
        test.write("terrane.hcl", &broken);
        for words in [
            &["state", "list"][..],
            &["state", "export", "--all", "--to", "../exported"],
            &["lock", "list"],
            &["run", "list"],
        ] {
            let said = test.cli(words).expect(1);
            assert!(
                said.stderr.contains("cannot determine this project's home"),
                "{said}"
            );
        }
    }
    // A mistake elsewhere hides nothing.
    test.write("terrane.hcl", &format!("{file}\nnonsense \"x\" {{}}\n"));
    let said = test.cli(&["state", "list"]).expect(0);
    assert!(said.stdout.contains("app"), "{said}");
}

#[test]
fn a_home_inside_the_project_is_no_part_of_its_source() {
    let test = one_stack("", MODULE);
    test.git(&["init", "-q"]);
    for _ in 0..2 {
        drop(
            test.cli(&["--data", "./inside", "apply", "--auto-approve"])
                .expect(0),
        );
    }
    let copies = test.shell("find inside -name terrane.db");
    assert_eq!(copies.stdout, "inside/terrane.db\n", "{copies}");
}

#[test]
fn a_file_outside_the_stack_that_git_ignores_is_not_silently_missing() {
    let module = "output \"seen\" { value = fileexists(\"${path.module}/../certs/ca.pem\") }\n";
    let test = one_stack("", module);
    test.write(".gitignore", "*.pem\n");
    test.commit_all();
    test.write("certs/ca.pem", "a certificate");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @r"
    ── stderr
    error: stack `app` reads a file that is not part of the source: Git ignores `certs/ca.pem`, named in
           `app/main.tf:1`
    hint: add `certs/ca.pem` to `include` of the stack; `git check-ignore -v certs/ca.pem` names the
          rule
    [exit 1]
    ");
    let said = test.cli(&["validate"]).expect(1);
    assert!(said.stderr.contains("--> app/main.tf:1:36"), "{said}");

    // `include` names it from the project's root.
    let file = test.read("terrane.hcl");
    let included = "layer  = \"main\"\n  include = [\"certs/ca.pem\"]";
    test.write("terrane.hcl", &file.replace("layer  = \"main\"", included));
    drop(test.cli(&["validate"]).expect(0));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let seen = test.cli(&["output", "app", "seen", "--raw"]).expect(0);
    assert_eq!(seen.stdout, "true");
}

#[test]
fn what_git_ignores_is_no_source_and_that_is_said() {
    let test = one_stack("", MODULE);
    test.git(&["init", "-q"]);
    test.write(".gitignore", "app/\n");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: nothing of stack `app` is part of the source: Git ignores `app`
    hint: `git check-ignore -v app` names the rule; terrane runs what Git tracks or would add
    [exit 1]
    ");
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: nothing of stack `app` is part of the source: Git ignores `app`
      --> terrane.hcl:9:7
       |
     9 | stack "app" {
       |       ^^^^^ its directory is ignored
       |
       = hint: `git check-ignore -v app` names the rule; terrane runs what Git tracks or would add

    1 error in terrane.hcl
    [exit 1]
    "#);

    // What is in the source in any case does not make it whole.
    test.write("app/terraform.tfvars", "");
    let said = test.cli(&["validate"]).expect(1);
    assert!(said.stderr.contains("Git ignores `app`"), "{said}");
    drop(test.cli(&["apply", "--auto-approve"]).expect(1));
    // Nor does a link to it.
    test.write(".gitignore", "real/\n");
    drop(
        test.shell("mv app real; ln -s real app; git add app")
            .expect(0),
    );
    let said = test.cli(&["validate"]).expect(1);
    assert!(said.stderr.contains("Git ignores `app`"), "{said}");
    drop(test.shell("rm app; mv real app").expect(0));
    // A file that the stack names is needed, too; its `include` takes it in.
    let file = test.read("terrane.hcl");
    let with = |lines: &str| {
        file.replace(
            "layer  = \"main\"",
            &format!("layer  = \"main\"\n  {lines}"),
        )
    };
    test.write(".gitignore", "prod.tfvars\n")
        .write("app/prod.tfvars", "")
        .write("terrane.hcl", &with("var_files = [\"prod.tfvars\"]"));
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: stack `app` names a file of variables that is not part of the source: Git ignores
           `app/prod.tfvars`
    hint: name it in the stack's `include`; `git check-ignore -v app/prod.tfvars` names the rule
    [exit 1]
    ");
    let lines = "var_files = [\"prod.tfvars\"]\n  include = [\"prod.tfvars\"]";
    test.write("terrane.hcl", &with(lines));
    drop(test.cli(&["validate"]).expect(0));
    test.write("terrane.hcl", &file);
    // Where nothing is, nothing is ignored.
    let file = test.read("terrane.hcl");
    test.write("terrane.hcl", &file.replace("\"app\"\n", "\"ap\"\n"));
    let said = test.cli(&["validate"]).expect(1);
    assert!(said.stderr.contains("there is no directory `ap`"), "{said}");
    assert!(!said.stderr.contains("Git ignores"), "{said}");
    test.write("terrane.hcl", &file);

    test.write(".gitignore", "ign/\n")
        .write("ign/lib/main.tf", MODULE)
        .write(
            "app/lib.tf",
            "module \"lib\" {\n  source = \"../ign/lib\"\n}\n",
        );
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: stack `app` calls a module that is not part of the source: Git ignores `ign/lib`
      --> app/lib.tf:2:12
       |
     2 |   source = "../ign/lib"
       |            ^^^^^^^^^^^^ called here
       |
       = hint: `git check-ignore -v ign/lib` names the rule; terrane runs what Git tracks or would add

    1 error in app/lib.tf
    [exit 1]
    "#);
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: stack `app` calls a module that is not part of the source: Git ignores `ign/lib`
    hint: `git check-ignore -v ign/lib` names the rule; terrane runs what Git tracks or would add
    [exit 1]
    ");
}

/// A scratch copy that Git ignores is nobody's stack.
#[test]
fn what_git_ignores_is_not_discovered() {
    let test = terrane();
    test.git(&["init", "-q"]);
    test.write(".gitignore", "scratch/\n")
        .write("live/one/main.tf", MODULE)
        .write("live/scratch/main.tf", MODULE)
        .write("live/scratch/stack.hcl", "stack \"beside\" {}\n");
    let said = test.cli(&["init"]).expect(0);
    assert!(!test.read("terrane.hcl").contains("scratch"), "{said}");
    let discover = "discover \"live\" {\n  glob = \"live/*\"\n  name = dir[1]\n  target = \"local\"\n  layer = \"main\"\n}\n";
    test.write("terrane.hcl", &format!("{HEAD}{discover}"));
    let said = test.cli(&["validate"]).expect(0);
    assert!(said.stdout.contains("1 stack,"), "{said}");
}

#[test]
fn two_projects_with_one_id_are_pointed_out() {
    let test = one_stack("", MODULE);
    apply(&test);
    assert!(!apply(&test).contains("also that of"));
    let file = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &file.replace("project \"shop\"", "project \"bank\""),
    );
    let said = test.cli(&["plan"]).expect(0);
    assert!(
        said.stderr
            .contains("the id `k3v9qd` is also that of project `shop`"),
        "{said}"
    );
}

#[test]
fn a_state_file_beside_the_module_is_brought_in_first() {
    let module = "resource \"terraform_data\" \"it\" { input = 1 }\n";
    let test = one_stack("", module);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let kept = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    // As who has used the engine by itself so far.
    let test = one_stack("", module);
    test.write("app/terraform.tfstate", &kept);
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(4)), @"
    ── stderr
    error: stack `app` has no state in this home, but `app/terraform.tfstate` contains one: all its
           resources would be created again
    hint: `terrane state import app --from app/terraform.tfstate` imports it
    hint: if none of its resources exist any more, remove the file
    [exit 4]
    ");
    let file = "app/terraform.tfstate";
    drop(
        test.cli(&["state", "import", "app", "--from", file])
            .expect(0),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let now = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    assert_eq!(now, kept);
}

#[test]
fn a_home_that_cannot_be_made_has_a_way_on() {
    let test = one_stack("", "");
    test.write("file", "");
    let data = test.project().join("file/home").display().to_string();
    let said = shown(&test, &test.cli(&["plan", "--data", &data]).expect(1));
    assert_snapshot!(said, @"
    ── stderr
    error: cannot create the home `ROOT/project/file/home`
           Not a directory (os error 20)
    hint: name a home that can be written: `--data DIR` or `TERRANE_HOME`
    [exit 1]
    ");
    let relative = test
        .env("HOME", "here")
        .env("XDG_CONFIG_HOME", "")
        .env("XDG_DATA_HOME", "");
    let said = shown(&relative, &relative.cli(&["plan"]).expect(1));
    assert_snapshot!(said, @"
    ── stderr
    error: there is no home directory: `HOME` is not set to an absolute path
    hint: set `HOME`, or name the directories: `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `XDG_CACHE_HOME`
    [exit 1]
    ");
}

/// Whoever names the home that is found by itself sees the same runs in it, and who is at work.
#[test]
fn a_home_is_the_same_however_it_is_named() {
    let story = Story::on(terrane().without_env("TERRANE_HOME"), "tofu").stack(
        "base",
        "",
        &gated("slow", ""),
    );
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    let homes = story.root().join("user/.local/share/terrane");
    let entries = std::fs::read_dir(homes).unwrap().flatten();
    let mut entries = entries.filter(|entry| entry.file_name() != ".checkouts");
    let home = entries.next().unwrap().path().display().to_string();
    let seen = story.cli(&["--data", &home, "run", "list"]).expect(0);
    assert!(seen.stdout.contains("applying"), "{seen}");
    let _ = story.cli(&["--data", &home, "plan"]);
    story.open("slow");
    let said = apply.wait().expect(0);
    assert!(said.stderr.contains("Done: 1 stack applied"), "{said}");
    let again = story.cli(&["--data", &home, "plan", "--detailed-exitcode"]);
    let _ = again.expect(0);
}
