//! Secrets of services, as a project meets them.

use insta::assert_snapshot;
use testkit::{ScriptedServer, TestTerrane};

use crate::project::{HEAD, one_stack, shown, stack, terrane};

const TELLS: &str = "variable \"user\" { type = string }\nvariable \"password\" { type = string }\n\
                     output \"digest\" { value = nonsensitive(sha256(\"${var.user}:${var.password}\")) }\n";

fn with_vault(vault: &ScriptedServer, fields: [&str; 2]) -> TestTerrane {
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
    let vault = ScriptedServer::start(&[("GET /v1/kv/data/db", 200, answer)]);
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
    let vault = ScriptedServer::start(&[("GET /v1/kv/data/db", 403, denied)]);
    let test = with_vault(&vault, ["user", "password"]);
    let said = test.cli(&["apply", "--auto-approve"]).expect(1);
    let said = shown(&test, &said).replace(vault.address(), "https://VAULT");
    assert_snapshot!(said, @"
    ── stderr
    change set c1: apply on `local`
    ✗ app   failed while planning, after 0 s
        cannot resolve the secret `vault:kv/db#password`: could not read `kv/db` of Vault at
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

/// One stack that needs what a command never prints; the command says its id in a file first.
fn waiting(attributes: &str) -> TestTerrane {
    let test = terrane();
    let started = test.root().join("started");
    let context = format!(
        "\ncontext \"slow\" {{\n  autoattach = [\"*\"]\n  \
         env = {{ TOKEN = secret(\"command:sh -c 'echo $$$$ > {}; exec sleep 600'\") }}\n}}\n",
        started.display()
    );
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stack("app", attributes)),
    )
    .write("app/main.tf", "");
    test
}

fn command_is_gone(test: &TestTerrane) -> bool {
    let id = std::fs::read_to_string(test.root().join("started")).expect("an id");
    !std::path::Path::new("/proc").join(id.trim()).exists()
}

#[test]
fn a_command_that_hangs_ends_with_its_run() {
    let test = waiting("");
    let started = test.root().join("started");
    let has_started = || std::fs::read_to_string(&started).is_ok_and(|id| id.ends_with('\n'));
    for how in ["Ctrl-C", "run cancel"] {
        let plan = test.start("plan", &["plan"]);
        test.wait_until("the command", has_started);
        if how == "Ctrl-C" {
            plan.interrupt();
        } else {
            let cancel = ["run", "cancel", "c2", "--reason", "it hangs"];
            drop(test.cli(&cancel).expect(0));
        }
        let said = plan.wait();
        assert!(!said.stderr.contains("[exit 0]"), "{how}: {said}");
        assert!(command_is_gone(&test), "{how}: the command goes on");
        std::fs::remove_file(&started).unwrap();
    }
}

#[test]
fn a_command_that_hangs_ends_with_the_time_of_its_stage() {
    let test = waiting("timeout { plan = \"1s\" }");
    let said = test.cli(&["plan"]).expect(1);
    let limit = "the time limit `timeout { plan = \"1s\" }` was reached before the engine began";
    let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(limit), "{said}");
    assert!(command_is_gone(&test), "the command goes on");
}

#[test]
fn all_that_is_missing_is_said_at_once() {
    let context = r#"
context "much" {
  autoattach = ["*"]
  env = {
    A = secret("env:NOT_SET")
    B = secret("file:no-file")
    C = secret("dotenv:.env#TOKN")
    D = env("NEITHER_SET")
    E = secret("command:sh -c 'echo oops >&2; exit 3'")
  }
}
"#;
    let test = terrane();
    let file = format!("{HEAD}{context}{}", stack("app", ""));
    test.write("terrane.hcl", &file)
        .write("app/main.tf", "")
        .write(".env", "TOKEN=open-sesame\n");
    assert_snapshot!(shown(&test, &test.cli(&["plan"]).expect(1)), @"
    ── stderr
    error: 4 values are missing
           stack `app` needs the environment variable `NEITHER_SET`, which is not set (set it:
           `export NEITHER_SET=…`)
           stack `app` needs the secret `env:NOT_SET`, which terrane.hcl:12 names: the environment
           variable `NOT_SET` is not set (set it: `export NOT_SET=…`)
           stack `app` needs the secret `file:no-file`, which terrane.hcl:13 names: there is no secret
           file `ROOT/project/no-file`
           stack `app` needs the secret `dotenv:.env#TOKN`, which terrane.hcl:14 names: `.env` has no
           value at `TOKN` (did you mean `TOKEN`?)
    [exit 1]
    ");
}

#[test]
fn references_into_encrypted_files_are_checked_before_anything_runs() {
    let test = terrane();
    let context = "\ncontext \"db\" {\n  autoattach = [\"*\"]\n  env = {\n    A = secret(\"sops:s.yaml#databse.password\")\n    \
                   B = secret(\"sops:none.yaml#a\")\n    C = secret(\"sops:s.yaml#database.password\")\n  }\n}\n";
    let encrypted = "database:\n    password: ENC[AES256_GCM,data:0w==,iv:a,tag:b,type:str]\nsops:\n    age:\n        - recipient: age1x\n          \
                     enc: x\n    lastmodified: \"2026-01-01T00:00:00Z\"\n    mac: ENC[x]\n    version: 3.9.0\n";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{context}{}", stack("app", "")),
    )
    .write("app/main.tf", "")
    .write("s.yaml", encrypted);
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(0)), @r#"
    Project `shop` is valid: 1 stack, 0 edges, 1 layer.
    ── stderr
    warning: `s.yaml` has no value at `databse.password`
      --> terrane.hcl:12:9
       |
    12 |     A = secret("sops:s.yaml#databse.password")
       |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ needed by this reference
       |
       = hint: did you mean `database.password`?

    warning: there is no file `none.yaml`
      --> terrane.hcl:13:9
       |
    13 |     B = secret("sops:none.yaml#a")
       |         ^^^^^^^^^^^^^^^^^^^^^^^^^^ needed by this reference
       |
       = hint: `terrane secret set none.yaml a` makes it

    2 warnings in terrane.hcl
    "#);
}
