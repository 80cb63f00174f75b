//! Destroy goes backwards, and a protected stack wants its name typed.

use insta::assert_snapshot;
use testkit::engines;

use crate::story::{Story, essence, link, takes};

fn story(engine: &str) -> Story {
    // Noted when it goes away as well.
    let module = |name: &str| {
        link(name).replace(
            "  provisioner",
            &format!(
                "  provisioner \"local-exec\" {{\n    when    = destroy\n    command = \"echo no {name} >> ROOT/made\"\n  }}\n  provisioner"
            ),
        )
    };
    Story::new(engine)
        .stack("base", "", &module("base"))
        .stack("middle", &takes("base"), &module("middle"))
        .stack("top", &takes("middle"), &module("top"))
}

#[test]
fn dependents_go_first() {
    for (engine, _) in engines::all() {
        let story = story(engine);
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let said = story.cli(&["destroy", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&said), @"
            change set c2: destroy on `local`
            ✓ base     destroyed 1 resource
            ✓ middle   destroyed 1 resource
            ✓ top      destroyed 1 resource
            Done: 3 stacks destroyed in 0 s.
            [exit 0]
            ");
        }
        let made = story.made();
        assert_eq!(made[3..], ["no top", "no middle", "no base"]);
        let again = story.cli(&["destroy", "--auto-approve"]).expect(0);
        insta::allow_duplicates! {
            assert_snapshot!(essence(&again), @"
            change set c3: destroy on `local`
              base     no changes
              middle   no changes
              top      no changes
            Done: 3 stacks unchanged in 0 s.
            [exit 0]
            ");
        }
    }
}

#[test]
fn what_still_has_dependents_can_go_alone_and_come_back() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let _ = story
        .cli(&["destroy", "middle+", "--auto-approve"])
        .expect(0);
    assert_eq!(story.made()[3..], ["no top", "no middle"]);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made()[5..], ["middle", "top"]);
}

#[test]
fn a_protected_stack_wants_its_name() {
    let story = Story::new("tofu").stack("precious", "protected = true", &link("precious"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let refused = story.cli(&["destroy", "--auto-approve"]).expect(4);
    assert_snapshot!(refused, @"
    ── stderr
    error: stack `precious` is protected: its name must be typed, and nobody is here to type it
    hint: leave it out with `!precious`, or set `protected = false` first
    [exit 4]
    ");
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(0);

    let mut terminal = story.terminal(&["destroy", "--auto-approve"]);
    terminal.wait_for("Type its name");
    terminal.type_line("precius");
    assert_snapshot!(terminal.wait(), @"
    Stack `precious` is protected. Type its name to destroy it: precius
    error: stack `precious` is protected: its name was not typed
    hint: leave it out with `!precious`, or set `protected = false` first
    [exit 4]
    ");

    let mut terminal = story.terminal(&["destroy", "--auto-approve"]);
    terminal.wait_for("Type its name");
    terminal.type_line("precious");
    let _ = terminal.wait().expect(0);
    let _ = story.cli(&["plan", "--detailed-exitcode"]).expect(2);
}

#[test]
fn nothing_is_destroyed_that_something_else_stands_on() {
    let story = story("tofu");
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let said = story.cli(&["destroy", "base", "--auto-approve"]).expect(4);
    assert_snapshot!(essence(&said), @"
    error: stack `middle` still stands on `base`: it is applied, and not part of this

    hint: `terrane destroy base+` destroys its dependents first
    [exit 4]
    ");
    assert_eq!(story.made().len(), 3, "nothing went away");
}
