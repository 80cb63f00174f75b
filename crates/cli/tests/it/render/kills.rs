//! Killed at any moment, a rendering leaves whole files that are known as its own, and the next one ends what it began.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use testkit::{SeededRng, TestTerrane};

use crate::project::{HEAD, stack, terrane};
use crate::story::files;

const FILES: usize = 150;
const ROUNDS: usize = 8;
/// One after the other, each with other data, before it may end.
const KILLS: usize = 3;

fn project() -> TestTerrane {
    let test = terrane();
    let render = "render \"lab\" {\n  templates = \"templates\"\n  data      = [\"data.yaml\"]\n  output    = \"made\"\n}\n";
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}{render}", stack("app", "")),
    )
    .write("app/main.tf", "");
    for number in 0..FILES {
        // Some come and go with the data; long enough to be caught half written.
        let text = format!(
            "{{% if {number} % 5 != version % 5 %}}\n{number} of version {{{{ version }}}}\n{{{{ 'line\\n' * 2000 }}}}{{% endif %}}\n"
        );
        test.write(&format!("templates/{}/{number}.txt.j2", number % 7), &text);
    }
    test
}

fn says(version: usize, number: usize) -> Option<String> {
    let lines = "line\n".repeat(2000);
    (number % 5 != version % 5).then(|| format!("{number} of version {version}\n{lines}"))
}

/// Which versions the tree is made of; anything but whole files of these is a failure.
fn check_whole(test: &TestTerrane, versions: &BTreeSet<usize>, what: &str) {
    for number in 0..FILES {
        let path = test
            .project()
            .join(format!("made/{}/{number}.txt", number % 7));
        let found = fs::read_to_string(&path).ok();
        let is_whole = match &found {
            None => true,
            Some(text) => versions
                .iter()
                .any(|version| says(*version, number).as_ref() == Some(text)),
        };
        assert!(is_whole, "{what}: {} is of no version", path.display());
    }
}

#[test]
fn killed_at_any_moment_it_leaves_whole_files_and_ends_next_time() {
    let seed = testkit::seed();
    let mut dice = SeededRng::new(seed);
    let test = project();
    test.write("data.yaml", "version: 0\n");
    let _ = test.cli(&["render"]).expect(0);
    let mut version = 0;
    for round in 0..ROUNDS {
        let mut versions = BTreeSet::from([version]);
        for kill in 0..KILLS {
            version += 1;
            versions.insert(version);
            test.write("data.yaml", &format!("version: {version}\n"));
            let render = test.start("render", &["render"]);
            testkit::pause(Duration::from_millis(dice.roll(120)));
            render.kill();
            let _ = render.wait();
            let what = format!("seed {seed}, round {round}, kill {kill}");
            check_whole(&test, &versions, &what);
        }
        let what = format!("seed {seed}, round {round}");
        // Nothing looks as if somebody had edited it.
        let said = test.cli(&["render"]);
        assert_eq!(said.code, Some(0), "{what}: {said}");
        for number in 0..FILES {
            let path = test
                .project()
                .join(format!("made/{}/{number}.txt", number % 7));
            let found = fs::read_to_string(path).ok();
            assert_eq!(found, says(version, number), "{what}: file {number}");
        }
        let said = test.cli(&["render", "--check"]);
        assert_eq!(said.code, Some(0), "{what}: {said}");
        let left: Vec<_> = files(&test.project().join("made")).into_iter().collect();
        let left = left
            .iter()
            .filter(|path| path.to_string_lossy().contains(".terrane-new-"));
        assert_eq!(left.count(), 0, "{what}");
    }
}
