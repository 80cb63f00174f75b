//! How many engines are at work at once.

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
