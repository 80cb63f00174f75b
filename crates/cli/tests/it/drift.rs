//! Resources that somebody changed outside of terrane, with a real provider.

use testkit::engines;

use crate::story::{Story, terrane};

const MODULE: &str = r#"terraform {
  required_providers {
    thing = { source = "example.io/test/thing" }
  }
}
resource "thing_file" "note" {
  path = "ROOT/note.txt"
  text = "ours"
}
"#;

#[test]
fn a_refresh_only_plan_shows_drift_and_takes_it_in() {
    for (engine, _) in engines::all() {
        let story = Story::on(terrane().with_provider(), engine).stack("web", "", MODULE);
        let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
        let look = ["plan", "--refresh-only", "--detailed-exitcode"];
        let quiet = story.cli(&look).expect(0).stdout;
        assert!(quiet.contains("No changes"), "{quiet}");

        std::fs::write(story.root().join("note.txt"), "theirs").unwrap();
        let drifted = story.cli(&look).expect(2).stdout;
        for part in [
            "web  ~ 1 changed outside",
            "changed outside of terrane",
            "~ thing_file.note",
            "\"ours\" → \"theirs\"",
            "Plan: 1 resource changed outside of terrane.",
        ] {
            assert!(drifted.contains(part), "`{part}` is missing in\n{drifted}");
        }

        // The state takes it over; the file stays as it is.
        let _ = story
            .cli(&["plan", "--refresh-only", "--out", "drift.terrane"])
            .expect(0);
        let _ = story
            .cli(&["apply", "drift.terrane", "--auto-approve"])
            .expect(0);
        story.settle();
        let _ = story.cli(&look).expect(0);
        let note = std::fs::read_to_string(story.root().join("note.txt")).unwrap();
        assert_eq!(note, "theirs");
    }
}
