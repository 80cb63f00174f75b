//! `facts`: from an applied stack to a branch, and what stands in the way.

use insta::assert_snapshot;
use testkit::TestTerrane;

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
    # Written by terrane: stack `app` of project `k3v9qd`. Edits are not kept.
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
