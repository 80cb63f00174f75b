//! Data files, with the positions of their values.

use std::fmt::Write as _;

use model::render::data::{Data, Node};

use super::{is_sealed, read_data, unseal, withhold};

fn outline(node: &Node, name: &str, depth: usize, out: &mut String) {
    let at = format!("{}:{}", node.at.line, node.at.column);
    let pad = "  ".repeat(depth);
    match &node.data {
        Data::List(items) => {
            _ = writeln!(out, "{pad}{name} [] {at}");
            for (index, item) in items.iter().enumerate() {
                outline(item, &index.to_string(), depth + 1, out);
            }
        }
        Data::Map(entries) => {
            _ = writeln!(out, "{pad}{name} {{}} {at}");
            for entry in entries {
                outline(&entry.node, &format!("{:?}", entry.key), depth + 1, out);
            }
        }
        data => _ = writeln!(out, "{pad}{name} = {data:?} {at}"),
    }
}

#[track_caller]
fn read(file: &str, text: &str) -> String {
    match read_data(file, text).unwrap() {
        Ok(node) => {
            let mut out = String::new();
            outline(&node, "data", 0, &mut out);
            out
        }
        Err(err) => format!("{}:{}: {}\n", err.at.line, err.at.column, err.problem),
    }
}

#[test]
fn yaml_as_python_has_it() {
    let text = "\
name: lab
on: yes
off: 'no'
mode: 0755
mac: 52:54:00:12:34:56
time: 12:30
big: 123456789012345678901234567890
under: 1_000
hex: 0xff
version: 1.11.4
float: 1.50
exp: 1e3
real: 1.0e+3
date: 2024-01-02
none: ~
empty:
uni: grün
base: &base { a: 1, b: 2 }
more:
  <<: *base
  b: 3
list:
  - x
  - [1, 2]
10: ten
block: |
  two
  lines
tagged: !!str 12
---
name: second
";
    insta::assert_snapshot!(read("a.yaml", text), @r#"
    data {} 1:1
      Text("name") = Text("second") 31:7
      Bool(true) = Bool(true) 2:5
      Bool(false) = Text("no") 3:6
      Text("mode") = Int(493) 4:7
      Text("mac") = Text("52:54:00:12:34:56") 5:6
      Text("time") = Text("12:30") 6:7
      Text("big") = Int(123456789012345678901234567890) 7:6
      Text("under") = Int(1000) 8:8
      Text("hex") = Int(255) 9:6
      Text("version") = Text("1.11.4") 10:10
      Text("float") = Float(1.5) 11:8
      Text("exp") = Text("1e3") 12:6
      Text("real") = Float(1000.0) 13:7
      Text("date") = Moment("2024-01-02") 14:7
      Text("none") = Null 15:7
      Text("empty") = Null 16:6
      Text("uni") = Text("grün") 17:6
      Text("base") {} 18:7
        Text("a") = Int(1) 18:18
        Text("b") = Int(2) 18:24
      Text("more") {} 20:3
        Text("a") = Int(1) 18:18
        Text("b") = Int(3) 21:6
      Text("list") [] 23:3
        0 = Text("x") 23:5
        1 [] 24:5
          0 = Int(1) 24:6
          1 = Int(2) 24:9
      Int(10) = Text("ten") 25:5
      Text("block") = Text("two\nlines\n") 27:3
      Text("tagged") = Text("12") 29:9
    "#);
}

#[test]
fn json_and_toml_have_places_too() {
    let mut out = read(
        "a.json",
        "{\n  \"b\": [1, true, null, \"x\"],\n  \"a\": 1.5\n}",
    );
    out += &read(
        "a.toml",
        "z = 1\na = \"x\" # c\n[t]\nk = [1, 2.5]\n[[nodes]]\nname = 'n1'\nwhen = 2024-01-02\n",
    );
    insta::assert_snapshot!(out, @r#"
    data {} 1:1
      Text("b") [] 2:8
        0 = Int(1) 2:9
        1 = Bool(true) 2:12
        2 = Null 2:18
        3 = Text("x") 2:24
      Text("a") = Float(1.5) 3:8
    data {} 1:1
      Text("z") = Int(1) 1:5
      Text("a") = Text("x") 2:5
      Text("t") {} 3:1
        Text("k") [] 4:5
          0 = Int(1) 4:6
          1 = Float(2.5) 4:9
      Text("nodes") [] 5:1
        0 {} 5:1
          Text("name") = Text("n1") 6:8
          Text("when") = Moment("2024-01-02") 7:8
    "#);
}

#[test]
fn mistakes_say_where() {
    let mut out = String::new();
    for (file, text) in [
        ("a.yaml", "a: 1\nb: [1\n"),
        ("a.yaml", "a: 1\na: 2\n"),
        ("a.yaml", "- a\n"),
        ("a.yaml", "a: &x [*x]\n"),
        ("a.yaml", "a: !secret x\n"),
        ("a.yaml", "a:\n  <<: 1\n"),
        ("a.json", "{\"a\": }"),
        ("a.toml", "a = \nb = 1\n"),
        ("a.toml", "a = 1\na = 2\n"),
    ] {
        _ = write!(out, "{file} {text:?}\n  {}", read(file, text));
    }
    assert!(read_data("a.ini", "").is_none());
    insta::assert_snapshot!(out, @r#"
    a.yaml "a: 1\nb: [1\n"
      3:1: this is not YAML: while parsing a flow sequence, expected ',' or ']'
    a.yaml "a: 1\na: 2\n"
      2:1: `a` is there already
    a.yaml "- a\n"
      1:1: data begin with names: `name: value`
    a.yaml "a: &x [*x]\n"
      1:8: an alias refers to itself
    a.yaml "a: !secret x\n"
      1:4: the tag `!secret` is not known
    a.yaml "a:\n  <<: 1\n"
      2:7: `<<` takes a map
    a.json "{\"a\": }"
      1:7: this is not JSON
    a.toml "a = \nb = 1\n"
      1:5: this is not TOML: string values must be quoted, expected literal string
    a.toml "a = 1\na = 2\n"
      2:1: this is not TOML: duplicate key
    "#);
}

#[test]
fn an_encrypted_file_is_read_without_its_key() {
    let sealed = "token: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\nplain_unencrypted: 1\nlist:\n    - ENC[AES256_GCM,data:x,iv:y,tag:z,type:int]\nsops:\n    mac: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\n";
    let data = read_data("a.yaml", sealed).unwrap().unwrap();
    assert!(is_sealed(&data));
    let mut data = withhold(data);
    assert_eq!(data.secrets().len(), 2);
    assert!(data.get("sops").is_none());
    let plain = read_data(
        "a.yaml",
        "token: hunter2\nplain_unencrypted: 1\nlist:\n    - 12\n",
    );
    unseal(&mut data, &plain.unwrap().unwrap());
    let known: Vec<(String, Data)> = data
        .secrets()
        .into_iter()
        .map(|(path, secret)| (path, Node::revealed(secret)))
        .collect();
    assert_eq!(
        known,
        [
            ("token".to_owned(), Data::Text("hunter2".to_owned())),
            ("list[0]".to_owned(), Data::Int(12)),
        ]
    );
    assert!(!format!("{data:?}").contains("hunter2"));
}
