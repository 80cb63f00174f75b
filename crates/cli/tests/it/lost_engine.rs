//! An engine dies in the middle of an apply, with a real provider: what it had made and no state knows is
//! listed, and comes back by the blocks that are proposed.

use insta::assert_snapshot;
use testkit::{CommandOutput, engines};

use crate::story::{Story, essence, terrane};

/// A file that is made at once, and one that waits after it.
fn story(engine: &str) -> Story {
    Story::on(terrane().with_provider(), engine).stack("web", "", &module("first", ""))
}

fn module(text: &str, more: &str) -> String {
    format!(
        r#"terraform {{
  required_providers {{
    thing = {{ source = "example.io/test/thing" }}
  }}
}}
resource "thing_file" "first" {{
  path = "ROOT/first.txt"
  text = "{text}"
}}
resource "terraform_data" "note" {{
  input = thing_file.first.id
}}
resource "thing_file" "slow" {{
  path       = "ROOT/slow.txt"
  text       = "slow"
  wait       = "ROOT/slow"
  depends_on = [terraform_data.note]
}}
{more}"#
    )
}

/// With the one directory that differs from run to run named.
fn told(story: &Story, said: &CommandOutput) -> String {
    let text = essence(said).replace(&story.root().display().to_string(), "ROOT");
    // How the long path makes a line break is a matter of its length.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_it_made_is_listed_and_imported() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_for("slow");
        story.kill_engine("r1");
        let said = told(&story, &apply.wait().expect(1));
        insta::allow_duplicates! {
            assert_snapshot!(said, @"change set c1: apply on `local` ✗ web failed: could not apply: the engine ended with signal 9 ✗ web failed while applying, after 0 s could not apply: the engine ended with signal 9 no state was stored; the engine created `terraform_data.note`, which cannot be imported created `thing_file.first`, id `ROOT/first.txt` was working on `thing_file.slow` (create): the result is unknown an apply now would create them a second time: first add the output of `terrane run imports r1` to the stack's module (id from the event stream, check the provider's import format) error: change set c1 stopped: 1 failed hint: fix the cause and import what `terrane run imports r1` names, then `terrane apply --resume c1` runs what is left [exit 1]");
        }
        let blocks = story.cli(&["run", "imports", "r1"]).expect(0).stdout;
        let shown = blocks.replace(&story.root().display().to_string(), "ROOT");
        insta::allow_duplicates! {
            assert_snapshot!(shown, @r#"
            # id from the event stream, check the provider's import format

            # cannot be imported: terraform_data.note

            import {
              to = thing_file.first
              id = "ROOT/first.txt"
            }
            "#);
        }

        let again = story.cli(&["plan"]).expect(0);
        let words = |said: &CommandOutput| {
            let words = said.stderr.split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        let reminder = "the engine of run r1 created 1 resource of stack `web` that no state contains (`thing_file.first`): an apply creates them again";
        assert!(words(&again).contains(reminder), "{}", again.stderr);
        // Who tries it again is told before they are asked for a yes.
        let retried = story.cli(&["run", "retry", "r1"]).expect(3);
        assert!(words(&retried).contains(reminder), "{}", retried.stderr);
        // Who opens the run again, and thinks better of it, does not lose it.
        let kept = || story.cli(&["run", "imports", "r1"]).expect(0).stdout;
        assert_eq!(kept(), blocks);
        let discard = ["run", "discard", "c1", "--reason", "later"];
        drop(story.cli(&discard).expect(0));
        assert_eq!(kept(), blocks);
        let again = story.cli(&["plan"]).expect(0);
        assert!(words(&again).contains(reminder), "{}", again.stderr);

        // The way on: what was made is taken up, not made again.
        story.write("web/imports.tf", &blocks);
        story.open("slow");
        let said = story.cli(&["apply", "--auto-approve"]).expect(0);
        let said = essence(&said);
        assert!(said.contains("2 changes, 1 import"), "{said}");
        let quiet = story.cli(&["plan", "--detailed-exitcode"]).expect(0);
        assert!(!quiet.stderr.contains("no state knows"), "{}", quiet.stderr);
    }
}

#[test]
fn what_it_destroyed_is_listed_for_the_state() {
    let story = story("tofu");
    story.open("slow");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    std::fs::remove_file(story.root().join("slow.go")).unwrap();
    std::fs::remove_file(story.root().join("slow.started")).unwrap();
    // Something stands on the slow one, so that it goes first.
    let tail = "resource \"thing_file\" \"tail\" {\n  path = \"ROOT/tail.txt\"\n  text = thing_file.slow.id\n}\n";
    story.module("web", &module("first", tail));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let destroy = story.start("destroy", &["destroy", "--auto-approve"]);
    story.wait_for("slow");
    story.kill_engine("r3");
    let said = told(&story, &destroy.wait().expect(1));
    assert_snapshot!(said, @"change set c3: destroy on `local` ✗ web failed: could not apply: the engine ended with signal 9 ✗ web failed while applying, after 0 s could not apply: the engine ended with signal 9 the newest state is serial 2; beyond it the engine destroyed `thing_file.tail`, which is still in the state was working on `thing_file.slow` (delete): the result is unknown `terrane exec web --reason … -- state rm 'thing_file.tail'` removes what is gone from the state state kept: serial 2 (1 resource changed, 1 begun before the failure) error: change set c3 stopped: 1 failed hint: fix the cause, then the same command again destroys what is left [exit 1]");
}

#[test]
fn it_is_found_in_the_log_of_a_run_that_lost_its_runner_too() {
    let story = story("tofu");
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    apply.kill();
    let _ = apply.wait();
    testkit::kill(story.runner("r1"));
    story.kill_engine("r1");
    story.settle();
    let said = story.cli(&["plan", "--json"]).expect(0);
    assert!(said.stderr.contains("ended unknown"), "{}", said.stderr);
    let blocks = story.cli(&["run", "imports", "r1"]).expect(0).stdout;
    assert!(blocks.contains("to = thing_file.first"), "{blocks}");
}
