//! `facts`: from an applied stack to a branch, and what stands in the way.

use insta::assert_snapshot;
use testkit::{AgeKey, TestTerrane};

use crate::project::{HEAD, stack, terrane};

fn applied() -> TestTerrane {
    let test = terrane();
    let facts = "\nfacts \"runtime\" { repository = \"../facts.git\" }\n";
    let publish = "publish \"runtime\" {\n    path     = \"prod/globals.yaml\"\n    contract = \"edge/v1\"\n    \
                   values   = { azure = { envoyPublicIpAddress = output.address } }\n  }";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", publish)),
    )
    .write(
        "contracts/edge/v1.json",
        r#"{"required": ["address"], "properties": {"address": {"format": "address"}}}"#,
    )
    .write(
        "app/main.tf",
        "output \"address\" {\n  value = \"20.1.2.3\"\n}\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    test
}

fn plain(test: &TestTerrane, args: &[&str], code: i32) -> String {
    let said = test.cli(args).expect(code).to_string();
    // Ids of commits hang on the time of the apply.
    let mut text = String::new();
    for part in said.split('`') {
        let is_id = part.len() == 10 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.push_str(if is_id { "COMMIT" } else { part });
        text.push('`');
    }
    text.pop();
    text
}

#[test]
fn facts_are_shown_compared_and_published() {
    let test = applied();
    assert_snapshot!(plain(&test, &["facts", "show"], 0), @r##"
    # app: `prod/globals.yaml` of `runtime`
    azure:
      envoyPublicIpAddress: "20.1.2.3"
    "##);
    drop(test.cli(&["facts", "publish"]).expect(0));
    assert_snapshot!(plain(&test, &["facts", "publish", "app"], 0), @r"
    app → runtime (../facts.git, branch `facts`): already there, at `COMMIT`
      = prod/globals.yaml  unchanged
    ");
    assert_snapshot!(plain(&test, &["facts", "diff"], 0), @r"
    app → runtime (../facts.git, branch `facts`): agrees
      = prod/globals.yaml  as in the state
    ");
    assert_snapshot!(test.git(&["--git-dir=../facts.git", "show", "facts:prod/globals.yaml"]), @r#"
    # Written by terrane: stack `app` of project `k3v9qd`. An edit stops the next publication.
    azure:
      envoyPublicIpAddress: "20.1.2.3"
    "#);
}

#[test]
fn what_others_wrote_is_written_over_only_with_a_reason() {
    let test = applied();
    drop(test.cli(&["facts", "publish"]).expect(0));
    drop(test.git(&[
        "clone",
        "--quiet",
        "--branch",
        "facts",
        "../facts.git",
        "../clone",
    ]));
    test.write("../clone/prod/globals.yaml", "azure: {}\n");
    drop(test.git(&[
        "-C", "../clone", "commit", "--quiet", "--all", "-m", "by hand",
    ]));
    drop(test.git(&["-C", "../clone", "push", "--quiet", "origin", "facts"]));
    assert!(plain(&test, &["facts", "diff"], 2).contains("`by hand`"));
    let refused = plain(&test, &["facts", "publish"], 4);
    assert!(refused.contains("--take-over --reason"), "{refused}");
    drop(test.cli(&["facts", "publish", "--take-over"]).expect(64));
    drop(
        test.cli(&[
            "facts",
            "publish",
            "app",
            "--take-over",
            "--reason",
            "not by hand",
        ])
        .expect(0),
    );
    drop(test.cli(&["facts", "diff"]).expect(0));
    let record = test.git(&[
        "--git-dir=../facts.git",
        "show",
        "facts:.terrane/break-glass/k3v9qd.json",
    ]);
    assert!(record.contains("\"reason\": \"not by hand\""), "{record}");
}

#[test]
fn every_break_glass_act_of_the_project_is_told_to_git() {
    let test = applied();
    let reveal = [
        "state",
        "show",
        "app",
        "--reveal",
        "--reason",
        "the incident of today",
    ];
    drop(test.cli(&reveal).expect(0));
    let record = test.git(&[
        "--git-dir=../facts.git",
        "show",
        "facts:.terrane/break-glass/k3v9qd.json",
    ]);
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let act = &record["break_glass"][0];
    assert_eq!(act["reason"], "the incident of today");
    assert_eq!(act["state"], "app");
    assert!(act["actor"].is_string() && act["at"].is_string(), "{act}");
}

#[test]
fn what_differs_is_shown_field_by_field() {
    let test = applied();
    let publish = "publish \"runtime\" {\n    path   = \"prod/globals.yaml\"\n    \
                   values = { azure = { envoyPublicIpAddress = \"20.9.9.9\" }, zone = \"b\" }\n    \
                   sink \"file\" { path = \"out/facts.json\" }\n  }";
    let facts = "\nfacts \"runtime\" { repository = \"../facts.git\" }\n";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", publish)),
    );
    assert_snapshot!(plain(&test, &["facts", "diff"], 2), @r#"
    app → runtime (../facts.git, branch `facts`): differs
      + prod/globals.yaml  differs from the state
          azure.envoyPublicIpAddress: "20.1.2.3" → "20.9.9.9"
          zone: nothing → "b"
    app → file `out/facts.json`: is not there
    [exit 2]
    "#);
    drop(test.git(&[
        "--git-dir=../facts.git",
        "update-ref",
        "-d",
        "refs/heads/facts",
    ]));
    assert_snapshot!(plain(&test, &["facts", "diff"], 2), @r"
    app → runtime (../facts.git, branch `facts`): differs
      ! the branch existed and is gone
      + prod/globals.yaml  is not there
    app → file `out/facts.json`: is not there
    [exit 2]
    ");
    // It is only looked at: nobody speaks of publishing.
    std::fs::remove_dir_all(test.root().join("facts.git")).expect("removed");
    let said = plain(&test, &["facts", "diff"], 1);
    assert!(said.contains("cannot use the facts at `runtime`"), "{said}");
    assert!(!said.contains("publish to"), "{said}");
}

#[test]
fn consumers_are_protected_when_only_the_block_changes() {
    let test = applied();
    test.write(
        "gitops/gateway.yaml",
        "address: {{ .Values.azure.envoyPublicIpAddress }}\n",
    );
    let head = HEAD.replace(
        "  engine \"tofu\" {}\n",
        "  engine \"tofu\" {}\n  gitops { paths = [\"gitops/**/*.yaml\"] }\n",
    );
    let facts = "\nfacts \"runtime\" { repository = \"../facts.git\" }\n";
    let publish = "publish \"runtime\" {\n    path   = \"prod/globals.yaml\"\n    \
                   values = { azure = { other = output.address } }\n  }";
    test.write(
        "terrane.hcl",
        &format!("{head}{facts}{}", stack("app", publish)),
    );
    for args in [&["plan"][..], &["apply", "--auto-approve"]] {
        let said = test.cli(args).expect(4).to_string();
        assert!(
            said.contains("`azure.envoyPublicIpAddress` is no longer published, but still read:")
                && said.contains("gitops/gateway.yaml:1"),
            "{said}"
        );
    }
    test.write(
        "gitops/gateway.yaml",
        "address: {{ .Values.azure.other }}\n",
    );
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn what_can_be_known_early_is_found_by_validate() {
    let test = terrane();
    let facts = "\nfacts \"clear\" { repository = \"../facts.git\" }\n\
                 facts \"again\" { repository = \"../facts.git\" }\n\
                 facts \"sealed\" {\n  repository = \"../sealed.git\"\n  encrypt    = \"all\"\n}\n";
    let publish = |place: &str, path: &str| {
        format!(
            "publish \"{place}\" {{\n    path   = \"{path}\"\n    values = {{ word = output.word }}\n  }}"
        )
    };
    let blocks = [
        publish("clear", "a.yaml"),
        publish("again", "a.yaml"),
        publish("sealed", "b.yaml"),
    ];
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", &blocks.join("\n  "))),
    )
    .write(
        "app/main.tf",
        "output \"word\" {\n  sensitive = true\n  value     = \"x\"\n}\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    let said = plain(&test, &["validate"], 1);
    for expected in [
        "sensitive outputs would be published in clear: `word`",
        "`a.yaml` is published twice: `clear` and `again` are one branch",
        "`b.yaml` cannot be encrypted: the project has no `.sops.yaml`",
        "`../sealed.git` is not there",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    // A rule for another path names nobody for this one.
    let rules = "creation_rules:\n  - path_regex: ^other/\n    age: age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg\n";
    test.write(".sops.yaml", rules);
    let said = plain(&test, &["validate"], 1);
    assert!(said.contains("`b.yaml` cannot be encrypted: "), "{said}");
    assert!(!said.contains("the project has no"), "{said}");
}

#[test]
fn a_run_publishes_by_the_contracts_and_recipients_that_were_planned() {
    let test = terrane();
    let (planned, later) = (AgeKey::generate(), AgeKey::generate());
    let rules = |key: &AgeKey| format!("creation_rules:\n  - age: {}\n", key.recipient);
    let facts =
        "\nfacts \"runtime\" {\n  repository = \"../facts.git\"\n  encrypt    = \"all\"\n}\n";
    let publish =
        "publish \"runtime\" {\n    path     = \"a.yaml\"\n    contract = \"edge/v1\"\n  }";
    let schema = |kind: &str| format!(r#"{{"properties": {{"address": {{"type": "{kind}"}}}}}}"#);
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{facts}{}", stack("app", publish)),
    )
    .write("contracts/edge/v1.json", &schema("string"))
    .write(".sops.yaml", &rules(&planned))
    .write(
        "app/main.tf",
        "output \"address\" {\n  value = \"20.1.2.3\"\n}\n",
    );
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    drop(test.cli(&["apply"]).expect(3));
    test.write("contracts/edge/v1.json", &schema("integer"))
        .write(".sops.yaml", &rules(&later));
    drop(test.cli(&["run", "confirm", "c1"]).expect(0));
    let file = test.git(&["--git-dir=../facts.git", "show", "facts:a.yaml"]);
    assert!(file.contains(&planned.recipient), "{file}");
    assert!(!file.contains(&later.recipient), "{file}");
    // What is planned from here on goes by what is there now.
    let said = test.cli(&["plan"]).expect(4).to_string();
    assert!(said.contains("contract `edge/v1`: `address` is "), "{said}");
}

#[test]
fn a_stack_whose_contract_or_recipients_changed_is_looked_at_again() {
    let test = terrane();
    let (first, second) = (AgeKey::generate(), AgeKey::generate());
    let rules = |key: &AgeKey| format!("creation_rules:\n  - age: {}\n", key.recipient);
    let head = HEAD.replace(
        "  engine \"tofu\" {}\n",
        "  engine \"tofu\" {}\n  gitops { paths = [\"gitops/**/*.yaml\"] }\n",
    );
    let facts =
        "\nfacts \"runtime\" {\n  repository = \"../facts.git\"\n  encrypt    = \"all\"\n}\n";
    let publish = "inputs = { word = stack.base.output.word }\n  \
                   publish \"runtime\" {\n    path     = \"a.yaml\"\n    contract = \"edge/v1\"\n  }";
    let stacks = [stack("base", ""), stack("app", publish)].concat();
    let field = |name: &str, kind: &str| format!(r#""{name}": {{"type": "{kind}"}}"#);
    let contract = |fields: &[String]| format!(r#"{{"properties": {{{}}}}}"#, fields.join(", "));
    let whole = contract(&[field("address", "string"), field("zone", "string")]);
    test.write("terrane.hcl", &format!("{head}{facts}{stacks}"))
        .write("base/main.tf", "output \"word\" { value = \"x\" }\n")
        .write(
            "app/main.tf",
            "variable \"word\" { type = string }\noutput \"address\" { value = \"20.1.2.3\" }\n\
             output \"zone\" { value = \"b\" }\n",
        )
        .write("gitops/edge.yaml", "zone: {{ .Values.zone }}\n")
        .write("contracts/edge/v1.json", &whole)
        .write(".sops.yaml", &rules(&first));
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let file = || test.git(&["--git-dir=../facts.git", "show", "facts:a.yaml"]);
    assert!(file().contains(&first.recipient), "{}", file());
    let is_settled = || {
        let said = test.cli(&["plan", "changed:applied"]).expect(0);
        said.stderr.contains("Nothing is selected")
    };
    assert!(is_settled());

    test.write(".sops.yaml", &rules(&second));
    assert!(!is_settled());
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    assert!(file().contains(&second.recipient), "{}", file());
    assert!(!file().contains(&first.recipient), "{}", file());
    assert!(is_settled());

    // Nothing that others use is taken away, whoever does it: here the engine has nothing to do.
    let narrow = contract(&[field("address", "string")]);
    test.write("contracts/edge/v1.json", &narrow);
    let said = test.cli(&["apply", "--auto-approve"]).expect(4).to_string();
    assert!(
        said.contains("`zone` is no longer published, but still read:")
            && said.contains("gitops/edge.yaml:1"),
        "{said}"
    );
    let wrong = contract(&[field("address", "integer"), field("zone", "string")]);
    test.write("contracts/edge/v1.json", &wrong);
    let said = test.cli(&["apply", "--auto-approve"]).expect(4).to_string();
    assert!(said.contains("contract `edge/v1`: `address` is "), "{said}");
    test.write("contracts/edge/v1.json", &whole);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
}
