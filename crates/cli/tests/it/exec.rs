//! Commands of the engine's own, on a stack: what reads, what writes, what is not passed on.

use std::fs;
use std::path::PathBuf;

use insta::assert_snapshot;
use testkit::{CommandOutput, Issuer, TestTerrane, engines};

use crate::hooks::hook;
use crate::project::{HEAD, one_stack, shown, stack, terrane};
use crate::story::{Story, files, gated};

const MODULE: &str = "variable \"size\" { default = 1 }\n\
    resource \"terraform_data\" \"a\" { input = var.size }\n\
    resource \"terraform_data\" \"b\" {}\n\
    output \"size\" { value = var.size }\n";

/// One applied stack of each engine.
fn applied() -> impl Iterator<Item = TestTerrane> {
    engines::all().into_iter().map(|(flavor, _)| {
        let test = terrane();
        let head = HEAD.replace("engine \"tofu\"", &format!("engine \"{flavor}\""));
        let inputs = stack("app", "inputs = { size = 7 }");
        test.write("terrane.hcl", &format!("{head}{inputs}"))
            .write("app/main.tf", MODULE);
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        test
    })
}

fn exec(test: &TestTerrane, words: &[&str]) -> CommandOutput {
    let mut args = vec!["exec", "app", "--"];
    args.extend(words);
    test.cli(&args)
}

/// The same for what edits the state: it wants a reason.
fn edit(test: &TestTerrane, words: &[&str]) -> CommandOutput {
    let mut args = vec!["exec", "app", "--reason", "by hand, as agreed", "--"];
    args.extend(words);
    test.cli(&args)
}

fn addresses(test: &TestTerrane) -> String {
    let said = exec(test, &["state", "list"]).expect(0);
    said.stdout.lines().collect::<Vec<_>>().join(" ")
}

/// The newest serial of the state.
fn serial(test: &TestTerrane) -> u64 {
    let pulled = test.cli(&["state", "pull", "app"]).expect(0).stdout;
    let state: serde_json::Value = serde_json::from_str(&pulled).expect("JSON");
    state["serial"].as_u64().expect("a serial")
}

#[test]
fn what_reads_changes_nothing() {
    for test in applied() {
        let before = serial(&test);
        assert_eq!(addresses(&test), "terraform_data.a terraform_data.b");
        assert_eq!(
            exec(&test, &["output", "-raw", "size"]).expect(0).stdout,
            "7"
        );
        let said = exec(&test, &["state", "show", "terraform_data.a"]).expect(0);
        assert!(said.stdout.contains("terraform_data.a"), "{said}");
        // The engine's own end is ours.
        let said = exec(&test, &["state", "show", "terraform_data.none"]).expect(1);
        assert!(said.stderr.contains("No instance found"), "{said}");
        // This is no terminal: nothing is painted.
        let said = exec(&test, &["state", "list", "nobody"]).expect(1);
        assert!(said.stderr.contains("Error: Invalid address"), "{said}");
        assert!(!said.stderr.contains('\u{1b}'), "{said}");
        assert_eq!(serial(&test), before);
    }
}

/// What stands in a state since a secret was changed at its source is one still.
#[test]
fn what_is_read_shows_no_secret_neither_of_today_nor_of_before() {
    let (old, new) = ("tok-77aa02be11", "tok-5511cc0918");
    let source = "variable \"from\" {\n  type = string\n}\n\
                  resource \"terraform_data\" \"app\" {\n  for_each = toset([nonsensitive(var.from)])\n  \
                  input    = \"u:${var.from}\"\n  lifecycle {\n    ignore_changes = [input]\n  }\n}\n\
                  output \"made\" {\n  value = values(terraform_data.app)[*].input\n}\n\
                  output \"given\" {\n  value = var.from\n}\n";
    let story = Story::on(terrane().env("STORY_TOKEN", old), "tofu")
        .block("context \"api\" {\n  autoattach = [\"app\"]\n  vars = { from = secret(\"env:STORY_TOKEN\") }\n}")
        .stack("app", "", source);
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    for now in [old, new] {
        let read = |words: &str| {
            let said = story.shell(&format!(
                "STORY_TOKEN={now} '{}' exec app -- {words}",
                env!("CARGO_BIN_EXE_terrane")
            ));
            assert!(
                !said.stdout.contains(old) && !said.stderr.contains(old),
                "{said}"
            );
            said.expect(0).stdout
        };
        assert_eq!(read("state list"), "terraform_data.app[\"(secret)\"]\n");
        assert!(read("output").contains("given = \"(secret)\""));
        assert!(read("show -json").contains("(secret)"));
        let address = format!("'terraform_data.app[\"{old}\"]'");
        assert!(read(&format!("state show {address}")).contains("(secret)"));
    }
    // The whole state, whole.
    let whole = exec(&story, &["state", "pull"]).expect(0);
    assert!(whole.stdout.contains(old), "{whole}");
}

#[test]
fn a_console_is_talked_to() {
    for test in applied() {
        let terrane = env!("CARGO_BIN_EXE_terrane");
        let said = test.shell(&format!(
            "echo 'var.size + 1' | '{terrane}' exec app -- console"
        ));
        assert_eq!((said.stdout.trim(), said.code), ("8", Some(0)), "{said}");
    }
}

#[test]
fn what_writes_is_a_run() {
    for test in applied() {
        let before = serial(&test);
        let said = edit(
            &test,
            &["state", "mv", "terraform_data.a", "terraform_data.c"],
        )
        .expect(0);
        assert!(
            said.stdout.contains("Successfully moved 1 object"),
            "{said}"
        );
        let now = serial(&test);
        assert!(now > before, "{said}");
        let told = format!("State `app` is at serial {now}.");
        assert!(said.stderr.contains(&told), "{said}");
        assert_eq!(addresses(&test), "terraform_data.b terraform_data.c");

        drop(exec(&test, &["taint", "terraform_data.b"]).expect(0));
        let said = test.cli(&["plan"]).expect(0);
        assert!(said.stdout.contains("-/+ terraform_data.b"), "{said}");
        drop(exec(&test, &["untaint", "terraform_data.b"]).expect(0));
        drop(
            edit(
                &test,
                &["state", "rm", "terraform_data.b", "terraform_data.c"],
            )
            .expect(0),
        );
        assert_eq!(addresses(&test), "");

        // What the engine refuses is said by it, and its lock and lane are free again.
        let said = exec(&test, &["taint", "terraform_data.none"]).expect(1);
        assert!(said.stderr.contains("terraform_data.none"), "{said}");
        let locks = test.cli(&["lock", "list"]).expect(0);
        assert!(!locks.stdout.contains("app"), "{locks}");
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        assert_eq!(addresses(&test), "terraform_data.a terraform_data.b");
        // Nothing is left in the source, where engines like to put their backups.
        let left = test.shell("find . -name '*.backup' -o -name '*.tfstate*'");
        assert_eq!(left.stdout, "", "{left}");
    }
}

/// The engine's words are data; those of hooks around it are shown as people are shown them elsewhere.
#[test]
fn what_a_hook_says_is_no_data() {
    let hook = hook(
        "before",
        "apply",
        "\"sh\", \"-c\", \"echo the token is fresh\"",
    );
    let context = format!("context \"login\" {{\n  autoattach = [\"*\"]\n{hook}}}\n");
    let test = one_stack("", MODULE);
    let project = test.read("terrane.hcl");
    test.write("terrane.hcl", &(project + &context));
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let said = exec(&test, &["taint", "terraform_data.b"]).expect(0);
    assert!(!said.stdout.contains("token"), "{said}");
    assert!(said.stdout.contains("marked as tainted"), "{said}");
    assert!(said.stderr.contains("the token is fresh\n"), "{said}");
    assert!(!said.to_string().contains("@message"), "{said}");
    let words = ["exec", "app", "--json", "--", "untaint", "terraform_data.b"];
    let said = test.cli(&words).expect(0);
    let end = said.stdout.lines().last().expect("an end");
    let end: serde_json::Value = serde_json::from_str(end).expect("JSON");
    assert!(!end["stdout"].to_string().contains("token"), "{said}");
    assert_eq!(end["hooks"][1], "the token is fresh", "{said}");
}

/// What edits a state past its source is break-glass, whichever command does it.
#[test]
fn what_edits_the_state_wants_a_reason_and_stays_open() {
    for test in applied() {
        let remove = ["state", "rm", "terraform_data.a"];
        insta::allow_duplicates! {
            assert_snapshot!(shown(&test, &exec(&test, &remove).expect(64)), @r#"
            ── stderr
            error: cannot run `state rm`: it changes the state directly, which requires a reason
            hint: add a reason before `--`: `--reason "…"`; the record stays open until the next successful
                  apply of the stack
            [exit 64]
            "#);
        }
        // What changed nothing is not on the record.
        drop(edit(&test, &["state", "rm", "terraform_data.none"]).expect(1));
        let open = test.cli(&["run", "list", "--open"]).expect(0);
        assert_eq!(open.stdout, "", "{open}");
        drop(edit(&test, &remove).expect(0));
        for listing in [
            &["run", "list"][..],
            &["run", "list", "--all"],
            &["run", "list", "--open"],
            &["state", "list"],
            &["lock", "list"],
            &["plan"],
        ] {
            let said = test.cli(listing).expect(0).to_string();
            assert!(said.contains("state edited"), "{listing:?}\n{said}");
            assert!(said.contains("by hand, as agreed"), "{listing:?}\n{said}");
        }
        drop(test.cli(&["apply", "--auto-approve"]).expect(0));
        let open = test.cli(&["run", "list", "--open"]).expect(0);
        assert_eq!(open.stdout, "", "{open}");
    }
}

#[test]
fn who_did_it_and_why_is_recorded() {
    let test = one_stack("", "resource \"terraform_data\" \"a\" {}\n");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let words = [
        "exec",
        "app",
        "--json",
        "--reason",
        "renamed by hand",
        "--",
        "state",
        "mv",
        "terraform_data.a",
        "terraform_data.b",
    ];
    let said = test.cli(&words).expect(0);
    let events = said.stdout.lines();
    let events = events.map(|line| serde_json::from_str(line).expect("JSON"));
    let events: Vec<serde_json::Value> = events.collect();
    assert_eq!(events[0]["action"], "exec", "{said}");
    let end = events.last().expect("an end");
    assert_eq!((&end["exit"], &end["serial"]), (&0.into(), &2.into()));
    let last = test.cli(&["state", "versions", "app"]).expect(0);
    assert!(last.stdout.contains("r2"), "{last}");
}

#[test]
fn what_would_lead_around_is_refused() {
    let test = one_stack("", MODULE);
    assert_snapshot!(shown(&test, &exec(&test, &["state", "list", "-state=other"]).expect(4)), @"
    ── stderr
    error: option `-state` is not passed on to the engine: it would be another state than that of the
           stack
    hint: leave it out
    [exit 4]
    ");
    assert_snapshot!(shown(&test, &exec(&test, &["state", "rm", "-lock=false", "a.b"]).expect(4)), @"
    ── stderr
    error: option `-lock` is not passed on to the engine: a state is written only under its lock
    hint: leave it out
    [exit 4]
    ");
    assert_snapshot!(shown(&test, &exec(&test, &["force-unlock", "1"]).expect(4)), @"
    ── stderr
    error: `force-unlock` is not passed on to the engine
    hint: `terrane lock break STACK --reason …` looks first whether the holder is alive
    [exit 4]
    ");
    assert_snapshot!(shown(&test, &exec(&test, &["frobnicate"]).expect(64)), @"
    ── stderr
    error: cannot pass `frobnicate` to the engine: it is not a known command
    hint: there are `console`, `graph`, `output`, `providers`, `providers schema`, `show`, `state list`,
          `state pull`, `state show`, `validate`, `import`, `state mv`, `state replace-provider`,
          `state rm`, `taint`, `untaint`
    [exit 64]
    ");
    for command in ["init", "apply", "destroy", "workspace", "login", "plan"] {
        drop(exec(&test, &[command]).expect(4));
    }
    drop(
        test.cli(&["exec", "none", "--", "state", "list"])
            .expect(64),
    );
}

#[test]
fn writers_hold_for_what_writes() {
    let issuer = Issuer::start();
    let target = format!(
        "writer \"ci\" {{\n  issuer = \"{}\"\n  claims = {{ repository = \"example/infra\" }}\n}}\n\
         target \"local\" {{ writers = [\"ci\"] }}",
        issuer.address()
    );
    let head = HEAD.replace("target \"local\" { writers = [\"anyone\"] }", &target);
    let test = terrane();
    test.write("terrane.hcl", &format!("{head}{}", stack("app", "")))
        .write("app/main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let token = issuer.token(&[("repository", "example/infra")]).mint();
    let test = test.env("TERRANE_ID_TOKEN", &token);
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let test = test.without_env("TERRANE_ID_TOKEN");
    assert_eq!(addresses(&test), "terraform_data.a");
    let said = edit(&test, &["state", "rm", "terraform_data.a"]).expect(4);
    assert!(said.stderr.contains("applied by CI only"), "{said}");
    let test = test.env("TERRANE_ID_TOKEN", &token);
    drop(edit(&test, &["state", "rm", "terraform_data.a"]).expect(0));
    assert_eq!(addresses(&test), "");
}

/// What writes waits for its lane; what reads does not.
#[test]
fn lanes_hold_for_what_writes() {
    let story = Story::new("tofu")
        .stack("first", "", &gated("first", ""))
        .stack("second", "", "resource \"terraform_data\" \"a\" {}\n");
    drop(story.cli(&["apply", "second", "--auto-approve"]).expect(0));
    let first = story.start("first", &["apply", "first", "--auto-approve"]);
    story.wait_for("first");
    let list = ["exec", "second", "--", "state", "list"];
    assert_eq!(story.cli(&list).expect(0).stdout, "terraform_data.a\n");
    let words = [
        "exec",
        "second",
        "--reason",
        "moved",
        "--",
        "state",
        "rm",
        "terraform_data.a",
    ];
    let second = story.start("second", &words);
    let title = "change set c4: exec on `local`, waits for change set c2 to release the lane";
    story.wait_until("the second in the queue", || {
        second.stderr_so_far().lines().any(|line| line == title)
    });
    story.open("first");
    drop(first.wait().expect(0));
    drop(second.wait().expect(0));
    assert_eq!(story.cli(&list).expect(0).stdout, "");
}

/// A stack whose `state rm` waits for the gate `rm`.
fn halting() -> Story {
    let story = Story::new("tofu").stack("app", "", "resource \"terraform_data\" \"a\" {}\n");
    story.engine_script("case \"$*\" in *'state rm'*) WAIT(rm) ;; esac\nexec REAL \"$@\"\n");
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    story
}

const REMOVE: [&str; 8] = [
    "exec",
    "app",
    "--reason",
    "moved",
    "--",
    "state",
    "rm",
    "terraform_data.a",
];

#[test]
fn what_writes_outlives_its_terminal() {
    let story = halting();
    let terminal = story.start("terminal", &REMOVE);
    story.wait_for("rm");
    terminal.kill();
    drop(terminal.wait());
    story.open("rm");
    story.settle();
    assert_eq!(addresses(&story), "");
    let locks = story.cli(&["lock", "list"]).expect(0);
    assert!(!locks.stdout.contains("app"), "{locks}");
}

/// The engine cannot deliver what it did, nothing was stored, and the stack goes on.
#[test]
fn a_lost_runner_leaves_an_unknown_end() {
    let story = halting();
    let terminal = story.start("terminal", &REMOVE);
    story.wait_for("rm");
    testkit::kill(story.runner("r2"));
    story.open("rm");
    let said = terminal.wait().expect(1);
    assert!(said.stderr.contains("unknown"), "{said}");
    story.settle();
    assert_eq!(addresses(&story), "terraform_data.a");
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
}

#[test]
fn a_list_says_who_did_what_and_shows_no_secret() {
    let secret = "tok-77aa02be11";
    let story = Story::on(
        terrane()
            .env("STORY_TOKEN", secret)
            .env("CI", "true")
            .env("GITHUB_ACTOR", "ada")
            .env("TERRANE_HOME", "../people"),
        "tofu",
    )
    .block("context \"api\" {\n  autoattach = [\"app\"]\n  vars = { from = secret(\"env:STORY_TOKEN\") }\n}")
    .stack("app", "", &crate::story::link("app"));
    let _ = story.cli(&["apply", "--auto-approve"]).expect(0);
    let remove = format!("terraform_data.app[\"{secret}\"]");
    let _ = story.cli(&["exec", "app", "--reason", "x", "--", "state", "rm", &remove]);
    let _ = story.cli(&["exec", "app", "--", "state", "list"]).expect(0);
    let list = story.cli(&["run", "list", "--all"]).expect(0);
    let is_moment = |word: &str| word.len() == 20 && word.ends_with('Z');
    let spaced = list.stdout.replace('\n', " \n ");
    let words = spaced.split(' ');
    let level: Vec<&str> = words
        .map(|word| {
            if is_moment(word) {
                "2026-11-16T08:00:00Z"
            } else {
                word
            }
        })
        .collect();
    assert_snapshot!(level.join(" ").replace(" \n ", "\n"), @r#"
    SET   RUN   STACK   STATE     FOR   WHY
    c3: exec `state list -no-color` by `ada`, 2026-11-16T08:00:00Z
    c3    r3    app     done        –
    c2: exec `state rm terraform_data.app["(secret)"]` by `ada`, 2026-11-16T08:00:00Z
    c2    r2    app     failed      –   could not `state rm terraform_data.app["(secret)"]`: the engine ended with exit code 1
    c1: apply by `ada`, 2026-11-16T08:00:00Z
    c1    r1    app     applied     –
    "#);
    let list = story.cli(&["run", "list", "--all", "--json"]).expect(0);
    assert!(!list.stdout.contains(secret), "{list}");
    let show = story.cli(&["run", "show", "c2"]).expect(0);
    assert!(!show.stdout.contains(secret), "{show}");
    assert!(!show.stdout.contains("to add"), "{show}");
    let (from, to) = (
        "terraform_data.app",
        format!("terraform_data.app[\"{secret}\"]"),
    );
    let moved = [
        "exec", "app", "--reason", "x", "--", "state", "mv", from, &to,
    ];
    let _ = story.cli(&moved).expect(0);
    for list in [["run", "list", "--open"], ["run", "list", "--all"]] {
        let list = story.cli(&list).expect(0);
        assert!(
            list.stdout.contains("terraform_data.app[\"(secret)\"]"),
            "{list}"
        );
        assert!(!list.stdout.contains(secret), "{list}");
    }
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        let mut parts = bytes.windows(secret.len());
        parts.any(|part| part == secret.as_bytes())
    };
    let mut kept = files(&story.root().join("people"));
    kept.retain(holds);
    assert_eq!(kept, Vec::<PathBuf>::new(), "the secret is on the disk");
}
