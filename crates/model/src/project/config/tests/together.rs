//! A mistake neither hides nor causes another finding.

use super::*;

const MODULE: &str = "== m/main.tf\nvariable \"v\" {}\noutput \"o\" { value = 1 }\n";

fn stack(name: &str, more: &str) -> String {
    format!(
        "stack \"{name}\" {{\n  path   = \"m\"\n  target = \"t\"\n  layer  = \"low\"\n{more}}}\n"
    )
}

#[test]
fn an_input_that_is_set_wrongly_is_not_missing() {
    let stacks =
        stack("s", "  inputs = { v = uper(\"x\") }\n") + &stack("u", "  inputs = 1 + \"a\"\n");
    insta::assert_snapshot!(check_with_base(&format!("{stacks}{MODULE}")), @"
    error unknown-function: there is no function `uper`
      terrane.hcl:9:18 here
      hint: did you mean `upper`?
    error invalid-expression: `+` requires two numbers, these are a number and a string
      terrane.hcl:15:12 here
    ");
}

#[test]
fn what_a_file_with_an_error_may_define_is_not_missing() {
    insta::assert_snapshot!(check(&format!(
        "project \"p\" {{}}\nlayer \"low\" {{ order = 0 }}\ntarget \"t\" {{ writers = [\"anyone\" }}\n== b.terrane.hcl\n{}{MODULE}",
        stack("s", "  inputs = { v = 1 }\n")
    )), @"
    error syntax: syntax error: expected `]`
      terrane.hcl:3:34 here
      terrane.hcl:3:24 this `[` is closed by `}`
    ");
}

#[test]
fn stacks_that_could_not_be_made_excuse_only_names_like_theirs() {
    let stacks = stack("net", "  inputs = { v = 1 }\n")
        + &stack(
            "a",
            "  inputs = { v = stack.nett.output.o }\n  after  = [stack.x-1, stack.nowhere]\n",
        )
        + "discover \"x\" {\n  glob   = \"k\"\n  name   = \"x-${dri[1]}\"\n  target = \"t\"\n  layer  = \"low\"\n}\n";
    insta::assert_snapshot!(check_with_base(&format!("{stacks}== k/main.tf\nlocals {{}}\n{MODULE}")), @"
    error unknown-stack: there is no stack `nett`
      terrane.hcl:15:18 not defined
      hint: did you mean `net`?
    error unknown-stack: there is no stack `nowhere`
      terrane.hcl:16:24 not defined
      hint: there are `a` and `net`
    error unknown-reference: nothing is called `dri` here
      terrane.hcl:20:17 here
      hint: did you mean `dir`?
    ");
}

#[test]
fn every_item_of_a_list_is_looked_at() {
    let after =
        "  inputs = { v = 1 }\n  after  = [stack.nowhere, net, stack.net.output.o, stack]\n";
    let stacks = stack("net", "  inputs = { v = 1 }\n") + &stack("a", after);
    insta::assert_snapshot!(check_with_base(&format!("{stacks}{MODULE}")), @r#"
    error unknown-stack: there is no stack `nowhere`
      terrane.hcl:16:13 not defined
      hint: there are `a` and `net`
    error unknown-reference: nothing is called `net` here
      terrane.hcl:16:28 here
      hint: there are `each`, `dir`, `project`, `target`, `stack` and `git`
    error misplaced-reference: an output of another stack is allowed only in `inputs`
      terrane.hcl:16:33 here
    error invalid-expression: `stack` requires a name: `stack.NAME` or `stack["NAME"]`
      terrane.hcl:16:53 here
    "#);
}

#[test]
fn the_second_of_two_blocks_of_one_name_is_looked_at() {
    let second = "  inputs = { v = 1 }\n  after  = [stack.nowhere]\n  colour = 1\n";
    let stacks = stack("s", "  inputs = { v = 1 }\n")
        + &stack("s", second)
        + "target \"t\" { writers = 1 }\n"
        + &stack(
            "e",
            "  for_each = [\"a\", \"b\"]\n  name = \"same\"\n  inputs = { v = 1 }\n",
        );
    insta::assert_snapshot!(check_with_base(&format!("{stacks}{MODULE}")), @"
    error duplicate-name: stack `s` is defined twice
      terrane.hcl:11:7 again here
      terrane.hcl:5:7 first here
    error unknown-stack: there is no stack `nowhere`
      terrane.hcl:16:13 not defined
      hint: there are `s` and `same`
    error unknown-attribute: `stack` has no attribute `colour`
      terrane.hcl:17:3 unknown attribute
      hint: there are `for_each`, `name`, `path`, `target`, `layer`, `labels`, `contexts`, `enabled`, `state`, `inputs`, `var_files`, `after`, `wait`, `trigger`, `apply`, `protected`, `boundary`, `watch`, `include`, `artifacts` and `render`
    error duplicate-name: target `t` is defined twice
      terrane.hcl:19:8 again here
      terrane.hcl:4:8 first here
    error wrong-type: `writers` must be a list of strings
      terrane.hcl:19:24 this is a number
    error duplicate-name: stack `same` is defined twice
      terrane.hcl:25:10 several stacks of this block get this name
      hint: use `${each.key}` in it, or `${dir[N]}` in a `discover` block
    ");
}

#[test]
fn a_render_that_reads_what_is_not_there() {
    let render = "render \"r\" {\n  templates = \"m\"\n  data      = [\"m/data.yaml\"]\n  output    = \"out\"\n}\n";
    insta::assert_snapshot!(check_with_base(&format!("{render}{MODULE}")), @"
    warning missing-file: render `r` reads `m/data.yaml`, which is not there
      terrane.hcl:7:15 named here
      hint: paths count from the project's root
    ");
}

#[test]
fn a_discover_that_finds_only_what_others_took() {
    let discover = |name: &str| {
        format!(
            "discover \"{name}\" {{\n  glob   = \"m\"\n  name   = \"{name}\"\n  target = \"t\"\n  layer  = \"low\"\n  inputs = {{ v = 1 }}\n}}\n"
        )
    };
    let text = discover("one") + &discover("two");
    insta::assert_snapshot!(check_with_base(&format!("{text}{MODULE}")), @"
    warning nothing-discovered: discover `two` finds nothing of its own
      terrane.hcl:12:10 all of it is a stack by other blocks
      hint: of several `discover` blocks the first takes a directory, and a `stack` block comes before all of them
    ");
}

#[test]
fn files_of_the_other_engine() {
    let stack = stack("s", "  engine \"terraform\" {}\n");
    insta::assert_snapshot!(check_with_base(&format!("{stack}== m/main.tofu\noutput \"o\" {{ value = 1 }}\n")), @r#"
    error no-module: `m` holds no file that `terraform` reads
      terrane.hcl:6:12 only `.tofu` files are there
      hint: rename them to `.tf`, or give the stack `engine "tofu" {}`
    "#);
}

#[test]
fn a_comment_without_an_end() {
    insta::assert_snapshot!(check_with_base("/* begun\n"), @"
    error syntax: syntax error: this comment has no end
      terrane.hcl:5:1 opened here
    ");
}
