//! One stack fails: what depends on it is skipped, the rest is finished, and the same command goes on
//! when the cause is gone.

use insta::{allow_duplicates, assert_snapshot};
use testkit::engines;

use crate::story::{Story, essence, link, noted, resource, takes};

#[test]
fn dependents_are_skipped_and_the_rest_is_finished() {
    for (engine, _) in engines::all() {
        let story = Story::new(engine)
            .stack("base", "", &broken_base())
            .stack("middle", &takes("base"), &link("middle"))
            .stack("top", &takes("middle"), &link("top"))
            .stack("other", "", &link("other"))
            .stack("beside", &takes("other"), &link("beside"));
        let failed = story.cli(&["apply", "--auto-approve"]).expect(1);
        allow_duplicates! {
            assert_snapshot!(essence(&failed), @"");
        }
        assert_eq!(sorted(story.made()), ["beside", "first", "other"]);

        story.module("base", &base(&noted("second")));
        let mended = story.cli(&["apply", "--auto-approve"]).expect(0);
        allow_duplicates! {
            assert_snapshot!(essence(&mended), @"");
        }
        // What was made before the failure was kept, not made again.
        let made = sorted(story.made());
        assert_eq!(made, ["beside", "first", "middle", "other", "second", "top"]);
    }
}

#[test]
fn a_plan_that_fails_is_told_as_well() {
    let story = Story::new("tofu")
        .stack("base", "", "output \"name\" {\n  value = file(\"missing.txt\")\n}\n")
        .stack("top", &takes("base"), &link("top"));
    let plan = story.cli(&["plan"]).expect(1);
    assert_snapshot!(plan.stdout, @"");
    let apply = story.cli(&["apply", "--auto-approve"]).expect(1);
    assert_snapshot!(essence(&apply), @"");
}

fn base(second: &str) -> String {
    format!(
        "{}{second}output \"name\" {{ value = \"base\" }}\n",
        noted("first")
    )
}

fn broken_base() -> String {
    let after = "depends_on = [terraform_data.first]";
    base(&resource("second", after, "echo no room left; exit 7"))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
