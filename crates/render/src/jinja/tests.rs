//! Environments of plain files contain no secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::base::diagnostic::Location;
use model::render::data::{Node, of_json};
use model::render::{Delimiters, Render, UndefinedMode, WhitespaceOptions};
use serde_json::{Value, json};

use super::{Reveal, TemplateText, Templates};

fn render() -> Render {
    Render {
        name: "x".to_owned(),
        templates: vec!["templates".to_owned()],
        data: Vec::new(),
        output: String::new(),
        schema: None,
        suffix: ".j2".to_owned(),
        undefined: UndefinedMode::Strict,
        exclude: Vec::new(),
        keep_empty: false,
        spaces: WhitespaceOptions::default(),
        delimiters: Delimiters::default(),
        defaults: Value::Null,
        values: BTreeMap::from([
            ("made".to_owned(), "'a' ~ token".to_owned()),
            ("more".to_owned(), "made | upper".to_owned()),
            ("plain".to_owned(), "name ~ '!'".to_owned()),
        ]),
        each: BTreeMap::from([(
            "nodes".to_owned(),
            BTreeMap::from([
                ("key".to_owned(), "item.name ~ token".to_owned()),
                ("fqdn".to_owned(), "item.name ~ '.' ~ name".to_owned()),
            ]),
        )]),
        when: BTreeMap::new(),
        secrets: BTreeMap::new(),
        sensitive: Vec::new(),
        checks: Vec::new(),
        declared_at: Location::default(),
        places: BTreeMap::new(),
    }
}

fn data() -> Node {
    let mut data = of_json(
        &json!({
            "token": "hunter2hunter2",
            "name": "lab",
            "deep": { "port": 5432, "name": "db", "list": ["s3cr3t-value"] },
            "nodes": [{ "name": "n1", "pw": "correct horse" }, { "name": "n2", "pw": "battery staple" }],
        }),
        &Location::default(),
    );
    for path in ["token", "deep.port", "deep.list[*]", "nodes[*].pw"] {
        data.hide(&path.parse().unwrap());
    }
    data
}

fn templates(sources: &[(&str, &str)]) -> Templates {
    let sources = sources.iter();
    let sources = sources.map(|(name, text)| {
        let (file, text) = (format!("templates/{name}"), (*text).to_owned());
        ((*name).to_owned(), TemplateText { file, text })
    });
    Templates::new(&render(), sources.collect(), PathBuf::new()).unwrap()
}

/// Attempts to read a secret.
const WAYS: &[&str] = &[
    "{{ token }}",
    "x\n{{ token }}",
    "{{ token | upper }}",
    "{{ token | b64encode }}",
    "{{ token[0] }}",
    "{{ token[:3] }}",
    "{{ token[::-1] }}",
    "{{ token | length }}",
    "{{ token | first }}",
    "{{ token | list }}",
    "{{ token | tojson }}",
    "{{ token | string | reverse }}",
    "{{ token ~ '' }}",
    "{{ 'x' + token }}",
    "{{ '%s' | format(token) }}",
    "{{ '%s' % token }}",
    "{{ '%r' % token }}",
    "{{ '%.1s' % token }}",
    "{{ '%s %.1s' % (name, token) }}",
    "{{ '%(port)d' % deep }}",
    "{{ '{}'.format(token) }}",
    "{{ token.upper() }}",
    "{{ token.split('') }}",
    "{% if token == 'hunter2hunter2' %}yes{% endif %}",
    "{% if 'hunter2hunter2' == token %}yes{% endif %}",
    "{% if token %}yes{% endif %}",
    "{% if 'h' in token %}yes{% endif %}",
    "{% if token is defined %}yes{% endif %}",
    "{% if token is string %}yes{% endif %}",
    "{{ token | default('none') }}",
    "{{ token or 'none' }}",
    "{{ 'none' if token else 'some' }}",
    "{% for c in token %}{{ c }}{% endfor %}",
    "{% set t = token %}{{ t }}",
    "{% set ns = namespace(t=token) %}{{ ns.t }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(token) }}",
    "{% include 'inner.j2' %}",
    "{% from 'macros.j2' import leak %}{{ leak() }}",
    "{% filter upper %}{{ token }}{% endfilter %}",
    "{% call(x) caller2() %}{% endcall %}{{ token }}",
    "{{ deep }}",
    "{{ deep.port }}",
    "{{ deep.port + 1 }}",
    "{{ deep['port'] }}",
    "{{ deep | tojson }}",
    "{{ deep | pprint }}",
    "{{ deep | items | list }}",
    "{{ deep.items() | list }}",
    "{{ deep.values() | list }}",
    "{{ deep | dictsort }}",
    "{{ deep | string }}",
    "{{ deep | xmlattr }}",
    "{{ deep | attr('port') }}",
    "{{ deep.get('port') }}",
    "{% for k, v in deep.items() %}{{ k }}={{ v }}{% endfor %}",
    "{{ deep.list | join('') }}",
    "{{ deep.list | first }}",
    "{{ deep.list | sort | list }}",
    "{{ nodes | sort(attribute='pw') | map(attribute='name') | list }}",
    "{{ nodes | sort(attribute='name,pw') | list }}",
    "{{ nodes | max(attribute='pw') }}",
    "{{ nodes | min | string }}",
    "{{ nodes | unique(attribute='pw') | list }}",
    "{{ deep | dictsort(by='value') }}",
    "{{ deep.list | unique | list }}",
    "{{ deep.list | map('upper') | list }}",
    "{{ nodes | map(attribute='pw') | list }}",
    "{{ nodes | map(attribute='pw') | join(',') }}",
    "{{ nodes | tojson }}",
    "{{ nodes }}",
    "{{ (nodes | first).pw }}",
    "{{ nodes | groupby('pw') | list }}",
    "{{ nodes | sum(attribute='pw') }}",
    "{% for n in nodes %}{{ n.pw }}{% endfor %}",
    "{{ nodes[0] | string }}",
    "{{ dict(a=token) }}",
    "{{ [token, 1] }}",
    "{{ (token, 1) | tojson }}",
    "{{ made }}",
    "{{ more }}",
    "{{ nodes[0].key }}",
    "{{ age_key('private') }}",
    "{{ github_deploy_key() }}",
    "{{ cloudflare_tunnel_secret() }}",
];

/// Operations that are allowed because they reveal nothing.
const HARMLESS: &[(&str, &str)] = &[
    ("{{ name }}", "lab"),
    ("{{ plain }}", "lab!"),
    ("{{ deep.name }}", "db"),
    ("{{ nodes | map(attribute='name') | join(',') }}", "n1,n2"),
    ("{{ nodes | length }}", "2"),
    (
        "{% for n in nodes %}{{ n.fqdn }} {% endfor %}",
        "n1.lab n2.lab ",
    ),
    (
        "{{ nodes | sort(attribute='name', reverse=true) | map(attribute='name') | join }}",
        "n2n1",
    ),
    (
        "{% for name, list in nodes | groupby('name') %}{{ name }}{% endfor %}",
        "n1n2",
    ),
    ("{{ has('token') }} {{ has('nope') }}", "True False"),
    (
        "{% for n in nodes if n.name == 'n2' %}{{ n.name }}{% endfor %}",
        "n2",
    ),
];

const SECRETS: &[&str] = &[
    "hunter2", "HUNTER2", "5432", "5433", "s3cr3t", "S3CR3T", "correct", "battery", "2retnuh",
    "aHVudGVy",
];

#[test]
fn no_way_leads_to_a_secret() {
    let mut come_out = Vec::new();
    for way in WAYS {
        let templates = templates(&[
            ("t.j2", way),
            ("inner.j2", "{{ token }}"),
            ("macros.j2", "{% macro leak() %}{{ token }}{% endmacro %}"),
        ]);
        let bound = templates.bind(&data(), Reveal::Nothing).unwrap();
        match bound.render("t.j2") {
            Ok(text) => come_out.push(format!("{way} → {text}")),
            Err(err) => {
                let said = format!("{err} {err:?}");
                for secret in SECRETS {
                    assert!(!said.contains(secret), "{way}: {said}");
                }
            }
        }
    }
    // No comparison succeeds either: the secret is not there to be compared.
    insta::assert_snapshot!(come_out.join("\n"), @"");
}

#[test]
fn what_is_not_secret_is_there() {
    for (text, expected) in HARMLESS {
        let templates = templates(&[("t.j2", text)]);
        let bound = templates.bind(&data(), Reveal::Nothing).unwrap();
        assert_eq!(bound.render("t.j2").unwrap(), *expected, "{text}");
    }
}

#[test]
fn who_looks_is_named_with_its_line() {
    let templates = templates(&[
        ("t.j2", "a\n{% include 'in/inner.j2' %}\n"),
        ("in/inner.j2", "a\nb: 1\n  c: {{ nodes[1].pw }}\n"),
    ]);
    let bound = templates.bind(&data(), Reveal::Nothing).unwrap();
    let err = bound.render("t.j2").unwrap_err();
    let at = err.at.unwrap();
    assert_eq!(
        (at.file.as_str(), at.line, at.column),
        ("templates/in/inner.j2", 3, 14)
    );
    assert_eq!(err.secret.as_deref(), Some("nodes[1].pw"));
}

#[test]
fn what_is_encrypted_sees_them() {
    let templates = templates(&[(
        "t.j2",
        "{{ token }} {{ more }} {{ deep.port + 1 }} {{ nodes[1].key }}",
    )]);
    let bound = templates.bind(&data(), Reveal::Everything).unwrap();
    assert_eq!(
        bound.render("t.j2").unwrap(),
        "hunter2hunter2 AHUNTER2HUNTER2 5433 n2hunter2hunter2"
    );
    for which in 0..Reveal::ALTERNATES {
        let bound = templates.bind(&data(), Reveal::Alternate(which)).unwrap();
        let text = bound.render("t.j2").unwrap();
        assert!(!text.to_lowercase().contains("hunter2"), "{text}");
        assert!(!text.contains(" 5433 "), "{text}");
    }
}

#[test]
fn an_error_where_secrets_are_seen_holds_none() {
    for text in [
        "{{ token | int }}{{ token.nope() }}",
        "{{ token / 2 }}",
        "{{ token | b64decode }}",
        "{{ nodes[0].pw | nthhost(token) }}",
        "{{ (token ~ '%d') | format('x') }}",
        "{{ [][token] }}",
        "{{ missing }}",
    ] {
        let templates = templates(&[("t.j2", text)]);
        let bound = templates.bind(&data(), Reveal::Everything).unwrap();
        let err = bound.render("t.j2").unwrap_err();
        let said = format!("{err} {err:?}");
        for secret in SECRETS {
            assert!(!said.contains(secret), "{text}: {said}");
        }
    }
}
