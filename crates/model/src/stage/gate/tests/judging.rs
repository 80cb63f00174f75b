//! Verdicts on observed values.

use std::collections::BTreeMap;

use super::*;
use crate::base::masking::Mask;
use crate::base::secret::Secret;

fn answer(server: &str, values: &[&str]) -> DnsAnswer {
    DnsAnswer {
        server: server.to_owned(),
        status: Some("NOERROR".to_owned()),
        silent: None,
        ttl: (!values.is_empty()).then_some(3600),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        via: Vec::new(),
    }
}

fn name(name: &str, answers: Vec<DnsAnswer>) -> DnsNameEvidence {
    DnsNameEvidence {
        name: name.to_owned(),
        asked: name.replacen('*', "terrane-0", 1),
        answers,
    }
}

fn dns(attrs: Value, names: Vec<DnsNameEvidence>, expected: &[(&str, &[&str])]) -> String {
    let Probe::Dns(gate) = gate("dns", attrs).probe else {
        panic!("a dns gate");
    };
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let expected = expected
        .iter()
        .map(|(name, values)| ((*name).to_owned(), own(values)));
    shown(&gate.judge(DnsEvidence {
        record: gate.record,
        names,
        expected: expected.collect(),
    }))
}

#[test]
fn names_that_resolve_elsewhere() {
    let wild = json!({ "names": ["*.dev.example.io", "dev.example.io"], "expect": "203.0.113.7" });
    let good = || name("dev.example.io", vec![answer("ns1", &["203.0.113.7"])]);
    let stale = name(
        "*.dev.example.io",
        vec![
            answer("ns1", &["198.51.100.4"]),
            answer("ns2", &["198.51.100.4"]),
        ],
    );
    let half = name(
        "*.dev.example.io",
        vec![answer("ns1", &["203.0.113.7"]), answer("ns2", &[])],
    );
    let more = name(
        "*.dev.example.io",
        vec![answer("ns1", &["203.0.113.7", "198.51.100.4"])],
    );
    let said = [
        dns(wild.clone(), vec![stale, good()], &[]),
        dns(wild.clone(), vec![half, good()], &[]),
        dns(wild.clone(), vec![more, good()], &[]),
        dns(
            wild,
            vec![
                name("*.dev.example.io", vec![answer("ns1", &["203.0.113.7"])]),
                good(),
            ],
            &[],
        ),
    ];
    insta::assert_snapshot!(said.join("\n\n"), @"
    *.dev.example.io | 203.0.113.7 | 198.51.100.4 from ns1 and ns2, TTL 3600 | `dev.example.io` answers as expected: only the wildcard does not

    *.dev.example.io | 203.0.113.7 | no such record from ns2 | ns1 said what is expected: the name servers do not agree

    *.dev.example.io | 203.0.113.7 | 203.0.113.7 and 198.51.100.4 from ns1, TTL 3600 | `dev.example.io` answers as expected: only the wildcard does not

    passed
    ");
}

#[test]
fn an_expected_name_stands_for_its_addresses() {
    let wanted = json!({ "names": ["www.example.io"], "expect": "LB.example.net." });
    let alias = DnsAnswer {
        via: vec!["lb.example.net".to_owned()],
        ..answer("ns1", &[])
    };
    let same = answer("ns1", &["192.0.2.1", "192.0.2.2"]);
    let other = answer("ns1", &["192.0.2.1"]);
    let addresses: &[(&str, &[&str])] = &[("lb.example.net", &["192.0.2.2", "192.0.2.1"])];
    let look = |answer| {
        dns(
            wanted.clone(),
            vec![name("www.example.io", vec![answer])],
            addresses,
        )
    };
    assert_eq!(look(alias), "passed");
    assert_eq!(look(same), "passed");
    assert_eq!(
        look(other),
        "www.example.io | LB.example.net. | 192.0.2.1 from ns1, TTL 3600"
    );
}

#[test]
fn absence_must_be_proven() {
    let gone = json!({ "names": ["old.example.io"], "absent": true });
    let look = |answer| {
        dns(
            gone.clone(),
            vec![name("old.example.io", vec![answer])],
            &[],
        )
    };
    let status = |word: &str| DnsAnswer {
        status: Some(word.to_owned()),
        ..answer("ns1", &[])
    };
    assert_eq!(look(status("NXDOMAIN")), "passed");
    assert_eq!(look(status("NOERROR")), "passed");
    assert_eq!(
        look(status("SERVFAIL")),
        "old.example.io | no record | `SERVFAIL` from ns1"
    );
    // One server, queried for both address types.
    let both = vec![answer("ns1", &[]), answer("ns1", &["2001:db8::1"])];
    assert_eq!(
        dns(gone.clone(), vec![name("old.example.io", both)], &[]),
        "old.example.io | no record | 2001:db8::1 from ns1, TTL 3600"
    );
    let silent = DnsAnswer {
        status: None,
        silent: Some("connection refused".to_owned()),
        ..answer("ns1", &[])
    };
    assert_eq!(
        look(silent),
        "cannot look: no answer from ns1: connection refused"
    );
}

fn certificate(subject: &str, names: &[&str], until: &str) -> CertificateEvidence {
    CertificateEvidence {
        subject: subject.to_owned(),
        issuer: "O=Example Trust, CN=Example CA".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        not_before: at("2026-01-01T00:00:00Z"),
        not_after: at(until),
        fingerprint: "00".to_owned(),
    }
}

fn tls(attrs: Value, handshake: Handshake) -> String {
    let Probe::Tls(gate) = gate("tls", attrs).probe else {
        panic!("a tls gate");
    };
    let seen = TlsEvidence {
        host: gate.host.clone(),
        address: "192.0.2.1:443".to_owned(),
        handshake,
    };
    shown(&gate.judge(seen, at("2026-06-01T00:00:00Z")))
}

fn done(leaf: CertificateEvidence, trust: Trust, covers_host: bool) -> Handshake {
    Handshake::Done(TlsConnection {
        version: "TLSv1.3".to_owned(),
        cipher: "TLS13_AES_256_GCM_SHA384".to_owned(),
        alpn: None,
        chain: vec![leaf],
        trust,
        covers_host,
    })
}

#[test]
fn certificates_good_and_bad() {
    let host = json!({ "host": "coder.example.io", "valid_for": "336h" });
    let own = || {
        certificate(
            "CN=coder.example.io",
            &["coder.example.io"],
            "2026-09-01T00:00:00Z",
        )
    };
    let soon = certificate(
        "CN=coder.example.io",
        &["coder.example.io"],
        "2026-06-08T00:00:00Z",
    );
    let over = certificate(
        "CN=coder.example.io",
        &["coder.example.io"],
        "2026-05-20T00:00:00Z",
    );
    let mut early = own();
    early.not_before = at("2026-06-02T00:00:00Z");
    let fake = certificate("CN=TRAEFIK DEFAULT CERT", &[], "2027-01-01T00:00:00Z");
    let wrong = certificate(
        "CN=other",
        &["other.example.io", "*.example.net"],
        "2026-09-01T00:00:00Z",
    );
    let alert = |word: &str| Handshake::Refused {
        alert: word.to_owned(),
    };
    let why = || "connection refused".to_owned();
    let said = [
        tls(host.clone(), done(own(), Trust::Trusted, true)),
        tls(host.clone(), done(soon, Trust::Trusted, true)),
        tls(host.clone(), done(over, Trust::Trusted, true)),
        tls(host.clone(), done(early, Trust::Trusted, true)),
        tls(host.clone(), done(fake, Trust::SelfSigned, false)),
        tls(host.clone(), done(wrong, Trust::UnknownIssuer, false)),
        tls(host.clone(), done(own(), Trust::SelfSigned, true)),
        tls(host.clone(), Handshake::NoListener { why: why() }),
        tls(host.clone(), Handshake::NotTls),
        tls(
            host.clone(),
            Handshake::Silent {
                why: "it hung up".to_owned(),
            },
        ),
        tls(host, alert("UnrecognizedName")),
        tls(
            json!({ "host": "coder.example.io", "issuer": "Let's Encrypt", "alpn": ["h2"] }),
            done(own(), Trust::Trusted, true),
        ),
        tls(
            json!({ "host": "coder.example.io", "issuer": "example trust" }),
            done(own(), Trust::Trusted, true),
        ),
    ];
    insta::assert_snapshot!(said.join("\n\n"), @"
    passed

    validity of `CN=coder.example.io` | valid for 14 d more | 7 d left, until 2026-06-08T00:00:00Z

    validity of `CN=coder.example.io` | valid for 14 d more | expired 12 d ago, on 2026-05-20T00:00:00Z

    validity of `CN=coder.example.io` | valid for 14 d more | not valid before 2026-06-02T00:00:00Z

    certificate | one for `coder.example.io` | a placeholder of Traefik: `CN=TRAEFIK DEFAULT CERT` | the real one is not ready, or not attached to this listener

    chain | signed by a root that this system trusts | unknown issuer `O=Example Trust, CN=Example CA`; it is shown without any intermediate certificate
    host name | coder.example.io | other.example.io, *.example.net

    chain | signed by a root that this system trusts | it signed itself

    coder.example.io | a valid certificate | no listener (connection refused) at 192.0.2.1:443

    coder.example.io | a valid certificate | something that is not TLS at 192.0.2.1:443 | a port for plain text, or a proxy's own protocol

    coder.example.io | a valid certificate | no certificate (it hung up) at 192.0.2.1:443

    coder.example.io | a valid certificate | the handshake refused: `UnrecognizedName` at 192.0.2.1:443 | often: the server has no certificate for this host yet

    issuer | Let's Encrypt | O=Example Trust, CN=Example CA
    alpn | h2 | no protocol chosen

    passed
    ");
}

fn http(attrs: Value, answer: &HttpReply, target: Option<&str>) -> String {
    let Probe::Http(gate) = gate("http", attrs).probe else {
        panic!("an http gate");
    };
    shown(&gate.judge(answer, target))
}

fn page(status: u16, headers: &[(&str, &str)], body: &str) -> HttpReply {
    let headers = headers.iter();
    HttpReply {
        status,
        headers: headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.as_bytes().to_vec(),
        ..HttpReply::default()
    }
}

#[test]
fn pages_good_and_bad() {
    let url = "https://example.io/health";
    let json_type: &[(&str, &str)] = &[("Content-Type", "application/json"), ("Set-Cookie", "a=b")];
    let ok = page(
        200,
        json_type,
        r#"{"status":"ok","items":[{"port":8080,"a.b":true}]}"#,
    );
    let full = json!({
        "url": url,
        "expect_headers": { "content-type": "application/json" },
        "body": "\"status\":\\s*\"ok\"",
        "json": { "status": "ok", "items[0].port": "8080", "items[0]['port']": 8080.0, "$.items[0][\"a.b\"]": true },
    });
    let wrong = json!({
        "url": url,
        "expect_headers": { "content-type": "text/plain", "x-none": "1", "set-cookie": "c" },
        "body": "down",
        "json": { "status": "down", "items[7]": 1 },
    });
    let moved = page(301, &[("location", "/elsewhere")], "");
    let to = "https://example.io/elsewhere?a=b";
    let said = [
        http(full.clone(), &ok, None),
        http(wrong, &ok, None),
        http(
            full.clone(),
            &page(503, &[], "<html>\n  upstream is down"),
            None,
        ),
        http(json!({ "url": url }), &moved, Some(to)),
        http(
            json!({ "url": url, "redirect": "https://example.io/elsewhere" }),
            &moved,
            Some(to),
        ),
        http(
            json!({ "url": url, "redirect": "https://other.io/" }),
            &moved,
            Some(to),
        ),
        http(
            json!({ "url": url, "redirect": "https://other.io/" }),
            &ok,
            None,
        ),
        http(full, &page(200, &[], ""), None),
    ];
    insta::assert_snapshot!(said.join("\n\n"), @r#"
    passed

    header `content-type` | text/plain | application/json
    header `set-cookie` | c | another value
    header `x-none` | 1 | not there
    body | a match of `down` | 50 bytes that begin: {"status":"ok","items":[{"port":8080,"a.b":true}]}
    json `items[7]` | 1 | not there
    json `status` | "down" | "ok"

    status | 200 | 503 | the page says: <html>
    header `content-type` | application/json | not there
    body | a match of `"status":\s*"ok"` | 25 bytes that begin: <html>
    body | JSON | 25 bytes that begin: <html>

    status | 200 | 301 | it redirects to https://example.io/elsewhere?a=b; none is followed

    passed

    redirect | https://other.io/ | https://example.io/elsewhere?a=b

    status | a redirect | 200
    redirect | https://other.io/ | no redirect

    header `content-type` | application/json | not there
    body | a match of `"status":\s*"ok"` | nothing
    body | JSON | nothing
    "#);
}

#[test]
fn what_a_page_says_is_kept_without_what_opens_doors() {
    let Probe::Http(gate) = gate("http", json!({ "url": "https://example.io" })).probe else {
        panic!("an http gate");
    };
    let headers = [
        ("set-cookie", "session=abc"),
        (
            "location",
            "https://id.example.io/auth?client_id=web&state=xyz",
        ),
        ("server", "nginx"),
    ];
    let long = "x".repeat(5000);
    let Some(Evidence::Http(seen)) = gate.judge(&page(200, &headers, &long), None).evidence else {
        panic!("evidence of a page");
    };
    let kept = format!("{}…", "x".repeat(500));
    assert_eq!((seen.body_bytes, seen.body), (5000, kept));
    let kept: Vec<String> = seen
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    insta::assert_snapshot!(kept.join("\n"), @"
    set-cookie: (withheld)
    location: https://id.example.io/auth?client_id=web&state=…
    server: nginx
    ");
}

/// Every truncation is marked, so that the beginning of a secret is found there.
#[test]
fn a_page_that_is_cut_says_so() {
    let seen = |body: &str| excerpt(body.as_bytes());
    assert_eq!(seen(&"\u{1}".repeat(3000)), "…");
    let odd = format!("{}é{}", "\u{1}".repeat(1999), "x".repeat(10));
    assert_eq!(seen(&odd), "…");
    assert_eq!(seen("a\tb\u{7}"), "a\tb");
    let within = format!("{}hunter2-and-more", "\u{1}".repeat(1990));
    let mask = Mask::new(&[Secret::new("hunter2-and-more")]);
    assert_eq!(mask.mask_text(&seen(&within)), "(secret)…");
}

#[test]
fn sign_ins_good_and_bad() {
    let attrs = json!({ "issuer": "https://id.example.io", "client_id": "argocd", "login_url": "https://argocd.example.io/auth/login" });
    let Probe::Oidc(gate) = gate("oidc", attrs).probe else {
        panic!("an oidc gate");
    };
    let good = || OidcEvidence {
        issuer: gate.issuer.clone(),
        discovery: Some(Discovery {
            issuer: gate.issuer.clone(),
            jwks_uri: "https://id.example.io/keys".to_owned(),
            authorization_endpoint: Some("https://id.example.io/auth".to_owned()),
        }),
        keys: Some(vec![OidcKey {
            kid: Some("1".to_owned()),
            kty: "RSA".to_owned(),
            alg: None,
        }]),
        arrived: Some("https://id.example.io/auth".to_owned()),
        client_id: Some("argocd".to_owned()),
        ..OidcEvidence::default()
    };
    let with = |change: &dyn Fn(&mut OidcEvidence)| {
        let mut seen = good();
        change(&mut seen);
        shown(&gate.judge(seen))
    };
    let said = [
        with(&|_| {}),
        with(&|seen| seen.discovery.as_mut().unwrap().issuer.push('/')),
        with(&|seen| seen.keys = Some(Vec::new())),
        with(&|seen| {
            seen.arrived = Some("https://old-id.example.io/auth".to_owned());
            seen.client_id = Some("grafana".to_owned());
        }),
        with(&|seen| {
            seen.login_failed =
                Some("200 without a redirect from https://argocd.example.io/auth/login".to_owned());
        }),
        with(&|seen| {
            seen.discovery = None;
            seen.discovery_failed = Some("404".to_owned());
        }),
    ];
    insta::assert_snapshot!(said.join("\n\n"), @"
    passed

    issuer | https://id.example.io | https://id.example.io/ | they differ by a `/` at the end: clients compare exactly

    keys | keys at https://id.example.io/keys | a document without keys

    sign-in | a redirect to https://id.example.io/auth | https://old-id.example.io/auth
    client_id | argocd | grafana

    sign-in | a redirect to https://id.example.io/auth | 200 without a redirect from https://argocd.example.io/auth/login

    discovery | https://id.example.io/.well-known/openid-configuration | 404
    ");
}

#[test]
fn values_that_agree_and_do_not() {
    let check = |values: Value, answers: Vec<Result<Value, ProbeQueryError>>| {
        let attrs = json!({ "values": values, "kubeconfig": "x: y" });
        let Probe::Equal(gate) = gate("equal", attrs).probe else {
            panic!("an equal gate");
        };
        shown(&gate.judge(answers))
    };
    let name = || {
        ProbeQuery::Dns {
            name: "*.dev.example.io".to_owned(),
            record: RecordKind::A,
        }
        .to_value()
    };
    let service = || {
        ProbeQuery::Kubernetes {
            object: "Service/edge/gateway".to_owned(),
            field: "status.loadBalancer.ingress[0].ip".to_owned(),
        }
        .to_value()
    };
    let said = [
        check(
            json!(["203.0.113.7", name(), service()]),
            vec![Ok(json!(["203.0.113.7"])), Ok(json!("203.0.113.7"))],
        ),
        check(
            json!([{ "a": [1, 2], "b": "x" }, { "b": "x", "a": [1, 2] }]),
            vec![],
        ),
        check(json!(["WWW.example.io.", "www.example.io"]), vec![]),
        check(
            json!({ "published": "203.0.113.7", "reserved": "203.0.113.8", "wildcard": name() }),
            vec![Ok(json!("203.0.113.7"))],
        ),
        check(
            json!(["203.0.113.7", name()]),
            vec![Err(ProbeQueryError("NXDOMAIN".to_owned()))],
        ),
        check(
            json!([null, name()]),
            vec![Err(ProbeQueryError("NXDOMAIN".to_owned()))],
        ),
    ];
    insta::assert_snapshot!(said.join("\n\n"), @r#"
    passed

    passed

    passed

    reserved | 203.0.113.7 (published, wildcard) | 203.0.113.8

    dns("*.dev.example.io") | 203.0.113.7 (value 1) | NXDOMAIN

    value 1 | a value | null
    dns("*.dev.example.io") | a value | NXDOMAIN
    "#);
}

fn report(verdict: GateVerdict, evidence: Option<Evidence>) -> GateReport {
    GateReport {
        name: "it".to_owned(),
        kind: "http".to_owned(),
        verdict,
        tries: 1,
        began: at("2026-06-01T00:00:00Z"),
        ended: at("2026-06-01T00:00:01Z"),
        since: None,
        evidence,
        look_further: Vec::new(),
    }
}

#[test]
fn a_secret_is_in_no_report() {
    let secret = "s3cr3t-Hunter/2";
    let mut told = block(
        "http",
        "it",
        json!({
            "url": format!("https://example.io/?key={secret}"),
            "headers": { "Authorization": format!("Bearer {secret}") },
            "json": { "token": secret },
        }),
    );
    told.sensitive = ["url", "headers", "json"].map(str::to_owned).into();
    let gate = Gate::read_all(&[told]).unwrap().remove(0);
    let Probe::Http(probe) = &gate.probe else {
        panic!("an http gate");
    };
    let encoded = "czNjcjN0LUh1bnRlci8y";
    let body = format!("you sent {secret}, s3cr3t-Hunter%2F2 and {encoded}");
    let headers = [
        ("x-echo", secret),
        ("location", "https://example.io/?key=s3cr3t-Hunter%2F2"),
    ];
    let target = format!("https://example.io/?key={secret}");
    let look = probe.judge(&page(302, &headers, &body), Some(&target));
    let report = mask_report(
        &report(look.verdict, look.evidence),
        gate.unmaskable,
        &[&gate.mask],
    );
    let mut text = serde_json::to_string(&report).unwrap();
    text.push_str(&gate.look_further().join("\n"));
    assert!(report.evidence.is_some());
    for form in ["s3cr3t", "Hunter", encoded] {
        assert!(!text.contains(form), "{form} in {text}");
    }
}

#[test]
fn a_short_secret_leaves_only_the_verdict() {
    let mut told = block(
        "http",
        "it",
        json!({ "url": "https://example.io", "json": { "pin": "4711" } }),
    );
    told.sensitive = ["json".to_owned()].into();
    let gate = Gate::read_all(&[told]).unwrap().remove(0);
    let Probe::Http(probe) = &gate.probe else {
        panic!("an http gate");
    };
    let look = probe.judge(&page(200, &[], r#"{"pin":"4711","x":1}"#), None);
    assert_eq!(look.verdict, GateVerdict::Passed);
    let passed = mask_report(
        &report(look.verdict, look.evidence),
        gate.unmaskable,
        &[&gate.mask],
    );
    assert_eq!(passed.evidence, None);
    let look = probe.judge(&page(200, &[], r#"{"pin":"0815"}"#), None);
    let failed = mask_report(
        &report(look.verdict, look.evidence),
        gate.unmaskable,
        &[&Mask::default()],
    );
    assert!(!serde_json::to_string(&failed).unwrap().contains("4711"));
}

#[test]
fn reports_can_be_stored() {
    let Probe::Dns(gate) = gate("dns", json!({ "names": ["a.io"] })).probe else {
        panic!("a dns gate");
    };
    let seen = DnsEvidence {
        record: RecordKind::A,
        names: vec![name("a.io", vec![answer("ns1", &[])])],
        expected: BTreeMap::new(),
    };
    let look = gate.judge(seen);
    let report = report(look.verdict, look.evidence);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<GateReport>(&text).unwrap(), report);
    insta::assert_snapshot!(text, @r#"{"name":"it","kind":"http","verdict":"failed","misses":[{"subject":"a.io","expected":"a record of type A","seen":"no such record from ns1"}],"tries":1,"began":"2026-06-01T00:00:00Z","ended":"2026-06-01T00:00:01Z","evidence":{"kind":"dns","record":"A","names":[{"name":"a.io","asked":"a.io","answers":[{"server":"ns1","status":"NOERROR","values":[]}]}]}}"#);
}

#[test]
fn a_password_in_an_address_is_never_shown() {
    let url = "https://ada:p%40ssw0rd-of-ada@example.io/a?b=c";
    let mut gates = Gate::read_all(&[block("http", "page", json!({ "url": url }))]).unwrap();
    let gate = gates.remove(0);
    let Probe::Http(probe) = &gate.probe else {
        panic!("no gate of HTTP");
    };
    let silent = HttpFailure::TooSlow("nothing within 1 s".to_owned());
    let look = probe.judge_failure(silent);
    let shown = serde_json::to_string(&look).unwrap() + &gate.look_further().join(" ");
    assert!(!shown.contains("ssw0rd"), "{shown}");
    assert!(shown.contains("https://ada:…@example.io/a?b=c"), "{shown}");
    // A page that repeats the credentials of the request.
    let said = "Basic YWRhOnBAc3N3MHJkLW9mLWFkYQ== p@ssw0rd-of-ada p%40ssw0rd-of-ada";
    let masked = gate.mask.mask_text(said);
    assert!(
        !masked.contains("ssw0rd") && !masked.contains("BAc3N3"),
        "{masked}"
    );
}

#[test]
fn words_of_a_kubeconfig_are_no_secrets() {
    let kubeconfig = "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
        clusters: [{name: a, cluster: {server: 'https://example.io'}}], users: [{name: a, user: {token: marked-secret}}]}";
    let mut told = block(
        "kubernetes",
        "node",
        json!({ "kubeconfig": kubeconfig, "kind": "Node", "name": "a" }),
    );
    told.sensitive.insert("kubeconfig".to_owned());
    let gate = Gate::read_all(&[told]).unwrap().remove(0);
    let said = "current-context of clusters: marked-secret";
    assert_eq!(
        gate.mask.mask_text(said),
        "current-context of clusters: (secret)"
    );
}
