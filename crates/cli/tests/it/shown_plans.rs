//! `run show --plan`: what was planned can be seen again, also after it was applied.

use testkit::engines;

use crate::story::{Story, noted};

#[test]
fn the_plan_that_was_applied_is_shown() {
    for (engine, _) in engines::all() {
        let story =
            Story::new(engine)
                .stack("one", "", &noted("one"))
                .stack("two", "", &noted("two"));
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        story.settle();
        story.module("two", "");
        let _ = story.cli(&["apply", "two", "--auto-approve"]).expect(0);
        story.settle();

        let first = story.cli(&["run", "show", "c1", "--plan"]).expect(0).stdout;
        for part in [
            "one  + 1 add   applied",
            "+ terraform_data.one",
            "+ terraform_data.two",
            "Plan: 2 to add, 0 to change, 0 to replace, 0 to destroy, in 2 of 2 stacks.",
        ] {
            assert!(first.contains(part), "`{part}` is missing in\n{first}");
        }
        let second = story.cli(&["run", "show", "c2", "--plan"]).expect(0).stdout;
        assert!(second.contains("- terraform_data.two"), "{second}");

        let said = story.cli(&["run", "show", "c1", "--plan", "--json"]);
        let lines = said.expect(0).stdout;
        let events = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let mut events = events.filter(|event: &serde_json::Value| event["event"] == "plan");
        let event = events.next().expect("a plan");
        assert_eq!(event["status"], "applied");
        assert_eq!(event["plan"]["changes"][0]["address"], "terraform_data.one");
    }
}
