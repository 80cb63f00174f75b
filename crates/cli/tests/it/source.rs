//! What of the source an engine gets to see, and in which forms it may be written.

use insta::assert_snapshot;

use crate::project::{HEAD, one_stack, shown, stack, terrane};
use crate::story::{Story, noted};

#[test]
fn ignored_files_stay_behind_unless_they_belong_to_the_stack() {
    let test = one_stack(
        "include = [\"secret.txt\"]",
        r#"variable "a" { type = string }
variable "b" { type = string }
output "seen" {
  value = "${var.a} ${var.b} ${fileexists("secret.txt")} ${fileexists("debug.log")} ${fileexists("new.txt")}"
}
"#,
    );
    test.write(".gitignore", "*.tfvars\n*.log\nsecret.txt\n");
    test.commit_all();
    test.write("app/terraform.tfvars", "a = \"from terraform.tfvars\"\n")
        .write("app/x.auto.tfvars", "b = \"from x.auto.tfvars\"\n")
        .write("app/other.tfvars", "a = \"never loaded\"\n")
        .write("app/secret.txt", "")
        .write("app/debug.log", "")
        .write("app/new.txt", "");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "seen", "--raw"]).expect(0);
    assert_eq!(
        said.stdout,
        "from terraform.tfvars from x.auto.tfvars true false true"
    );
}

#[test]
fn files_of_variables_are_given_in_order_and_inputs_are_stronger() {
    let test = one_stack(
        "inputs = { c = \"input\" }\n  var_files = [\"env/all.tfvars\", \"env/prod.tfvars\"]",
        r#"variable "a" { type = string }
variable "b" { type = string }
variable "c" { type = string }
output "seen" { value = "${var.a} ${var.b} ${var.c}" }
"#,
    );
    test.write("env/all.tfvars", "a = \"all\"\nb = \"all\"\nc = \"all\"\n")
        .write("env/prod.tfvars", "b = \"prod\"\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "seen", "--raw"]).expect(0);
    assert_eq!(said.stdout, "all prod input");
}

/// `.tf.json`, `.tofu` and override files count when outputs and variables are looked for.
#[test]
fn modules_in_every_form_are_understood() {
    let test = terrane();
    let stacks = [
        stack("base", ""),
        stack(
            "app",
            "inputs = { a = stack.base.output.json, b = stack.base.output.tofu }",
        ),
    ];
    test.write("terrane.hcl", &format!("{HEAD}{}", stacks.concat()))
        .write(
            "base/main.tf.json",
            r#"{"output": {"json": {"value": "json"}}}"#,
        )
        .write("base/more.tf", "output \"tofu\" { value = \"tf\" }\n")
        .write("base/more.tofu", "output \"tofu\" { value = \"tofu\" }\n")
        .write(
            "app/main.tf",
            "variable \"a\" { type = string }\nvariable \"b\" { type = string }\nvariable \"c\" { type = string }\n\
             output \"seen\" { value = \"${var.a} ${var.b} ${var.c}\" }\n",
        )
        .write(
            "app/main_override.tf",
            "variable \"c\" { default = \"overridden\" }\n",
        );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = test.cli(&["output", "app", "seen", "--raw"]).expect(0);
    assert_eq!(said.stdout, "json tofu overridden");
}

#[test]
fn stacks_are_found_and_written_beside_their_modules() {
    let test = terrane();
    let discover = r#"
discover "experiments" {
  glob   = "experiments/*/infra"
  name   = "exp-${dir[1]}"
  target = "local"
  layer  = "main"
}
stack "off" {
  enabled = false
  path    = "not/there"
  target  = "local"
  layer   = "main"
}
"#;
    test.write("terrane.hcl", &format!("{HEAD}{discover}"))
        .write("experiments/one/infra/main.tf", "")
        .write("experiments/two/infra/main.tf", "")
        .write(
            "beside/stack.hcl",
            "stack \"beside\" {\n  target = \"local\"\n  layer  = \"main\"\n  after  = [stack.exp-one]\n}\n",
        )
        .write("beside/main.tf", "");
    assert_snapshot!(test.cli(&["graph"]).expect(0), @"
    main   exp-two
           exp-one ──●
           beside ───◁   after exp-one

    3 stacks, 1 edge, 2 waves; longest path: exp-one → beside
    ");
    assert_snapshot!(test.cli(&["plan", "off"]).expect(64), @"
    ── stderr
    error: there is no stack `off`
    hint: `terrane graph` lists the stacks
    [exit 64]
    ");
}

#[test]
fn strange_bytes_work_or_are_mistakes() {
    let test = one_stack("", "");
    let good = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &format!("\u{feff}{}", good.replace('\n', "\r\n")),
    );
    drop(test.cli(&["validate"]).expect(0));
    test.write("terrane.hcl", &format!("{good}# \0\n"));
    drop(test.cli(&["validate"]));
    let deep = format!("{good}locals {{ a = {} }}\n", "[".repeat(200_000));
    test.write("terrane.hcl", &deep);
    let said = test.cli(&["validate"]).expect(1);
    assert!(said.stderr.contains("error"), "{said}");
    std::fs::write(test.project().join("terrane.hcl"), b"project \"\xff\" {}\n").unwrap();
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @r#"
    ── stderr
    error: `terrane.hcl` is not UTF-8 text
      --> terrane.hcl:1:10
       |
     1 | project "�" {}
       |          ^ the byte at offset 9 belongs to no character
       |
       = hint: save the file as UTF-8

    1 error in terrane.hcl
    [exit 1]
    "#);
    let huge = format!("{good}# {}\n", "x".repeat(6 << 20));
    test.write("terrane.hcl", &huge);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @"
    ── stderr
    error: could not read `terrane.hcl`: it is larger than 5242880 bytes
      --> terrane.hcl:1:1   this file

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn two_ways_to_one_directory_need_two_trees() {
    let story = Story::new("tofu")
        .stack("one", "", &noted("one"))
        .block("stack \"two\" {\n  path = \"link\"\n  target = \"local\"\n  layer = \"all\"\n}");
    std::os::unix::fs::symlink("one", story.project().join("link")).unwrap();
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let mut slots: Vec<_> = std::fs::read_dir(story.data().join("slots"))
        .unwrap()
        .map(|slot| slot.unwrap().file_name())
        .collect();
    slots.sort();
    assert_eq!(slots, ["one", "two"]);
}

#[test]
fn a_lock_file_is_not_written_back_through_a_link() {
    let story = Story::new("tofu").stack("one", "", &noted("one"));
    story.write("shared.lock", "# of all\n");
    std::os::unix::fs::symlink(
        "../shared.lock",
        story.project().join("one/.terraform.lock.hcl"),
    )
    .unwrap();
    story.engine_script(
        "if [ \"$1\" = init ]; then echo '# of one' > .terraform.lock.hcl; fi\nexec REAL \"$@\"\n",
    );
    let said = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert!(
        said.stderr
            .contains("the provider lock file of `one` could not be written back"),
        "{said}"
    );
    assert_eq!(story.read("shared.lock"), "# of all\n");
}

#[test]
fn who_waits_for_a_tree_with_another_source_says_for_whom() {
    let story = Story::new("tofu").stack("one", "", &noted("one"));
    story.engine_script("if [ \"$1\" = plan ]; then WAIT(plan); fi\nexec REAL \"$@\"\n");
    let plan = story.start("plan", &["plan", "--out", "../plan.terrane"]);
    story.wait_for("plan");
    story.module("one", &(noted("one") + "output \"o\" { value = 1 }\n"));
    let apply = story.terminal(&["apply", "--auto-approve"]);
    apply.wait_for("waits for run r1 of change set c1");
    story.open("plan");
    let _ = plan.wait().expect(0);
    let _ = apply.wait().expect(0);
    assert_eq!(story.made(), ["one"]);
}
