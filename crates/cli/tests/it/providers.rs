//! A target that lists its providers keeps its stacks to them.

use insta::{allow_duplicates, assert_snapshot};

use crate::project::{HEAD, shown, stack, terrane};

const MODULE: &str = r#"terraform {
  required_providers {
    cloud = {
      source = "example/cloud"
    }
  }
}
resource "terraform_data" "x" {}
"#;

fn project(providers: &str) -> testkit::TestTerrane {
    let head = HEAD.replace(
        "target \"local\" { writers = [\"anyone\"] }",
        &format!("target \"local\" {{\n  writers   = [\"anyone\"]\n  providers = {providers}\n}}"),
    );
    let test = terrane();
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", MODULE);
    test
}

#[test]
fn what_the_source_needs_beyond_the_list_is_found_with_its_place() {
    let test = project("[\"hashicorp/random\"]");
    let said = test.cli(&["validate"]).expect(1);
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: stack `app` needs the provider `example/cloud`, which target `local` does not list
      --> app/main.tf:3:5
       |
     3 |     cloud = {
       |     ^^^^^ needed here
       |
       = hint: add it to `providers` of target `local`, if its stacks may use it

    1 error in app/main.tf
    [exit 1]
    ");
    for words in [&["plan"][..], &["apply", "--auto-approve"]] {
        let said = test.cli(words).expect(4);
        allow_duplicates! {
            assert_snapshot!(shown(&test, &said), @"
            ── stderr
            error: stack `app` needs the provider `example/cloud` (app/main.tf:3), which target `local` does not
                   list
            hint: add it to `providers` of target `local`, if its stacks may use it
            [exit 4]
            ");
        }
    }
}

/// Who lists none means none.
#[test]
fn an_empty_list_allows_the_engines_own_provider_only() {
    let test = project("[]");
    let said = test.cli(&["validate"]).expect(1);
    assert!(
        said.stderr.contains(
            "stack `app` needs the provider `example/cloud`, which target `local` does not list"
        ),
        "{said}"
    );
    test.write("app/main.tf", "resource \"terraform_data\" \"x\" {}\n");
    let _ = test.cli(&["validate"]).expect(0);
    let _ = test.cli(&["apply", "--auto-approve"]).expect(0);
}

#[test]
fn a_lock_file_counts_and_the_engines_own_provider_does_not() {
    let test = project("[\"example/cloud\"]");
    let _ = test.cli(&["validate"]).expect(0);
    test.write("app/main.tf", "resource \"terraform_data\" \"x\" {}\n");
    let _ = test.cli(&["plan"]).expect(0);
    let lock = "provider \"example.io/acme/other\" {\n  version = \"1.0.0\"\n}\n";
    test.write("app/.terraform.lock.hcl", lock);
    let said = test.cli(&["plan"]).expect(4);
    assert!(
        said.stderr
            .contains("`example.io/acme/other` (app/.terraform.lock.hcl:1)"),
        "{said}"
    );
}
