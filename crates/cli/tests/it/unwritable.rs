//! A home on a disk that is full, or mounted to be read only: what is there can be read, and who wants to write is told
//! why that cannot be. The file systems are real ones, each in a mount namespace of its own.

use std::fmt::Write as _;

use insta::assert_snapshot;
use testkit::TestTerrane;

use crate::project::one_stack;

/// Three versions that nobody has asked anything about.
fn pushed() -> TestTerrane {
    let test = one_stack("", "");
    for serial in 1..=3 {
        let state = format!(
            r#"{{"version":4,"serial":{serial},"lineage":"l","outputs":{{"n":{{"value":"n-{serial}","type":"string"}}}},"resources":[]}}"#
        );
        test.write("../by-hand.tfstate", &state);
        let push = [
            "state",
            "push",
            "app",
            "../by-hand.tfstate",
            "--force",
            "--reason",
            "test",
            "--auto-approve",
        ];
        drop(test.cli(&push).expect(0));
    }
    test
}

/// Every command in turn, with how it ended, on a copy of the home in a small file system that `made` prepares.
fn asked(test: &TestTerrane, made: &str, commands: &[&str]) -> String {
    let binary = env!("CARGO_BIN_EXE_terrane");
    let mut lines = format!(
        "set -e\nroot=$(dirname \"$PWD\")\nmkdir -p ../disk\nmount -t tmpfs -o size=4m tmpfs ../disk\n\
         cp -a ../home/. ../disk/\n{made}\nexport TERRANE_HOME=$root/disk\nset +e\n"
    );
    for command in commands {
        _ = writeln!(
            lines,
            "echo '$ {command}'\n{binary} {command} < /dev/null 2>&1\ncode=$?\n[ $code = 0 ] || echo \"[exit $code]\""
        );
    }
    test.write("../asked.sh", &lines);
    let said = test.shell("unshare --map-root-user --mount bash ../asked.sh");
    let said = said.expect(0);
    assert_eq!(said.stderr, "");
    said.stdout
        .replace(&test.root().display().to_string(), "ROOT")
}

const FULL: &str = "dd if=/dev/zero of=../disk/fill bs=4k 2> /dev/null || true";
const READ_ONLY: &str = "mount -o remount,ro ../disk";

const READING: [&str; 11] = [
    "state list app",
    "state show app",
    "state pull app",
    "state pull app --at 0s",
    "state versions app --json",
    "state blame app output.n",
    "state search n-",
    "state search n- --all-versions",
    "state diff app",
    "state export --all --to ../out",
    "state verify",
];

#[test]
fn what_is_there_can_be_read_where_nothing_can_be_written() {
    let test = pushed();
    let sound = asked(&test, "", &READING);
    assert!(!sound.contains("[exit"), "{sound}");
    assert!(sound.contains("n-1"), "{sound}");
    for made in [FULL, READ_ONLY] {
        drop(test.shell("rm -rf ../out").expect(0));
        let found = asked(&test, made, &READING);
        let (found, sound) = (levelled(&found), levelled(&sound));
        assert_eq!(found, sound, "after `{made}`");
    }
}

/// How long ago something was differs from one run of the test to the next, and so does who runs it.
fn levelled(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    });
    let lines: Vec<String> = lines
        .map(|line| {
            let mut line = line.replace("just now", "AGO");
            for seconds in 0..60 {
                line = line.replace(&format!("{seconds} seconds ago"), "AGO");
                line = line.replace(&format!("{seconds} second ago"), "AGO");
            }
            line
        })
        .collect();
    lines.join("\n")
}

#[test]
fn who_wants_to_write_is_told_why_not() {
    let test = pushed();
    let writing = [
        "state rollback app --to 1 --reason test --auto-approve",
        "token create ci",
        "server --listen 127.0.0.1:0",
    ];
    assert_snapshot!(asked(&test, FULL, &writing), @"
    $ state rollback app --to 1 --reason test --auto-approve
    state `app`: serial 3 → 4

      ~ outputs   n

    In the state: 0 resources to add, 0 to take out, 0 to change. Nothing real is touched.
    error: could not lock state `k3v9qd/app`
           the database failed
           cannot write to the database: its disk is full or read-only
    hint: free space on the disk, or mount it writable; commands that only read work meanwhile
    [exit 1]
    $ token create ci
    error: cannot create token `ci`
           the database failed
           cannot write to the database: its disk is full or read-only
    hint: free space on the disk, or mount it writable; commands that only read work meanwhile
    [exit 1]
    $ server --listen 127.0.0.1:0
    error: could not open the home `ROOT/disk`
           could not open `ROOT/disk/terrane.db`
           cannot open the database for writing
           the disk of the database is full
    hint: free space on that disk and repeat the command; acknowledged data is not lost, and commands
          that only read work meanwhile
    [exit 1]
    ");
    assert_snapshot!(asked(&test, READ_ONLY, &writing[1..]), @"
    $ token create ci
    error: cannot create token `ci`
           the database failed
           cannot write to the database: its disk is full or read-only
    hint: free space on the disk, or mount it writable; commands that only read work meanwhile
    [exit 1]
    $ server --listen 127.0.0.1:0
    error: could not open the home `ROOT/disk`
           could not open `ROOT/disk/terrane.db`
           cannot open the database for writing
           cannot write to the database: its disk is full or read-only
    hint: free space on the disk, or mount it writable; commands that only read work meanwhile
    [exit 1]
    ");
}
