//! `validate`: everything that is wrong, at once, where it is, and what to do.

use insta::assert_snapshot;
use testkit::engines;

use crate::project::{HEAD, one_stack, shown, stack, terrane};

#[test]
fn reports_all_mistakes_at_once() {
    let test = terrane();
    test.write(
        "terrane.hcl",
        r#"project "shop" {
  id = "k3v9qd"
  engine "tofu" {}
  paralelism = 4
}
layer "base" { order = 0 }
layer "top" { order = 1 }
target "local" { writers = ["anyone"] }
targt "other" {}
stack "network" {
  path   = "network"
  target = "local"
  layer  = "base"
  labels = "prod"
}
stack "network" {
  path   = "network"
  target = "local"
  layer  = "base"
}
stack "missing" {
  path   = "nowhere"
  target = "local"
  layer  = "base"
}
stack "outside" {
  path   = "../elsewhere"
  target = "local"
  layer  = "base"
}
stack "app" {
  path   = "app"
  target = "locl"
  layer  = "base"
  inputs = { subnet = stack.netwrk.output.subnet, sise = 3 }
}
stack "low" {
  path   = "app"
  target = "local"
  layer  = "base"
  inputs = { subnet = stack.network.output.subnt }
  after  = [stack.high]
}
stack "high" {
  path   = "app"
  target = "local"
  layer  = "top"
  state  = "low"
}
"#,
    )
    .write("network/main.tf", "output \"subnet\" { value = \"a\" }\n")
    .write(
        "app/main.tf",
        "variable \"subnet\" { type = string }\nvariable \"size\" {\n  type    = number\n  default = 1\n}\n",
    );
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"");
}

#[test]
fn shows_the_whole_of_a_circle() {
    let test = terrane();
    let stacks = [
        stack("a", "after  = [stack.c]"),
        stack("b", "after  = [stack.a]"),
        stack("c", "after  = [stack.b]"),
    ];
    test.write("terrane.hcl", &format!("{HEAD}{}", stacks.concat()));
    for name in ["a", "b", "c"] {
        test.write(&format!("{name}/main.tf"), "");
    }
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"");
}

#[test]
fn an_empty_project_is_one_mistake() {
    let test = terrane();
    test.write("terrane.hcl", "");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"");
}

#[test]
fn a_broken_file_is_one_mistake() {
    let test = terrane();
    test.write("terrane.hcl", "stack \"app\" {\n  path = \n}\n");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"");
}

#[test]
fn a_sound_project_is_said_to_be_sound() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli(&["validate"]).expect(0), @"");
}

#[test]
fn works_from_a_directory_below() {
    let test = terrane();
    test.copy_example("quickstart");
    let below = test.cli_in("infra/web", &["validate"]).expect(0);
    assert_eq!(below, test.cli(&["validate"]));
}

#[test]
fn warns_and_remarks_without_failing() {
    let test = one_stack(
        "inputs = { token = stack.base.output.token }\n  drift { schedule = \"0 6 * * *\" }",
        "variable \"token\" { type = string }\noutput \"here\" { value = path.cwd }\n",
    );
    let file = test.read("terrane.hcl") + &stack("base", "");
    test.write("terrane.hcl", &file).write(
        "base/main.tf",
        "output \"token\" {\n  value     = \"x\"\n  sensitive = true\n}\n",
    );
    assert_snapshot!(test.cli(&["validate"]).expect(0), @"");
}

#[test]
fn gives_the_same_as_data() {
    let test = one_stack(
        "inputs = { sise = 3 }",
        "variable \"size\" { default = 1 }\n",
    );
    assert_snapshot!(test.cli(&["validate", "--json"]).expect(1), @"");
}

#[test]
fn says_what_to_do_without_a_project_file() {
    let test = terrane();
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @"");
}

#[test]
fn asks_the_engine_if_told_to() {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}{}", stack("app", ""), stack("web", "")),
    )
    .write(
        "app/main.tf",
        "module \"naming\" { source = \"../modules/naming\" }\n\nresource \"terraform_data\" \"a\" {\n  input = local.missing\n}\n",
    )
    .write("web/main.tf", "module \"naming\" { source = \"../modules/naming\" }\n")
    .write(
        "modules/naming/main.tf",
        "output \"name\" {\n  value = upper(1, 2)\n}\n",
    );
    drop(test.cli(&["validate"]).expect(0));
    assert_snapshot!(test.cli(&["validate", "--engine"]).expect(1), @"");
    assert!(!test.project().join("app/.terraform").exists());
}

#[test]
fn each_engine_finds_the_quickstart_sound() {
    for (name, _) in engines::all() {
        let test = terrane();
        test.copy_example("quickstart");
        let file = test.read("terrane.hcl");
        test.write(
            "terrane.hcl",
            &file.replace(
                "engine \"tofu\" { version = \"~> 1.11\" }",
                &format!("engine \"{name}\" {{}}"),
            ),
        );
        let said = test.cli(&["validate", "--engine"]).expect(0);
        assert!(said.stdout.contains("is sound"), "{said}");
    }
}
