//! Small projects that several stories start from.

use testkit::{CommandOutput, TestTerrane};

/// A project with one target that is everybody's, on OpenTofu.
pub(crate) const HEAD: &str = r#"project "shop" {
  id = "k3v9qd"
  engine "tofu" {}
}

layer "main" { order = 0 }
target "local" { writers = ["anyone"] }
"#;

pub(crate) fn terrane() -> TestTerrane {
    TestTerrane::new(env!("CARGO_BIN_EXE_terrane"))
}

/// A stack block in its own directory, with further lines.
pub(crate) fn stack(name: &str, lines: &str) -> String {
    format!(
        "\nstack \"{name}\" {{\n  path   = \"{name}\"\n  target = \"local\"\n  layer  = \"main\"\n  {lines}\n}}\n"
    )
}

/// One stack, `app`, with this module.
pub(crate) fn one_stack(lines: &str, module: &str) -> TestTerrane {
    let test = terrane();
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", lines)))
        .write("app/main.tf", module);
    test
}

/// A resource that runs a command whenever it is made anew; `trigger` is an expression.
pub(crate) fn runs(command: &str, trigger: &str) -> String {
    format!(
        "resource \"terraform_data\" \"runs\" {{\n  triggers_replace = {trigger}\n  provisioner \"local-exec\" {{\n    command = <<-EOT\n      {command}\n    EOT\n  }}\n}}\n"
    )
}

/// What was said, with the test's own directory as `ROOT`, and without the lines of progress, which come
/// as fast as engines are.
pub(crate) fn shown(test: &TestTerrane, said: &CommandOutput) -> String {
    let text = said
        .to_string()
        .replace(&test.root().display().to_string(), "ROOT");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("00:00  "))
        .collect();
    lines.join("\n")
}

/// The stacks that selectors mean, as `graph` shows them.
pub(crate) fn selected(test: &TestTerrane, selectors: &[&str]) -> String {
    let mut args = vec!["graph", "--format", "json"];
    args.extend(selectors);
    names(&test.cli(&args).expect(0).stdout)
}

/// The names of the stacks in a graph's JSON.
pub(crate) fn names(graph: &str) -> String {
    let graph: serde_json::Value = serde_json::from_str(graph).expect("JSON");
    let stacks = graph["stacks"].as_array().expect("a list of stacks");
    let names: Vec<&str> = stacks
        .iter()
        .map(|stack| stack["name"].as_str().expect("a name"))
        .collect();
    names.join(" ")
}
