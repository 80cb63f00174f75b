//! Templates and data become files: what is written, what is refused, and what becomes of secrets.

mod corpus;
mod kills;
mod makejinja;
mod secrets;

use std::fs;

use testkit::{CommandOutput, TestTerrane};

use crate::project::{HEAD, stack, terrane};

/// A project whose one stack is rendered.
fn project(more: &str) -> TestTerrane {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!(
            r#"{HEAD}{}
render "lab" {{
  templates = "templates"
  data      = ["cluster.yaml", "nodes.toml"]
  output    = "."
{more}}}
"#,
            stack("app", "render = \"lab\"")
        ),
    );
    test.write("cluster.yaml", "name: lab\nnodes: []\n")
        .write(
            "nodes.toml",
            "[[nodes]]\nname = \"n1\"\n\n[[nodes]]\nname = \"n2\"\ncores = 8\n",
        )
        .write(
            "templates/app/main.tf.j2",
            "{% for node in nodes %}\noutput \"{{ node.name }}\" {\n  value = \"{{ name }}\"\n}\n{% endfor %}\n",
        )
        .write("templates/docs/{name}.md", "as it is {{ name }}\n");
    test
}

fn said(said: &CommandOutput) -> String {
    said.to_string()
}

#[test]
fn a_tree_is_made_kept_changed_and_cleaned() {
    let test = project("");
    let mut out = said(&test.cli(&["render"]).expect(0));
    out += &said(&test.cli(&["render"]).expect(0));
    out += &said(&test.cli(&["render", "--check"]).expect(0));
    let list = test.read(".terrane-render.lab.json");
    test.write("cluster.yaml", "name: home\n")
        .write("templates/app/new.tf.j2", "# {{ nodes | length }}\n");
    fs::remove_file(test.project().join("templates/docs/{name}.md")).unwrap();
    out += &said(&test.cli(&["render", "--check"]).expect(2));
    out += &said(&test.cli(&["render", "--diff"]).expect(2));
    assert_eq!(test.read(".terrane-render.lab.json"), list);
    out += &said(&test.cli(&["render", "lab"]).expect(0));
    assert!(!test.project().join("docs").exists());
    out += &test.read("app/main.tf");
    out += &said(&test.cli(&["render", "--json"]).expect(0));
    insta::assert_snapshot!(out, @r#"
    lab   2 created
      + app/main.tf
      + docs/{name}.md
    lab   2 files as they should be
    lab   2 files as they should be
    lab   1 to create, 1 to change, 1 to remove
      ~ app/main.tf
      + app/new.tf
      - docs/{name}.md
    [exit 2]lab   1 to create, 1 to change, 1 to remove
      ~ app/main.tf
            output "n1" {
          -   value = "lab"
          +   value = "home"
            }
            output "n2" {
          -   value = "lab"
          +   value = "home"
            }
      + app/new.tf
          + # 2
      - docs/{name}.md
          - as it is {{ name }}
    [exit 2]lab   1 created, 1 changed, 1 removed
      ~ app/main.tf
      + app/new.tf
      - docs/{name}.md
    output "n1" {
      value = "home"
    }
    output "n2" {
      value = "home"
    }
    {
      "renders": [
        {
          "name": "lab",
          "differs": false,
          "files": [
            {
              "path": "app/main.tf",
              "action": "keep",
              "template": "templates/app/main.tf.j2",
              "encrypted": false,
              "values": null
            },
            {
              "path": "app/new.tf",
              "action": "keep",
              "template": "templates/app/new.tf.j2",
              "encrypted": false,
              "values": null
            }
          ],
          "not_opened": [],
          "warnings": []
        }
      ],
      "written": true
    }
    "#);
}

#[test]
fn what_somebody_else_wrote_is_never_lost() {
    let test = project("");
    test.write("docs/{name}.md", "mine\n");
    let mut out = said(&test.cli(&["render"]).expect(4));
    assert!(!test.project().join("app").exists());
    fs::remove_file(test.project().join("docs/{name}.md")).unwrap();
    let _ = test.cli(&["render"]).expect(0);
    test.write("app/main.tf", "# by hand\n")
        .write("unrelated.txt", "mine\n");
    out += &said(&test.cli(&["render"]).expect(4));
    assert_eq!(test.read("app/main.tf"), "# by hand\n");
    out += &said(&test.cli(&["render", "--check"]).expect(2));
    out += &said(&test.cli(&["render", "--overwrite"]).expect(0));
    assert!(test.read("app/main.tf").contains("output \"n2\""));
    // Nothing makes it any more, and somebody changed it.
    test.write("docs/{name}.md", "edited\n");
    fs::remove_file(test.project().join("templates/docs/{name}.md")).unwrap();
    out += &said(&test.cli(&["render"]).expect(4));
    out += &said(&test.cli(&["render", "--overwrite"]).expect(0));
    out += &said(&test.cli(&["render"]).expect(0));
    assert_eq!(test.read("docs/{name}.md"), "edited\n");
    assert_eq!(test.read("unrelated.txt"), "mine\n");
    insta::assert_snapshot!(out, @"
    ── stderr
    error: nothing was written: `lab` would replace what somebody else wrote
           `docs/{name}.md` was there before, and is different
    hint: `terrane render lab --diff` shows the difference
    hint: `terrane render lab --overwrite` replaces them
    [exit 4]── stderr
    error: nothing was written: `lab` would replace what somebody else wrote
           `app/main.tf` was edited since it was rendered
    hint: `terrane render lab --diff` shows the difference
    hint: `terrane render lab --overwrite` replaces them
    [exit 4]lab   1 refused, 1 unchanged
      ! app/main.tf   was edited since it was rendered
    [exit 2]lab   1 changed, 1 unchanged
      ~ app/main.tf
    ── stderr
    error: nothing was written: `lab` would remove what somebody else wrote
           `docs/{name}.md` was edited since it was rendered, and is no longer generated
    hint: remove files that you no longer need; `--overwrite` leaves them, and terrane forgets them
    [exit 4]lab   1 no longer managed, 1 unchanged
      ! docs/{name}.md   stays, and is yours now
    lab   1 file as it should be
    ");
}

/// A digest that fits proves nothing in a list that somebody changed, and what is read to render is removed by no list.
#[test]
fn a_list_removes_only_what_was_rendered() {
    let test = project("");
    test.write(
        "templates/key.txt.j2",
        "{{ age_key('public', 'keys/age.key') }}\n",
    )
    .write("keys/age.key", "# public key: age1x\n")
    .write("mine.txt", "mine\n");
    let _ = test.cli(&["render"]).expect(0);
    let list = test.read(".terrane-render.lab.json");
    let digest = |path: &str| {
        let said = test.shell(&format!("sha256sum {path}")).expect(0);
        let sum = said.stdout.split(' ').next().unwrap_or_default().to_owned();
        format!("\"{path}\": \"sha256:{sum}\",\n")
    };
    let with = |lines: &str| list.replacen("\"files\": {", &format!("\"files\": {{ {lines}"), 1);
    let mut out = String::new();
    for path in ["mine.txt", "keys/age.key"] {
        test.write(".terrane-render.lab.json", &with(&digest(path)));
        out.extend(["-- ", path, "\n", &said(&test.cli(&["render"]))]);
        out += &said(&test.cli(&["render", "--overwrite"]));
        assert!(test.project().join(path).exists(), "{path} is gone");
    }
    insta::assert_snapshot!(out, @"
    -- mine.txt
    ── stderr
    error: nothing was written: `lab` would remove what somebody else wrote
           `mine.txt` is no longer generated, and its list was edited or merged
    hint: remove files that you no longer need; `--overwrite` leaves them, and terrane forgets them
    [exit 4]lab   1 no longer managed, 3 unchanged
      ! mine.txt   stays, and is yours now
    -- keys/age.key
    ── stderr
    error: cannot read the list of rendered files `.terrane-render.lab.json`
           the manifest lists `keys/age.key`, which a render to this output cannot have created
    hint: restore the last good one, for example from Git; without it, all files are compared again
    [exit 1]── stderr
    error: cannot read the list of rendered files `.terrane-render.lab.json`
           the manifest lists `keys/age.key`, which a render to this output cannot have created
    hint: restore the last good one, for example from Git; without it, all files are compared again
    [exit 1]
    ");
    test.write(".terrane-render.lab.json", &list);
    fs::remove_file(test.project().join("templates/key.txt.j2")).unwrap();
    let _ = test.cli(&["render"]).expect(0);
    assert!(!test.project().join("key.txt").exists());
}

#[test]
fn a_tree_that_another_tool_made_is_taken_over() {
    let test = project("");
    let _ = test.cli(&["render"]).expect(0);
    let list = test.project().join(".terrane-render.lab.json");
    fs::remove_file(&list).unwrap();
    let mut out = said(&test.cli(&["render", "--check"]).expect(2));
    out += &said(&test.cli(&["render", "--adopt", "--check"]).expect(0));
    out += &said(&test.cli(&["render"]).expect(0));
    fs::remove_file(&list).unwrap();
    test.write("docs/{name}.md", "different\n");
    out += &said(&test.cli(&["render", "--adopt"]).expect(4));
    fs::remove_file(test.project().join("docs/{name}.md")).unwrap();
    out += &said(&test.cli(&["render", "--adopt"]).expect(4));
    assert!(!list.exists());
    test.write("docs/{name}.md", "as it is {{ name }}\n");
    out += &said(&test.cli(&["render", "--adopt"]).expect(0));
    out += &said(&test.cli(&["render", "--check"]).expect(0));
    insta::assert_snapshot!(out, @"
    lab   2 to adopt
      = app/main.tf   agrees
      = docs/{name}.md   agrees
    [exit 2]lab   2 to adopt
      = app/main.tf   agrees
      = docs/{name}.md   agrees
    lab   2 adopted
      = app/main.tf   agrees
      = docs/{name}.md   agrees
    ── stderr
    error: nothing was written: `lab` would replace what somebody else wrote
           `docs/{name}.md` was there before, and is different
    hint: `terrane render lab --diff` shows the difference
    hint: `terrane render lab --overwrite` replaces them
    [exit 4]── stderr
    error: nothing was written: not everything is there that `lab` is to take over
           `docs/{name}.md` is not there
    hint: `--adopt` only takes over existing files
    hint: `terrane render lab` creates the missing ones
    [exit 4]lab   2 adopted
      = app/main.tf   agrees
      = docs/{name}.md   agrees
    lab   2 files as they should be
    ");
}

#[test]
fn all_mistakes_are_said_at_once() {
    let test = project(
        r#"  schema    = "schema.json"
  values    = { fine = "nodes | length" }
  check "unique" { paths = ["nodes[*].name"] }
  check "separate" { paths = ["*_cidr"] }
  check "known" {
    paths = ["volumes[*].node"]
    of    = ["nodes[*].name"]
  }
"#,
    );
    test.write(
        "schema.json",
        r#"{"required": ["gateway"], "properties": {"name": {"type": "string", "maxLength": 2}, "nodes": {"items": {"required": ["mac"], "properties": {"mac": {"format": "mac"}}}}}}"#,
    )
    .write(
        "cluster.yaml",
        "name: lab\nnodes:\n  - { name: a, mac: nope }\n  - name: a\n    mac: bc:24:11:00:00:01\npod_cidr: 10.42.0.0/16\nsvc_cidr: 10.42.4.0/24\nvolumes:\n  - node: zz\n",
    )
    .write("nodes.toml", "");
    let mut out = said(&test.cli(&["render"]).expect(1));
    test.write("cluster.yaml", "name: [\n");
    out += &said(&test.cli(&["render"]).expect(1));
    test.write(
        "cluster.yaml",
        "gateway: 1\nname: x\npod_cidr: 10.0.0.0/8\nvolumes: []\n",
    )
    .write("nodes.toml", "nodes = []\n")
    .write("templates/a.j2", "x\n{{ missing }}\n")
    .write("templates/b.j2", "{% if %}\n")
    .write("templates/c.j2", "{{ name | nope }}\n")
    .write("templates/d.j2", "{% include 'gone' %}\n")
    .write("templates/cluster.yaml.j2", "over its own input\n");
    out += &said(&test.cli(&["render"]).expect(1));
    insta::assert_snapshot!(out, @r#"
    ── stderr
    error: `gateway` is a required property
      --> terrane.hcl:16:8
       |
    16 | render "lab" {
       |        ^^^^^ as the schema has it

    error: `name`: `lab` is longer than 2 characters
      --> cluster.yaml:1:7
       |
     1 | name: lab
       |       ^^^ as the schema has it

    error: `nodes[0].mac`: `nope` is not a MAC address
      --> cluster.yaml:3:21
       |
     3 |   - { name: a, mac: nope }
       |                     ^^^^ as the schema has it

    error: `a` occurs twice
      --> cluster.yaml:3:13   `nodes[0].name`
      --> cluster.yaml:4:11   `nodes[1].name`

    error: `10.42.0.0/16` and `10.42.4.0/24` overlap
      --> cluster.yaml:6:11   `pod_cidr`
      --> cluster.yaml:7:11   `svc_cidr`

    error: `volumes[0].node` names `zz`, which is none of `nodes[*].name`
      --> cluster.yaml:9:11
       |
     9 |   - node: zz
       |           ^^ not known
       |
       = hint: known are `a`

    6 errors in 2 files
    [exit 1]── stderr
    error: this is not YAML: while parsing a node, did not find expected node content
      --> cluster.yaml:2:1
       |
     2 |
       | ^ here

    1 error in cluster.yaml
    [exit 1]── stderr
    error: `missing` is not defined
      --> templates/a.j2:2:4
       |
     2 | {{ missing }}
       |    ^^^^^^^ here

    error: syntax error: unexpected end of block
      --> templates/b.j2:1:7
       |
     1 | {% if %}
       |       ^^ here

    error: there is no such filter: filter nope is unknown
      --> templates/c.j2:1:11
       |
     1 | {{ name | nope }}
       |           ^^^^ here

    error: `cluster.yaml` cannot be made
      --> templates/cluster.yaml.j2:1:1   it is read to make it

    error: there is no such template: tried to include non-existing template 'gone'
      --> templates/d.j2:1:4
       |
     1 | {% include 'gone' %}
       |    ^^^^^^^^^^^^^^ here

    5 errors in 5 files
    [exit 1]
    "#);
}

#[test]
fn files_may_depend_on_the_data() {
    let test = project(
        r#"  defaults = { proxmox = { cores = 4, memory = 8192 } }
  values = {
    infrastructure_enabled = "proxmox_api_url is defined and proxmox_node is defined"
    many                   = "count > 1"
    count                  = "nodes | length"
  }
  when = {
    "infra/**"  = "infrastructure_enabled"
    "many.txt"  = "many"
  }
  each {
    list   = "nodes"
    values = { cores = "proxmox.cores", fqdn = "item.name ~ '.' ~ name" }
  }
"#,
    );
    test.write("templates/infra/vm.tf.j2", "# {{ proxmox_node }}\n")
        .write(
            "templates/many.txt.j2",
            "{% for n in nodes %}{{ n.fqdn }} {{ n.cores }} {{ proxmox.memory }}\n{% endfor %}",
        )
        .write("cluster.yaml", "name: lab\nproxmox: { memory: 1 }\n");
    let _ = test.cli(&["render"]).expect(0);
    assert!(!test.project().join("infra").exists());
    assert_eq!(test.read("many.txt"), "n1.lab 4 1\nn2.lab 8 1\n");
    test.write(
        "cluster.yaml",
        "name: lab\nproxmox_api_url: https://pve.example.io\nproxmox_node: pve\n",
    );
    let _ = test.cli(&["render"]).expect(0);
    assert_eq!(test.read("infra/vm.tf"), "# pve\n");
    test.write("cluster.yaml", "name: lab\n");
    let _ = test.cli(&["render"]).expect(0);
    assert!(!test.project().join("infra").exists());
}

#[test]
fn no_link_leads_out_of_the_project() {
    let test = project("");
    let outside = test.root().join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, test.project().join("app")).unwrap();
    let out = said(&test.cli(&["render"]).expect(1));
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    fs::remove_file(test.project().join("app")).unwrap();
    fs::write(outside.join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(
        outside.join("secret"),
        test.project().join("templates/stolen"),
    )
    .unwrap();
    let out = out + &said(&test.cli(&["render"]).expect(1));
    insta::assert_snapshot!(out, @"
    ── stderr
    error: `app` is a symbolic link, which terrane does not follow here
    [exit 1]── stderr
    error: `templates/stolen` points outside the project
    [exit 1]
    ");
}

#[test]
fn a_file_has_one_owner() {
    let test = project("");
    let file = test.read("terrane.hcl");
    let other = r#"
render "other" {
  templates = "others"
  data      = []
  output    = "app"
}
"#;
    test.write("terrane.hcl", &format!("{file}{other}"))
        .write("others/main.tf", "# other\n");
    let mut out = said(&test.cli(&["render"]).expect(1));
    let _ = test.cli(&["render", "lab"]).expect(0);
    out += &said(&test.cli(&["render", "other", "--overwrite"]).expect(1));
    out += &said(&test.cli(&["render", "nobody"]).expect(64));
    insta::assert_snapshot!(out, @"
    ── stderr
    error: `app/main.tf` is created by both `lab` and `other`
    hint: a file belongs to one `render` block; `when` or `exclude` removes it from the other
    [exit 1]── stderr
    error: `app/main.tf` is created by both `lab` and `other`
    hint: a file belongs to one `render` block; `when` or `exclude` removes it from the other
    [exit 1]── stderr
    error: there is no render `nobody`
    hint: there are `lab`, `other`
    [exit 64]
    ");
}

#[test]
fn a_crash_in_between_leaves_nothing_that_looks_edited() {
    let test = project("");
    let _ = test.cli(&["render"]).expect(0);
    let list = test.read(".terrane-render.lab.json");
    // As it is between the first list and the last: a new list of what comes, some files old, some new.
    test.write("cluster.yaml", "name: second\n");
    let _ = test.cli(&["render"]).expect(0);
    let digest = |text: &str| -> String {
        let list: serde_json::Value = serde_json::from_str(text).unwrap();
        list["files"]["app/main.tf"].as_str().unwrap().to_owned()
    };
    let new = digest(&test.read(".terrane-render.lab.json"));
    let mut half: serde_json::Value = serde_json::from_str(&list).unwrap();
    half["writing"] = serde_json::json!({ "app/main.tf": new });
    test.write(".terrane-render.lab.json", &half.to_string())
        .write("cluster.yaml", "name: third\n");
    let said = test.cli(&["plan"]).expect(4);
    assert!(said.stderr.contains("did not end"), "{said}");
    let _ = test.cli(&["render"]).expect(0);
    assert!(test.read("app/main.tf").contains("third"));
    assert!(!test.read(".terrane-render.lab.json").contains("writing"));
}

#[test]
fn a_stack_is_planned_only_as_its_templates_are() {
    let test = project("");
    let mut out = said(&test.cli(&["plan"]).expect(1));
    let _ = test.cli(&["render"]).expect(0);
    let _ = test.cli(&["plan"]).expect(0);
    test.write("cluster.yaml", "name: changed\n");
    out += &said(&test.cli(&["plan"]).expect(4));
    let _ = test.cli(&["render"]).expect(0);
    let _ = test.cli(&["plan"]).expect(0);
    test.write("app/main.tf", "# by hand\n");
    out += &said(&test.cli(&["apply", "--auto-approve"]).expect(4));
    insta::assert_snapshot!(out, @r#"
    ── stderr
    error: there is no directory `app`
      --> terrane.hcl:10:12
       |
    10 |   path   = "app"
       |            ^^^^^ stack `app` should be here
       |
       = hint: `terrane render lab` makes it

    1 error in terrane.hcl
    [exit 1]── stderr
    error: stack `app` is made by `render "lab"`, and its templates or data changed since it was
           rendered
    hint: `terrane render lab` renders it
    hint: `terrane render lab --diff` shows what changes
    [exit 4]── stderr
    error: stack `app` is made by `render "lab"`, and `app/main.tf` was edited since it was rendered
    hint: `terrane render lab --diff` shows the edit
    hint: `terrane render lab --overwrite` reverts it
    [exit 4]
    "#);
}

#[test]
fn a_project_may_render_and_nothing_else() {
    let test = terrane();
    test.write(
        "terrane.hcl",
        "project \"p\" {\n  id = \"abcdef\"\n}\n\nrender \"lab\" {\n  templates = \"templates\"\n  data      = [\"cluster.yaml\"]\n  output    = \".\"\n}\n",
    )
    .write("cluster.yaml", "name: lab\n")
    .write("templates/a.txt.j2", "{{ name }}\n");
    let mut out = said(&test.cli(&["render"]).expect(0));
    out += &said(&test.cli(&["validate"]).expect(0));
    out += &said(&test.cli(&["plan"]).expect(64));
    out += &said(&test.cli(&["render", "other"]).expect(64));
    insta::assert_snapshot!(out, @"
    lab   1 created
      + a.txt
    Project `p` is valid: 0 stacks, 0 edges, 0 layers.
    ── stderr
    error: this project has no stacks
    hint: add a `stack` or a `discover` block; only `terrane render` works without one
    [exit 64]── stderr
    error: there is no render `other`
    hint: there is `lab`
    [exit 64]
    ");
}

/// A slip would make a file that nobody wants, or let a mistake pass.
#[test]
fn a_name_that_nobody_defined_is_said_where_it_stands() {
    let when = r#"  when = {
    "app/**" = "nmae == 1"
  }
"#;
    let out = said(&project(when).cli(&["render"]).expect(1));
    assert!(
        out.contains("`app/**` of `when`: `nmae` is not defined"),
        "{out}"
    );
    assert!(out.contains(r#""app/**" = "nmae == 1""#), "{out}");
}

#[test]
fn names_that_nothing_answers_to_are_said() {
    let test = project(
        r#"  exclude = ["*.partail.j2"]
  when = {
    "app/mian.tf" = "true"
    "other/**"    = "false"
  }
"#,
    );
    let mut out = said(&test.cli(&["render"]).expect(1));
    assert!(!test.project().join("app").exists());
    let test = project(
        r#"  defaults = { maybe = null }
  each {
    list   = "node"
    values = { cores = "4" }
  }
  check "unique" { paths = ["nodes[*].nmae", "maybe", "empty[*].name"] }
  check "known" {
    paths = ["storage"]
    of    = ["nodes[*].name"]
  }
"#,
    );
    test.write("cluster.yaml", "name: lab\nempty: []\n");
    out += &said(&test.cli(&["render"]).expect(1));
    let test = project("  exclude = [\"*.partail.j2\"]\n");
    test.write("templates/x.partial.j2", "{# imported #}\n");
    out += &said(&test.cli(&["render"]).expect(0));
    insta::assert_snapshot!(out, @r#"
    ── stderr
    error: `app/mian.tf` of `when` is none of the files
      --> terrane.hcl:22:5
       |
    22 |     "app/mian.tf" = "true"
       |     ^^^^^^^^^^^^^ nothing is called so
       |
       = hint: did you mean `app/main.tf`?

    error: `other/**` of `when` is none of the files
      --> terrane.hcl:23:5
       |
    23 |     "other/**"    = "false"
       |     ^^^^^^^^^^ nothing is called so

    2 errors in terrane.hcl
    [exit 1]── stderr
    error: `nodes[*].nmae` of `check` is nowhere in the data
      --> terrane.hcl:25:28
       |
    25 |   check "unique" { paths = ["nodes[*].nmae", "maybe", "empty[*].name"] }
       |                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ there is no `nmae`
       |
       = hint: did you mean `name`?

    error: `storage` of `check` is nowhere in the data
      --> terrane.hcl:27:13
       |
    27 |     paths = ["storage"]
       |             ^^^^^^^^^^^ there is no `storage`
       |
       = hint: what may be missing belongs into the schema, or into `defaults`, be it as `null`

    error: `node` of `each` is nowhere in the data
      --> terrane.hcl:22:14
       |
    22 |     list   = "node"
       |              ^^^^^^ there is no `node`
       |
       = hint: did you mean `nodes`?

    3 errors in terrane.hcl
    [exit 1]lab   2 created
      + app/main.tf
      + docs/{name}.md
    ── stderr
    warning: `*.partail.j2` of `exclude` is none of the files
      --> terrane.hcl:20:13
       |
    20 |   exclude = ["*.partail.j2"]
       |             ^^^^^^^^^^^^^^^^ nothing is called so
       |
       = hint: did you mean `x.partial.j2`?

    1 warning in terrane.hcl
    "#);
}

#[test]
fn everything_that_is_missing_is_said_at_once() {
    let test = project("");
    let file = test.read("terrane.hcl");
    let other = "\nrender \"other\" {\n  templates = \"others\"\n  data      = [\"gone.yaml\"]\n  output    = \"other\"\n}\n";
    test.write("terrane.hcl", &format!("{file}{other}"))
        .write("templates/wrong.sops.yaml.j2", "a: {{ missing }}\n")
        .write("templates/wrong.txt.j2", "{{ gone }}\n");
    insta::assert_snapshot!(said(&test.cli(&["render"]).expect(1)), @r#"
    ── stderr
    error: `missing` is not defined
      --> templates/wrong.sops.yaml.j2:1:7
       |
     1 | a: {{ missing }}
       |       ^^^^^^^ here

    error: `gone` is not defined
      --> templates/wrong.txt.j2:1:4
       |
     1 | {{ gone }}
       |    ^^^^ here

    error: there is no data file `gone.yaml`
      --> terrane.hcl:24:15
       |
    24 |   data      = ["gone.yaml"]
       |               ^^^^^^^^^^^^^ read for this
       |
       = hint: paths count from the project's root

    error: there is no directory `others` of templates
      --> terrane.hcl:23:15
       |
    23 |   templates = "others"
       |               ^^^^^^^^ read for this
       |
       = hint: paths count from the project's root

    4 errors in 3 files
    [exit 1]
    "#);
}
