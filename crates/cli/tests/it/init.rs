//! `init` on repositories that have no project file yet.

use insta::assert_snapshot;
use testkit::{CommandOutput, TestTerrane, engines};

use crate::project::{one_stack, shown, terrane};

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
fn levelled(test: &TestTerrane, said: &CommandOutput) -> String {
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
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(0)), @"
    ── stderr
    Found 3 root modules:
      cluster   infra/cluster   backend `s3`
      network   infra/network   backend `s3`
      web       infra/web
    1 edge written: a stack reads the state of another.
    1 edge proposed as comments, by equal names: uncomment what is right.
    Not stacks, because other modules call them: `modules/naming`.
    Wrote `terrane.hcl`. Read it, then run `terrane validate`.
    ");
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(0)), @"Project `project` is valid: 3 stacks, 1 edge, 1 layer.");
}

#[test]
fn a_dry_run_shows_the_file_and_writes_nothing() {
    let test = repository();
    assert_snapshot!(levelled(&test, &test.cli(&["init", "--dry-run"]).expect(0)), @r#"
    # Proposed by `terrane init`. Read it, correct it, then run `terrane validate`.

    project "project" {
      id = "k3v9qd" # ties clones and worktrees to one home: keep it
      engine "tofu" { version = "~> 1.11" }
    }

    layer "main" { order = 0 } # more layers keep lower stacks from needing higher ones

    target "local" { writers = ["anyone"] } # terrane keeps the states

    target "s3" {
      writers = ["anyone"]
      backend "s3" {} # its settings stay in the modules; what they lack goes here
    }

    stack "cluster" {
      path   = "infra/cluster"
      target = "s3"
      layer  = "main"
      after  = [stack.network] # `data.terraform_remote_state.network` reads its state
    }

    stack "network" {
      path   = "infra/network"
      target = "s3"
      layer  = "main"
    }

    stack "web" {
      path   = "infra/web"
      target = "local"
      layer  = "main"
      # proposed: inputs = { endpoint = stack.cluster.output.endpoint }
    }
    ── stderr
    Found 3 root modules:
      cluster   infra/cluster   backend `s3`
      network   infra/network   backend `s3`
      web       infra/web
    1 edge written: a stack reads the state of another.
    1 edge proposed as comments, by equal names: uncomment what is right.
    Not stacks, because other modules call them: `modules/naming`.
    Nothing was written: `terrane init` writes it to `terrane.hcl`.
    "#);
    assert!(!test.project().join("terrane.hcl").exists());
    let printed = test.cli(&["init", "--print"]).expect(0);
    assert!(printed.stdout.contains("stack \"network\""));
}

/// What `init` proposes for them, and each command after it, says what to do.
#[test]
fn a_state_that_is_read_is_to_be_handed_over() {
    let test = terrane();
    test.write("net/main.tf", "output \"id\" { value = 1 }\n")
        .write(
            "app/main.tf",
            "data \"terraform_remote_state\" \"net\" {\n  backend = \"local\"\n  config  = { path = \"../net/terraform.tfstate\" }\n}\n\
             output \"of_net\" { value = data.terraform_remote_state.net.outputs.id }\n",
        );
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(0)), @"
    ── stderr
    Found 2 root modules:
      app   app
      net   net
    1 edge written: a stack reads the state of another.
    1 data source reads a state that terrane will keep: the file says what to put in its place.
    Wrote `terrane.hcl`. Read it, then run `terrane validate`.
    ");
    let proposed = test.read("terrane.hcl");
    let (_, app) = proposed.split_once("stack \"app\"").unwrap();
    let (app, _) = app.split_once("stack \"net\"").unwrap();
    assert_snapshot!(app.trim(), @r#"
    {
      path   = "app"
      target = "local"
      layer  = "main"
      after  = [stack.net] # `data.terraform_remote_state.net` reads its state
      # terrane keeps the state of `net`, so `data.terraform_remote_state.net` will find none:
      # declare a variable for each output that it takes, and hand it over instead:
      # inputs = { id = stack.net.output.id }
    }
    "#);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(0)), @r#"
    Project `project` is valid: 2 stacks, 1 edge, 1 layer.
    ── stderr
    warning: `data.terraform_remote_state.net` reads the state of stack `net`, which terrane keeps
      --> app/main.tf:1:1
       |
     1 | data "terraform_remote_state" "net" {
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ no plan of stack `app` finds that file
       |
       = hint: declare a variable in its place, and hand the output over in stack `app`:
               `inputs = { id = stack.net.output.id }`

    1 warning in app/main.tf
    "#);
    drop(test.cli(&["apply", "net", "--auto-approve"]).expect(0));
    let said = shown(&test, &test.cli(&["plan", "app"]).expect(1));
    let hint = said
        .lines()
        .find(|line| line.contains("pass its outputs as inputs"));
    assert!(hint.is_some(), "no way on is named:\n{said}");
}

#[test]
fn what_is_missing_is_left_to_validate() {
    let test = terrane();
    test.write("app/main.tf", "variable \"size\" { type = number }\n");
    drop(test.cli(&["init"]).expect(0));
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @"
    ── stderr
    error: stack `app` does not set `size`
      --> terrane.hcl:12:7   the module in `app` requires it
      --> app/main.tf:1:10   no default here
      = hint: add `size = …` to `inputs` (number, required)

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn never_writes_over_a_file() {
    let test = repository();
    test.write("terrane.hcl", "# mine\n");
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"
    ── stderr
    error: there is a `terrane.hcl` already in `ROOT/project`
    hint: `terrane init --dry-run` shows what it would propose
    hint: `terrane validate` checks the existing file
    [exit 1]
    ");
    assert_eq!(test.read("terrane.hcl"), "# mine\n");
}

#[test]
fn says_so_if_there_is_nothing() {
    let test = terrane();
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"
    ── stderr
    error: no root module was found in `ROOT/project`: a directory with `.tf` or
           `.tofu` files that no other module calls
    hint: run it where the modules are, or name the directory: `--project DIR`
    hint: `examples/quickstart` is a project to start from
    [exit 1]
    ");
    assert!(!test.project().join("terrane.hcl").exists());
    test.write("modules/naming/main.tf", "output \"name\" { value = 1 }\n");
    assert_snapshot!(shown(&test, &test.cli(&["init"]).expect(1)), @"
    ── stderr
    error: no root module was found in `ROOT/project`: a directory with `.tf` or
           `.tofu` files that no other module calls
    hint: no module calls `modules/naming`: add a root module that does, or write `terrane.hcl` yourself
    [exit 1]
    ");
}

#[test]
fn tells_what_it_found_as_data() {
    let test = repository();
    let said = test.cli(&["init", "--json", "--dry-run"]).expect(0);
    let mut document: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let text = document["text"].take();
    assert!(text.as_str().unwrap().contains("project \"project\""));
    assert_snapshot!(serde_json::to_string_pretty(&document).unwrap(), @r#"
    {
      "written": null,
      "roots": [
        {
          "stack": "cluster",
          "path": "infra/cluster",
          "backend": "s3",
          "remote_states": [
            "network"
          ]
        },
        {
          "stack": "network",
          "path": "infra/network",
          "backend": "s3",
          "remote_states": []
        },
        {
          "stack": "web",
          "path": "infra/web",
          "backend": null,
          "remote_states": []
        }
      ],
      "edges": [
        {
          "stack": "cluster",
          "upstream": "network",
          "because": "reads-state",
          "name": "network"
        },
        {
          "stack": "web",
          "upstream": "cluster",
          "because": "same-name",
          "name": "endpoint"
        }
      ],
      "modules": [
        "modules/naming"
      ],
      "unreadable": [],
      "text": null
    }
    "#);
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

#[test]
fn a_project_in_a_project_is_pointed_out() {
    let test = one_stack("", "output \"o\" { value = 1 }\n");
    let said = test.cli(&["init", "--project", "app"]).expect(0);
    assert!(said.stderr.contains("is part of the project in"), "{said}");
}
