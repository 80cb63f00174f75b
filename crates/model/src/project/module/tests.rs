//! Modules as their source describes them.

use super::*;
use crate::base::tree::MemoryTree;

fn module(files: &[(&str, &str)]) -> (Module, Vec<crate::base::diagnostic::Finding>) {
    let tree: MemoryTree = files
        .iter()
        .map(|(path, text)| (format!("m/{path}"), *text))
        .collect();
    read(&tree, "m")
}

#[test]
fn a_module_says_what_it_declares_and_wants() {
    let (module, findings) = module(&[
        (
            "main.tf",
            r#"terraform {
  required_version = ">= 1.9"
  required_providers {
    random = {
      source  = "hashicorp/random"
      version = "~> 3.0"
    }
  }
  backend "s3" {
    bucket = "b"
  }
}
module "net" {
  source  = "../net"
}
module "far" {
  source  = "example/far/any"
  version = "1.0.0"
}
data "terraform_remote_state" "up" {
  backend = "s3"
  config  = { key = "up" }
}
locals {
  a = file("${path.module}/files/a.txt")
  b = templatefile("b.tftpl", {})
  c = fileset(path.module, "conf/*.yaml")
  d = file(var.unknown)
}
"#,
        ),
        (
            "vars.tf",
            "variable \"a\" {\n  type      = map(\n    string\n  )\n  sensitive = true\n}\nvariable \"b\" { default = 1 }\noutput \"o\" {\n  value = 1\n  sensitive = true\n}\n",
        ),
    ]);
    assert_eq!(findings, []);
    let variables: Vec<String> = module
        .variables
        .iter()
        .map(|(name, variable)| {
            format!(
                "{name} ({}) sensitive={} {}:{}",
                variable.summary(),
                variable.sensitive,
                variable.at.file,
                variable.at.line
            )
        })
        .collect();
    insta::assert_snapshot!(variables.join("\n"), @r#"
a (map( string ), required) sensitive=true m/vars.tf:1
b (any) sensitive=false m/vars.tf:7
"#);
    insta::assert_snapshot!(module.init_inputs(), @r#"
required_version ">= 1.9"
provider random Some("hashicorp/random") Some("~> 3.0")
module far "example/far/any" Some("1.0.0")
module net "../net" None
backend s3 backend "s3" { bucket = "b" }
"#);
    let files: Vec<String> = module
        .files
        .iter()
        .map(|(path, at)| format!("{path} at {}:{}:{}", at.file, at.line, at.column))
        .collect();
    insta::assert_snapshot!(files.join("\n"), @r"
m/b.tftpl at m/main.tf:26:20
m/conf/*.yaml at m/main.tf:27:15
m/files/a.txt at m/main.tf:25:12
");
    assert!(module.outputs["o"].sensitive);
    assert_eq!(module.calls[0].local.as_deref(), Some("net"));
    assert_eq!(module.remote_states[0].config, "{ key = \"up\" }");
    assert_eq!(module.backend.as_deref(), Some("s3"));
}

#[test]
fn json_tofu_and_override_files_count() {
    let (module, findings) = module(&[
        (
            "a.tf.json",
            r#"{"variable": {"j": {"type": "string"}, "k": {"default": 1}}, "output": [{"x": {"value": 1, "sensitive": true}}]}"#,
        ),
        ("b.tf", "variable \"shadowed\" {}\n"),
        ("b.tofu", "variable \"tofu\" {}\n"),
        ("c.tf", "variable \"c\" {}\n"),
        ("z_override.tf", "variable \"c\" { default = 1 }\n"),
    ]);
    assert_eq!(findings, []);
    let variables: Vec<String> = module
        .variables
        .iter()
        .map(|(name, variable)| format!("{name} ({})", variable.summary()))
        .collect();
    assert_eq!(
        variables.join(", "),
        "c (any), j (string, required), k (any), tofu (any, required)"
    );
    assert!(module.outputs["x"].sensitive);
}

#[test]
fn the_closure_goes_through_local_modules() {
    let tree: MemoryTree = [
        ("a/main.tf", "module \"b\" { source = \"../b\" }\n"),
        ("b/main.tf", "module \"c\" { source = \"./c\" }\n"),
        ("b/c/main.tf", "module \"a\" { source = \"../../a\" }\n"),
        ("d/main.tf", ""),
    ]
    .into_iter()
    .collect();
    let modules = ["a", "b", "b/c", "d"]
        .into_iter()
        .map(|dir| (dir.to_owned(), read(&tree, dir).0))
        .collect();
    let reached: Vec<String> = closure(&modules, "a").into_iter().collect();
    assert_eq!(reached, ["a", "b", "b/c"]);
}

#[test]
fn the_file_of_a_local_backend_is_what_its_block_says() {
    let check = |body: &str, expected: LocalState<'_>| {
        let text = format!("terraform {{\n  backend \"local\" {{\n{body}\n  }}\n}}\n");
        let (module, _) = module(&[("main.tf", &text)]);
        assert_eq!(module.local_state(), expected, "{body}");
    };
    check("", LocalState::Unsaid);
    check("path = \"../a.tfstate\"", LocalState::File("../a.tfstate"));
    check(
        "# path = \"old.tfstate\"\n    path = \"new.tfstate\" # path",
        LocalState::File("new.tfstate"),
    );
    check("# the path is left out", LocalState::Unsaid);
    check("path = \"${var.dir}/s.tfstate\"", LocalState::Computed);
    check("workspace_dir = \"x\"", LocalState::Unsaid);
    check(
        "workspace_dir = \"x\"\npath = \"a.tfstate\"",
        LocalState::File("a.tfstate"),
    );
}

#[test]
fn a_backend_locks_if_its_settings_say_so() {
    let check = |kind: &str, body: &str, expected: bool| {
        let text = format!("terraform {{\n  backend \"{kind}\" {{\n{body}\n  }}\n}}\n");
        let (module, _) = module(&[("main.tf", &text)]);
        assert_eq!(module.backend_locks(), expected, "{kind}: {body}");
    };
    check("s3", "bucket = \"b\"\nuse_lockfile = true", true);
    check("s3", "bucket = \"b\"\nuse_lockfile = false # yet", false);
    check(
        "s3",
        "use_lockfile = \"false\"\ndynamodb_table = \"\"",
        false,
    );
    check("s3", "use_lockfile = false\ndynamodb_table = \"t\"", true);
    check("s3", "bucket = \"use_lockfile = true\"", false);
    check("http", "address = \"a\"\nlock_address = \"b\"", true);
    check("http", "address = \"a\" # lock_address = \"b\"", false);
    check("http", "// lock_address = \"b\"\naddress = \"a\"", false);
    check("http", "/* lock_address = \"b\"\n*/ address = \"a\"", false);
    check("http", "# a comment\nlock_address = \"b#c\"", true);
    check("http", "lock_address = \"${var.base}/lock\"", true);
    check("consul", "path = \"p\"", true);
    check("consul", "path = \"p\"\nlock = false", false);
    check("pg", "", true);
    check("local", "path = \"a\"", false);
    let json = r#"{"terraform":{"backend":{"s3":{"bucket":"b","use_lockfile":false}}}}"#;
    assert!(!module(&[("main.tf.json", json)]).0.backend_locks());
    let json = json.replace("false", "true");
    assert!(module(&[("main.tf.json", &json)]).0.backend_locks());
}
