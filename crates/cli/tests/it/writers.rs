//! Who may apply: a real issuer on loopback, tokens good and bad, and what people are told.

use insta::assert_snapshot;
use testkit::{CommandOutput, Issuer, SigningMethod, TestTerrane, TestToken};

use crate::project::{HEAD, shown, stack, terrane};
use crate::story::{Story, gated, noted};

const MODULE: &str = "output \"a\" { value = 1 }\n";
/// What a job of the right repository, branch and environment says.
const JOB: [(&str, &str); 5] = [
    ("repository", "example/infra"),
    ("ref", "refs/heads/main"),
    ("environment", "prod"),
    ("sub", "repo:example/infra:environment:prod"),
    ("actor", "operator"),
];

/// Where there is no token.
const LAPTOP: [(&str, &str); 3] = [
    ("TERRANE_ID_TOKEN", ""),
    ("CI", "true"),
    ("GITHUB_ACTOR", "eve"),
];

/// One stack on a target that only jobs of `example/infra` may apply.
fn guarded(issuer: &Issuer) -> TestTerrane {
    guarded_by(issuer, "\"ci\"")
}

fn guarded_by(issuer: &Issuer, writers: &str) -> TestTerrane {
    let target = format!(
        "writer \"ci\" {{\n  issuer = \"{}\"\n  claims = {{ repository = \"example/infra\", ref = \"refs/heads/main\", environment = [\"prod\", \"prod-*\"] }}\n}}\n\
         target \"local\" {{ writers = [{writers}] }}",
        issuer.address()
    );
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &target);
    let test = terrane();
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", MODULE);
    test
}

fn apply(test: &TestTerrane) -> CommandOutput {
    test.cli(&["apply", "--auto-approve"])
}

fn told(test: &TestTerrane, issuer: &Issuer, said: &CommandOutput) -> String {
    shown(test, said).replace(issuer.address(), "ISSUER")
}

fn has_state(test: &TestTerrane) -> bool {
    let said = test.cli(&["output", "app", "a"]);
    said.code == Some(0)
}

/// Applies with this token, is refused, and tells why.
fn refusal(issuer: &Issuer, token: TestToken<'_>) -> String {
    let test = guarded(issuer)
        .env("CI", "true")
        .env("TERRANE_ID_TOKEN", &token.mint());
    let said = apply(&test).expect(4);
    assert!(!has_state(&test), "{said}");
    told(&test, issuer, &said)
}

#[test]
fn a_laptop_plans_and_does_not_apply() {
    let issuer = Issuer::start();
    let test = guarded(&issuer);
    drop(test.cli(&["validate"]).expect(0));
    drop(test.cli(&["plan"]).expect(0));
    assert_snapshot!(told(&test, &issuer, &apply(&test).expect(4)), @"
    ── stderr
    error: target `local` is applied by CI only
           no verified CI identity was found: this is not a CI job
    hint: `terrane plan` works here; the apply runs when the commit reaches `main`
    [exit 4]
    ");
    drop(test.cli(&["destroy", "--auto-approve"]).expect(4));
    assert!(!has_state(&test));
    // Without a token there is nothing to ask about.
    assert_eq!(issuer.asked(), Vec::<String>::new());
}

#[test]
fn a_job_with_the_right_claims_applies() {
    let issuer = Issuer::start();
    let token = issuer.token(&JOB).mint();
    let test = guarded(&issuer)
        .env("CI", "true")
        .env("TERRANE_ID_TOKEN", &token);
    let said = test.cli(&["plan"]).expect(0);
    let heading = said.stdout.lines().next().unwrap_or_default();
    assert_eq!(
        heading,
        "change set c1 on `local`, by CI job `repo:example/infra:environment:prod`"
    );
    let said = test.cli(&["apply", "--auto-approve", "--json"]).expect(0);
    let first = said.stdout.lines().next().unwrap_or_default();
    let first: serde_json::Value = serde_json::from_str(first).unwrap();
    let told = serde_json::to_string_pretty(&first["identity"]).unwrap();
    assert_snapshot!(told.replace(issuer.address(), "ISSUER"), @r#"
    {
      "name": "repo:example/infra:environment:prod",
      "kind": "ci",
      "verified": true,
      "writers": [
        "ci"
      ],
      "claims": {
        "actor": "operator",
        "environment": "prod",
        "iss": "ISSUER",
        "ref": "refs/heads/main",
        "repository": "example/infra",
        "sub": "repo:example/infra:environment:prod"
      }
    }
    "#);
    assert!(has_state(&test));
    // The token is nobody's business: neither the store nor a log has it.
    let found = test.shell(&format!("grep -rlF -- '{token}' ../home . || true"));
    assert_eq!(found.stdout, "", "{found}");
}

#[test]
fn a_job_asks_github_for_its_token() {
    let issuer = Issuer::start();
    issuer.answer_job(&JOB);
    let test = guarded(&issuer)
        .env("CI", "true")
        .env("GITHUB_ACTIONS", "true");
    let said = apply(&test).expect(4);
    assert_snapshot!(told(&test, &issuer, &said), @"
    ── stderr
    error: target `local` is applied by CI only
           this job may not ask GitHub for an identity token
    hint: add `id-token: write` to the `permissions` of the job
    [exit 4]
    ");
    let test = test
        .env("ACTIONS_ID_TOKEN_REQUEST_URL", &issuer.job_address())
        .env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Issuer::BEARER);
    drop(apply(&test).expect(0));
    assert!(has_state(&test));
    let test = test.env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "stale");
    assert_snapshot!(told(&test, &issuer, &apply(&test).expect(4)), @"
    ── stderr
    error: target `local` is applied by CI only
           this job is not known to be writer `ci`:
             its token could not be fetched: `ISSUER/job` answered 401
    hint: nothing was changed: run the job again when the issuer responds
    [exit 4]
    ");
}

#[test]
fn a_job_that_is_another_is_told_every_difference() {
    let issuer = Issuer::start();
    let token = issuer.token(&[
        ("sub", "repo:example/fork:pull_request"),
        ("repository", "example/fork"),
        ("ref", "refs/pull/7/merge"),
    ]);
    assert_snapshot!(refusal(&issuer, token), @"
    ── stderr
    error: target `local` is applied by CI only
           this is CI job `repo:example/fork:pull_request`, not writer `ci`:
             `environment` must be `prod` or `prod-*`, and the token has none
             `ref` must be `refs/heads/main`, and is `refs/pull/7/merge`
             `repository` must be `example/infra`, and is `example/fork`
    hint: `terrane plan` works here; the apply runs when the commit reaches `main`
    [exit 4]
    ");
}

#[test]
fn a_token_that_is_not_believed_applies_nothing() {
    let issuer = Issuer::start();
    let plain = || issuer.token(&JOB);
    let cases = [
        (plain().expired(), "it has expired"),
        (
            plain().claim("aud", "\"sts.example.io\""),
            "it is for `sts.example.io`, not for `terrane`",
        ),
        (
            plain().claim("iss", "\"https://example.io\""),
            "it comes from `https://example.io`, not from `ISSUER`",
        ),
        (
            plain().signed(SigningMethod::ByAnother),
            "its signature does not match the issuer's key",
        ),
        (
            plain().signed(SigningMethod::Unpublished),
            "`ISSUER` has no key `other` for `ES256`",
        ),
        (
            plain().signed(SigningMethod::None),
            "it is signed with `none`, but only `RS256` and `ES256` are accepted",
        ),
        (
            plain().header("crit", "[\"exp-of-tomorrow\"]"),
            "its header has `crit`, but terrane supports no token extensions",
        ),
        (
            plain().signed(SigningMethod::PublicKeyAsSecret),
            "it is signed with `HS256`, but only `RS256` and `ES256` are accepted",
        ),
    ];
    for (token, why) in cases {
        let said = refusal(&issuer, token);
        let expected = format!("its token is not believed: {why}\n");
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
    let token = plain();
    issuer.go_down();
    assert_snapshot!(refusal(&issuer, token), @"
    ── stderr
    error: target `local` is applied by CI only
           this job is not known to be writer `ci`:
             its token is not believed: cannot fetch the keys of `ISSUER`
             `ISSUER/.well-known/openid-configuration` answered 503
    hint: nothing was changed: run the job again when the issuer responds
    [exit 4]
    ");
}

#[test]
fn a_job_without_a_token_is_told_where_to_put_it() {
    let issuer = Issuer::start();
    let test = guarded_by(&issuer, "\"ci\", \"server\"")
        .env("CI", "true")
        .env("GITLAB_CI", "true");
    assert_snapshot!(told(&test, &issuer, &apply(&test).expect(4)), @"
    ── stderr
    error: target `local` is applied by CI or a server's own runners only
           this job has no identity token: `TERRANE_ID_TOKEN` is not set
           this is not a server's runner: those are not built yet
    hint: add to the job: `id_tokens: { TERRANE_ID_TOKEN: { aud: terrane } }`
    [exit 4]
    ");
    let test = guarded_by(&issuer, "\"server\"");
    assert_snapshot!(told(&test, &issuer, &apply(&test).expect(4)), @"
    ── stderr
    error: target `local` is applied by a server's own runners only
           this is not a server's runner: those are not built yet
    hint: name a `writer` block among its `writers`, and apply in CI
    [exit 4]
    ");
}

#[test]
fn a_target_without_writers_is_applied_by_nobody() {
    let issuer = Issuer::start();
    let test = guarded_by(&issuer, "");
    assert_snapshot!(told(&test, &issuer, &apply(&test).expect(4)), @"
    ── stderr
    error: target `local` cannot be applied
           its `writers` are empty
    hint: name a `writer` block among its `writers`, and apply in CI
    [exit 4]
    ");
}

/// Where anyone may write, a job is asked for nothing.
#[test]
fn an_open_target_asks_nobody() {
    let issuer = Issuer::start();
    let test = guarded_by(&issuer, "\"ci\", \"anyone\"").env("TERRANE_ID_TOKEN", "nonsense");
    drop(apply(&test).expect(0));
    assert_eq!(issuer.asked(), Vec::<String>::new());
}

/// Who approves or releases need not be one who may apply: what is said to happen then is what happens.
#[test]
fn what_goes_on_with_the_last_word_is_said_as_it_is() {
    let issuer = Issuer::start();
    let test = guarded(&issuer).env("TERRANE_ID_TOKEN", &issuer.token(&JOB).mint());
    let project = test.read("terrane.hcl").replace(
        "target \"local\" { writers = [\"ci\"] }",
        "target \"local\" {\n  writers = [\"ci\"]\n  approval { count = 1 }\n}",
    );
    test.write("terrane.hcl", &project);
    let said = apply(&test).expect(3);
    let (_, waits) = said.stderr.split_once("\n\n").unwrap();
    assert_snapshot!(waits, @"
    Change set c1 awaits approval:
      target `local`: 0 of 1 approval; not the author
        `terrane run approve c1`
    It starts after the last approval if that approver may apply it. Otherwise an allowed user runs `terrane run confirm c1`.
    ");
    let said = test.cli_with(&LAPTOP, &["run", "approve", "c1"]).expect(0);
    assert_snapshot!(said, @"
    ── stderr
    Approved change set c1 as `eve` (not verified).
    Its plan: 0 to add, 0 to change, 0 to replace, 0 to destroy, 1 output to change, in 1 stack; made 00:00 ago.
    `terrane run confirm c1` by an allowed user starts it.
    ");
    assert!(!has_state(&test));
    drop(test.cli(&["run", "confirm", "c1"]).expect(0));
    assert!(has_state(&test));
}

#[test]
fn what_goes_on_with_the_end_of_a_hold_is_said_as_it_is() {
    let issuer = Issuer::start();
    let test = guarded(&issuer).env("TERRANE_ID_TOKEN", &issuer.token(&JOB).mint());
    let project = test.read("terrane.hcl");
    test.write(
        "terrane.hcl",
        &(project + &stack("top", "after = [stack.app]")),
    );
    test.write("top/main.tf", MODULE);
    drop(test.cli(&["apply"]).expect(3));
    let hold = ["hold", "add", "top", "--reason", "migration"];
    drop(test.cli_with(&LAPTOP, &hold).expect(0));
    let said = test.cli(&["run", "confirm", "c1"]).expect(3);
    let hint = said
        .stderr
        .lines()
        .skip_while(|line| !line.starts_with("hint"));
    assert_snapshot!(hint.collect::<Vec<_>>().join("\n"), @"
    hint: `terrane hold release top` ends it (with `--all` if it is not your own); it continues if the
          user who releases it may apply it. Otherwise an allowed user runs `terrane run confirm c1`
    ");
    let released = test
        .cli_with(&LAPTOP, &["hold", "release", "top"])
        .expect(0);
    assert!(!released.stderr.contains("c1 continues;"), "{released}");
    drop(test.cli(&["run", "confirm", "c1"]).expect(0));
}

/// Two jobs stand in line when their machine loses every process of them: whoever looks next may not be one who may
/// apply.
#[test]
fn what_a_dead_job_left_in_the_line_is_not_applied_by_a_laptop() {
    let issuer = Issuer::start();
    let terrane = terrane().env("TERRANE_ID_TOKEN", &issuer.token(&JOB).mint());
    let story = Story::on(terrane, "tofu")
        .block(&format!(
            "writer \"ci\" {{\n  issuer = \"{}\"\n  claims = {{ repository = \"example/infra\" }}\n}}\n\
             target \"prod\" {{ writers = [\"ci\"] }}",
            issuer.address()
        ))
        .stack_on("prod", "first", "", &gated("first", ""))
        .stack_on("prod", "second", "", &noted("second"))
        .stack("free", "", &noted("free"));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let second = story.start("second", &["apply", "second", "--auto-approve"]);
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().contains("waits for change set c1")
    });
    second.kill();
    let _ = second.wait();
    // It is behind one that lives: nothing is decided for it.
    let _ = story.cli_with(&LAPTOP, &["plan", "free"]).expect(0);
    first.kill();
    let _ = first.wait();
    testkit::kill(story.runner("r1"));
    story.kill_engine("r1");
    story.settle(); // its lock goes with the last process that held it
    let said = story.cli_with(&LAPTOP, &["plan", "free"]).expect(0);
    story.settle();
    assert_eq!(story.made(), Vec::<String>::new());
    let told = said.stderr.lines().find(|line| line.contains("c2"));
    assert_snapshot!(told.unwrap_or_default(), @"Change set c2, which was confirmed, is stopped: no client is attached, and this user may not apply target `prod`. `terrane run show c2` shows details.");
    // Who may goes on with it.
    let resume = ["apply", "--resume", "c2", "--auto-approve"];
    let _ = story.cli_with(&LAPTOP, &resume).expect(4);
    let _ = story.cli(&resume).expect(0);
    assert_eq!(story.made(), ["second"]);
}
