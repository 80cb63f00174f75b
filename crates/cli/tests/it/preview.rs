//! Dependents are seen before what they stand on is applied: with real values where there are any, and
//! never with invented ones.

use insta::{allow_duplicates, assert_snapshot};
use testkit::{CommandOutput, command_output, engines};

use crate::story::{Story, files, holding, noted};

const NETWORK: &str = r#"
resource "terraform_data" "subnet" {
  triggers_replace = "10.0.0.0/24"
}
output "subnet_id" { value = terraform_data.subnet.id }
output "cidr" { value = "10.0.0.0/24" }
"#;

/// Takes one value that will be known and one that will not, in every kind of place.
const CLUSTER: &str = r#"
variable "subnet_id" {
  type = string
  validation {
    condition     = length(var.subnet_id) > 3
    error_message = "too short"
  }
}
variable "cidr" { type = string }
locals {
  name = "nodes-${var.subnet_id}"
}
resource "terraform_data" "nodes" {
  input            = { subnet = var.subnet_id, cidr = var.cidr, size = 3 }
  triggers_replace = local.name
  depends_on       = [var.subnet_id]
}
module "gate" {
  source = "./gate"
  subnet = var.subnet_id
}
output "address" { value = "https://${var.subnet_id}" }
output "zone" { value = "a" }
"#;

const DNS: &str = r#"
variable "address" {}
variable "zone" { type = string }
resource "terraform_data" "record" {
  input = "${var.zone}: ${var.address}"
}
"#;

fn story(engine: &str) -> Story {
    let story = Story::new(engine)
        .stack("network", "", NETWORK)
        .stack(
            "cluster",
            "inputs = { subnet_id = stack.network.output.subnet_id, cidr = stack.network.output.cidr }",
            CLUSTER,
        )
        .stack(
            "dns",
            "inputs = { address = stack.cluster.output.address, zone = stack.cluster.output.zone }",
            DNS,
        );
    story.write(
        "cluster/gate/main.tf.json",
        r#"{ "variable": { "subnet": {} }, "resource": { "terraform_data": { "gate": { "input": "${var.subnet}" } } } }"#,
    );
    story
}

/// Ids differ from run to run.
fn level(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let is_id = |text: &str| {
        let shape = |(at, c): (usize, char)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        };
        text.len() == 36 && text.char_indices().all(shape)
    };
    while !rest.is_empty() {
        if rest.get(..36).is_some_and(is_id) {
            out.push_str("<id>");
            rest = &rest[36..];
        } else {
            let next = rest.chars().next().unwrap();
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

#[test]
fn who_asks_nobody_is_not_asked_for_a_value_that_comes_later() {
    let base =
        "resource \"terraform_data\" \"x\" {}\noutput \"id\" { value = terraform_data.x.id }\n";
    let top =
        "variable \"id\" { type = string }\nresource \"terraform_data\" \"y\" { input = var.id }\n";
    let story = Story::new("tofu")
        .stack("base", "apply = \"auto\"", base)
        .stack(
            "top",
            "apply = \"auto\"\n  inputs = { id = stack.base.output.id }",
            top,
        );
    let _ = story.cli(&["apply"]).expect(0);
}

#[test]
fn the_whole_graph_is_seen_before_anything_is_applied() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let first = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
        allow_duplicates! {
            assert_snapshot!(first.stdout, @r#"
            change set c1 on `local`

            network  + 1 add
              + terraform_data.subnet
                  triggers_replace   "10.0.0.0/24"
                  known after apply: id
              outputs
                + cidr        "10.0.0.0/24"
                + subnet_id   (known after apply)

            cluster  + 2 add                             deferred: `subnet_id` is known after `network`
              + terraform_data.nodes
                  input.cidr         "10.0.0.0/24"
                  input.size         3
                  input.subnet       (known after `network`)
                  triggers_replace   (known after `network`)
                  known after apply: id, output
              module.gate
                + terraform_data.gate
                    input   (known after `network`)
                    known after apply: id, output
              outputs
                + address   (known after `network`)
                + zone      "a"

            dns      + 1 add                             deferred: `address` is known after `cluster`
              + terraform_data.record
                  input   (known after `cluster`)
                  known after apply: id, output

            Plan: 4 to add, 0 to change, 0 to replace, 0 to destroy, in 3 of 3 stacks.
            "#);
        }
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        story.module("network", &NETWORK.replace("/24", "/23"));
        let second = story.cli(&["plan"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(level(&second.stdout), @r#"
            change set c3 on `local`

            network  -/+ 1 replace
              -/+ terraform_data.subnet   replaced, because `triggers_replace` changes
                  id                 "<id>" → (known after apply)
                  triggers_replace   "10.0.0.0/24" → "10.0.0.0/23"
              outputs
                ~ cidr        "10.0.0.0/24" → "10.0.0.0/23"
                ~ subnet_id   "<id>" → (known after apply)

            cluster  -/+ 1 replace, ~ 1 change           deferred: `subnet_id` is known after `network`
              -/+ terraform_data.nodes   replaced, because `triggers_replace` changes
                  id                 "<id>" → (known after apply)
                  input.cidr         "10.0.0.0/24" → "10.0.0.0/23"
                  input.subnet       "<id>" → (known after `network`)
                  output             { cidr = "10.0.0.0/24", size = 3, s… (83 characters) → (known after apply)
                  triggers_replace   "nodes-<id>" → (known after `network`)
                  … 1 unchanged
              module.gate
                ~ terraform_data.gate
                    input    "<id>" → (known after `network`)
                    output   "<id>" → (known after apply)
                    … 1 unchanged
              outputs
                ~ address   "https://<id>" → (known after `network`)

            dns      ~ 1 change                          deferred: `address` is known after `cluster`
              ~ terraform_data.record
                  input    "a: https://<id>" → (known after `cluster`)
                  output   "a: https://<id>" → (known after apply)
                  … 1 unchanged

            Plan: 0 to add, 2 to change, 2 to replace, 0 to destroy, in 3 of 3 stacks.
            "#);
        }
        // Nothing of it is left that anybody could apply, and the source is as it was.
        story.settle();
        let left = files(&story.data());
        let left = left.iter().filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            matches!(name, Some("plan.file" | "plan.bin" | "plan.outputs"))
        });
        assert_eq!(left.count(), 0);
        let plan = story
            .cli(&["plan", "cluster", "--detailed-exitcode"])
            .expect(0);
        assert!(plan.stdout.contains("No changes"), "{plan}");
    }
}

const POOLS: &str = r#"
resource "terraform_data" "pool" {
  triggers_replace = "v1"
}
output "whole" {
  value = { id = terraform_data.pool.id, nodes = 3, extra = "e" }
}
output "pools" {
  value = [{ id = terraform_data.pool.id, zone = "a" }, { id = terraform_data.pool.id, zone = "b", size = 7 }]
}
"#;

const OF_POOLS: &str = r#"
variable "whole" {
  type = object({
    id    = string
    nodes = string # as people write it
    mode  = optional(string, "dflt")
  })
}
variable "pools" {
  type = list(object({ zone = string, id = string, size = optional(number, 5) }))
}
resource "terraform_data" "whole" {
  input = var.whole
}
resource "terraform_data" "each" {
  for_each         = { for pool in var.pools : pool.zone => lookup(pool, "size", "NONE") }
  triggers_replace = each.value
}
output "mode" {
  value = var.whole.mode
}
"#;

/// What is known of a value has the type that the variable declares: its defaults, its texts, and nothing that it leaves out.
#[test]
fn what_is_known_in_part_is_of_the_declared_type() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine).stack("pools", "", POOLS).stack(
            "top",
            "inputs = { whole = stack.pools.output.whole, pools = stack.pools.output.pools }",
            OF_POOLS,
        );
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        story.module("pools", &POOLS.replace("v1", "v2"));
        let plan = story.cli(&["plan", "top", "pools"]).expect(0);
        let of_top = plan
            .stdout
            .lines()
            .skip_while(|line| !line.starts_with("top"));
        let of_top = of_top.filter(|line| !line.contains(" output ")); // it is cut within an id
        allow_duplicates! {
            assert_snapshot!(level(&of_top.collect::<Vec<_>>().join("\n")), @"
            top    ~ 1 change                            deferred: `pools`, `whole` are known after `pools`
              ~ terraform_data.whole
                  input.id   \"<id>\" → (known after `pools`)
                  … 3 unchanged

            Plan: 0 to add, 1 to change, 1 to replace, 0 to destroy, in 2 of 2 stacks.
            ");
        }
        // A mistake is one of the source, at no place that the source does not have.
        story.module("top", &OF_POOLS.replace("id    = string", "ID    = string"));
        let plan = story.cli(&["plan"]).expect(0);
        let why = plan.stdout.lines().find(|line| line.contains("no preview"));
        allow_duplicates! {
            assert_snapshot!(why.unwrap_or_default(), @"top    deferred, no preview: invalid value for input variable");
        }
    }
}

/// A value that an upstream's plan knows already is the dependent's, although it is not applied yet.
#[test]
fn a_planned_value_that_is_known_is_passed_on() {
    let story = Story::new("tofu")
        .stack("base", "", "output \"size\" { value = 1234567890.12345678901234567890 }\n")
        .stack(
            "top",
            "inputs = { size = stack.base.output.size }",
            "variable \"size\" { type = number }\nresource \"terraform_data\" \"x\" {\n  count = var.size > 1 ? 1 : 0\n  input = var.size\n}\n",
        );
    let plan = story.cli(&["plan"]).expect(0);
    assert_snapshot!(plan.stdout, @r#"
    change set c1 on `local`

    base  ~ 1 output
      outputs
        + size   1234567890.1234567890123456789

    top   + 1 add                                deferred: planned after `base`
      + terraform_data.x[0]
          input   1234567890.1234567890123456789
          known after apply: id, output

    Plan: 1 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.
    "#);
}

#[test]
fn what_cannot_be_seen_says_why_and_neither_fails_nor_poisons() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .stack("network", "", NETWORK)
            .stack(
                "many",
                "inputs = { ids = [stack.network.output.subnet_id] }",
                "variable \"ids\" { type = list(string) }\nresource \"terraform_data\" \"x\" {\n  for_each = toset(var.ids)\n  input    = each.key\n}\noutput \"n\" { value = length(terraform_data.x) }\n",
            )
            .stack(
                "last",
                "inputs = { n = stack.many.output.n }",
                "variable \"n\" {}\nresource \"terraform_data\" \"x\" { input = var.n }\n",
            );
        let plan = story.cli(&["plan"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(plan.stdout, @r#"
            change set c1 on `local`

            network  + 1 add
              + terraform_data.subnet
                  triggers_replace   "10.0.0.0/24"
                  known after apply: id
              outputs
                + cidr        "10.0.0.0/24"
                + subnet_id   (known after apply)

            many     deferred, no preview: invalid for_each argument (many/main.tf:3)
              `subnet_id` is known after `network`

            last     + 1 add                             deferred: `n` is known after `many`
              + terraform_data.x
                  input   (known after `many`)
                  known after apply: id, output

            Plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 3 stacks; 1 without a preview.
            "#);
        }
        let said = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert!(said.stderr.contains("Done: 3 stacks applied"), "{said}");
    }
}

/// Before the yes a person sees all of it; after it everything is planned again, with real values.
#[test]
fn a_person_says_yes_to_the_whole_graph() {
    let story = Story::new("tofu")
        .stack("base", "", &(noted("base") + "output \"id\" { value = terraform_data.base.id }\n"))
        .stack(
            "top",
            "inputs = { from = stack.base.output.id }",
            &(noted("top") + "variable \"from\" { type = string }\nresource \"terraform_data\" \"seen\" { input = \"from ${var.from}\" }\n"),
        );
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("(known after `base`)");
    terminal.wait_for("Type `yes`");
    assert_eq!(story.made(), Vec::<String>::new());
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), ["base", "top"]);
    let seen = story.cli(&["state", "show", "top"]).expect(0).stdout;
    assert!(seen.contains("\"from "), "{seen}");
    assert!(!seen.contains("terrane_preview"), "{seen}");
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
}

/// A yes is about what could be seen.
#[test]
fn what_nobody_could_see_is_asked_about_when_it_is_planned() {
    let story = Story::new("tofu")
        .stack("base", "", &(noted("base") + "output \"id\" { value = terraform_data.base.id }\n"))
        .stack(
            "top",
            "inputs = { from = stack.base.output.id }",
            &(noted("top") + "variable \"from\" { type = string }\nresource \"terraform_data\" \"each\" {\n  for_each = toset([var.from])\n}\n"),
        );
    let mut terminal = story.terminal(&["apply"]);
    terminal.wait_for("deferred, no preview");
    terminal.wait_for("Type `yes`");
    terminal.type_line("yes");
    terminal.wait_for("applied before");
    terminal.wait_for("terraform_data.each");
    assert_eq!(story.made(), ["base"]);
    terminal.wait_for("Type `yes`");
    terminal.type_line("yes");
    let _ = terminal.wait().expect(0);
    assert_eq!(story.made(), ["base", "top"]);
}

#[test]
fn a_secret_that_a_plan_knows_is_passed_on_and_shown_nowhere() {
    let secret = "correct-horse-battery";
    let story = Story::new("tofu")
        .stack(
            "base",
            "",
            &format!("output \"key\" {{\n  value     = \"{secret}\"\n  sensitive = true\n}}\n"),
        )
        .stack(
            "top",
            "inputs = { key = stack.base.output.key }",
            "variable \"key\" {\n  type      = string\n  sensitive = true\n}\nresource \"terraform_data\" \"x\" {\n  count = startswith(nonsensitive(var.key), \"correct\") ? 1 : 0\n  input = var.key\n}\n",
        );
    let plan = story.cli(&["plan"]).expect(0);
    assert!(plan.stdout.contains("terraform_data.x[0]"), "{plan}");
    assert!(!plan.to_string().contains(secret), "{plan}");
    story.settle();
    let in_clear = holding(&story, secret);
    let outside: Vec<_> = in_clear
        .iter()
        .filter(|path| !path.ends_with("base/main.tf")) // the source itself
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
}

/// Nobody listens where the states are: a review works, and says what it is.
#[test]
fn without_state_everything_shows_as_new() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .block(
                "target \"far\" {\n  writers = [\"anyone\"]\n  backend \"http\" {\n    address = \"http://127.0.0.1:9/${stack.state}\"\n  }\n}",
            )
            .stack_on("far", "base", "", NETWORK)
            .stack_on(
                "far",
                "top",
                "inputs = { id = stack.base.output.subnet_id }",
                "variable \"id\" { type = string }\nresource \"terraform_data\" \"x\" { input = var.id }\n",
            );
        let failed = story.cli(&["plan", "base"]).expect(1);
        for words in [
            "connection refused",
            "`terrane plan --no-state` plans without the state",
        ] {
            assert!(failed.stdout.contains(words), "{failed}");
        }
        let plan = story
            .cli(&["plan", "--no-state", "--detailed-exitcode"])
            .expect(2);
        allow_duplicates! {
            assert_snapshot!(plan.stdout.replace("c2", "c1"), @r#"
            change set c1 on `far`, without state: everything shows as new

            base  + 1 add
              + terraform_data.subnet
                  triggers_replace   "10.0.0.0/24"
                  known after apply: id
              outputs
                + cidr        "10.0.0.0/24"
                + subnet_id   (known after apply)

            top   + 1 add                                deferred: `subnet_id` is known after `base`
              + terraform_data.x
                  input   (known after `base`)
                  known after apply: id, output

            Plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.
            "#);
        }
        // What a stack takes from one that is not part of the review is unknown as well.
        let alone = story.cli(&["plan", "top", "--no-state"]).expect(0);
        assert!(
            alone.stdout.contains("input   (known after `base`)"),
            "{alone}"
        );
        let _ = story.cli(&["plan", "--no-state", "--destroy"]).expect(64);
        // Where the engine cannot plan without the values, that is no failure.
        story.module(
            "top",
            "variable \"id\" { type = string }\nresource \"terraform_data\" \"x\" {\n  for_each = toset([var.id])\n}\n",
        );
        let alone = story.cli(&["plan", "top", "--no-state"]).expect(0);
        assert!(alone.stdout.contains("no preview"), "{alone}");
    }
}

#[test]
fn machines_are_told_the_same() {
    let story = story("tofu");
    let plan = story.cli(&["plan", "--json"]).expect(0);
    assert_snapshot!(statuses(&plan), @"
    network planned
    cluster deferred: `subnet_id` is known after `network`
    dns deferred: `address` is known after `cluster`
    ");
}

fn statuses(said: &CommandOutput) -> String {
    let events = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let plans = events.filter(|event: &serde_json::Value| event["event"] == "plan");
    let words = plans.map(|event| {
        let word = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        assert!(event["plan"].is_object());
        match word("reason") {
            reason if reason.is_empty() => format!("{} {}", word("stack"), word("status")),
            reason => format!("{} {}: {reason}", word("stack"), word("status")),
        }
    });
    command_output::level(&words.collect::<Vec<_>>().join("\n"))
}
