//! How many engines are at work at once, and who comes after whom.

use testkit::engines;

use crate::story::{Story, link, resource, takes};

#[test]
fn independent_stacks_run_at_the_same_time() {
    for (engine, _) in engines::all() {
        let meets = |me: &str, other: &str| {
            let wait = format!(
                "touch ROOT/{me}.started; while [ -d ROOT ] && [ ! -e ROOT/{other}.started ]; do sleep 0.05; done"
            );
            resource("meets", "", &wait)
        };
        let story = Story::new(engine)
            .stack("left", "", &meets("left", "right"))
            .stack("right", "", &meets("right", "left"));
        let _ = story.cli(&["apply", "--auto-approve", "-j", "2"]).expect(0);
    }
}

#[test]
fn one_job_means_one_engine_at_a_time() {
    // Whoever finds another at work fails.
    let alone = resource(
        "alone",
        "",
        "mkdir ROOT/busy && sleep 0.1 && rmdir ROOT/busy",
    );
    let story = Story::new("tofu")
        .stack("one", "", &alone)
        .stack("two", "", &alone)
        .stack("three", "", &alone);
    let _ = story.cli(&["apply", "--auto-approve", "-j", "1"]).expect(0);
}

#[test]
fn two_jobs_mean_two_engines_though_a_third_run_has_begun() {
    // Whoever finds two others at work fails.
    let one_of_two = resource(
        "one_of_two",
        "",
        "for n in 1 2; do if mkdir ROOT/busy$n; then sleep 0.1; rmdir ROOT/busy$n; exit 0; fi; done; exit 1",
    );
    let story = ["a", "b", "c", "d", "e", "f"]
        .into_iter()
        .fold(Story::new("tofu"), |story, name| {
            story.stack(name, "", &one_of_two)
        });
    let _ = story.cli(&["apply", "--auto-approve", "-j", "2"]).expect(0);
}

#[test]
fn a_chain_hands_its_values_on() {
    let story = Story::new("tofu")
        .stack("third", &takes("second"), &link("third"))
        .stack("second", &takes("first"), &link("second"))
        .stack("first", "", &link("first"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(story.made(), ["first", "second", "third"]);
    let name = story.cli(&["output", "third", "name", "--raw"]).expect(0);
    assert_eq!(name.stdout, "third after second after first after nobody");
}

/// What counts is what was there when a stack was planned, not whose run has the lower number.
#[test]
fn a_change_of_who_comes_first_counts_whenever_it_was_asked_for() {
    let more = |name: &str| link(name) + "resource \"terraform_data\" \"more\" {}\n";
    let story = Story::new("tofu").stack("base", "", &link("base"));
    let story = story.stack("next", "after = [stack.base]", &link("next"));
    let finds_next = |words: &str| {
        let said = story.cli(&["apply", "--auto-approve"]).expect(0);
        assert!(said.stderr.contains(&format!("next   {words}")), "{said}");
    };
    // Who is applied together is settled together.
    finds_next("applied 1 change");
    finds_next("untouched");
    // Asked for before the other's last run, and applied after it.
    story.module("base", &more("base"));
    let _ = story.cli(&["apply", "base"]).expect(3);
    let _ = story.cli(&["apply", "next", "--auto-approve"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c3"]).expect(0);
    finds_next("no changes");
    finds_next("untouched");
    // Applied while a plan of the other waited, which knew nothing of it.
    story.module("base", &link("base"));
    story.module("next", &more("next"));
    let _ = story.cli(&["apply", "next"]).expect(3);
    let _ = story.cli(&["apply", "base", "--auto-approve"]).expect(0);
    let _ = story.cli(&["run", "confirm", "c7"]).expect(0);
    finds_next("no changes");
    finds_next("untouched");
}
