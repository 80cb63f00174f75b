//! Secrets of services, as a project meets them.

use insta::assert_snapshot;
use testkit::{Scripted, TestTerrane};

use crate::project::{HEAD, one_stack, shown, stack, terrane};

const TELLS: &str = "variable \"user\" { type = string }\nvariable \"password\" { type = string }\n\
                     output \"digest\" { value = nonsensitive(sha256(\"${var.user}:${var.password}\")) }\n";

fn with_vault(vault: &Scripted, fields: [&str; 2]) -> TestTerrane {
    let test = one_stack("", TELLS)
        .env("VAULT_ADDR", vault.address())
        .env("VAULT_TOKEN", "hvs.of-this-test");
    let context = format!(
        "\ncontext \"database\" {{\n  autoattach = [\"*\"]\n  vars = {{\n    user     = secret(\"vault:kv/db#{}\")\n    \
         password = secret(\"vault:kv/db#{}\")\n  }}\n}}\n",
        fields[0], fields[1]
    );
    let file = test.read("terrane.hcl") + &context;
    test.write("terrane.hcl", &file);
    test
}

#[test]
fn a_service_is_asked_once_by_the_stage_that_needs_it() {
    let answer = r#"{"data":{"data":{"user":"db-admin","password":"open-sesame"}}}"#;
    let vault = Scripted::start(&[("GET /v1/kv/data/db", 200, answer)]);
    let test = with_vault(&vault, ["user", "password"]);
    drop(test.cli(&["validate"]).expect(0));
    assert_eq!(vault.lines(), Vec::<String>::new());
    let said = test.cli(&["plan"]).expect(0);
    assert!(!said.to_string().contains("open-sesame"), "{said}");
    assert_eq!(vault.lines(), ["GET /v1/kv/data/db"]);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let digest = test.cli(&["output", "app", "digest", "--raw"]).stdout;
    let expected = test.shell("printf db-admin:open-sesame | sha256sum").stdout;
    assert_eq!(format!("{digest}  -\n"), expected);
}

#[test]
fn what_a_service_refuses_is_said_with_a_remedy() {
    let denied = r#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#;
    let vault = Scripted::start(&[("GET /v1/kv/data/db", 403, denied)]);
    let test = with_vault(&vault, ["user", "password"]);
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    let said = shown(&test, &said).replace(vault.address(), "https://VAULT");
    assert_snapshot!(said, @"
    ── stderr
    change set c1: apply on `local`
    ✗ app   failed while planning, after 0 s
        could not resolve the secret `vault:kv/db#password`: could not read `kv/db` of Vault at
        `https://VAULT`: `https://VAULT/v1/kv/data/db` answered 403: permission denied
        the token needs a policy with `read` on `kv/data/db`

    error: change set c1 stopped: 1 failed
    hint: fix the cause, then `terrane apply --resume c1` runs what is left
    [exit 1]
    ");
}

#[test]
fn a_file_of_variables_is_for_local_work() {
    let context = "\ncontext \"mine\" {\n  autoattach = [\"*\"]\n  env        = { TOKEN = secret(\"dotenv:.env.local#TOKEN\") }\n}\n";
    let ci = "\nwriter \"ci\" {\n  issuer   = \"https://ci.example.io\"\n  audience = \"terrane\"\n  claims   = { ref = \"main\" }\n}\n\
              target \"cloud\" { writers = [\"ci\"] }\n";
    let test = terrane();
    let far = stack("far", "").replace("\"local\"", "\"cloud\"");
    let file = format!("{HEAD}{ci}{context}{}{far}", stack("app", ""));
    test.write("terrane.hcl", &file)
        .write("app/main.tf", "")
        .write("far/main.tf", "")
        .write(".env.local", "TOKEN=open-sesame\n")
        .write(".gitignore", ".env.local\n");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"
    ── stderr
    error: `dotenv:` secrets are for local work, and stack `far` is on target `cloud`
      --> terrane.hcl:18:26   this file is on one machine alone
      --> terrane.hcl:30:12   its writers are not `anyone`
      = hint: keep it where the target's writers can read it: `sops:`, `vault:`, `azure-keyvault:`,
              `aws-ssm:`

    1 error in terrane.hcl
    [exit 1]
    ");
    // Without the stack that others apply, all is well.
    test.write("terrane.hcl", &file.replace(&far, ""));
    drop(test.cli(&["validate"]).expect(0));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}
