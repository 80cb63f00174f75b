//! Data sources that read the state of another stack.

use super::*;

const STACKS: &str = r#"target "s3" {
  writers = ["anyone"]
  backend "s3" {}
}
stack "net" {
  path   = "net"
  target = "t"
  layer  = "low"
}
stack "app" {
  path   = "app"
  target = "t"
  layer  = "low"
  after  = [stack.net]
}
"#;

fn reading(backend: &str, config: &str) -> String {
    format!(
        "data \"terraform_remote_state\" \"net\" {{\n  backend = \"{backend}\"\n  config  = {{ {config} }}\n}}\n\
         output \"a\" {{ value = data.terraform_remote_state.net.outputs.id }}\n\
         output \"b\" {{ value = data.terraform_remote_state.net.outputs[\"zone\"] }}\n"
    )
}

fn check_reading(net: &str, app: &str) -> String {
    check_with_base(&format!(
        "{STACKS}== net/main.tf\n{net}output \"id\" {{ value = 1 }}\noutput \"zone\" {{ value = 2 }}\n== app/main.tf\n{app}"
    ))
}

#[test]
fn a_state_that_terrane_keeps_is_handed_over() {
    let file = "path = \"../net/terraform.tfstate\"";
    insta::assert_snapshot!(check_reading("", &reading("local", file)), @"
    warning remote-state: `data.terraform_remote_state.net` reads the state of stack `net`, which terrane keeps
      app/main.tf:1:1 no plan of stack `app` finds that file
      hint: declare a variable in its place, and hand the output over in stack `app`: `inputs = { id = stack.net.output.id, zone = stack.net.output.zone }`
    ");
}

#[test]
fn a_state_that_was_brought_here_is_not_written_there_any_more() {
    let key = "bucket = \"states\"\n  key = \"net\"";
    let net = format!("terraform {{\n  backend \"s3\" {{\n  {key}\n  }}\n}}\n");
    insta::assert_snapshot!(check_reading(&net, &reading("s3", "bucket = \"states\", key = \"net\"")), @"
    warning remote-state: `data.terraform_remote_state.net` reads the state of stack `net`, which terrane keeps
      app/main.tf:1:1 what is there is not written any more
      hint: declare a variable in its place, and hand the output over in stack `app`: `inputs = { id = stack.net.output.id, zone = stack.net.output.zone }`
    ");
}

#[test]
fn a_state_of_others_is_theirs() {
    let seen = check_reading(
        "",
        &reading("local", "path = \"../../other/terraform.tfstate\""),
    );
    assert_eq!(seen, "");
}
