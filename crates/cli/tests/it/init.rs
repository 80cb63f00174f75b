//! `init` on repositories that have no project file yet.

use insta::assert_snapshot;
use testkit::{Said, TestTerrane, engines};

use crate::project::{shown, terrane};

/// Three root modules, one of which reads another's state, and a module that two of them call.
fn repository() -> TestTerrane {
    let test = terrane();
    test.write(
        "infra/network/main.tf",
        r#"terraform {
  backend "s3" {
    bucket = "states"
    key    = "network.tfstate"
  }
}
module "naming" { source = "../../modules/naming" }
output "subnet_id" { value = "subnet-1" }
"#,
    )
    .write(
        "infra/cluster/main.tf",
        r#"terraform {
  backend "s3" {
    bucket = "states"
    key    = "cluster.tfstate"
  }
}
data "terraform_remote_state" "network" {
  backend = "s3"
  config  = { bucket = "states", key = "network.tfstate" }
}
module "naming" { source = "../../modules/naming" }
output "endpoint" { value = "https://cluster.example.io" }
"#,
    )
    .write(
        "infra/web/main.tf",
        r#"variable "endpoint" { default = "" }
variable "replicas" { type = number }
"#,
    )
    .write("infra/web/terraform.tfvars", "replicas = 2\n")
    .write(
        "modules/naming/main.tf",
        "output \"name\" { value = \"x\" }\n",
    )
    .write(
        "infra/web/.terraform/modules/x/main.tf",
        "output \"x\" { value = 1 }\n",
    )
    .write("node_modules/x/main.tf", "output \"x\" { value = 1 }\n");
    test
}

/// The id is fresh each time.
fn levelled(test: &TestTerrane, said: &Said) -> String {
    let text = shown(test, said);
    let Some((before, after)) = text.split_once("id = \"") else {
        return text;
    };
    let (id, rest) = after.split_at(6);
    assert!(
        id.starts_with(|c: char| c.is_ascii_lowercase())
            && id
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        "not an id: {id}"
    );
    format!("{before}id = \"k3v9qd{rest}")
}

#[test]
fn proposes_a_file_that_validates() {
    let test = repository();
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(0)), @"");
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(0)), @"");
}

#[test]
fn a_dry_run_shows_the_file_and_writes_nothing() {
    let test = repository();
    assert_snapshot!(levelled(&test, &test.cli(&["init", "--dry-run"]).expect(0)), @"");
    assert!(!test.project().join("terrane.hcl").exists());
    let printed = test.cli(&["init", "--print"]).expect(0);
    assert!(printed.stdout.contains("stack \"network\""));
}

#[test]
fn what_is_missing_is_left_to_validate() {
    let test = terrane();
    test.write("app/main.tf", "variable \"size\" { type = number }\n");
    drop(test.cli(&["init"]).expect(0));
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @"");
}

#[test]
fn never_writes_over_a_file() {
    let test = repository();
    test.write("terrane.hcl", "# mine\n");
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"");
    assert_eq!(test.read("terrane.hcl"), "# mine\n");
}

#[test]
fn says_so_if_there_is_nothing() {
    let test = terrane();
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"");
    assert!(!test.project().join("terrane.hcl").exists());
    test.write("modules/naming/main.tf", "output \"name\" { value = 1 }\n");
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"");
}

#[test]
fn tells_what_it_found_as_data() {
    let test = repository();
    let said = test.cli(&["init", "--json", "--dry-run"]).expect(0);
    let mut document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let text = document["text"].take();
    assert!(text.as_str().unwrap().contains("project \"project\""));
    assert_snapshot!(serde_json::to_string_pretty(&document).unwrap(), @"");
}

#[test]
fn works_on_another_directory() {
    let test = repository();
    drop(test.cli_in("infra", &["init", "--project", ".."]).expect(0));
    assert!(test.read("terrane.hcl").contains("path   = \"infra/web\""));
}

#[test]
fn takes_terraform_if_that_is_all_there_is() {
    let Some(terraform) = engines::terraform() else {
        return;
    };
    let test = repository();
    let only = test.root().join("only");
    std::fs::create_dir(&only).unwrap();
    std::os::unix::fs::symlink(terraform, only.join("terraform")).unwrap();
    let test = test.env("PATH", &format!("{}:/usr/bin:/bin", only.display()));
    let said = test.cli(&["init", "--dry-run"]).expect(0);
    assert!(said.stdout.contains("engine \"terraform\""), "{said}");
}
