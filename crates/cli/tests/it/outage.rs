//! The home does not take what an engine has done: it is held, kept, tried again, and never lost.

use std::fs;
use std::path::PathBuf;

use testkit::{Postgres, engines};

use crate::story::{Story, gated, holding, noted, terrane};

/// An apply whose runner cannot make its database any longer, as on a full disk, from the moment on that its
/// engine waits at `slow`.
struct Outage {
    story: Story,
    runner: u32,
}

impl Outage {
    fn begin(engine: &str, patience: &str) -> Self {
        let module = noted("first") + &gated("slow", "depends_on = [terraform_data.first]");
        let story = Story::on(terrane().env("TERRANE_PATIENCE", patience), engine)
            .stack("base", "", &module);
        // Who goes over its limit gets a signal, unless it is ignored; then the write fails.
        let binary = env!("CARGO_BIN_EXE_terrane");
        let lines = format!(
            "trap '' XFSZ\n\
             ({binary} apply --auto-approve > ROOT/out 2> ROOT/err; echo $? > ROOT/code) < /dev/null &> /dev/null &\n"
        );
        let outage = Self { story, runner: 0 };
        outage.shell(&lines);
        outage.story.wait_for("slow");
        let runner = outage.story.runner("r1");
        let outage = Self { runner, ..outage };
        let log = outage.story.home().join("terrane.db-wal");
        let size = fs::metadata(log).unwrap().len();
        outage.limit(&size.to_string());
        outage.story.open("slow");
        outage
    }

    fn shell(&self, lines: &str) {
        let root = self.story.root().display().to_string();
        let _ = self.story.shell(&lines.replace("ROOT", &root)).expect(0);
    }

    /// How long a file of the runner may become.
    fn limit(&self, size: &str) {
        self.shell(&format!(
            "prlimit --pid {} --fsize={size}:unlimited",
            self.runner
        ));
    }

    fn spooled(&self) -> PathBuf {
        self.story.data().join("runs/r1/undelivered.tfstate")
    }

    #[track_caller]
    fn wait_for_the_spool(&self) {
        let path = self.spooled();
        self.story
            .wait_until("a state that is held", || path.exists());
    }

    /// The end of the apply.
    #[track_caller]
    fn end(&self) -> (String, String) {
        let code = self.story.root().join("code");
        self.story.wait_until("the end of the apply", || {
            fs::read_to_string(&code).is_ok_and(|text| !text.is_empty())
        });
        let read = |name| fs::read_to_string(self.story.root().join(name)).unwrap();
        (read("code").trim().to_owned(), read("err"))
    }

    #[track_caller]
    fn is_whole(&self) {
        let state = self.story.cli(&["state", "pull", "base"]).expect(0).stdout;
        assert!(state.contains("slow"), "{state}");
        let again = self.story.cli(&["plan", "--detailed-exitcode"]);
        let _ = again.expect(0);
        assert_eq!(self.story.made(), ["first", "slow"]);
    }
}

#[test]
fn a_write_is_held_until_the_home_takes_it() {
    for (engine, _) in engines::all() {
        let outage = Outage::begin(engine, "600");
        outage.wait_for_the_spool();
        assert!(
            holding(&outage.story, "terraform_data")
                .iter()
                .all(|path| path != &outage.spooled())
        );
        let list = outage.story.cli(&["run", "list"]).expect(0);
        assert!(list.stdout.contains("waits for its home"), "{list}");
        outage.limit("unlimited");
        let (code, said) = outage.end();
        assert_eq!(code, "0", "{said}");
        assert!(!outage.spooled().exists());
        outage.is_whole();
    }
}

#[test]
fn a_write_that_was_held_when_all_died_is_found() {
    let outage = Outage::begin("tofu", "600");
    outage.wait_for_the_spool();
    // The engine dies with its runner: nobody else knows what it has made.
    outage.shell(&format!(
        "engine=$(cat /proc/{0}/task/*/children); kill -9 {0} $engine",
        outage.runner
    ));
    let (code, said) = outage.end();
    assert_eq!(code, "1", "{said}");
    assert!(said.contains("was found and kept as serial 1"), "{said}");
    assert!(!outage.spooled().exists());
    outage.is_whole();
}

#[test]
fn when_patience_ends_nothing_is_lost() {
    let outage = Outage::begin("tofu", "1");
    outage.wait_for_the_spool();
    outage.story.settle();
    let (code, said) = outage.end();
    assert_eq!(code, "1", "{said}");
    outage.is_whole();
}

#[test]
fn a_terminal_waits_for_a_database_that_is_away() {
    let postgres = Postgres::own(&[]);
    let test = terrane();
    let blobs = test.root().join("bucket").display().to_string();
    let home = format!("{}&blobs=file://{blobs}", postgres.database());
    let story =
        Story::on(test.env("TERRANE_HOME", &home), "tofu").stack("base", "", &gated("slow", ""));
    let apply = story.start("apply", &["apply", "--auto-approve"]);
    story.wait_for("slow");
    postgres.stop();
    story.wait_until("a word of the terminal", || {
        let said = apply.stderr_so_far();
        said.contains("The home does not respond: running work of change set c1 continues")
    });
    story.open("slow");
    postgres.start_again();
    let said = apply.wait().expect(0);
    assert!(!said.stderr.contains("SELECT"), "{said}");
    assert_eq!(story.made(), ["slow"]);
}
