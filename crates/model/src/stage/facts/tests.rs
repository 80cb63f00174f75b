//! Facts as data: files, secrets in them, manifests, and the origin of commits.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::stage::ResolvedBlock;
use crate::stage::facts::BranchOwnership;

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn publish(values: Option<Value>) -> Publish {
    Publish {
        place: "runtime-facts".to_owned(),
        path: "clusters/prod/globals.yaml".to_owned(),
        contract: None,
        partial: Vec::new(),
        values: values.map(|values| fields(&values)),
        holds_sensitive: false,
        plain: Vec::new(),
        files: Vec::new(),
    }
}

fn prepared(
    publish: &Publish,
    outputs: &Value,
    sensitive: &[&str],
    on_sensitive: SensitiveFacts,
) -> Result<FactFile, PrepareFactsError> {
    let values = fields(outputs);
    let sensitive = sensitive.iter().map(|&name| name.to_owned()).collect();
    let outputs = Outputs {
        values: &values,
        sensitive: &sensitive,
    };
    prepare(publish, "k8s-prod", None, outputs, on_sensitive, false)
}

fn text(file: &FactFile, header: Option<&str>) -> String {
    String::from_utf8(render(file.format, &file.values, header)).unwrap()
}

#[test]
fn yaml_is_canonical_and_says_the_same_to_every_reader() {
    let values = json!({
        "zone": "no",
        "azure": {"envoyPublicIpAddress": "20.1.2.3", "aAddress": "::1"},
        "list": [1, {"b": "x", "a": null}, [], ["deep"]],
        "empty": {},
        "on": true,
        "8080": "port: 1 # no comment",
        "text": "two\nlines\t\u{7}",
        "number": 1.50,
    });
    let file = prepared(
        &publish(Some(values)),
        &json!({}),
        &[],
        SensitiveFacts::Refuse,
    )
    .unwrap();
    insta::assert_snapshot!(text(&file, Some("written by terrane")), @r#"
    # written by terrane
    "8080": "port: 1 # no comment"
    azure:
      aAddress: "::1"
      envoyPublicIpAddress: "20.1.2.3"
    empty: {}
    list:
      - 1
      -
        a: null
        b: "x"
      - []
      -
        - "deep"
    number: 1.5
    "on": true
    text: "two\nlines\t\u0007"
    zone: "no"
    "#);
}

#[test]
fn json_is_canonical_too_and_keeps_every_digit() {
    let mut wanted = publish(Some(
        json!({"b": {"y": [1, {}], "x": []}, "a": "\"quoted\""}),
    ));
    let mut values = wanted.values.take().unwrap();
    values.insert(
        "big".to_owned(),
        crate::base::exact_number::read("123456789012345678901234567890").unwrap(),
    );
    wanted.values = Some(values);
    wanted.path = "facts.json".to_owned();
    let file = prepared(&wanted, &json!({}), &[], SensitiveFacts::Refuse).unwrap();
    insta::assert_snapshot!(text(&file, Some("not said in JSON")), @r#"
    {
      "a": "\"quoted\"",
      "b": {
        "x": [],
        "y": [
          1,
          {}
        ]
      },
      "big": 123456789012345678901234567890
    }
    "#);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "(yes|no|on|1e3|0x1f|~|null|- a|a: b|#|2001:db8::1|\\{\\}|\\*x|!t)".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn yaml_is_read_back_as_it_was(fields in prop::collection::btree_map(any::<String>(), any_value(), 0..6)) {
        let fields: Map<String, Value> = fields.into_iter().collect();
        let bytes = render(FactsFormat::Yaml, &fields, Some("header"));
        let read: Value = yaml_serde::from_slice(&bytes).unwrap();
        prop_assert_eq!(read, Value::Object(fields));
    }
}

#[test]
fn without_values_the_outputs_of_the_contract_are_published() {
    let contract = Contract::read(
        "edge/v1".parse().unwrap(),
        r#"{"properties": {"b": {}, "a": {}, "missing": {}}}"#,
    )
    .unwrap();
    let values = fields(&json!({"a": 1, "b": "x", "other": "not published"}));
    let none = BTreeSet::new();
    let outputs = Outputs {
        values: &values,
        sensitive: &none,
    };
    let refuse = SensitiveFacts::Refuse;
    let file = prepare(&publish(None), "s", Some(&contract), outputs, refuse, false).unwrap();
    assert_eq!(Value::Object(file.values), json!({"a": 1, "b": "x"}));
    let nothing = prepare(&publish(None), "s", None, outputs, refuse, false);
    assert!(matches!(nothing, Err(PrepareFactsError::Nothing { .. })));
}

#[test]
fn sensitive_values_are_refused_encrypted_or_referred_to() {
    let outputs =
        json!({"db": {"password": "hunter2-marked", "port": 5432}, "host": "db.example.io"});
    let values = json!({"db": {"pass": "hunter2-marked", "host": "db.example.io"}});
    let refused = prepared(
        &publish(Some(values.clone())),
        &outputs,
        &["db"],
        SensitiveFacts::Refuse,
    );
    let refused = refused.unwrap_err();
    insta::assert_snapshot!(refused, @"`clusters/prod/globals.yaml` would contain sensitive values in plain text: `db.pass`");
    let encrypted = prepared(
        &publish(Some(values.clone())),
        &outputs,
        &["db"],
        SensitiveFacts::Encrypt,
    );
    assert_eq!(
        encrypted.unwrap().encrypt,
        Encrypt::Leaves(BTreeSet::from(["/db/pass".to_owned()]))
    );
    let referred = prepared(
        &publish(Some(values)),
        &outputs,
        &["db"],
        SensitiveFacts::Reference,
    );
    insta::assert_snapshot!(text(&referred.unwrap(), None), @r#"
    db:
      host: "db.example.io"
      pass: "ref+terrane://k8s-prod/db#/password"
    "#);
    let composed = json!({"url": "postgres:hunter2-marked"});
    let composed = prepared(
        &publish(Some(composed)),
        &outputs,
        &["db"],
        SensitiveFacts::Reference,
    );
    insta::assert_snapshot!(composed.unwrap_err(), @"cannot write a reference for `url` of `clusters/prod/globals.yaml`: its value is derived from a sensitive output, not one itself");
}

#[test]
fn a_sensitive_value_that_cannot_be_found_again_hides_all() {
    let mut wanted = publish(Some(json!({"a": "HUNTER2-MARKED", "b": 1})));
    wanted.holds_sensitive = true;
    let file = prepared(
        &wanted,
        &json!({"p": "hunter2-marked"}),
        &["p"],
        SensitiveFacts::Encrypt,
    );
    let all = BTreeSet::from(["/a".to_owned(), "/b".to_owned()]);
    assert_eq!(file.unwrap().encrypt, Encrypt::Leaves(all));
}

#[test]
fn what_was_made_of_a_secret_is_one() {
    let values = json!({
        "word": "hunter2-hunter2", "loud": "HUNTER2-HUNTER2", "zone": "example.io", "said": "of ours",
    });
    let mut block = publish(Some(values));
    block.holds_sensitive = true;
    let outputs = json!({ "word": "hunter2-hunter2", "zone": "example.io" });
    let file = prepared(&block, &outputs, &["word"], SensitiveFacts::Encrypt).unwrap();
    // Only public outputs stay in clear text.
    let hidden = ["/loud", "/said", "/word"].map(str::to_owned);
    assert_eq!(file.encrypt, Encrypt::Leaves(hidden.into()));
}

#[test]
fn what_looks_like_a_secret_is_refused_by_name() {
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nmarked\n";
    let cases = [
        ("tls", pem, true),
        ("key", "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQ", true),
        ("aws", "AKIAIOSFODNN7EXAMPLE", true),
        ("git", "ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true),
        ("url", "https://me:pass@example.io/x", true),
        ("blob", "q7Zp0mXa92LsVd8KfT3rUyB6wNcE1hJg", true),
        ("adminPassword", "Correct1Horse", true),
        ("api_key", "k-12345678", true),
        (
            "ca",
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUI5VENDQVorZ0F3SUJBZ0lV",
            false,
        ),
        (
            "digest",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            false,
        ),
        ("commit", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", false),
        ("client_id", "8a8e9f3c-4b5d-4c6e-8f7a-0b1c2d3e4f5a", false),
        (
            "arn",
            "arn:aws:iam::123456789012:role/Dns-Challenge-Prod",
            false,
        ),
        (
            "id",
            "/subscriptions/8a8e/resourceGroups/Prod-West/providers/Microsoft.Network",
            false,
        ),
        ("secrets_source_uri", "https://vault.example.io/", false),
        (
            "token_url",
            "https://login.example.io/oauth2/v2.0/token",
            false,
        ),
        ("secret_name", "Db-Password-2", false),
        ("password", "", false),
        (
            "sas",
            "https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig=Zm9vYmFyYmF6Zm9vYmFyYmF6%3D",
            true,
        ),
        ("settings", r#"{"db": {"password": "hunter2x"}}"#, true),
        ("settings", r#"[{"user": "me", "token": ""}]"#, false),
        (
            "settings",
            r#"{"tokenUrl": "https://login.example.io"}"#,
            false,
        ),
        (
            "kube",
            "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    token: abc\n",
            true,
        ),
        (
            "kube",
            "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    exec:\n      command: kubelogin\n",
            false,
        ),
        ("dsn", "Server=db;User=me;Password=Hunter22x", true),
        ("env", "export API_TOKEN='Abcdefg1'\nHOST=example.io", true),
        ("env", "API_TOKEN=${API_TOKEN}\nPASSWORD=$(cat x)", false),
        ("text", "About the password: ask Team7", false),
        (
            "link",
            "https://example.io/search?q=Password1&page=2",
            false,
        ),
        ("name", "ThisIsAVeryLongClusterNameInWestEurope1", false),
    ];
    for (field, text, expected) in cases {
        assert_eq!(looks_secret(field, text), expected, "{field}: {text}");
    }
    let mut wanted = publish(Some(json!({"a": {"tls": pem}, "b": pem})));
    wanted.plain = vec!["b".to_owned()];
    let refused = prepared(&wanted, &json!({}), &[], SensitiveFacts::Encrypt).unwrap_err();
    insta::assert_snapshot!(refused, @"`clusters/prod/globals.yaml` would contain values that look like secrets: `a.tls`");
}

#[test]
fn names_of_fields_are_no_place_for_secrets() {
    let key = "ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let outputs = json!({ "word": "hunter2-hunter2" });
    let values = json!({"a": {key: "x"}, "b": [{"of hunter2-hunter2": 1}]});
    let wanted = publish(Some(values));
    let refused = prepared(&wanted, &outputs, &["word"], SensitiveFacts::Encrypt).unwrap_err();
    insta::assert_snapshot!(refused, @"`clusters/prod/globals.yaml` would reveal a secret as a field name below `a`, `b[0]`");
    let mut wanted = publish(Some(json!({ key: "x" })));
    let refused = prepared(&wanted, &outputs, &["word"], SensitiveFacts::Encrypt).unwrap_err();
    insta::assert_snapshot!(refused, @"`clusters/prod/globals.yaml` would reveal a secret as a field name");
    wanted.plain = vec![key.to_owned()];
    prepared(&wanted, &outputs, &["word"], SensitiveFacts::Encrypt).unwrap();
}

#[test]
fn paths_stay_inside_and_out_of_what_is_not_theirs() {
    for path in [
        "/a.yaml",
        "a/../b.yaml",
        "a//b.yaml",
        ".git/x.yaml",
        ".terrane/x.json",
        ".TERRANE/manifest.json",
        "a\n.yaml",
        "a.txt",
        "",
    ] {
        let mut wanted = publish(Some(json!({})));
        wanted.path = path.to_owned();
        assert!(
            prepared(&wanted, &json!({}), &[], SensitiveFacts::Refuse).is_err(),
            "{path}"
        );
    }
}

#[test]
fn a_message_says_where_the_facts_come_from() {
    let state = StateMark {
        serial: 12,
        lineage: "3f1a".to_owned(),
    };
    let contract = "cluster/v1".parse().unwrap();
    let message = CommitMessage {
        project: "k3v9qd",
        stack: Some("k8s-prod"),
        run: Some("r44".to_owned()),
        state: Some(&state),
        contracts: vec![&contract],
        source: Some("9f86d08"),
        written: vec!["clusters/prod/globals.yaml"],
        withdrawn: vec!["clusters/old.yaml"],
        records: true,
        taken_over: Some(("me", "edited by hand\nTerrane-Project: other")),
    };
    let text = message.render();
    insta::assert_snapshot!(text, @r"
    take over facts of k8s-prod

    + clusters/prod/globals.yaml
    - clusters/old.yaml

    Terrane-Project: k3v9qd
    Terrane-Stack: k8s-prod
    Terrane-Run: r44
    Terrane-Serial: 12
    Terrane-Lineage: 3f1a
    Terrane-Contract: cluster/v1
    Terrane-Source: 9f86d08
    Terrane-Taken-Over-By: me
    Terrane-Reason: edited by hand Terrane-Project: other
    ");
    assert_eq!(trailer(&text, TRAILER_PROJECT), Some("k3v9qd"));
    assert_eq!(trailer("subject only", TRAILER_PROJECT), None);
}

fn manifest(files: &[(&str, &str, &str)]) -> FactsManifest {
    let owner = |project: &str, stack: &str| FileOwner {
        project: project.to_owned(),
        stack: stack.to_owned(),
    };
    let files = files.iter();
    FactsManifest {
        files: files
            .map(|(path, project, stack)| ((*path).to_owned(), owner(project, stack)))
            .collect(),
    }
}

fn bytes(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_publication_writes_its_own_files_and_withdraws_what_nobody_declares() {
    let before = manifest(&[
        ("a.yaml", "p", "one"),
        ("old.yaml", "p", "one"),
        ("b.yaml", "p", "two"),
        ("gone.yaml", "p", "gone"),
        ("theirs.yaml", "q", "one"),
    ]);
    let current = bytes(&[("a.yaml", "1"), ("b.yaml", "2"), (MANIFEST, "…")]);
    let wanted_files = bytes(&[("a.yaml", "1"), ("new.yaml", "3")]);
    let stacks = names(&["one", "two"]);
    let wanted = DesiredFiles {
        project: "p",
        stack: "one",
        files: &wanted_files,
        common: &BTreeMap::new(),
        stacks: Some(&stacks),
        remembered: &BTreeSet::new(),
    };
    let changes = changes(BranchOwnership::Branch, &before, &current, &wanted).unwrap();
    assert_eq!(changes.remove, names(&["gone.yaml", "old.yaml"]));
    let written: Vec<&String> = changes.write.keys().collect();
    assert_eq!(written, [MANIFEST, "new.yaml"]);
    let after = FactsManifest::read(changes.write.get(MANIFEST).map(Vec::as_slice)).unwrap();
    let expected = manifest(&[
        ("a.yaml", "p", "one"),
        ("b.yaml", "p", "two"),
        ("new.yaml", "p", "one"),
        ("theirs.yaml", "q", "one"),
    ]);
    assert_eq!(after, expected);
}

#[test]
fn nothing_changed_is_no_commit_and_a_path_has_one_owner() {
    let before = manifest(&[("a.yaml", "p", "one"), ("b.yaml", "q", "x")]);
    let current = bytes(&[("a.yaml", "1"), (MANIFEST, "…")]);
    let check = |owns, files: &[(&str, &str)], remembered: &[&str]| {
        let files = bytes(files);
        let remembered = names(remembered);
        let wanted = DesiredFiles {
            project: "p",
            stack: "one",
            files: &files,
            common: &BTreeMap::new(),
            stacks: None,
            remembered: &remembered,
        };
        changes(
            owns,
            if owns == BranchOwnership::Branch {
                &before
            } else {
                &EMPTY
            },
            &current,
            &wanted,
        )
    };
    assert!(
        check(BranchOwnership::Branch, &[("a.yaml", "1")], &[])
            .unwrap()
            .is_empty()
    );
    assert!(
        check(BranchOwnership::Paths, &[("a.yaml", "1")], &["a.yaml"])
            .unwrap()
            .is_empty()
    );
    let withdrawn = check(BranchOwnership::Paths, &[], &["a.yaml", "never-there.yaml"]).unwrap();
    assert_eq!(withdrawn.remove, names(&["a.yaml"]));
    let taken = check(BranchOwnership::Branch, &[("b.yaml", "1")], &[]).unwrap_err();
    assert_eq!(
        taken.to_string(),
        "`b.yaml` belongs to stack `x` of project `q`"
    );
}

static EMPTY: FactsManifest = FactsManifest {
    files: BTreeMap::new(),
};

#[test]
fn a_commit_of_others_is_foreign_unless_it_keeps_to_their_files() {
    let before = manifest(&[("ours.yaml", "p", "one"), ("theirs.yaml", "q", "x")]);
    let check = |after: &[(&str, &str, &str)], changed: &[&str]| {
        let changed: Vec<String> = changed.iter().map(|&path| path.to_owned()).collect();
        foreign_files("p", &before, Some(&manifest(after)), &changed)
    };
    let ours = ("ours.yaml", "p", "one");
    let fine: [String; 0] = [];
    assert_eq!(
        check(&[ours, ("theirs.yaml", "q", "x")], &["theirs.yaml"]),
        fine
    );
    assert_eq!(
        check(
            &[ours, ("more.yaml", "q", "x")],
            &["theirs.yaml", "more.yaml", MANIFEST]
        ),
        fine
    );
    assert_eq!(check(&[ours], &["ours.yaml"]), ["ours.yaml"]);
    assert_eq!(check(&[ours], &["README.md", MANIFEST]), ["README.md"]);
    // Taking over our file by a manifest change alone is detected.
    assert_eq!(
        check(&[("ours.yaml", "q", "x")], &["ours.yaml", MANIFEST]),
        ["ours.yaml", MANIFEST]
    );
    let broken = foreign_files("p", &before, None, &[MANIFEST.to_owned()]);
    assert_eq!(broken, [MANIFEST]);
}

#[test]
fn a_block_is_read_and_its_place_is_found_without_its_key() {
    let block = |attrs: &Value, each: Option<&str>| ResolvedBlock {
        kind: "publish".to_owned(),
        name: each.map_or_else(|| "runtime".to_owned(), |key| format!("runtime-{key}")),
        each: each.map(str::to_owned),
        attrs: fields(attrs),
        blocks: Vec::new(),
        sensitive: BTreeSet::from(["values".to_owned()]),
        at: crate::base::diagnostic::Location::default(),
    };
    let attrs =
        json!({"path": "a.yaml", "values": {"a": 1}, "contract": "cluster/v1", "partial": ["x"]});
    let read = Publish::read(&block(&attrs, Some("dev"))).unwrap();
    assert_eq!(
        (read.place.as_str(), read.path.as_str()),
        ("runtime", "a.yaml")
    );
    assert_eq!(read.partial, ["x"]);
    assert!(read.holds_sensitive);
    let mut sink = block(&json!({"path": "out/hush.json"}), None);
    "file".clone_into(&mut sink.kind);
    sink.sensitive.insert("path".to_owned());
    let mut shown = block(&json!({"path": "a.yaml"}), None);
    shown.blocks.push(sink);
    let refused = Publish::read(&shown).unwrap_err().to_string();
    assert!(refused.starts_with("the `path` of a sink of"), "{refused}");
    let wrong = Publish::read(&block(&json!({"path": "a.yaml", "values": 1}), None)).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "`values` of `publish \"runtime\"` is not an object"
    );
}

#[test]
fn a_file_that_cannot_lie_beside_anothers_is_refused() {
    let manifest = manifest(&[("x.yaml", "p", "one"), ("q/X.yaml", "q", "x")]);
    for (path, expected) in [
        (
            "x.yaml/y.yaml",
            "`x.yaml/y.yaml` conflicts with `x.yaml`, which belongs to stack `one` of project `p`: one would be a file and a directory at once",
        ),
        (
            "q/x.yaml",
            "`q/x.yaml` conflicts with `q/X.yaml`, which belongs to stack `x` of project `q`: they differ in case only, and on many disks that is one file",
        ),
    ] {
        let files = BTreeMap::from([(path.to_owned(), b"new".to_vec())]);
        let (current, remembered) = (BTreeMap::new(), BTreeSet::new());
        let wanted = |stack| DesiredFiles {
            project: "p",
            stack,
            files: &files,
            common: &current,
            stacks: None,
            remembered: &remembered,
        };
        let refused =
            changes(BranchOwnership::Branch, &manifest, &current, &wanted("two")).unwrap_err();
        assert_eq!(refused.to_string(), expected);
        // A stack may replace its own file with a directory.
        if path.starts_with('x') {
            let changed =
                changes(BranchOwnership::Branch, &manifest, &current, &wanted("one")).unwrap();
            assert!(changed.remove.contains("x.yaml"));
        }
    }
}
