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
    assert_snapshot!(test.cli(&["validate"]).expect(1), @r#"
    ── stderr
    error: `project` has no attribute `paralelism`
      --> terrane.hcl:4:3
       |
     4 |   paralelism = 4
       |   ^^^^^^^^^^ unknown attribute
       |
       = hint: did you mean `parallelism`?

    error: there is no block `targt`
      --> terrane.hcl:9:1
       |
     9 | targt "other" {}
       | ^^^^^^^^^^^^^ unknown block
       |
       = hint: did you mean `target`?

    error: `labels` must be a list of strings
      --> terrane.hcl:14:12
       |
    14 |   labels = "prod"
       |            ^^^^^^ this is a string

    error: stack `network` is defined twice
      --> terrane.hcl:16:7   again here
      --> terrane.hcl:10:7   first here

    error: there is no directory `nowhere`
      --> terrane.hcl:22:12
       |
    22 |   path   = "nowhere"
       |            ^^^^^^^^^ stack `missing` should be here
       |
       = hint: paths count from the project's root; `enabled = false` allows it to be missing

    error: `../elsewhere` leaves the project
      --> terrane.hcl:27:12
       |
    27 |   path   = "../elsewhere"
       |            ^^^^^^^^^^^^^^ only what lies in the project is there

    error: there is no target `locl`
      --> terrane.hcl:33:12
       |
    33 |   target = "locl"
       |            ^^^^^^ not defined
       |
       = hint: did you mean `local`?

    error: there is no stack `netwrk`
      --> terrane.hcl:35:23
       |
    35 |   inputs = { subnet = stack.netwrk.output.subnet, sise = 3 }
       |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^ not defined
       |
       = hint: did you mean `network`?

    error: stack `app` has no input `sise`
      --> terrane.hcl:35:51
       |
    35 |   inputs = { subnet = stack.netwrk.output.subnet, sise = 3 }
       |                                                   ^^^^
       |                                                   the module in `app` declares no such variable
       |
       = hint: it declares `size` (number)

    error: stacks `high` and `low` share one state
      --> terrane.hcl:37:7    state `low` is also used by `high`
      --> terrane.hcl:48:12   `high`
      = hint: give each a `state` of its own, and use `${stack.state}` in the settings of a backend

    error: stack `network` has no output `subnt`
      --> terrane.hcl:41:23
       |
    41 |   inputs = { subnet = stack.network.output.subnt }
       |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^
       |                       the module in `network` declares no such output
       |
       = hint: did you mean `subnet`?

    error: stack `low` in layer `base` depends on stack `high` in the higher layer `top`
      --> terrane.hcl:42:13
       |
    42 |   after  = [stack.high]
       |             ^^^^^^^^^^ leads upwards
       |
       = hint: turn the dependency around, or move one of them to another layer

    error: stack `high` does not set `subnet`
      --> terrane.hcl:44:7   the module in `app` requires it
      --> app/main.tf:1:10   no default here
      = hint: add `subnet = …` to `inputs` (string, required)

    13 errors in terrane.hcl
    [exit 1]
    "#);
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
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"
    ── stderr
    error: stacks depend on each other in a circle
      --> terrane.hcl:13:13   `a` waits for `c`
      --> terrane.hcl:27:13   `c` waits for `b`
      --> terrane.hcl:20:13   `b` waits for `a`

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn an_empty_project_is_one_mistake() {
    let test = terrane();
    test.write("terrane.hcl", "");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @r#"
    ── stderr
    error: there is no `project` block
      = hint: add `project "NAME" { … }` to `terrane.hcl`

    error: this project has no stacks
      = hint: add a `stack` or a `discover` block

    2 errors
    [exit 1]
    "#);
}

#[test]
fn a_broken_file_is_one_mistake() {
    let test = terrane();
    test.write("terrane.hcl", "stack \"app\" {\n  path = \n}\n");
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"
    ── stderr
    error: syntax error: expected a value
      --> terrane.hcl:2:10
       |
     2 |   path =
       |          ^ here

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn a_sound_project_is_said_to_be_sound() {
    let test = terrane();
    test.copy_example("quickstart");
    assert_snapshot!(test.cli(&["validate"]).expect(0), @"Project `quickstart` is valid: 7 stacks, 13 edges, 3 layers.");
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
    assert_snapshot!(test.cli(&["validate"]).expect(0), @r#"
    Project `shop` is valid: 2 stacks, 1 edge, 1 layer.
    ── stderr
    warning: `path.cwd` gives another path in each run
      --> app/main.tf:2:25
       |
     2 | output "here" { value = path.cwd }
       |                         ^^^^^^^^ the source is copied before it is run
       |
       = hint: use `path.module` or `path.root`

    warning: the sensitive output `token` of stack `base` goes to variable `token`, which is not
             sensitive
      --> terrane.hcl:13:22   plans would show it in clear
      --> app/main.tf:1:10    not marked `sensitive`
      = hint: add `sensitive = true` to variable `token`

    note: not yet effective: `drift` blocks   terrane.hcl:14:3

    2 warnings in 2 files
    "#);
}

#[test]
fn gives_the_same_as_data() {
    let test = one_stack(
        "inputs = { sise = 3 }",
        "variable \"size\" { default = 1 }\n",
    );
    assert_snapshot!(test.cli(&["validate", "--json"]).expect(1), @r#"
    {
      "errors": 1,
      "warnings": 0,
      "notes": 0,
      "findings": [
        {
          "severity": "error",
          "code": "unknown-input",
          "message": "stack `app` has no input `sise`",
          "places": [
            {
              "file": "terrane.hcl",
              "line": 13,
              "column": 14,
              "start": 204,
              "end": 208,
              "label": "the module in `app` declares no such variable"
            }
          ],
          "hint": "it declares `size` (any)"
        }
      ],
      "project": "shop",
      "stacks": 1
    }
    [exit 1]
    "#);
}

#[test]
fn says_what_to_do_without_a_project_file() {
    let test = terrane();
    assert_snapshot!(shown(&test, &test.cli(&["validate"]).expect(1)), @"
    ── stderr
    error: there is no `terrane.hcl` in `ROOT/project` or above it
    hint: `terrane init` reads a repository and proposes one
    hint: or name the project's directory: `--project DIR`
    [exit 1]
    ");
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
    assert_snapshot!(test.cli(&["validate", "--engine"]).expect(1), @r#"
    ── stderr
    error: tofu on `app`: Reference to undeclared local value
      --> app/main.tf:4:11
       |
     4 |   input = local.missing
       |           ^^^^^^^^^^^^^ here
       |
       = hint: A local value with the name "missing" has not been declared.

    error: tofu on `app`: Too many function arguments
      --> modules/naming/main.tf:2:20
       |
     2 |   value = upper(1, 2)
       |                    ^ here
       |
       = hint: Function "upper" expects only 1 argument(s).

    2 errors in 2 files
    [exit 1]
    "#);
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
        assert!(said.stdout.contains("is valid"), "{said}");
    }
}

#[test]
fn a_written_value_must_fit_the_type_of_its_variable() {
    let test = one_stack(
        "inputs = {\n    count = \"three\"\n    names = [\"a\"]\n  }",
        "variable \"count\" {\n  type = number\n}\nvariable \"names\" {\n  type = list(string)\n}\n",
    );
    assert_snapshot!(test.cli(&["validate"]).expect(1), @"
    ── stderr
    error: input `count` of stack `app` is a string, not a number
      --> terrane.hcl:14:5   given here
      --> app/main.tf:1:10   declared as `number`

    1 error in terrane.hcl
    [exit 1]
    ");
}

#[test]
fn stages_that_can_never_work_are_found_before_anything_is_applied() {
    let stages = r#"
  bootstrap "argocd" {
    kubeconfig = output.kubeconfig
    version    = "v3.5.6"
    manifests  = ["bootstrap/install.yaml"]
    digest     = "sha256:123"
    timeout    = "0s"
  }
  gate "dns" "zone" {
    names    = ["www.example.io"]
    expect   = "203.0.113.300"
    interval = "0s"
  }
  gate "tcp" "ssh" { address = "bastion.example.io:99999" }
  gate "http" "page" {
    url   = "ftp://www.example.io"
    body  = "("
    after = ["shop"]
  }
  gate "http" "shop" {
    url   = output.url
    after = ["page"]
  }
  gate "command" "smoke" { run = ["./scripts/smoke.sh"] }
  gate "equal" "published" { values = [output.name, fact.runtime["nobody.yaml"].name] }"#;
    let outputs = r#"output "kubeconfig" { value = "" }
output "url" { value = "" }
output "name" { value = "" }
"#;
    let test = one_stack(stages, outputs);
    let file = test.read("terrane.hcl");
    let facts = "facts \"runtime\" { repository = \"https://example.io/facts.git\" }\n";
    test.write("terrane.hcl", &format!("{file}{facts}"));
    let said = test.cli(&["validate"]).expect(1);
    assert_snapshot!(shown(&test, &said), @r#"
    ── stderr
    error: there is no file or directory `bootstrap/install.yaml`
      --> terrane.hcl:14:3
       |
    14 |   bootstrap "argocd" {
       |   ^^^^^^^^^^^^^^^^^^ this bootstrap uses it

    error: `sha256:123` is not a digest
      --> terrane.hcl:18:18
       |
    18 |     digest     = "sha256:123"
       |                  ^^^^^^^^^^^^ `digest` must be a digest such as `sha256:…`

    error: a step without time cannot end well
      --> terrane.hcl:19:18
       |
    19 |     timeout    = "0s"
       |                  ^^^^ here
       |
       = hint: leave it out for the usual limits, or write one such as `15m`

    error: gate `zone`: `expect` `203.0.113.300` is no address
      --> terrane.hcl:23:16
       |
    23 |     expect   = "203.0.113.300"
       |                ^^^^^^^^^^^^^^^ here

    error: gate `zone`: `interval` must be at least `1s`
      --> terrane.hcl:24:16
       |
    24 |     interval = "0s"
       |                ^^^^ here

    error: gate `ssh`: `address` must be `host:port`, not `bastion.example.io:99999`
      --> terrane.hcl:26:32
       |
    26 |   gate "tcp" "ssh" { address = "bastion.example.io:99999" }
       |                                ^^^^^^^^^^^^^^^^^^^^^^^^^^ here

    error: gate `page`: `url` must be `https://HOST/…` or `http://HOST/…`, not `ftp://www.example.io`
      --> terrane.hcl:28:13
       |
    28 |     url   = "ftp://www.example.io"
       |             ^^^^^^^^^^^^^^^^^^^^^^ here

    error: gate `page`: `body` `(` is not a pattern
      --> terrane.hcl:29:13
       |
    29 |     body  = "("
       |             ^^^ here

    error: gates wait for each other: `page` after `shop` after `page`
      --> terrane.hcl:30:13   `page` waits here
      --> terrane.hcl:34:13   `shop` waits here
      = hint: leave one of them out of `after`

    error: there is no program `./scripts/smoke.sh`
      --> terrane.hcl:36:3
       |
    36 |   gate "command" "smoke" { run = ["./scripts/smoke.sh"] }
       |   ^^^^^^^^^^^^^^^^^^^^^^ this block runs it
       |
       = hint: a program of the project is named by its path, from the project's root

    warning: no stack of this project publishes `nobody.yaml` to `runtime`
      --> terrane.hcl:37:53
       |
    37 |   gate "equal" "published" { values = [output.name, fact.runtime["nobody.yaml"].name] }
       |                                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ read here

    10 errors and 1 warning in terrane.hcl
    [exit 1]
    "#);
    // A plan says the same, and does not begin.
    drop(test.cli(&["plan"]).expect(1));
}

#[test]
fn a_link_that_leads_out_of_the_project_is_no_missing_directory() {
    let test = terrane();
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")));
    std::os::unix::fs::symlink("/etc", test.project().join("app")).unwrap();
    assert_snapshot!(test.cli(&["validate"]).expect(1), @r#"
    ── stderr
    error: `app` leaves the project
      --> terrane.hcl:10:12
       |
    10 |   path   = "app"
       |            ^^^^^ a symbolic link leads out of it
       |
       = hint: only what lies in the project is there when the engine runs

    1 error in terrane.hcl
    [exit 1]
    "#);
}
