//! A sensitive value reaches the stacks that need it, and nobody's eyes.

use insta::assert_snapshot;
use testkit::{CommandOutput, engines};

use crate::story::{Story, essence, holding, resource, terrane};

const VAULT: &str = r#"
resource "terraform_data" "vault" {
  input = "vault"
}
output "password" {
  value     = sensitive("pw-${sha256(terraform_data.vault.id)}")
  sensitive = true
}
output "name" {
  value = "vault"
}
"#;

fn consumer(sensitive: bool) -> String {
    format!(
        "variable \"password\" {{\n  type      = string\n  sensitive = {sensitive}\n}}\n\
         resource \"terraform_data\" \"user\" {{\n  input = {{ login = \"root:${{var.password}}\" }}\n}}\n\
         output \"digest\" {{\n  value     = sha256(var.password)\n  sensitive = true\n}}\n"
    )
}

fn story(engine: &str) -> Story {
    let takes = "inputs = { password = stack.vault.output.password }";
    Story::new(engine)
        .stack("vault", "", VAULT)
        .stack("careful", takes, &consumer(true))
        .stack("careless", takes, &consumer(false))
}

#[test]
fn a_sensitive_output_arrives_and_is_never_shown() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let mut said = vec![story.cli(&["apply", "--auto-approve"]).expect(0)];
        story.settle();
        let password = story.cli(&["output", "vault", "password", "--raw"]);
        let password = password.expect(0).stdout;
        assert!(password.starts_with("pw-"), "{password}");
        assert_eq!(holding(&story, &password), Vec::<std::path::PathBuf>::new());

        // It arrived: both made the same of it.
        let digests = ["careful", "careless"]
            .map(|stack| story.cli(&["output", stack, "digest", "--raw"]).stdout);
        assert_eq!(digests[0].len(), 64);
        assert_eq!(digests[0], digests[1]);

        let masked = story.cli(&["output", "vault"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(masked, @r#"
            name     = "vault"
            password = (sensitive)
            "#);
        }
        said.push(masked);
        said.push(story.cli(&["output", "vault", "--json"]).expect(0));
        // A change beside the value shows the value's neighbourhood.
        for stack in ["careful", "careless"] {
            let text = story.read(&format!("{stack}/main.tf"));
            story.write(
                &format!("{stack}/main.tf"),
                &text.replace("root:", "admin:"),
            );
        }
        let plan = story.cli(&["plan", "--full"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(plan.stdout, @r#"
            change set c2 on `local`

            vault     no changes

            careful   ~ 1 change
              ~ terraform_data.user
                  input.login   (sensitive)
                  output        { login = "(secret)" } → (known after apply)
                  … 1 unchanged

            careless  ~ 1 change
              ~ terraform_data.user
                  input.login   (sensitive)
                  output        { login = "(secret)" } → (known after apply)
                  … 1 unchanged

            Plan: 0 to add, 2 to change, 0 to replace, 0 to destroy, in 2 of 3 stacks.
            "#);
        }
        said.push(plan);
        said.push(story.cli(&["plan", "--full", "--json"]).expect(0));
        said.push(story.cli(&["apply", "--json", "--auto-approve"]).expect(0));
        check_absent(&said, &password);
        story.settle();
        assert_eq!(holding(&story, &password), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn a_plain_variable_that_gets_a_sensitive_value_is_warned_about() {
    let validate = story("tofu").cli(&["validate"]).expect(0);
    assert_snapshot!(validate, @r#"
    Project `story` is valid: 3 stacks, 2 edges, 1 layer.
    ── stderr
    warning: the sensitive output `password` of stack `vault` goes to variable `password`, which is not
             sensitive
      --> terrane.hcl:22:25       plans would show it in clear
      --> careless/main.tf:1:10   not marked `sensitive`
      = hint: add `sensitive = true` to variable `password`

    note: the project has no `id`: its home is tied to this directory
      = hint: before the first apply, add a unique `id = "…"` to the project block

    1 warning in terrane.hcl
    "#);
}

#[test]
fn a_secret_of_a_context_is_masked_in_what_the_engine_says() {
    for (engine, _) in engines::all() {
        let terrane = terrane().env("STORY_TOKEN", "tok-5f0c2a9e71");
        let broken = resource("broken", "", "echo \"refused: $API_TOKEN\"; exit 3");
        let story = Story::on(terrane, engine)
            .block(
                "context \"api\" {\n  autoattach = [\"target:local\"]\n  env = { API_TOKEN = secret(\"env:STORY_TOKEN\") }\n}",
            )
            .stack("only", "", &broken);
        let said = story.cli(&["apply", "--auto-approve"]).expect(1);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @r#"
            change set c1: apply on `local`
            ✗ only   failed: local-exec provisioner error
            ✗ only   failed while applying, after 0 s
                Error: local-exec provisioner error
                  with terraform_data.broken, on only/main.tf line 4
                  Error running command 'echo "refused: $API_TOKEN"; exit 3': exit status 3. Output: refused:
                  (secret)
                state kept: serial 1 (1 resource begun, none finished before the failure)

            error: change set c1 stopped: 1 failed
            hint: fix the cause, then `terrane apply --resume c1` runs what is left
            [exit 1]
            "#);
        }
        check_absent(&[said], "tok-5f0c2a9e71");
        let said = story.cli(&["apply", "--auto-approve", "--json"]).expect(1);
        check_absent(&[said], "tok-5f0c2a9e71");
        story.settle();
        let held = holding(&story, "tok-5f0c2a9e71");
        assert_eq!(held, Vec::<std::path::PathBuf>::new());
    }
}

/// Takes a secret where nothing is marked as sensitive, and hands it on.
const CARELESS: &str = r#"
variable "token" {
  type = string
}
resource "terraform_data" "user" {
  input = { login = "root:${var.token}", plain = "here" }
}
resource "terraform_data" "each" {
  for_each = toset(["a-${var.token}"])
  input    = "one"
}
output "login" {
  value = "root:${var.token}"
}
output "plain" {
  value = "here"
}
"#;

#[test]
fn a_secret_of_a_context_stays_hidden_in_outputs_and_states() {
    let (first, second) = ("tok-8d1e4b7c30", "tok-9d1e4b7c31");
    let taker = "variable \"login\" {\n  type = string\n}\n\
         resource \"terraform_data\" \"taker\" {\n  input = var.login\n}\n";
    let context = "context \"api\" {\n  autoattach = [\"only\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}";
    let takes = "inputs = { login = stack.only.output.login }";
    let story = Story::new("tofu")
        .block(context)
        .stack("only", "", CARELESS)
        .stack("taker", takes, taker);
    let apply = |secret| {
        let env = [("STORY_TOKEN", secret)];
        let apply = story.cli_with(&env, &["apply", "--auto-approve"]);
        apply.expect(0)
    };
    let mut said = vec![apply(first)];
    // Whoever looks has no secret at hand.
    let outputs = story.cli(&["output", "only"]).expect(0);
    assert_snapshot!(outputs, @r#"
    login = (sensitive)
    plain = "here"
    "#);
    said.push(outputs);
    let sheet = story.cli(&["state", "show", "only"]).expect(0);
    for shown in ["terraform_data.each[\"a-(secret)\"]", "\"here\""] {
        assert!(sheet.stdout.contains(shown), "{shown} is missing: {sheet}");
    }
    said.push(sheet);
    for args in [
        &["output", "only", "--json"][..],
        &["state", "show", "only", "--json"],
        &["state", "show", "taker", "--full"],
        &["state", "list", "only"],
        &["state", "list", "only", "--json"],
        &["state", "search", "a-tok"],
        &["state", "search", "root"],
        &["state", "versions", "only"],
        &["state", "blame", "only", "terraform_data.user"],
    ] {
        said.push(story.cli(args));
    }
    // It is asked for by its name.
    let one = story.cli(&["output", "only", "login", "--raw"]).expect(0);
    assert_eq!(one.stdout.trim_end(), format!("root:{first}"));
    // The old one may still open something while it is being replaced.
    for args in [&["plan"][..], &["plan", "--json"]] {
        let plan = story.cli_with(&[("STORY_TOKEN", second)], args);
        said.push(plan.expect(0));
    }
    said.push(apply(second));
    said.push(story.cli(&["run", "logs", "only"]));
    for args in [
        &["output", "only", "--json"][..],
        &["state", "show", "only", "--full"],
        &["state", "diff", "only", "1"],
        &["state", "diff", "only", "1", "--json"],
    ] {
        said.push(story.cli(args));
    }
    check_absent(&said, first);
    check_absent(&said, second);

    // A plain value in its place is shown again; what was there before is not.
    story.module(
        "only",
        &CARELESS.replace("value = \"root:${var.token}\"", "value = \"nobody\""),
    );
    drop(apply(second));
    let outputs = story.cli(&["output", "only"]).expect(0);
    assert_snapshot!(outputs, @r#"
    login = "nobody"
    plain = "here"
    "#);
    let before = story.cli(&["state", "diff", "only"]).expect(0);
    check_absent(&[before], second);

    // What comes back is as secret as it was.
    let back = [
        "state",
        "rollback",
        "only",
        "--to",
        "1",
        "--reason",
        "back",
        "--auto-approve",
    ];
    let mut said = vec![story.cli(&back).expect(0)];
    for args in [
        &["output", "only"][..],
        &["state", "show", "only"],
        &["state", "diff", "only"],
    ] {
        said.push(story.cli(args).expect(0));
    }
    check_absent(&said, first);
}

/// Keeps what it was made with, as a database keeps its first password.
const KEEPS: &str = r#"
variable "token" { type = string }
resource "terraform_data" "db" {
  input = var.token
  lifecycle { ignore_changes = [input] }
}
"#;

fn one_that_keeps(first: &str) -> Story {
    let context = "context \"api\" {\n  autoattach = [\"only\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}";
    let story = Story::new("tofu").block(context).stack("only", "", KEEPS);
    let env = [("STORY_TOKEN", first)];
    drop(story.cli_with(&env, &["apply", "--auto-approve"]).expect(0));
    story
}

#[test]
fn a_secret_stays_hidden_at_its_new_address() {
    let (first, second) = ("tok-8d1e4b7c40", "tok-9d1e4b7c41");
    let story = one_that_keeps(first);
    let env = [("STORY_TOKEN", second)];
    let show = || story.cli(&["state", "show", "only"]).expect(0);

    let moved = "moved {\n  from = terraform_data.db\n  to   = terraform_data.base\n}\n";
    let renamed = KEEPS.replace("\"db\"", "\"base\"");
    story.module("only", &format!("{renamed}{moved}"));
    let apply = story.cli_with(&env, &["apply", "--auto-approve"]).expect(0);
    check_absent(&[apply, show()], first);

    let moves = ["state", "mv", "terraform_data.base", "terraform_data.other"];
    let exec = [&["exec", "only", "--reason", "mv", "--"][..], &moves].concat();
    let exec = story.cli_with(&env, &exec).expect(0);
    check_absent(&[exec, show()], first);

    let state = story.cli(&["state", "pull", "only"]).expect(0).stdout;
    let by_hand = state.replace("\"other\"", "\"by_hand\"");
    story.write("hand.tfstate", &by_hand);
    let push = ["state", "push", "only", "hand.tfstate", "--force"];
    let push = [&push[..], &["--reason", "mv", "--auto-approve"]].concat();
    drop(story.cli(&push).expect(0));
    let shown = show();
    assert!(shown.stdout.contains("terraform_data.by_hand"), "{shown}");
    check_absent(&[shown], first);
}

#[test]
fn a_secret_stays_hidden_when_the_tables_are_made_again() {
    let secret = "tok-8d1e4b7c42";
    let story = one_that_keeps(secret);
    // The exported file has no marks for it.
    let export = ["state", "export", "only", "--to", "../only.tfstate"];
    let said = story.cli(&export).expect(0);
    let note = "note: 2 of its values contain secrets of runs; masked here, they are shown where this is imported";
    assert!(said.stderr.contains(note), "{said}");
    for again in [false, true] {
        if again {
            make_tables_again(&story);
        }
        let shown = story.cli(&["state", "show", "only"]).expect(0);
        assert!(shown.stdout.contains("terraform_data.db"), "{shown}");
        check_absent(&[said.clone(), shown], secret);
    }
}

/// The database is lost, and made again from the files.
fn make_tables_again(story: &Story) {
    story.settle();
    for file in ["terrane.db", "terrane.db-wal", "terrane.db-shm"] {
        drop(std::fs::remove_file(story.home().join(file)));
    }
    let said = story.cli(&["state", "recover", "--into-home"]).expect(0);
    assert!(said.stderr.contains("of 1 state again"), "{said}");
}

#[test]
fn a_secret_of_a_context_is_not_published_in_clear() {
    let secret = "tok-7a1e4b7c33";
    let context = "context \"api\" {\n  autoattach = [\"*\"]\n  vars = { token = secret(\"env:STORY_TOKEN\") }\n}\n\
                   facts \"runtime\" { repository = \"../facts.git\" }";
    let publish = "publish \"runtime\" {\n    path   = \"x.yaml\"\n    values = { login = output.login }\n  }";
    let story = Story::on(terrane().env("STORY_TOKEN", secret), "tofu")
        .block(context)
        .stack("only", publish, CARELESS);
    drop(story.git(&["init", "--quiet", "--bare", "../facts.git"]));
    let said = story.cli(&["apply", "--auto-approve"]).expect(4);
    let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let refused = "`x.yaml` would contain sensitive values in plain text: `login`";
    assert!(words.contains(refused), "{said}");
    check_absent(&[said, story.cli(&["facts", "show"])], secret);
}

#[track_caller]
fn check_absent(said: &[CommandOutput], secret: &str) {
    for said in said {
        let shown = said.stdout.contains(secret) || said.stderr.contains(secret);
        assert!(!shown, "{secret} is shown in: {said}");
    }
}

/// A secret may be a key of a map, or name an instance.
#[test]
fn a_secret_that_is_a_name_is_hidden_and_found_by_who_knows_all_of_it() {
    let story = Story::new("tofu").stack("app", "", "");
    let push = |serial: u64| {
        let state = format!(
            r#"{{"version":4,"serial":{serial},"lineage":"l",
                "outputs":{{"p":{{"value":"same-secret-9","type":"string"}},
                    "same-secret-9":{{"value":"v{serial}","type":"string"}}}},
                "resources":[{{"mode":"managed","type":"x_y","name":"n","provider":"p/same-secret-9","instances":[
                    {{"index_key":"same-secret-9","attributes":{{"id":"{serial}","pw":["same-secret-9","other-secret-9"],"copy":"same-secret-9",
                      "text":"u=same-secret-9","tags":{{"same-secret-9":"v{serial}","other-secret-9":"w"}}}},
                      "sensitive_attributes":[[{{"type":"get_attr","value":"pw"}}]]}}]}}]}}"#
        );
        story.write("../by-hand.tfstate", &state);
        let push = ["state", "push", "app", "../by-hand.tfstate", "--force"];
        let yes = ["--reason", "test", "--auto-approve"];
        story.cli(&[&push[..], &yes[..]].concat()).expect(0)
    };
    let mut said = vec![push(1), push(2)];
    let name = "x_y.n[\"(secret)\"]";
    let rollback = ["state", "rollback", "app", "--to", "1", "--reason", "x"];
    let remove = ["state", "rm", "app", "x_y.n", "--reason", "x"];
    let by_name = ["state", "rm", "app", name, "--reason", "x"];
    let near = ["state", "rm", "app", "x_y.n[\"none\"]", "--reason", "x"];
    let questions: [&[&str]; 16] = [
        &["state", "list", "app"],
        &["state", "show", "app"],
        &["state", "show", "app", name],
        &["state", "show", "app", "x_y.none"],
        &["state", "show", "app", "output.(secret)"],
        &["state", "blame", "app", name],
        &["state", "search", name],
        &["state", "search", "x_y.n[\"same-secret-9\"]"],
        &by_name,
        &["state", "blame", "app", "x_y.n", "none"],
        &["state", "search", "x_y.n"],
        &["state", "search", "x_y.n", "--all-versions"],
        &["state", "diff", "app"],
        &rollback,
        &remove,
        &near,
    ];
    for question in questions {
        said.push(story.cli(question));
        said.push(story.cli(&[question, &["--json"]].concat()));
    }
    // Not letter by letter.
    for part in ["same-secret", "9\"]"] {
        for range in [&[][..], &["--all-versions"]] {
            let found = story.cli(&[&["state", "search", part], range].concat());
            assert!(found.expect(0).stderr.contains("Nothing found"), "{part}");
        }
    }
    check_absent(&said, "same-secret-9");
    let found = story.cli(&["state", "search", "same-secret-9"]).expect(0);
    for place in [
        name,
        "    copy            (sensitive",
        "    text            (sensitive",
        "    tags.(secret)   (sensitive",
        "output.p",
        "output.(secret)",
    ] {
        assert!(found.stdout.contains(place), "{found}");
    }
    check_absent(&[found], "same-secret-9");
    for word in [name, "x_y.n[\"same-secret-9\"]", "(secret)"] {
        let found = story.cli(&["state", "search", word]).expect(0);
        assert!(found.stdout.contains(name), "{word}: {found}");
    }
    // None of two stands for both.
    let shown = story.cli(&["state", "show", "app", "--json"]).expect(0);
    for key in ["\"tags.(secret)\"", "\"tags.(secret) (2)\""] {
        assert!(shown.stdout.contains(key), "{shown}");
    }
    let shown = story.cli(&["state", "show", "app"]).expect(0);
    assert!(shown.stdout.contains("tags.(secret)"), "{shown}");
    let removed = story.cli(&[&by_name[..], &["--auto-approve"]].concat());
    let removed = removed.expect(0);
    assert!(removed.stderr.contains("1 to take out"), "{removed}");
    check_absent(&[removed], "same-secret-9");
}

/// Prints the value of a sensitive output, which the engine does not know to be one there, and fails.
fn tells(value: &str) -> String {
    let told = format!("environment = {{ TOLD = {value} }}");
    resource("told", "", "echo $TOLD; exit 7").replace("exit 7\"", &format!("exit 7\"\n    {told}"))
}

#[test]
fn own_sensitive_outputs_are_not_in_errors_and_logs() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine).stack("vault", "", VAULT);
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        story.settle();
        let password = story.cli(&["output", "vault", "password", "--raw"]);
        let password = password.expect(0).stdout;

        // Of the state that the run starts from.
        let value = "\"pw-${sha256(terraform_data.vault.id)}\"";
        story.module("vault", &format!("{VAULT}{}", tells(value)));
        let failed = story.cli(&["apply", "--auto-approve"]).expect(1);
        let logs = story.cli(&["run", "logs", "c2"]).expect(0);
        assert!(logs.stdout.contains("(secret)"), "{logs}");
        check_absent(&[failed, logs], &password);
    }
}

#[test]
fn a_sensitive_output_that_only_the_plan_knows_is_not_in_errors_and_logs() {
    let token = "token-1b2c3d4e5f";
    let module = format!(
        "output \"token\" {{\n  value     = \"{token}\"\n  sensitive = true\n}}\n{}",
        tells(&format!("\"{token}\""))
    );
    for (engine, _) in engines::all() {
        let at_once = Story::new(engine).stack("vault", "", &module);
        let mut said = vec![at_once.cli(&["apply", "--auto-approve"]).expect(1)];
        said.push(at_once.cli(&["run", "logs", "c1"]).expect(0));
        check_absent(&said, token);

        // Another process applies what was planned.
        let later = Story::new(engine).stack("vault", "", &module);
        let mut said = vec![later.cli(&["apply"]).expect(3)];
        said.push(later.cli(&["run", "confirm", "c1"]).expect(1));
        said.push(later.cli(&["run", "logs", "c1"]).expect(0));
        check_absent(&said, token);
    }
}
