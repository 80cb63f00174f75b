//! Beside makejinja: the same templates and data, byte for byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use testkit::{Makejinja, TestTerrane};

use super::corpus::{DATA, DIFFERENT, FEATURES, SHARED};
use crate::project::{HEAD, stack, terrane};

const SETTINGS: &str = r##"[makejinja]
inputs = ["templates"]
output = "theirs"
data = ["data.yaml"]
jinja_suffix = ".j2"
undefined = "strict"
import_paths = ["."]
plugins = ["plugin:Plugin"]
extensions = ["jinja2.ext.do"]
[makejinja.delimiter]
block_start = "#%"
block_end = "%#"
comment_start = "#|"
comment_end = "#|"
variable_start = "#{"
variable_end = "}#"
"##;

/// As the templates' authors write theirs.
const PLUGIN: &str = r"import ipaddress
from pathlib import Path


def basename(value: str) -> str:
    return Path(value).stem


def nthhost(value: str, query: int) -> str:
    try:
        network = ipaddress.ip_network(value, strict=False)
        if 0 <= query < network.num_addresses:
            return str(network[query])
    except ValueError:
        pass
    return False


class Plugin:
    def filters(self):
        return [basename, nthhost]
";

const RENDER: &str = r##"
render "ours" {
  templates = "templates"
  data      = ["data.yaml"]
  output    = "ours"
  delimiters {
    block    = ["#%", "%#"]
    variable = ["#{", "}#"]
    comment  = ["#|", "#|"]
  }
}
"##;

fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with(".terrane-render") {
            all.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    all
}

fn both(
    shared: &[(&str, &str)],
    features: &[(&str, &str)],
) -> (
    TestTerrane,
    BTreeMap<String, String>,
    BTreeMap<String, String>,
) {
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}{RENDER}", stack("app", "")),
    )
    .write("app/main.tf", "")
    .write("data.yaml", DATA)
    .write("makejinja.toml", SETTINGS)
    .write("plugin.py", PLUGIN);
    for (name, text) in shared {
        test.write(&format!("templates/{name}"), text);
    }
    for (name, text) in features {
        test.write(&format!("templates/{name}.txt.j2"), text);
    }
    Makejinja::find().run(&test.project());
    let _ = test.cli(&["render"]).expect(0);
    let theirs = files(&test.project().join("theirs"));
    let ours = files(&test.project().join("ours"));
    (test, theirs, ours)
}

/// One that changes lists makes all others ready for it, so the rest is rendered by itself, too.
#[test]
fn every_feature_gives_the_same_bytes() {
    assert!(FEATURES.len() >= 60);
    check(SHARED, FEATURES);
    let changes = |text: &str| {
        let words = [".append(", ".update(", ".insert(", ".pop(", "more.j2"];
        words.iter().any(|word| text.contains(word))
    };
    let without = |all: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
        let kept = all.iter().filter(|(_, text)| !changes(text));
        kept.copied().collect()
    };
    let (shared, features) = (without(SHARED), without(FEATURES));
    assert!(features.len() >= 60);
    check(&shared, &features);
}

#[track_caller]
fn check(shared: &[(&str, &str)], features: &[(&str, &str)]) {
    let (_test, theirs, ours) = both(shared, features);
    let mut differences = String::new();
    for (name, their) in &theirs {
        let our = ours.get(name);
        if our != Some(their) {
            _ = writeln!(differences, "{name}\n  theirs {their:?}\n  ours   {our:?}");
        }
    }
    assert_eq!(differences, "");
    assert_eq!(
        theirs.keys().collect::<Vec<_>>(),
        ours.keys().collect::<Vec<_>>()
    );
}

#[test]
fn what_differs_does_so_on_purpose() {
    let (_test, theirs, ours) = both(SHARED, DIFFERENT);
    let mut differences = String::new();
    for (name, text) in DIFFERENT {
        let file = format!("{name}.txt");
        let (their, our) = (theirs.get(&file), ours.get(&file));
        assert_ne!(their, our, "{name}");
        _ = writeln!(
            differences,
            "{name}: {text:?}\n  theirs {:?}\n  ours   {:?}",
            their.unwrap(),
            our.unwrap()
        );
    }
    insta::assert_snapshot!(differences, @r##"
    attr-of-map: "#{ nodes[0] | attr('name') | default('no') }#\n"
      theirs "no\n"
      ours   "n1\n"
    base-sixty: "#{ started }# #{ mac }#\n"
      theirs "750 41137245296\n"
      ours   "12:30 52:54:10:12:34:56\n"
    joined: "#{ 'x' ~ huge }# #{ 'x' ~ [day] }#\n"
      theirs "x1e+20 x[datetime.date(2024, 1, 15)]\n"
      ours   "x100000000000000000000.0 x[2024-01-15]\n"
    "##);
}

/// What would give other bytes is refused with its line, and the template is named.
#[test]
fn what_cannot_be_done_as_jinja_does_is_refused() {
    let refused: &[(&str, &str)] = &[
        ("data-list", "#% do tags.append('x') %#\n"),
        ("data-map", "#% set _ = nested.update({}) %#\n"),
        (
            "missing-attribute",
            "#{ nodes | selectattr('zone', 'eq', 1) | list }#\n",
        ),
        ("itself", "#% set l = [] %##% do l.append([l]) %##{ l }#\n"),
    ];
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}{RENDER}", stack("app", "")),
    )
    .write("app/main.tf", "")
    .write("data.yaml", DATA);
    for (name, text) in refused {
        test.write(&format!("templates/{name}.txt.j2"), text);
    }
    let said = test.cli(&["render"]).expect(1);
    assert!(!test.project().join("ours").exists());
    insta::assert_snapshot!(said.to_string(), @r#"
    ── stderr
    error: `append` cannot change this list: all templates see the data, so they stay as they are; give
           a name to a copy first, `x.copy()`
      --> templates/data-list.txt.j2:1:11
       |
     1 | #% do tags.append('x') %#
       |           ^^^^^^^^^^^^ here

    error: `update` cannot change this map: all templates see the data, so they stay as they are; give a
           name to a copy first, `x.copy()`
      --> templates/data-map.txt.j2:1:18
       |
     1 | #% set _ = nested.update({}) %#
       |                  ^^^^^^^^^^^ here

    error: a list or a map cannot hold itself
      --> templates/itself.txt.j2:1:24
       |
     1 | #% set l = [] %##% do l.append([l]) %##{ l }#
       |                        ^^^^^^^^^^^^ here

    error: an item has no such attribute; `selectattr(…, "defined")` takes those that have it
      --> templates/missing-attribute.txt.j2:1:12
       |
     1 | #{ nodes | selectattr('zone', 'eq', 1) | list }#
       |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^ here

    4 errors in 4 files
    [exit 1]
    "#);
}

/// Several directories of templates: which file counts, what an import finds.
#[test]
fn several_directories_give_the_same_bytes() {
    let settings = SETTINGS.replace("[\"templates\"]", "[\"site\", \"templates\", \"base\"]");
    let render = RENDER.replace("= \"templates\"", "= [\"site\", \"templates\", \"base\"]");
    let test = terrane();
    test.write(
        "terrane.hcl",
        &format!("{HEAD}{}{render}", stack("app", "")),
    )
    .write("app/main.tf", "")
    .write("data.yaml", DATA)
    .write("makejinja.toml", &settings)
    .write("plugin.py", PLUGIN);
    for (dir, file, text) in [
        (
            "site",
            "both.txt.j2",
            "site #% import 'lib.inc' as lib %##{ lib.who() }#\n",
        ),
        ("base", "both.txt.j2", "base\n"),
        (
            "base",
            "lower.txt.j2",
            "base #% import 'lib.inc' as lib %##{ lib.who() }# #% include 'part.inc' %#\n",
        ),
        (
            "templates",
            "lib.inc",
            "#% macro who() %#lib of templates#% endmacro %#\n",
        ),
        (
            "base",
            "lib.inc",
            "#% macro who() %#lib of base#% endmacro %#\n",
        ),
        ("base", "part.inc", "part of base\n"),
        // The same output from a copy and from a template, whichever comes first.
        ("site", "copied.txt", "copied from site\n"),
        ("base", "copied.txt.j2", "rendered from base\n"),
        ("templates", "rendered.txt.j2", "rendered from #{ name }#\n"),
        ("base", "rendered.txt", "copied from base\n"),
        // What comes out empty in the first is not made by the second.
        ("site", "gone.txt.j2", "#% if false %#x#% endif %#\n"),
        ("base", "gone.txt.j2", "base\n"),
    ] {
        test.write(&format!("{dir}/{file}"), text);
    }
    Makejinja::find().run(&test.project());
    let said = test.cli(&["render"]).expect(0);
    let ours = files(&test.project().join("ours"));
    assert_eq!(ours, files(&test.project().join("theirs")), "{said}");
    assert_eq!(ours["both.txt"], "site lib of templates\n");
    // A mistake is shown where it stands.
    test.write("base/wrong.txt.j2", "one\n#{ nobody }#\n");
    let wrong = test.cli(&["render"]).expect(1);
    assert!(wrong.stderr.contains("base/wrong.txt.j2:2"), "{wrong}");
}
