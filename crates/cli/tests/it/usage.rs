//! Help, and what is said of a wrong command line.

use insta::assert_snapshot;

use crate::project::terrane;
use crate::story::{Story, noted};

/// Every command a person may type.
const COMMANDS: [&[&str]; 17] = [
    &["init"],
    &["validate"],
    &["graph"],
    &["plan"],
    &["apply"],
    &["destroy"],
    &["output"],
    &["fmt"],
    &["engine"],
    &["engine", "list"],
    &["engine", "install"],
    &["engine", "lock"],
    &["server"],
    &["token", "create"],
    &["token", "list"],
    &["token", "revoke"],
    &["completions"],
];

#[test]
fn every_command_has_help_with_an_example() {
    let test = terrane();
    for command in COMMANDS {
        let said = test.cli(&[command, &["--help"]].concat()).expect(0);
        let example = format!("\n  terrane {}", command.join(" "));
        assert!(said.stdout.contains("Example"), "{command:?}:\n{said}");
        assert!(said.stdout.contains(&example), "{command:?}:\n{said}");
    }
}

#[test]
fn the_first_page_lists_every_command() {
    let test = terrane();
    let said = test.cli(&["--help"]).expect(0);
    assert_snapshot!(said, @"
    A control plane for OpenTofu and Terraform: ordered stacks, kept state, sealed plans

    Usage: terrane [OPTIONS] <COMMAND>

    Commands:
      init         Read a repository and propose a project file
      validate     Check the project file, the graph, and the values passed along it
      graph        Show stacks, edges, layers and waves
      plan         Show what an apply would change
      apply        Plan, ask once, and apply, in the order of the graph
      destroy      Destroy what the stacks made, dependents first
      output       Show the outputs a stack last applied, or copy the files it wrote
      verify       Check the gates of stacks now
      exec         Run an engine command on a stack, for commands that terrane does not provide
      state        Inspect states, and change them manually if needed
      server       Serve states over HTTP to OpenTofu, Terraform and other clients of their protocol
      token        Make, list and revoke tokens of a state server
      lock         See who holds which state, and break abandoned locks
      hold         Keep a stack or a whole target from being applied for a while
      run          See what runs and why it waits; approve, confirm, try again
      policy       Check an existing plan against policies
      facts        Show, compare or publish facts for GitOps
      context      Show where the values of stacks come from
      key          See which master keys a home needs, and replace one
      secret       Work with files of secrets, compatible with SOPS
      render       Make files from templates and data, as the project's `render` blocks define
      fmt          Format the project file and the stacks
      engine       Find, install and pin engines
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Global options:
          --project <DIR>  Work on the project in DIR instead of the current directory
          --data <DIR>     Keep state and runs in DIR instead of the user's data directory (or set
                           `TERRANE_HOME`)
          --json           Print data as JSON: one document, or one event per line for long work
          --color <WHEN>   Colour the output [default: auto] [possible values: auto, always, never]

    Examples:
      terrane plan                  # what would change, in all stacks
      terrane apply network         # one stack
      terrane run list              # active and waiting runs, and why they wait

    Start with `terrane init` in a repository, or see examples/quickstart.
    Exit codes: 0 done, 1 failed, 2 changes present (`plan --detailed-exitcode`, `state import`) or
    files differ (`fmt --check`, `render --check`, `facts diff`), 3 waits for a person, 4 refused by a
    rule, 5 a gate did not pass, 64 wrong usage, 130 interrupted.
    ");
    for command in COMMANDS {
        assert!(
            said.stdout.contains(&format!("\n  {}", command[0])),
            "{command:?}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_its_own_code() {
    let test = terrane();
    assert_snapshot!(test.cli(&["aply"]).expect(64), @"
    ── stderr
    error: unrecognized subcommand 'aply'

      tip: some similar subcommands exist: 'policy', 'apply'

    Usage: terrane [OPTIONS] <COMMAND>

    For more information, try '--help'.
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["plan", "--no-such-flag"]).expect(64), @"
    ── stderr
    error: unexpected argument '--no-such-flag' found

      tip: to pass '--no-such-flag' as a value, use '-- --no-such-flag'

    Usage: terrane plan [OPTIONS] [SELECTORS]...

    For more information, try '--help'.
    [exit 64]
    ");
    // Who reads events waits for the last one.
    let events = test.cli(&["plan", "--json", "-j", "0"]).expect(64);
    assert_snapshot!(events, @r#"
    {"event":"outcome","change_set":null,"exit":64,"stacks":{},"error":{"message":"invalid value '0' for '--jobs <N>': give a whole number, 1 or more","causes":[],"hints":[]}}
    ── stderr
    error: invalid value '0' for '--jobs <N>': give a whole number, 1 or more

    For more information, try '--help'.
    [exit 64]
    "#);
    assert_snapshot!(test.cli(&["output"]).expect(64), @"
    ── stderr
    error: the following required arguments were not provided:
      <STACK>

    Usage: terrane output <STACK> [NAME]

    For more information, try '--help'.
    [exit 64]
    ");
    drop(test.cli(&["graph", "--format", "png"]).expect(64));
    drop(test.cli(&["plan", "-j", "many"]).expect(64));
    drop(
        test.cli(&["plan", "--destroy", "--refresh-only"])
            .expect(64),
    );
    drop(test.cli(&[]).expect(64));
}

#[test]
fn the_version_is_told() {
    let said = terrane().cli(&["--version"]).expect(0);
    assert_eq!(
        said.stdout,
        format!("terrane {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_know_the_commands() {
    let test = terrane();
    for shell in ["bash", "zsh", "fish"] {
        let said = test.cli(&["completions", shell]).expect(0);
        assert!(said.stdout.contains("validate"), "{shell}");
        assert!(said.stdout.contains("auto-approve"), "{shell}");
    }
}

#[test]
fn one_dash_is_not_enough_and_zero_is_no_number_of_jobs() {
    let test = terrane();
    assert_snapshot!(test.cli(&["apply", "-auto-approve"]).expect(64), @"
    ── stderr
    error: unexpected argument '-a' found

      tip: to pass '-a' as a value, use '-- -a'

    Usage: terrane apply [OPTIONS] [SELECTORS]...

    For more information, try '--help'.

    hint: long options begin with two dashes: `--auto-approve`
    [exit 64]
    ");
    assert_snapshot!(test.cli(&["apply", "-j", "0"]).expect(64), @"
    ── stderr
    error: invalid value '0' for '--jobs <N>': give a whole number, 1 or more

    For more information, try '--help'.
    [exit 64]
    ");
    let help = test.cli(&["help", "apply"]).expect(0).stdout;
    assert!(help.contains("Apply without asking"), "{help}");
}

/// What would have no effect is refused, not swallowed.
#[test]
fn options_that_cannot_be_heeded_are_refused() {
    let story = Story::new("tofu").stack("base", "", &noted("base"));
    let said = story
        .cli(&["plan", "--no-state", "--out", "plan.terrane"])
        .expect(64);
    assert_snapshot!(said.stderr.lines().next().unwrap_or_default(), @"error: the argument '--no-state' cannot be used with '--out <FILE>'");
    let _ = story.cli(&["plan", "--out", "plan.terrane"]).expect(0);
    let said = story.cli(&["apply", "plan.terrane", "--all"]).expect(64);
    assert_snapshot!(said.stderr, @"
    error: cannot use `--all` with the bundle `plan.terrane`: a bundle is applied as it was planned
    hint: `terrane plan --all --out FILE` plans all stacks into a new bundle
    ");
    let _ = story.cli(&["apply"]).expect(3);
    let said = story.cli(&["apply", "c2", "--all"]).expect(64);
    assert_snapshot!(said.stderr, @"
    error: change set `c2` is already planned; confirming it takes no options
    hint: `terrane apply c2` confirms it
    ");
    let _ = story.cli(&["apply", "--resume", "--all"]).expect(64);
    let hold = [
        "hold",
        "add",
        "base",
        "--for",
        "99999999d",
        "--reason",
        "long",
    ];
    let said = story.cli(&hold).expect(64);
    assert_snapshot!(said.stderr.lines().next().unwrap_or_default(), @"error: invalid value '99999999d' for '--for <DURATION>': a hold ends within ten years: at most `3650d`");
    assert_eq!(story.made(), Vec::<String>::new());
}
