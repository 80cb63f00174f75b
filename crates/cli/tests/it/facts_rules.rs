//! Rules of publication: what cannot lie side by side, what nobody may miss, what a plan tells and refuses, and that
//! emergencies reach Git at once.

use insta::assert_snapshot;
use serde_json::Value;
use testkit::{AgeKey, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const FACTS: &str = "\nfacts \"runtime\" { repository = \"../facts.git\" }\n";

fn world(stacks: &str, module: &str) -> TestTerrane {
    let test = terrane();
    test.write("terrane.hcl", &format!("{HEAD}{FACTS}{stacks}"))
        .write("app/main.tf", module);
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    test
}

fn publish(path: &str, values: &str) -> String {
    format!("publish \"runtime\" {{\n    path   = {path}\n    values = {values}\n  }}")
}

/// What was said, on one line: it is wrapped as wide as the terminal is.
fn flat(test: &TestTerrane, args: &[&str], code: i32) -> String {
    let said = test.cli(args).expect(code).to_string();
    let words: Vec<&str> = said.split_whitespace().collect();
    words.join(" ")
}

fn in_git(test: &TestTerrane, args: &[&str]) -> String {
    let mut all = vec!["--git-dir=../facts.git"];
    all.extend(args);
    test.git(&all)
}

fn record(test: &TestTerrane) -> Value {
    let text = in_git(test, &["show", "facts:.terrane/break-glass/k3v9qd.json"]);
    serde_json::from_str(&text).expect("JSON")
}

const ADDRESS: &str = "output \"address\" {\n  value = \"20.1.2.3\"\n}\n";

#[test]
fn files_that_cannot_lie_side_by_side_are_found_by_validate() {
    let paths = [
        "x.yaml",
        "x.yaml/y.yaml",
        "q/X.yaml",
        "q/x.yaml",
        "a//b.yaml",
        ".TERRANE/manifest.json",
    ];
    let blocks = paths.map(|path| publish(&format!("\"{path}\""), "{ a = 1 }"));
    let sink = "publish \"runtime\" {\n    path   = \"s.yaml\"\n    values = { a = 1 }\n    \
                sink \"file\" { path = \".git/out.json\" }\n  }";
    let blocks = format!("{}\n  {sink}", blocks.join("\n  "));
    let test = world(&stack("app", &blocks), ADDRESS);
    let said = flat(&test, &["validate"], 1);
    for expected in [
        "`x.yaml/y.yaml` and `x.yaml` cannot both be published to `runtime`: one would be a file and a directory at once",
        "`q/x.yaml` and `q/X.yaml` cannot both be published to `runtime`: they differ in case only",
        "`a//b.yaml` is not a valid path for facts: a part of it is empty",
        "`.TERRANE/manifest.json` is not a valid path for facts",
        "`.git/out.json` is not a valid path for facts",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

#[test]
fn a_stack_does_not_remove_anothers_file_by_a_directory_of_its_name() {
    for owns in ["branch", "paths"] {
        let module = |path: &str| format!("output \"path\" {{\n  value = \"{path}\"\n}}\n");
        let block = publish("output.path", "{ a = 1 }");
        let stacks = [stack("app", &block), stack("other", &block)].concat();
        let test = world(&stacks, &module("x.yaml"));
        let facts = format!(
            "\nfacts \"runtime\" {{\n  repository = \"../facts.git\"\n  owns = \"{owns}\"\n}}\n"
        );
        test.write("terrane.hcl", &format!("{HEAD}{facts}{stacks}"))
            .write("other/main.tf", &module("x.yaml/y.yaml"));
        drop(test.cli(&["apply", "app", "--auto-approve"]).expect(0));
        for path in ["x.yaml/y.yaml", "X.yaml", "x.yaml"] {
            test.write("other/main.tf", &module(path));
            let said = flat(&test, &["apply", "other", "--auto-approve"], 4);
            assert!(
                said.contains("belongs to stack `app` of project `k3v9qd`"),
                "{owns} {path}\n{said}"
            );
            let there = in_git(&test, &["ls-tree", "-r", "--name-only", "facts"]);
            let there: Vec<&str> = there
                .lines()
                .filter(|path| !path.starts_with('.'))
                .collect();
            assert_eq!(there, ["x.yaml"], "{owns} {path}");
        }
    }
}

#[test]
fn an_emergency_reaches_git_at_once_and_without_secrets() {
    let module = format!(
        "{ADDRESS}output \"pw\" {{\n  sensitive = true\n  value = \"hunter2-marked\"\n}}\n"
    );
    let stacks = stack("app", &publish("\"a.yaml\"", "{ a = output.address }"));
    let test = world(&stacks, &module);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let reveal = ["state", "show", "app", "--reveal", "--reason"];
    let because = "it was hunter2-marked all along";
    drop(test.cli(&[&reveal[..], &[because]].concat()).expect(0));
    let acts = record(&test);
    assert_eq!(
        acts["break_glass"][0]["reason"],
        "it was (secret) all along"
    );
    assert_eq!(acts["break_glass"][0]["closed_at"], Value::Null);
    assert_snapshot!(in_git(&test, &["log", "--format=%s", "facts"]), @r"
    record break-glass acts
    publish facts of app
    ");
    let log = in_git(&test, &["log", "-p", "facts"]);
    assert!(!log.contains("hunter2"), "{log}");
    // It closes with the next apply of its stack, and Git hears of that, too.
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert!(record(&test)["break_glass"][0]["closed_at"].is_string());
    let count = || in_git(&test, &["rev-list", "--count", "facts"]);
    let before = count();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(count(), before, "nothing new to tell");
}

#[test]
fn no_reason_is_kept_with_a_secret_of_the_run_in_it() {
    let context = "\ncontext \"c\" {\n  autoattach = [\"layer:main\"]\n  env = {\n    A = secret(\"env:MARKED\")\n    \
                   B = secret(\"command:cat kept.txt\")\n  }\n}\n";
    let module = format!(
        "{ADDRESS}output \"lines\" {{\n  sensitive = true\n  value = \"one-marked\\ntwo-marked\"\n}}\n"
    );
    let gate = "gate \"command\" \"t\" {\n    run     = [\"false\"]\n    timeout = \"1s\"\n  }";
    let block = publish("\"a.yaml\"", "{ a = output.address }");
    let stacks = stack("app", &format!("{block}\n  {gate}"));
    let test = world(&format!("{context}{stacks}"), &module).env("MARKED", "three-marked");
    test.write("kept.txt", "four-marked");
    drop(test.cli(&["apply", "--auto-approve"]).expect(5));
    let because = "two-marked three-marked four-marked";
    let skip = ["--skip-gate", "app/t", "--reason", because];
    drop(
        test.cli(&[&["run", "retry", "r1"][..], &skip].concat())
            .expect(0),
    );
    // An act that no run is asked for knows what this machine has.
    let reveal = ["state", "show", "app", "--reveal", "--reason"];
    drop(
        test.cli(&[&reveal[..], &["three-marked"]].concat())
            .expect(0),
    );
    let acts = &record(&test)["break_glass"];
    assert_eq!(acts[0]["reason"], "(secret) (secret) (secret)");
    assert_eq!(acts[1]["reason"], "(secret)");
    let told = test.cli(&["run", "list", "--open"]).expect(0).to_string();
    assert!(!told.contains("-marked"), "{told}");
    let log = in_git(&test, &["log", "-p", "facts"]);
    assert!(!log.contains("-marked"), "{log}");
    let kept = test.shell("grep -rl three-marked ../home; true").stdout;
    assert_eq!(kept, "");
}

#[test]
fn a_gate_that_was_skipped_after_a_destroy_is_told_to_git() {
    let gate = "gate \"command\" \"gone\" {\n    when = \"destroyed\"\n    run  = [\"false\"]\n    timeout = \"1s\"\n  }";
    let block = publish("\"a.yaml\"", "{ a = output.address }");
    let test = world(&stack("app", &format!("{block}\n  {gate}")), ADDRESS);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let destroy = [
        "destroy",
        "app",
        "--auto-approve",
        "--skip-gate",
        "app/gone",
        "--reason",
        "it lies",
    ];
    drop(test.cli(&destroy).expect(0));
    assert_eq!(record(&test)["break_glass"][0]["reason"], "it lies");
    assert_snapshot!(in_git(&test, &["log", "--format=%s", "facts"]), @r"
    record break-glass acts
    withdraw facts of app
    publish facts of app
    ");
}

#[test]
fn an_act_closes_with_the_next_apply_though_nothing_changed_upstream() {
    let module =
        "variable \"word\" { type = string }\noutput \"address\" { value = \"20.1.2.3\" }\n";
    let stacks = [
        stack("base", ""),
        stack("app", "inputs = { word = stack.base.output.word }"),
    ];
    let test = world(&stacks.concat(), module);
    test.write("base/main.tf", "output \"word\" { value = \"x\" }\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let reveal = ["state", "show", "app", "--reveal", "--reason", "look"];
    drop(test.cli(&reveal).expect(0));
    let open = || test.cli(&["run", "list", "--open"]).expect(0).to_string();
    assert!(open().contains("secrets shown"), "{}", open());
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert!(!open().contains("secrets shown"), "{}", open());
}

#[test]
fn a_contract_publishes_what_it_names_wherever_it_names_it() {
    let block = "publish \"runtime\" {\n    path     = \"a.yaml\"\n    contract = \"edge/v1\"\n  }";
    let test = world(&stack("app", block), ADDRESS);
    let contract = |text: &str| {
        test.write("contracts/edge/v1.json", text);
    };
    contract(
        r##"{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"address": {"type": "string"}}}}}"##,
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = in_git(&test, &["show", "facts:a.yaml"]);
    assert!(file.contains("address: \"20.1.2.3\""), "{file}");
    for (text, expected) in [
        (
            r#"{"type": "object"}"#,
            "the contract `edge/v1` names no outputs to publish",
        ),
        (
            "{\n  \"a\" 1\n}",
            "the contract `edge/v1` is not JSON: expected `:` at line 2 column 7",
        ),
        (
            r#"{"$ref": "https://example.io/x.json"}"#,
            "a contract may only refer to itself",
        ),
    ] {
        contract(text);
        let said = flat(&test, &["validate"], 1);
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    contract(r#"{"properties": {"address": {}}}"#);
    let block = block.replace("\"edge/v1\"", "\"edge/v1\"\n    partial  = [\"nonsense\"]");
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{FACTS}{}", stack("app", &block)),
    );
    let said = flat(&test, &["validate"], 1);
    let expected = "`partial` names `nonsense`, which the contract `edge/v1` does not";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn what_others_use_is_withdrawn_by_hand_only_with_a_reason() {
    let head = HEAD.replace(
        "  engine \"tofu\" {}\n",
        "  engine \"tofu\" {}\n  gitops { paths = [\"gitops/**/*.yaml\"] }\n",
    );
    let block = publish("\"a.yaml\"", "{ edge = { address = output.address } }");
    let test = world(&stack("app", &block), ADDRESS);
    test.write("gitops/edge.yaml", "a: {{ .Values.edge.address }}\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test.write("terrane.hcl", &format!("{head}{FACTS}{}", stack("app", "")));
    let said = test.cli(&["facts", "publish", "app"]).expect(4).to_string();
    assert_snapshot!(said, @r"
    ── stderr
    error: cannot withdraw facts of `app`: others still use them: `edge`
           `edge` is no longer published, but still read:
             gitops/edge.yaml:1: a: {{ .Values.edge.address }}
    hint: keep publishing them, change the consumers first, or withdraw them anyway:
          `terrane facts publish app --withdraw-used --reason …`
    [exit 4]
    ");
    let there = || in_git(&test, &["ls-tree", "-r", "--name-only", "facts"]);
    assert!(there().contains("a.yaml"));
    let emergency = [
        "facts",
        "publish",
        "app",
        "--withdraw-used",
        "--reason",
        "it goes today",
    ];
    drop(test.cli(&emergency).expect(0));
    assert!(!there().contains("a.yaml"));
    let act = record(&test)["break_glass"][0].clone();
    assert_eq!(act["act"], "facts withdrawn");
    assert_eq!(act["reason"], "it goes today");
}

#[test]
fn a_plan_says_what_becomes_of_facts_and_refuses_what_will_be_refused() {
    let block = |path: &str, values: &str| {
        let stacks = stack("app", &publish(&format!("\"{path}\""), values));
        format!("{HEAD}{FACTS}{stacks}")
    };
    let test = world("", ADDRESS);
    test.write("terrane.hcl", &block("a.yaml", "{ a = output.address }"));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let plan = ["plan", "--detailed-exitcode"];
    drop(test.cli(&plan).expect(0));
    test.write("terrane.hcl", &block("b.yaml", "{ a = output.address }"));
    assert_snapshot!(test.cli(&plan).expect(2).stdout, @r"
    change set c3 on `local`

    app  no changes

    facts of app would change
      + b.yaml  published to `runtime`
      - a.yaml  withdrawn from `runtime`

    No changes of resources; facts would change.
    ");
    test.write("terrane.hcl", &block("a.yaml", "{ a = \"other\" }"));
    let said = test.cli(&plan).expect(2).to_string();
    assert!(
        said.contains("~ a.yaml  published again to `runtime`"),
        "{said}"
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    drop(test.cli(&plan).expect(0));
    let sas = "{ link = \"https://a.blob.core.windows.net/c?sv=1&sig=Zm9vYmFyYmF6Zm9vYmFyYmF6\" }";
    test.write("terrane.hcl", &block("a.yaml", sas));
    let said = flat(&test, &["plan"], 4);
    assert!(
        said.contains("`a.yaml` would contain values that look like secrets: `link`"),
        "{said}"
    );
}

#[test]
fn an_encrypted_file_is_what_its_name_says() {
    let key = AgeKey::generate();
    let facts =
        "\nfacts \"runtime\" {\n  repository = \"../facts.git\"\n  encrypt    = \"all\"\n}\n";
    let block = "publish \"runtime\" {\n    path   = \"a.yaml\"\n    \
                 values = { a = output.address, n = 3, deep = { list = [true, \"x\"] } }\n    \
                 sink \"file\" { path = \"out/a.json\" }\n  }";
    let test = world("", ADDRESS);
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", block)),
    )
    .write(
        ".sops.yaml",
        &format!("creation_rules:\n  - age: {}\n", key.recipient),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let written = std::fs::read_to_string(test.project().join("out/a.json")).expect("a file");
    let json: Value = serde_json::from_str(&written).expect("JSON");
    assert!(
        json["a"].as_str().expect("a text").starts_with("ENC["),
        "{json}"
    );
    let env = [("SOPS_AGE_KEY", key.identity.as_str())];
    let decrypted = test.cli_with(&env, &["secret", "decrypt", "out/a.json"]);
    let decrypted = decrypted.expect(0);
    let clear: Value = serde_json::from_str(&decrypted.stdout).expect("JSON");
    assert_eq!(clear["n"], 3);
    assert_eq!(clear["deep"]["list"][1], "x");
    // Said once, and kept as it is.
    let said = test.cli(&["facts", "publish"]).expect(0).to_string();
    assert!(said.contains("file `out/a.json`: unchanged"), "{said}");
}

#[test]
fn what_others_wrote_is_said_of_all_places_at_once() {
    let facts = "\nfacts \"one\" { repository = \"../facts.git\" }\n\
                 facts \"two\" {\n  repository = \"../facts.git\"\n  branch = \"two\"\n}\n";
    let block = |place: &str| {
        publish(&format!("\"{place}.json\""), "{ a = output.address }").replace("runtime", place)
    };
    let test = world("", ADDRESS);
    let blocks = format!("{}\n  {}", block("one"), block("two"));
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", &blocks)),
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert_snapshot!(test.cli(&["facts", "show"]).expect(0).stdout, @r##"
    # app: `one.json` of `one`
    {
      "a": "20.1.2.3"
    }
    ---
    # app: `two.json` of `two`
    {
      "a": "20.1.2.3"
    }
    "##);
    for branch in ["facts", "two"] {
        let clone = format!("../{branch}");
        let git = |args: &[&str]| drop(test.git(&[&["-C", &clone], args].concat()));
        let args = [
            "clone",
            "--quiet",
            "--branch",
            branch,
            "../facts.git",
            &clone,
        ];
        drop(test.git(&args));
        git(&["commit", "--quiet", "--allow-empty", "-m", "nothing"]);
        test.write(&format!("{clone}/more.yaml"), "a: 1\n");
        git(&["add", "more.yaml"]);
        git(&["commit", "--quiet", "-m", &format!("by hand on {branch}")]);
        git(&["push", "--quiet", "origin", branch]);
    }
    let said = flat(&test, &["facts", "publish"], 4);
    assert!(said.contains("`by hand on facts`"), "{said}");
    assert!(said.contains("and to `two`: "), "{said}");
    assert!(said.contains("`by hand on two`"), "{said}");
    assert!(
        said.contains("`terrane facts publish app --take-over"),
        "{said}"
    );
}

/// What a plan foretells of facts, without the rest of it.
fn foretold(test: &TestTerrane, args: &[&str]) -> String {
    let said = test.cli(args).expect(0).to_string();
    let told = said
        .lines()
        .skip_while(|line| !line.starts_with("facts of"));
    let told = told.take_while(|line| !line.is_empty());
    told.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plan_tells_of_sinks_of_a_place_that_moved_and_of_a_destroy() {
    let block = |sink: &str| {
        format!(
            "publish \"runtime\" {{\n    path   = \"a.yaml\"\n    values = {{ a = output.address }}\n    \
             sink \"file\" {{ path = \"out/{sink}.json\" }}\n  }}"
        )
    };
    let test = world(&stack("app", &block("s")), ADDRESS);
    assert_eq!(foretold(&test, &["plan"]), "");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let text = test.read("terrane.hcl");
    test.write("terrane.hcl", &text.replace("out/s.json", "out/t.json"));
    assert_snapshot!(foretold(&test, &["plan"]), @r"
    facts of app would change
      + out/t.json  written into the project
      - out/s.json  removed from the project
    ");
    let moved = "repository = \"../facts.git\"\n  branch = \"other\"";
    let moved = text.replace("repository = \"../facts.git\"", moved);
    let moved = moved.replace("facts \"runtime\" { ", "facts \"runtime\" {\n  ");
    test.write("terrane.hcl", &moved.replace("\"other\" }", "\"other\"\n}"));
    assert_snapshot!(foretold(&test, &["plan"]), @r"
    facts of app would change
      + a.yaml  published to `runtime`
      ! a.yaml  stays where `runtime` pointed before: remove it there yourself
    ");
    test.write("terrane.hcl", &text);
    assert_snapshot!(foretold(&test, &["plan", "--destroy"]), @r"
    facts of app would change
      - a.yaml  withdrawn from `runtime`
      - out/s.json  removed from the project
    ");
}

#[test]
fn paths_of_a_stack_that_clash_are_found_before_anything_is_applied() {
    let each = "publish \"runtime\" {\n    for_each = output.names\n    path     = \"x/${each.value}.yaml\"\n    values   = { a = 1 }\n  }";
    let names = |names: &str| format!("output \"names\" {{\n  value = {names}\n}}\n");
    let stacks = [stack("app", each), stack("web", each)].concat();
    let test = world(&stacks, &names(r#"{ p = "one", q = "one" }"#));
    test.write("web/main.tf", &names(r#"{ p = "two" }"#));
    let said = flat(&test, &["apply", "--auto-approve"], 4);
    let expected = "two `publish` blocks of stack `app` write `x/one.yaml` of `runtime`";
    assert!(said.contains(expected), "{said}");
    test.write("app/main.tf", &names(r#"{ p = "one", q = "two.yaml/z" }"#));
    let said = flat(&test, &["apply", "app", "--auto-approve"], 4);
    assert!(
        said.contains("`x/two.yaml/z.yaml` conflicts with `x/two.yaml`"),
        "{said}"
    );
}

#[test]
fn stacks_that_swap_their_paths_are_refused_in_the_plan() {
    let stacks = |one: &str, two: &str| {
        let block = |path: &str| publish(&format!("\"{path}\""), "{ a = 1 }");
        let stacks = [stack("app", &block(one)), stack("web", &block(two))];
        stacks.concat()
    };
    let test = world(&stacks("1.yaml", "2.yaml"), ADDRESS);
    test.write("web/main.tf", ADDRESS);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let swapped = stacks("2.yaml", "1.yaml");
    test.write("terrane.hcl", &format!("{HEAD}{FACTS}{swapped}"));
    let said = flat(&test, &["plan"], 4);
    for (path, owner) in [("2.yaml", "web"), ("1.yaml", "app")] {
        let expected = format!("`{path}` belongs to stack `{owner}`");
        assert!(said.contains(&expected), "{said}");
    }
    // What is free by then is taken.
    let free = stacks("3.yaml", "1.yaml");
    test.write("terrane.hcl", &format!("{HEAD}{FACTS}{free}"));
    drop(test.cli(&["apply", "app", "--auto-approve"]).expect(0));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let there = in_git(&test, &["ls-tree", "-r", "--name-only", "facts"]);
    assert_eq!(there, ".terrane/manifest.json\n1.yaml\n3.yaml\n");
}
