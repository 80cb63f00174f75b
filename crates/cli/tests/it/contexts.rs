//! What contexts give to engines: environment, variables, secrets.

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::{HEAD, one_stack, runs, shown, stack, terrane};

/// One stack whose module writes chosen variables of its environment into a file outside of the tree.
fn telling(contexts: &str, variables: &[&str]) -> TestTerrane {
    let test = terrane();
    let seen = test.root().join("seen");
    let words: Vec<String> = variables
        .iter()
        .map(|name| format!("{name}=$${{{name}-unset}}"))
        .collect();
    let command = format!(
        "printf '%s\\n' \"{}\" > {}",
        words.join(" "),
        seen.display()
    );
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{contexts}{}", stack("app", "")),
    )
    .write("app/main.tf", &runs(&command, "1"));
    test
}

fn seen(test: &TestTerrane) -> String {
    std::fs::read_to_string(test.root().join("seen")).expect("what was seen")
}

#[track_caller]
fn apply(test: &TestTerrane) {
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn environment_by_value_and_from_the_caller() {
    let test = telling(
        r#"
context "cloud" {
  autoattach = ["target:local"]
  env        = { REGION = "west", ACCOUNT = env("ACCOUNT"), STACK = stack.name, FALLBACK = env("NOT_SET", "fell back"), TRIED = try(env("NOT_SET"), "tried") }
  pass_env   = ["TOKEN_*", "EXACT"]
}
"#,
        &["REGION", "ACCOUNT", "STACK", "FALLBACK", "TRIED", "TOKEN_A", "TOKEN_B", "EXACT", "EXACTLY", "OTHER"],
    )
    .env("ACCOUNT", "42")
    .env("TOKEN_A", "one")
    .env("TOKEN_B", "two")
    .env("EXACT", "three")
    .env("EXACTLY", "not this")
    .env("OTHER", "nor this");
    apply(&test);
    assert_eq!(
        seen(&test),
        "REGION=west ACCOUNT=42 STACK=app FALLBACK=fell back TRIED=tried TOKEN_A=one TOKEN_B=two EXACT=three EXACTLY=unset OTHER=unset\n"
    );
}

#[test]
fn the_higher_priority_wins() {
    let test = telling(
        r#"
context "all" {
  autoattach = ["*"]
  env        = { LEVEL = "all", ALL = "yes" }
}
context "mine" {
  autoattach = ["app"]
  priority   = 10
  env        = { LEVEL = "mine" }
}
context "strangers" {
  autoattach = ["label:none"]
  priority   = 20
  env        = { LEVEL = "strangers" }
}
"#,
        &["LEVEL", "ALL"],
    );
    apply(&test);
    assert_eq!(seen(&test), "LEVEL=mine ALL=yes\n");
}

#[test]
fn equal_priority_and_different_values_are_a_mistake() {
    let test = telling(
        r#"
context "one" {
  autoattach = ["*"]
  env        = { LEVEL = "one" }
}
context "two" {
  autoattach = ["*"]
  env        = { LEVEL = "two" }
}
"#,
        &["LEVEL"],
    );
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"
    ── stderr
    error: contexts `one` and `two` set `LEVEL` differently
      --> terrane.hcl:15:18   `two`, priority 0
      --> terrane.hcl:11:18   `one`, the same priority
      = hint: both are attached to stack `app`: give one a higher `priority`

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn variables_reach_the_modules_that_declare_them() {
    let test = one_stack(
        "inputs = { size = 3 }",
        "variable \"size\" { type = number }\nvariable \"region\" { type = string }\n\
         output \"seen\" { value = \"${var.size} in ${var.region}\" }\n",
    );
    let context = "\ncontext \"all\" {\n  autoattach = [\"*\"]\n  vars       = { region = \"west\", size = 1, unheard_of = true }\n}\n";
    let file = test.read("terrane.hcl") + context;
    test.write("terrane.hcl", &file);
    apply(&test);
    let said = test.cli(&["output", "app", "seen", "--raw"]).expect(0);
    assert_eq!(said.stdout, "3 in west");
}

#[test]
fn a_context_by_name_reaches_that_stack_alone() {
    let test = one_stack(
        "contexts = [\"named\"]",
        "variable \"a\" { default = 0 }\noutput \"a\" { value = var.a }\n",
    );
    let file = test.read("terrane.hcl")
        + "\ncontext \"named\" { vars = { a = 7 } }\n"
        + &stack("other", "");
    test.write("terrane.hcl", &file).write(
        "other/main.tf",
        "variable \"a\" { default = 0 }\noutput \"a\" { value = var.a }\n",
    );
    apply(&test);
    assert_eq!(test.cli(&["output", "app", "a", "--raw"]).stdout, "7");
    assert_eq!(test.cli(&["output", "other", "a", "--raw"]).stdout, "0");
}

#[test]
fn secrets_come_from_environment_files_and_commands() {
    let test = telling(
        r#"
context "secrets" {
  autoattach = ["*"]
  env = {
    FROM_ENV     = secret("env:PASSWORD")
    FROM_FILE    = secret("file:~/token")
    FROM_COMMAND = secret("command:./tell.sh part two")
  }
}
"#,
        &["FROM_ENV", "FROM_FILE", "FROM_COMMAND"],
    )
    .env("PASSWORD", "open-sesame");
    std::fs::write(test.root().join("user/token"), "from-a-file\n").unwrap();
    let tell = test.project().join("tell.sh");
    testkit::write_program(&tell, "#!/bin/sh\necho \"told $1 $2\"\n");
    apply(&test);
    assert_eq!(
        seen(&test),
        "FROM_ENV=open-sesame FROM_FILE=from-a-file FROM_COMMAND=told part two\n"
    );
}

#[test]
fn secrets_are_masked_wherever_they_turn_up() {
    let test = one_stack(
        "",
        "variable \"password\" { type = string }\nresource \"terraform_data\" \"a\" { input = \"user:${var.password}\" }\n",
    )
    .env("PASSWORD", "open-sesame");
    let context = "\ncontext \"secrets\" {\n  autoattach = [\"*\"]\n  vars       = { password = secret(\"env:PASSWORD\") }\n}\n";
    let file = test.read("terrane.hcl") + context;
    test.write("terrane.hcl", &file);
    let said = test.cli(&["plan"]).expect(0);
    assert!(!said.to_string().contains("open-sesame"), "{said}");
    let said = test.cli(&["apply", "--auto-approve", "--json"]).expect(0);
    assert!(!said.to_string().contains("open-sesame"), "{said}");
}

#[test]
fn what_is_not_set_is_said_before_anything_runs() {
    let test = telling(
        "\ncontext \"cloud\" {\n  autoattach = [\"*\"]\n  env        = { ACCOUNT = env(\"ACCOUNT\") }\n}\n",
        &["ACCOUNT"],
    );
    drop(test.cli(&["validate"]).expect(0));
    assert_snapshot!(test.cli(&["apply", "--auto-approve"]).expect(1), @"
    ── stderr
    error: stack `app` needs the environment variable `ACCOUNT`, which is not set
    hint: set it: `export ACCOUNT=…`
    [exit 1]
    ");
    assert!(!test.root().join("seen").exists());
}

#[test]
fn a_secret_that_is_not_there_is_said_before_anything_runs() {
    let test = telling(
        "\ncontext \"secrets\" {\n  autoattach = [\"*\"]\n  env        = { TOKEN = secret(\"file:~/token\") }\n}\n",
        &["TOKEN"],
    );
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(1)), @"
    ── stderr
    error: stack `app` needs the secret `file:~/token`, which terrane.hcl:11 names
           there is no secret file `ROOT/user/token`
    [exit 1]
    ");
    assert!(!test.root().join("seen").exists());
}

#[test]
fn a_command_that_fails_fails_its_stack() {
    let test = telling(
        "\ncontext \"secrets\" {\n  autoattach = [\"*\"]\n  env        = { TOKEN = secret(\"command:false\") }\n}\n",
        &["TOKEN"],
    );
    assert_snapshot!(shown(&test, &test.cli(&["apply", "--auto-approve"]).expect(1)), @"
    ── stderr
    change set c1: apply on `local`
    ✗ app   failed while planning, after 0 s
        cannot resolve the secret `command:false`: the secret command `false` ended with exit code 1

    error: change set c1 stopped: 1 failed
    hint: fix the cause, then `terrane apply --resume c1` runs what is left
    [exit 1]
    ");
}

#[test]
fn what_would_turn_the_engine_against_us_is_refused() {
    let test = one_stack("", "");
    let context = r#"
context "sly" {
  autoattach = ["*"]
  env        = { TF_CLI_ARGS_plan = "-lock=false", TF_WORKSPACE = "other", TF_HTTP_ADDRESS = "https://elsewhere", TF_LOG = "info" }
  pass_env   = ["TF_DATA_DIR"]
}
"#;
    let file = test.read("terrane.hcl") + context;
    test.write("terrane.hcl", &file);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: a context cannot give `TF_CLI_ARGS_plan` to the engine: it would change the calls that plans
           and applies are made of
      --> terrane.hcl:18:18
       |
    18 |   env        = { TF_CLI_ARGS_plan = "-lock=false", TF_WORKSPACE = "other", TF_HTTP_ADDRESS = "…
       |                  ^^^^^^^^^^^^^^^^ this name
       |
       = hint: `parallelism`, `timeout` and `var_files` are set in the project file

    error: a context cannot give `TF_WORKSPACE` to the engine: a stack has one state, and no workspaces
      --> terrane.hcl:18:52
       |
    18 |   env        = { TF_CLI_ARGS_plan = "-lock=false", TF_WORKSPACE = "other", TF_HTTP_ADDRESS = "…
       |                                                    ^^^^^^^^^^^^ this name
       |
       = hint: name the state by `state` in the stack's block

    error: a context cannot give `TF_HTTP_ADDRESS` to stack `app`: its state is in terrane's own service
      --> terrane.hcl:18:76
       |
    18 |   env        = { TF_CLI_ARGS_plan = "-lock=false", TF_WORKSPACE = "other", TF_HTTP_ADDRESS = "…
       |                                                                            ^^^^^^^^^^^^^^^
       |   this name
       |
       = hint: `backend "http"` in the target keeps states elsewhere

    error: a context cannot give `TF_DATA_DIR` to the engine: where the engine keeps its own files is
           terrane's to decide
      --> terrane.hcl:19:16
       |
    19 |   pass_env   = ["TF_DATA_DIR"]
       |                ^^^^^^^^^^^^^^^ this name
       |
       = hint: leave it out: each stack has a directory of its own

    4 errors in terrane.hcl
    [exit 1]
    "#);
    // A pattern does not take them over, either.
    let open = telling(
        "context \"all\" {\n  autoattach = [\"*\"]\n  pass_env   = [\"TF_*\"]\n}\n",
        &["TF_LOG_PATH", "TF_WORKSPACE"],
    )
    .env("TF_WORKSPACE", "other")
    .env("TF_LOG_PATH", "/dev/null");
    apply(&open);
    assert_eq!(seen(&open), "TF_LOG_PATH=/dev/null TF_WORKSPACE=unset\n");
}
