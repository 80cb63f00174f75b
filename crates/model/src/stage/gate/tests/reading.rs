//! Settings of gates, read from their blocks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let blocks = [
        block(
            "dns",
            "names",
            json!({ "names": ["www.*.io", "192.0.2.1", "a b.io"], "expect": "2001:db8::1", "record": "MX", "interval": "soon" }),
        ),
        block(
            "tls",
            "certificate",
            json!({ "host": "https://example.io", "port": 0, "ca": "no PEM", "valid_for": 7 }),
        ),
        block("tcp", "port", json!({ "address": "example.io" })),
        block(
            "http",
            "page",
            json!({ "url": "ftp://example.io", "status": 99, "body": "(", "json": { "a..b": 1 }, "headers": [] }),
        ),
        block(
            "oidc",
            "sign-in",
            json!({ "issuer": null, "client_id": "x" }),
        ),
        block(
            "kubernetes",
            "object",
            json!({ "kind": "Pod", "field": "a" }),
        ),
        block("equal", "same", json!({ "values": ["only one"] })),
        block("command", "program", json!({ "run": [], "timeout": "0s" })),
        block("dnss", "odd", json!({})),
    ];
    let wrong = Gate::read_all(&blocks).unwrap_err();
    let lines: Vec<String> = wrong
        .iter()
        .map(|error| match &error.hint {
            Some(hint) => format!("{error} ({hint})"),
            None => error.to_string(),
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    gate `names`: `interval` `soon` is not a duration such as `500ms`, `90s`, `10m`, `24h`, `30d`
    gate `names`: `names` `www.*.io` is no name: `*` is allowed only as the first label
    gate `names`: `names` `192.0.2.1` is no name: it is an address
    gate `names`: `names` `a b.io` is no name: write it as `www.example.io`
    gate `names`: `record` must be `A`, `AAAA`, `CNAME` or `TXT`, not `MX`
    gate `names`: `expect` `2001:db8::1` cannot be in a record of type `A`
    gate `certificate`: `host` must be a host name, not `https://example.io`
    gate `certificate`: `port` must be a port, from 1 to 65535
    gate `certificate`: `valid_for` must be a text, not a number
    gate `certificate`: `ca` must be certificates in PEM: `-----BEGIN CERTIFICATE-----` and so on
    gate `port`: `address` must be `host:port`, not `example.io`
    gate `page`: `url` must be `https://HOST/…` or `http://HOST/…`, not `ftp://example.io`
    gate `page`: `status` must be an HTTP status, from 100 to 599
    gate `page`: `body` `(` is not a pattern
    gate `page`: `headers` must be an object, not a list
    gate `page`: `json` `a..b` is not a path such as `items[0].name`
    gate `sign-in`: `issuer` has no value: an output that is null, or not there
    gate `sign-in`: `client_id` requires `login_url`: it is seen in the redirect from there
    gate `object`: `kubeconfig` has no value: an output that is null, or not there
    gate `object`: `field` requires `expect`
    gate `object`: `name` has no value: an output that is null, or not there
    gate `same`: `values` must be a list or an object of at least two values
    gate `program`: `timeout` must be at least `1s`
    gate `program`: `run` requires a program and its arguments
    gate `odd`: there is no kind of gate `dnss` (did you mean `dns`?)
    ");
}

#[test]
fn the_usual_settings() {
    let tls = gate("tls", json!({ "host": "example.io" }));
    assert_eq!(tls.schedule, Schedule::default());
    let Probe::Tls(tls) = tls.probe else {
        panic!("a tls gate");
    };
    assert_eq!((tls.port, tls.valid_for), (443, Duration::ZERO));
    assert_eq!(tls.place(), "example.io:443");
    let dns = gate(
        "dns",
        json!({ "names": "example.io", "expect": "2001:db8::1" }),
    );
    let Probe::Dns(dns) = dns.probe else {
        panic!("a dns gate");
    };
    assert_eq!(dns.record, RecordKind::Aaaa);
}

#[test]
fn a_gate_waits_for_all_of_a_for_each() {
    let mut dev = block("tcp", "port-dev", json!({ "address": "example.io:1" }));
    dev.each = Some("dev".to_owned());
    let mut prod = block("tcp", "port-prod", json!({ "address": "example.io:2" }));
    prod.each = Some("prod".to_owned());
    let last = block(
        "tcp",
        "last",
        json!({ "address": "example.io:3", "after": ["port"] }),
    );
    let gates = Gate::read_all(&[dev, prod, last]).unwrap();
    let mut ended = BTreeMap::new();
    let standing = |ended: &BTreeMap<String, GateVerdict>| gates[2].standing(&gates, ended);
    assert_eq!(
        standing(&ended),
        GateReadiness::Waits("port-dev".to_owned())
    );
    ended.insert("port-dev".to_owned(), GateVerdict::Passed);
    assert_eq!(
        standing(&ended),
        GateReadiness::Waits("port-prod".to_owned())
    );
    ended.insert("port-prod".to_owned(), GateVerdict::Passed);
    assert_eq!(standing(&ended), GateReadiness::Ready);
    let why = "nobody is there".to_owned();
    ended.insert("port-dev".to_owned(), GateVerdict::CannotLook { why });
    let after = "port-dev".to_owned();
    assert_eq!(
        standing(&ended),
        GateReadiness::Stopped(BlockingGate { after })
    );
}

#[test]
fn an_order_that_cannot_be_kept() {
    let port = |name: &str, after: &[&str]| {
        block(
            "tcp",
            name,
            json!({ "address": "example.io:1", "after": after }),
        )
    };
    let said = |blocks: &[ResolvedBlock]| {
        let wrong = Gate::read_all(blocks).unwrap_err();
        wrong.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        said(&[
            port("a", &["b"]),
            port("b", &["c"]),
            port("c", &["a"]),
            port("d", &[])
        ]),
        [
            "gate `a`: `after`: it waits for itself, through `b`",
            "gate `b`: `after`: it waits for itself, through `c`",
            "gate `c`: `after`: it waits for itself, through `a`",
        ]
    );
    assert_eq!(
        said(&[port("a", &["of-an-empty-for-each"]), port("a", &[])]),
        ["gate `a`: two gates have this name"]
    );
}

#[test]
fn what_is_sensitive_is_not_repeated() {
    let mut wrong = block(
        "http",
        "page",
        json!({ "url": "hunter2-is-it", "body": "(s3cr3t-pattern" }),
    );
    wrong.sensitive = ["url".to_owned(), "body".to_owned()].into();
    let wrong = Gate::read_all(&[wrong]).unwrap_err();
    let said = format!("{wrong:?}");
    assert!(
        !said.contains("hunter2") && !said.contains("s3cr3t"),
        "{said}"
    );
}

#[test]
fn commands_to_look_further() {
    let check = |kind: &str, attrs: Value| gate(kind, attrs).look_further().join("\n");
    let lines = [
        check(
            "dns",
            json!({ "names": ["*.dev.example.io", "dev.example.io"], "resolver": "127.0.0.1:5353" }),
        ),
        check(
            "dns",
            json!({ "names": ["*.dev.example.io"], "authoritative": true }),
        ),
        check(
            "tls",
            json!({ "host": "example.io", "address": "192.0.2.7", "port": 8443 }),
        ),
        check("tcp", json!({ "address": "[2001:db8::1]:22" })),
        check(
            "http",
            json!({ "url": "https://example.io/a?b=c d".replace(' ', "%20"), "headers": { "Authorization": "Bearer x" } }),
        ),
        check(
            "oidc",
            json!({ "issuer": "https://id.example.io", "login_url": "https://app.example.io/login" }),
        ),
        check(
            "kubernetes",
            json!({ "kubeconfig": {}, "kind": "Gateway", "name": "public", "namespace": "edge" }),
        ),
        check("argocd", json!({ "kubeconfig": "x: y" })),
        check(
            "equal",
            json!({ "values": [ProbeQuery::Dns { name: "example.io".to_owned(), record: RecordKind::A }.to_value(), "x"] }),
        ),
        check("command", json!({ "run": ["./check.sh", "it's"] })),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    dig @127.0.0.1 -p 5353 any-label.dev.example.io A
    dig @127.0.0.1 -p 5353 dev.example.io A
    dig +nssearch dev.example.io
    openssl s_client -connect 192.0.2.7:8443 -servername example.io -showcerts </dev/null
    nc -vz 2001:db8::1 22
    curl --include --header 'Authorization: …' 'https://example.io/a?b=c%20d'
    curl https://id.example.io/.well-known/openid-configuration
    curl --include https://app.example.io/login
    kubectl get Gateway public -n edge -o yaml
    kubectl describe Gateway public -n edge
    kubectl get applications.argoproj.io -A
    dig example.io A
    ./check.sh 'it'\''s'
    "#);
}
