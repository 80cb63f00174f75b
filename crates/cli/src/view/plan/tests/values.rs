//! Values of every kind, before and after.

use super::*;

#[test]
fn values_of_a_new_resource() {
    insta::assert_snapshot!(seen(resource(
        ChangeAction::Create,
        "aws_instance.web",
        vec![
            set_to("name", json!("web")),
            set_to("count", json!(3)),
            set_to("password", json!(null)),
            attribute("token", PlanValue::Absent, PlanValue::Sensitive),
            set_to("user_data", json!("#!/bin/sh\nset -eu\nexec /usr/bin/web\n")),
            set_to("ingress", json!([
                {"port": 80, "hosts": ["a.example.io", "b.example.io"], "open": true},
                {"port": 443, "hosts": ["a.example.io", "b.example.io"], "open": true},
            ])),
            set_to("key", json!("A".repeat(300))),
            set_to("policy", json!(r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"]}]}"#)),
        ],
    )), @r#"
    network  + 1 add
      + aws_instance.web
          name        "web"
          count       3
          token       (sensitive)
          user_data   3 lines
              #!/bin/sh
              set -eu
              exec /usr/bin/web
          ingress     [
                        {
                          port  = 80
                          hosts = ["a.example.io", "b.example.io"]
                          open  = true
                        },
                        {
                          port  = 443
                      … 4 more lines, `--full` shows all
          key         "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA… (300 characters)
          policy      JSON
              {
                "Version": "2012-10-17",
                "Statement": [
                  {
                    "Effect": "Allow",
                    "Action": [
                      "s3:GetObject",
                      "s3:PutObject"
              … 4 more lines, `--full` shows all

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy.
    "#);
}

#[test]
fn values_that_change() {
    let mut change = resource(
        ChangeAction::Update,
        "aws_instance.web",
        vec![
            attribute("size", known(json!(1)), known(json!(2.5))),
            attribute("enabled", known(json!(false)), known(json!(null))),
            attribute("tags[\"a.b\"]", PlanValue::Absent, known(json!("new"))),
            attribute("tags.old", known(json!("x")), PlanValue::Absent),
            attribute("rules", known(json!([])), PlanValue::Unknown),
            attribute(
                "result",
                known(json!({"hosts": ["one.example.io", "two.example.io", "three.example.io"]})),
                PlanValue::Unknown,
            ),
            attribute(
                "image",
                known(json!(format!(
                    "registry.example.io/{}@1",
                    "team/".repeat(20)
                ))),
                known(json!(format!(
                    "registry.example.io/{}@2",
                    "team/".repeat(20)
                ))),
            ),
            attribute(
                "description",
                known(json!("a text that is rather long, as descriptions go")),
                known(json!("another text that is just as long as the first one")),
            ),
            attribute(
                "policy",
                known(json!(r#"{"a":1,"b":[1,2,3]}"#)),
                known(json!(r#"{"a":1,"b":[1,2,4]}"#)),
            ),
            attribute(
                "spaces",
                known(json!(r#"{"a":1}"#)),
                known(json!(r#"{ "a": 1 }"#)),
            ),
            attribute(
                "digits",
                known(json!(r#"{"id":12345678901234567890123}"#)),
                known(json!(r#"{"id":12345678901234567890124}"#)),
            ),
        ],
    );
    change.unchanged = 14;
    insta::assert_snapshot!(seen(change), @r#"
    network  ~ 1 change
      ~ aws_instance.web
            size          1 → 2.5
            enabled       false → null
          + tags["a.b"]   "new"
          - tags.old      "x"
            rules         [] → (known after apply)
            result        { hosts = ["one.ex… (68 characters) → (known after apply)
            image         "…team/team/team/@1" → "…team/team/team/@2"
            description   "a text that is rather long, as descriptions go"
                          → "another text that is just as long as the first one"
            policy        JSON
              … 3 lines unchanged
                    1,
                    2,
              -     3
              +     4
                  ]
                }
            spaces        JSON, the same content written differently
            digits        JSON
                {
              -   "id": 12345678901234567890123
              +   "id": 12345678901234567890124
                }
          … 14 unchanged

    Plan: 0 to add, 1 to change, 0 to replace, 0 to destroy.
    "#);
}

#[test]
fn long_lists_that_change() {
    let hosts = |last: &str| json!(["one.example.io", "two.example.io", "three.example.io", last]);
    insta::assert_snapshot!(seen(resource(
        ChangeAction::Update,
        "aws_lb.web",
        vec![
            attribute("ports", known(json!([80])), known(json!([80, 443]))),
            attribute("hosts", known(hosts("four.example.io")), known(hosts("five.example.io"))),
        ],
    )), @r#"
    network  ~ 1 change
      ~ aws_lb.web
          ports   [80] → [80, 443]
          hosts   list
              … 2 lines unchanged
                  "two.example.io",
                  "three.example.io",
              -   "four.example.io",
              +   "five.example.io",
                ]

    Plan: 0 to add, 1 to change, 0 to replace, 0 to destroy.
    "#);
}

#[test]
fn texts_that_change() {
    let lines = |changed: &str| -> String {
        (0..20)
            .map(|n| {
                if n == 9 {
                    format!("{changed}\n")
                } else {
                    format!("line {n}\n")
                }
            })
            .collect()
    };
    insta::assert_snapshot!(seen(resource(
        ChangeAction::Update,
        "aws_instance.web",
        vec![
            attribute("user_data", known(json!(lines("old\x1b[2J"))), known(json!(lines("new")))),
            attribute("motd", known(json!("hello")), known(json!("hello\nworld\n"))),
            attribute("end", known(json!("a\nb\n")), known(json!("a\nb"))),
        ],
    )), @r"
    network  ~ 1 change
      ~ aws_instance.web
          user_data   1 line added, 1 removed
              … 7 lines unchanged
                line 7
                line 8
              - old\u001b[2J
              + new
                line 10
                line 11
              … 8 lines unchanged
          motd        1 line added, gets a last line break
                hello
              + world
          end         loses its last line break

    Plan: 0 to add, 1 to change, 0 to replace, 0 to destroy.
    ");
}

#[test]
fn many_causes_of_a_replacement() {
    let mut change = resource(
        ChangeAction::CreateDelete,
        "aws_instance.web",
        ["ami", "zone", "type"]
            .map(|path| AttributeChange {
                forces_replacement: true,
                ..attribute(path, known(json!("a")), known(json!("b")))
            })
            .into(),
    );
    change.replace_because = ["ami", "zone", "type"].map(str::to_owned).into();
    insta::assert_snapshot!(seen(change), @r#"
    network  -/+ 1 replace
      +/- aws_instance.web
          replaced, the new one first, because 3 attributes change
          ami    "a" → "b"   forces replacement
          zone   "a" → "b"   forces replacement
          type   "a" → "b"   forces replacement

    Plan: 0 to add, 0 to change, 1 to replace, 0 to destroy.
    "#);
}

#[test]
fn nothing_in_a_plan_can_move_the_cursor() {
    let evil = "\x1b[2J\r\n\u{9b}1A\u{202e}";
    let mut change = resource(
        ChangeAction::DeleteCreate,
        &format!("a{evil}.b.c"),
        vec![
            attribute(evil, known(json!(evil)), known(json!({evil: [evil]}))),
            attribute(evil, known(json!(evil)), known(json!(format!("{evil}x")))),
            set_to(
                evil,
                json!(format!(r#"{{"a":"{}"}}"#, "\\u001b".repeat(40))),
            ),
        ],
    );
    change.moved_from = Some(evil.to_owned());
    change.importing = Some(evil.to_owned());
    change.replace_because = vec![evil.to_owned()];
    let mut planned = plan(vec![change]);
    planned.outputs.insert(
        evil.to_owned(),
        OutputChange {
            action: ChangeAction::Create,
            before: PlanValue::Absent,
            after: known(json!(evil)),
        },
    );
    let set = PlanSet {
        in_force: Vec::new(),
        facts: Vec::new(),
        heading: evil.to_owned(),
        policy: Vec::new(),
        stacks: vec![
            StackPlan {
                remark: Some(evil.to_owned()),
                ..stack(evil, StackStatus::Planned(planned))
            },
            stack(
                "b",
                StackStatus::Failed {
                    stage: "planning".to_owned(),
                    is_interrupted: false,
                    lines: vec![evil.to_owned()],
                    diagnostics: Vec::new(),
                },
            ),
        ],
    };
    for full in [false, true] {
        for width in [0, 40, 200, usize::MAX] {
            let text = render(&set, full, ViewOptions::plain(width));
            assert!(
                text.chars().all(|c| c == '\n' || !c.is_control()),
                "{text:?}"
            );
            assert!(!text.contains('\u{202e}'), "{text:?}");
        }
    }
}

#[test]
fn a_narrow_terminal_has_values_below_their_names() {
    let change = resource(
        ChangeAction::Update,
        "aws_instance.web",
        vec![
            attribute(
                "a_name_that_takes_the_whole_line",
                known(json!("before-the-change")),
                known(json!("after-the-change")),
            ),
            attribute("size", known(json!(1)), known(json!(2))),
        ],
    );
    insta::assert_snapshot!(render(&alone(change), false, ViewOptions::plain(44)), @r#"
    network  ~ 1 change
      ~ aws_instance.web
          a_name_that_takes_the_whole_line
              "before-the-change"
              → "after-the-change"
          size
              1 → 2

    Plan: 0 to add, 1 to change, 0 to replace,
    0 to destroy.
    "#);
}
