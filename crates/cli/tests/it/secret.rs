//! Files of secrets at the command line: encrypted, opened, edited, and given to commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use testkit::{AgeKey, CommandOutput, Sops, TestTerrane, age_plugins, write_program};

use crate::project::{HEAD, shown, stack, terrane};

const PLAIN: &str = "\
# who may
database:
    user: admin # the first
    password: hunter2
token: abc
";

/// A project with rules, and the key for them where `sops` looks.
fn with_key() -> (TestTerrane, AgeKey) {
    let test = terrane();
    let key = AgeKey::generate();
    let keys = test.root().join("user/.config/sops/age");
    fs::create_dir_all(&keys).unwrap();
    key.save(&keys.join("keys.txt"));
    let rules = format!("creation_rules:\n  - age: {}\n", key.recipient);
    test.write(".sops.yaml", &rules);
    (test, key)
}

fn official(test: &TestTerrane) -> Sops {
    Sops::with_key(&test.root().join("user/.config/sops/age/keys.txt"))
}

/// Gives a command its standard input.
fn fed(test: &TestTerrane, input: &str, args: &str) -> CommandOutput {
    let binary = env!("CARGO_BIN_EXE_terrane");
    test.shell(&format!("printf '%s' '{input}' | '{binary}' {args}"))
}

fn sealed(test: &TestTerrane) -> String {
    test.write("s.yaml", PLAIN);
    let _ = test
        .cli(&["secret", "encrypt", "s.yaml", "--in-place"])
        .expect(0);
    test.read("s.yaml")
}

#[test]
fn a_file_is_encrypted_and_opened() {
    let (test, key) = with_key();
    test.write("s.yaml", PLAIN);
    let printed = test.cli(&["secret", "encrypt", "s.yaml"]).expect(0).stdout;
    assert!(
        printed.contains("ENC[") && !printed.contains("hunter2"),
        "{printed}"
    );
    assert_eq!(test.read("s.yaml"), PLAIN);

    let said = test
        .cli(&["secret", "encrypt", "s.yaml", "--in-place"])
        .expect(0);
    assert_eq!(
        said.stderr,
        format!("`s.yaml` is encrypted for `{}`.\n", key.recipient)
    );
    let by_sops = official(&test).run(&test.project(), &["--decrypt", "s.yaml"]);
    assert!(by_sops.contains("password: hunter2"), "{by_sops}");
    let shown = test.cli(&["secret", "decrypt", "s.yaml"]).expect(0).stdout;
    assert_eq!(shown, PLAIN);
    let one = ["secret", "decrypt", "s.yaml", "--key", "database.password"];
    assert_eq!(test.cli(&one).expect(0).stdout, "hunter2\n");
    let none = ["secret", "decrypt", "s.yaml", "--key", "database.port"];
    assert_snapshot!(test.cli(&none).expect(1).stderr, @r#"
    error: `s.yaml` has no value at `database.port`
    hint: write paths with dots: `database.password`, `hosts.0.key`, `data."tls.crt"`
    "#);

    let again = test.cli(&["secret", "encrypt", "s.yaml"]).expect(1).stderr;
    assert_snapshot!(again, @"
    error: could not encrypt `s.yaml`
           it has a key that is reserved for SOPS, so it may already be encrypted
    hint: `terrane secret edit FILE` changes an encrypted file
    ");
    let _ = test
        .cli(&["secret", "decrypt", "s.yaml", "--in-place"])
        .expect(0);
    assert_eq!(test.read("s.yaml"), PLAIN);
    let mode = fs::metadata(test.project().join("s.yaml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn values_are_set_from_standard_input() {
    let (test, _) = with_key();
    let before = sealed(&test);
    let said = fed(&test, "n3w", "secret set s.yaml database.password").expect(0);
    assert!(
        said.stderr
            .starts_with("`database.password` is replaced in `s.yaml`, for"),
        "{said}"
    );
    let said = fed(&test, "n3w", "secret set s.yaml database.passwd").expect(0);
    let new = "`database.passwd` is new in `s.yaml`, for";
    assert!(said.stderr.starts_with(new), "{said}");
    let after = test.read("s.yaml");
    let line = |text: &str, name: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.trim().starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line(&before, "user:"), line(&after, "user:"));
    assert_ne!(line(&before, "password:"), line(&after, "password:"));

    let _ = fed(&test, "[1, true]", "secret set new.json ports --typed").expect(0);
    let by_sops = official(&test).run(&test.project(), &["--decrypt", "new.json"]);
    assert_eq!(by_sops, "{\n\t\"ports\": [\n\t\t1,\n\t\ttrue\n\t]\n}\n");
}

#[test]
fn a_map_is_not_lost_to_a_typo() {
    let (test, _) = with_key();
    let before = sealed(&test);
    let said = fed(&test, "v", "secret set s.yaml database").expect(1);
    assert_snapshot!(said.stderr, @"
    error: `database` of `s.yaml` is a map or a list, and its contents would be lost
    hint: name one value in it, such as `database.NAME`; `--force` replaces all of it
    ");
    assert_eq!(test.read("s.yaml"), before);
    let _ = fed(&test, "v", "secret set s.yaml database --force").expect(0);
    let value = ["secret", "decrypt", "s.yaml", "--key", "database"];
    assert_eq!(test.cli(&value).expect(0).stdout, "v\n");
}

#[test]
fn one_file_that_cannot_be_rotated_does_not_stop_the_others() {
    let (test, _) = with_key();
    let before = sealed(&test);
    test.write("t.yaml", &before);
    let said = test.cli(&["secret", "rotate", "s.yaml", "none.yaml", "t.yaml"]);
    let said = said.expect(1);
    assert!(
        said.stderr.contains("there is no file `none.yaml`"),
        "{said}"
    );
    assert!(
        said.stderr
            .contains("not rotated: 1 of 3 files, `none.yaml`"),
        "{said}"
    );
    for file in ["s.yaml", "t.yaml"] {
        assert_ne!(test.read(file), before, "{file}");
    }
}

/// The rule is that of the file which is written; what a shell left behind of an earlier try is no obstacle.
#[test]
fn a_plain_file_is_encrypted_into_another() {
    let (test, _) = with_key();
    let rules = test.read(".sops.yaml").replace(
        "creation_rules:\n  - ",
        "creation_rules:\n  - path_regex: \\.sops\\.yaml$\n    ",
    );
    test.write(".sops.yaml", &rules)
        .write("plain.yaml", "a: b\n")
        .write("s.sops.yaml", "");
    let said = test.cli(&["secret", "encrypt", "plain.yaml"]).expect(1);
    assert_snapshot!(shown(&test, &said), @"
    ── stderr
    error: no rule of `ROOT/project/.sops.yaml` can be used
           no creation rule matches `plain.yaml`
    hint: choose a name that the `path_regex` of a rule matches, or add a rule
    hint: or name a recipient: `--recipient age1…`
    [exit 1]
    ");
    let to = ["secret", "encrypt", "plain.yaml", "--output", "s.sops.yaml"];
    let _ = test.cli(&to).expect(0);
    let by_sops = official(&test).run(&test.project(), &["--decrypt", "s.sops.yaml"]);
    assert_eq!(by_sops, "a: b\n");
    let _ = test.cli(&to).expect(1);
}

/// Piped or from a file, a value is what was given, to the last byte; the official tool sees the same.
#[test]
fn a_value_is_taken_exactly() {
    let (test, _) = with_key();
    let _ = sealed(&test);
    let value = |key: &str| {
        let path = format!("[\"{key}\"]");
        let args = ["--decrypt", "--extract", &path, "s.yaml"];
        official(&test).run(&test.project(), &args)
    };
    let said = fed(&test, "line\n", "secret set s.yaml a").expect(0);
    assert!(said.stderr.contains("a line break at its end"), "{said}");
    assert_eq!(value("a"), "line\n");
    test.write("key.pem", "-----BEGIN-----\nabc\n-----END-----\n");
    let said = test.cli(&["secret", "set", "s.yaml", "b", "--value-file", "key.pem"]);
    assert!(!said.expect(0).stderr.contains("line break"));
    assert_eq!(value("b"), "-----BEGIN-----\nabc\n-----END-----\n");
    let _ = fed(&test, "", "secret set s.yaml c").expect(0);
    assert_eq!(value("c"), "");
}

#[test]
fn the_editor_may_have_arguments_and_quotes() {
    let (test, _) = with_key();
    let _ = sealed(&test);
    let dir = test.root().join("my tools");
    fs::create_dir(&dir).unwrap();
    let seen = test.root().join("seen");
    let text = format!(
        "#!/bin/sh\nprintf '%s|' \"$#\" \"$1\" \"$2\" > '{}'\n",
        seen.display()
    );
    write_program(&dir.join("code"), &text);
    let editor = format!("'{}' --wait \"two words\"", dir.join("code").display());
    let env = [("EDITOR", editor.as_str())];
    let _ = test.cli_with(&env, &["secret", "edit", "s.yaml"]).expect(0);
    assert_eq!(fs::read_to_string(&seen).unwrap(), "3|--wait|two words|");
    let by_shell = format!("sh -c \"printf %s \\\"\\$0\\\" > '{}'\"", seen.display());
    let env = [("EDITOR", by_shell.as_str())];
    let _ = test.cli_with(&env, &["secret", "edit", "s.yaml"]).expect(0);
    assert!(fs::read_to_string(&seen).unwrap().ends_with("/s.yaml"));
    let env = [("EDITOR", "'/no end")];
    let said = test.cli_with(&env, &["secret", "edit", "s.yaml"]).expect(1);
    assert_snapshot!(said.stderr, @"
    error: the editor `'/no end` has an unclosed quote
           `s.yaml` is unchanged
    ");
}

#[test]
fn the_editor_sees_it_in_clear_and_leaves_nothing() {
    let (test, _) = with_key();
    let before = sealed(&test);
    let editor = test.root().join("editor");
    let seen = test.root().join("seen");
    let write = |action: &str| {
        let text = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$1\" > '{0}'\nstat -c %a \"$1\" >> '{0}'\ncat \"$1\" >> '{0}'\n{action}\n",
            seen.display()
        );
        write_program(&editor, &text);
    };
    let edit = |test: &TestTerrane| {
        let env = [("EDITOR", editor.to_str().unwrap())];
        test.cli_with(&env, &["secret", "edit", "s.yaml"])
    };
    let copy = || {
        let text = fs::read_to_string(&seen).unwrap();
        let (path, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, format!("600\n{PLAIN}"));
        std::path::PathBuf::from(path)
    };

    write("true");
    assert_eq!(
        edit(&test).expect(0).stderr,
        "Nothing changed in `s.yaml`.\n"
    );
    assert_eq!(test.read("s.yaml"), before);
    assert!(!copy().parent().unwrap().exists());

    write("echo 'broken: [' > \"$1\"");
    let said = edit(&test).expect(1).stderr;
    assert!(said.contains("`s.yaml` is unchanged"), "{said}");
    assert_eq!(test.read("s.yaml"), before);

    write("exit 3");
    let said = edit(&test).expect(1).stderr;
    assert!(said.contains("ended with exit code 3"), "{said}");

    write("sed -i s/hunter2/changed/ \"$1\"");
    let _ = edit(&test).expect(0);
    let one = ["secret", "decrypt", "s.yaml", "--key", "database.password"];
    assert_eq!(test.cli(&one).expect(0).stdout, "changed\n");
    assert!(!copy().parent().unwrap().exists());
}

/// An editor that crashed, and somebody who wrote meanwhile: nobody's work is lost.
#[test]
fn an_edit_replaces_neither_all_nor_what_others_wrote() {
    let (test, _) = with_key();
    let before = sealed(&test);
    let editor = test.root().join("editor");
    let edit = |action: &str| {
        write_program(&editor, &format!("#!/bin/sh\n{action}\n"));
        let env = [("EDITOR", editor.to_str().unwrap())];
        test.cli_with(&env, &["secret", "edit", "s.yaml"]).expect(1)
    };
    assert_snapshot!(edit(": > \"$1\"").stderr, @"
    error: the editor left `s.yaml` empty, so nothing was written
           `s.yaml` is unchanged
    ");
    assert_eq!(test.read("s.yaml"), before);

    let binary = env!("CARGO_BIN_EXE_terrane");
    let said = edit(&format!(
        "sed -i s/hunter2/mine/ \"$1\"; printf theirs | '{binary}' secret set s.yaml token"
    ));
    assert!(
        said.stderr.contains("was changed while it was edited"),
        "{said}"
    );
    assert!(
        said.stderr
            .contains("is stored, encrypted, in `s.edited.yaml`"),
        "{said}"
    );
    let value = |file: &str, key: &str| {
        let said = test.cli(&["secret", "decrypt", file, "--key", key]);
        said.expect(0).stdout
    };
    assert_eq!(value("s.yaml", "token"), "theirs\n");
    assert_eq!(value("s.edited.yaml", "database.password"), "mine\n");
}

#[test]
fn many_who_set_values_at_once_all_find_theirs() {
    let (test, _) = with_key();
    let _ = sealed(&test);
    let binary = env!("CARGO_BIN_EXE_terrane");
    let all = (0..8)
        .map(|number| format!("printf v{number} | '{binary}' secret set s.yaml k{number} & "));
    let _ = test
        .shell(&format!("{}wait", all.collect::<String>()))
        .expect(0);
    for number in 0..8 {
        let key = format!("k{number}");
        let said = test.cli(&["secret", "decrypt", "s.yaml", "--key", &key]);
        assert_eq!(said.expect(0).stdout, format!("v{number}\n"));
    }
}

#[test]
fn a_name_that_the_format_cannot_hold_is_refused() {
    let (test, _) = with_key();
    for (file, plain, names) in [
        ("s.env", "A=1\n", ["a=b", "#c", "x\ny"]),
        ("s.ini", "[b]\na=1\n", ["b.#c", "b. lead", "b.k "]),
        // Ours would open these; the official tool does not.
        ("t.ini", "[b]\na=1\n", ["b.-", ".x", "b."]),
    ] {
        test.write(file, plain);
        let _ = test
            .cli(&["secret", "encrypt", file, "--in-place"])
            .expect(0);
        let before = test.read(file);
        test.write("value", "v");
        for name in names {
            let said = test.cli(&["secret", "set", file, name, "--value-file", "value"]);
            let said = said.expect(1);
            assert!(said.stderr.contains("cannot use the name"), "{said}");
            assert_eq!(test.read(file), before);
        }
    }
}

#[test]
fn a_key_without_a_name_is_refused() {
    let (test, _) = with_key();
    let before = sealed(&test);
    for path in ["a..b", ".a", "a.", ""] {
        let said = fed(&test, "v", &format!("secret set s.yaml '{path}'")).expect(1);
        let words = said.stderr.contains("no name") || said.stderr.contains("no key is given");
        assert!(words, "{said}");
        assert_eq!(test.read("s.yaml"), before);
    }
}

#[test]
fn a_key_with_an_odd_line_end_opens_with_the_official_tool() {
    let (test, _) = with_key();
    drop(sealed(&test));
    drop(fed(&test, "v", "secret set s.yaml 'u\u{2028}v'").expect(0));
    let args = ["decrypt", "--extract", "[\"token\"]", "s.yaml"];
    let plain = official(&test).run(&test.project(), &args);
    assert_eq!(plain, "abc");
}

#[test]
fn the_clear_text_is_gone_when_we_are_killed() {
    let (test, _) = with_key();
    let before = sealed(&test);
    let (editor, seen) = (test.root().join("editor"), test.root().join("seen"));
    // It outlives us; it must not outlive the test.
    write_program(
        &editor,
        &format!(
            "#!/bin/sh\nprintf '%s' \"$1\" > '{0}.new'\nmv '{0}.new' '{0}'\nwhile [ -e '{0}' ]; do sleep 0.05; done\n",
            seen.display()
        ),
    );
    let test = test.env("EDITOR", editor.to_str().unwrap());
    let running = test.start("edit", &["secret", "edit", "s.yaml"]);
    test.wait_until("the editor runs", || seen.exists());
    let copy = std::path::PathBuf::from(fs::read_to_string(&seen).unwrap());
    assert!(copy.exists());
    running.kill();
    test.wait_until("the clear text is gone", || {
        !copy.parent().unwrap().exists()
    });
    assert_eq!(test.read("s.yaml"), before);
}

#[test]
fn commands_get_the_values_in_their_environment() {
    let (test, _) = with_key();
    let _ = sealed(&test);
    let exec = |option: &[&str], command: &str| {
        let words = [
            &["secret", "exec"],
            option,
            &["s.yaml", "--", "sh", "-c", command],
        ];
        test.cli(&words.concat())
    };
    // As the official tool: nothing is left out silently.
    assert_snapshot!(exec(&[], "true").expect(1).stderr, @"
    error: `s.yaml` has values that are not strings: `database`
    hint: `--flatten` joins the keys: `database: {password: …}` becomes `database_password`
    ");
    let (went_well, said) = official(&test).tries(&test.project(), &["exec-env", "s.yaml", "true"]);
    assert!(!went_well, "{said}");
    let said = exec(&["--flatten"], "printf %s \"$token $database_password\"");
    assert_eq!(said.expect(0).stdout, "abc hunter2");
    let _ = exec(&["--flatten"], "exit 7").expect(7);
    test.write("s.yaml", "token: abc\n");
    let encrypt = ["secret", "encrypt", "s.yaml", "--in-place"];
    let _ = test.cli(&encrypt).expect(0);
    assert_eq!(exec(&[], "printf %s \"$token\"").expect(0).stdout, "abc");
}

#[test]
fn rotating_takes_in_the_new_and_leaves_out_the_old() {
    let (test, key) = with_key();
    let before = sealed(&test);
    let other = AgeKey::generate();
    let rules = format!(
        "creation_rules:\n  - age: {},{}\n",
        key.recipient, other.recipient
    );
    test.write(".sops.yaml", &rules);
    let said = test.cli(&["secret", "rotate", "s.yaml"]).expect(0);
    assert_eq!(
        said.stderr,
        "`s.yaml` has a new data key, for 2 recipients.\n"
    );
    let after = test.read("s.yaml");
    assert!(after.contains(&other.recipient));
    let kept = |line: &&str| line.contains("ENC[") && before.contains(*line);
    assert_eq!(after.lines().filter(kept).count(), 0);
    let _ = official(&test).run(&test.project(), &["--decrypt", "s.yaml"]);
}

#[test]
fn what_cannot_be_opened_is_named_and_left_alone() {
    let (test, key) = with_key();
    let sealed = sealed(&test);
    let try_set = |text: &str| {
        test.write("s.yaml", text);
        let said = fed(&test, "x", "secret set s.yaml token").expect(1).stderr;
        assert_eq!(test.read("s.yaml"), text);
        assert!(!said.contains("hunter2"), "{said}");
        said
    };
    let changed = sealed.replace("token: ENC", "tokens: ENC");
    assert_snapshot!(try_set(&changed), @r"
    error: could not decrypt `s.yaml`
           cannot use the value of `tokens`: it was modified, or moved from another path
    hint: bring back the last good version, for example from Git
    ");
    let torn = &sealed[..sealed.find("sops:").unwrap()];
    assert_snapshot!(try_set(torn), @"
    error: could not decrypt `s.yaml`
           it has encrypted values but no `sops` block, so it is truncated
    hint: bring back the last good version, for example from Git
    ");
    AgeKey::generate().save(&test.root().join("user/.config/sops/age/keys.txt"));
    let said = try_set(&sealed).replace(&key.recipient, "age1ours");
    assert_snapshot!(said, @"
    error: could not decrypt `s.yaml`
           the only available age key cannot decrypt it: it is encrypted for
           `age1ours`
    hint: ask somebody who can decrypt it to add your key: `terrane secret rotate`
    ");
}

#[test]
fn a_stack_takes_a_value_by_reference() {
    let (test, _) = with_key();
    let _ = sealed(&test);
    let context =
        "\ncontext \"words\" {\n  vars = { word = secret(\"sops:s.yaml#database.password\") }\n}\n";
    let app = stack("app", "contexts = [\"words\"]");
    test.write("terrane.hcl", &format!("{HEAD}{context}{app}"))
        .write(
            "app/main.tf",
            "variable \"word\" {\n  type      = string\n  sensitive = true\n}\noutput \"length\" {\n  value = nonsensitive(length(var.word))\n}\n",
        );
    let said = test.cli(&["apply", "--auto-approve"]).expect(0);
    assert!(!said.to_string().contains("hunter2"), "{said}");
    let length = test.cli(&["output", "app", "length"]).expect(0);
    assert_eq!(length.stdout.trim(), "7");
}

/// Says hello and asks for a PIN, as the plugin of a token does, then lets the real one go on with all it heard.
const TOKEN: &str = r#"#!/bin/sh
heard=$(sed '/^-> done$/{n;q}')
say() { printf -- '-> %s\n%s\n' "$1" "$(printf %s "$2" | base64 | tr -d '=')"; read -r head; read -r body; }
if [ "$1" = --age-plugin=identity-v1 ]; then
  say msg 'the token blinks'
  say request-secret 'PIN'
  [ "$body" = "$(printf 1234 | base64 | tr -d '=')" ] || exit 1
fi
{ printf '%s\n\n' "$heard"; cat; } | "$REAL_PLUGIN" "$1"
"#;

#[test]
fn a_plugin_asks_on_the_terminal_and_never_in_a_run() {
    let test = terrane();
    let key = AgeKey::post_quantum().for_plugin();
    let keys = test.root().join("user/.config/sops/age");
    fs::create_dir_all(&keys).unwrap();
    key.save(&keys.join("keys.txt"));
    write_program(&test.root().join("bin/age-plugin-pq"), TOKEN);
    let real = age_plugins().join("age-plugin-pq");
    let test = test.env("REAL_PLUGIN", &real.display().to_string());
    let rules = format!("creation_rules:\n  - age: {}\n", key.recipient);
    let context = "\ncontext \"a\" {\n  autoattach = [\"*\"]\n  env        = { TOKEN = secret(\"sops:s.yaml#token\") }\n}\n";
    test.write(".sops.yaml", &rules)
        .write(
            "terrane.hcl",
            &format!("{HEAD}{context}{}", stack("app", "")),
        )
        .write("app/main.tf", "");
    let _ = sealed(&test);

    let mut terminal = test.terminal(&["secret", "decrypt", "s.yaml", "--key", "token"]);
    terminal.wait_for("age-plugin-pq: PIN (not shown): ");
    terminal.type_line("1234");
    let said = terminal.wait().expect(0).stdout;
    assert_eq!(
        said,
        "age-plugin-pq: the token blinks\nage-plugin-pq: PIN (not shown): \nabc\n"
    );

    let refused = test.cli(&["plan"]).expect(1);
    for words in [
        "could not decrypt `s.yaml`",
        "the age plugin `age-plugin-pq` requests input, and there is no terminal to ask for it: PIN",
        "use a key for runs that needs no interaction",
    ] {
        assert!(refused.stderr.contains(words), "{refused}");
    }
}
