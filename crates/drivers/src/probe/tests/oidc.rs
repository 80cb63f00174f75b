//! Issuers and applications with correct and wrong setups.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use model::stage::gate::OidcGate;
use serde_json::json;
use testkit::{Dex, Issuer};

use super::servers::{http, page};
use super::*;
use crate::probe::Probes;
use crate::probe::oidc::look;

fn gate(attrs: Value) -> OidcGate {
    match probe("oidc", attrs) {
        Probe::Oidc(gate) => gate,
        other => panic!("{other:?}"),
    }
}

async fn ask(attrs: Value, names: &[(&str, String)]) -> String {
    let mut said = shown(&look(&Probes::new(), &gate(attrs), LONG).await);
    for (name, address) in names {
        said = said.replace(address, name);
    }
    said
}

/// An issuer with an authorization endpoint and the documents that the test gives.
async fn issuer(
    change: impl Fn(&str, String) -> Option<String> + Send + Sync + 'static,
) -> SocketAddr {
    let own: Arc<Mutex<String>> = Arc::default();
    let known = Arc::clone(&own);
    let server = http(move |path| {
        let own = known.lock().unwrap().clone();
        let (path, _) = path.split_once('?').unwrap_or((path, ""));
        let usual = match path {
            "/.well-known/openid-configuration" => json!({
                "issuer": own,
                "jwks_uri": format!("{own}/keys"),
                "authorization_endpoint": format!("{own}/auth"),
            })
            .to_string(),
            "/keys" => json!({ "keys": [{ "kty": "RSA", "kid": "one", "alg": "RS256", "n": "x", "e": "y" }] }).to_string(),
            _ => return page(404, "", "no such page"),
        };
        match change(path, usual) {
            Some(body) => page(200, "", &body),
            None => page(503, "", "down"),
        }
    })
    .await;
    *own.lock().unwrap() = format!("http://{server}");
    server
}

/// An application that redirects people to sign in there.
async fn application(door: String) -> SocketAddr {
    http(move |path| match path {
        "/login" => page(302, "Location: /start?return=/\r\n", ""),
        "/start?return=/" => {
            let target =
                format!("{door}/auth?client_id=argocd&state=0123456789abcdef&scope=openid");
            page(303, &format!("Location: {target}\r\n"), "")
        }
        "/loop" => page(302, "Location: /loop\r\n", ""),
        "/secure" => page(302, "Location: https://localhost:1/auth2\r\n", ""),
        _ => page(200, "", "welcome"),
    })
    .await
}

#[tokio::test]
async fn a_sign_in_reaches_its_issuer() {
    let own = issuer(|_, usual| Some(usual)).await;
    let other = issuer(|_, usual| Some(usual)).await;
    let issuer = format!("http://{own}");
    let app = application(issuer.clone()).await;
    let lost = application(format!("http://{other}")).await;
    let names = [
        ("ISSUER", issuer.clone()),
        ("OTHER", format!("http://{other}")),
        ("APP", format!("http://{app}")),
        ("LOST", format!("http://{lost}")),
    ];
    let login = |app: SocketAddr, path: &str, client: &str| json!({ "issuer": issuer, "client_id": client, "login_url": format!("http://{app}{path}") });
    let said = [
        ask(json!({ "issuer": issuer }), &names).await,
        ask(login(app, "/login", "argocd"), &names).await,
        ask(login(app, "/login", "grafana"), &names).await,
        ask(login(lost, "/login", "argocd"), &names).await,
        ask(login(app, "/", "argocd"), &names).await,
        ask(login(app, "/loop", "argocd"), &names).await,
        ask(login(app, "/secure", "argocd"), &names).await,
        ask(json!({ "issuer": format!("{issuer}/") }), &names).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    passed
    passed
    client_id | grafana | argocd
    sign-in | a redirect to ISSUER/auth | OTHER/auth
    sign-in | a redirect to ISSUER/auth | 200 without a redirect from APP/
    sign-in | a redirect to ISSUER/auth | 10 redirects, and no end
    sign-in | a redirect to ISSUER/auth | a redirect from http to https, which is not followed: https://localhost:1/auth2
    issuer | ISSUER/ | ISSUER
    ");
}

#[tokio::test]
async fn the_way_is_kept_without_its_state() {
    let issuer = issuer(|_, usual| Some(usual)).await;
    let app = application(format!("http://{issuer}")).await;
    let attrs = json!({
        "issuer": format!("http://{issuer}"),
        "client_id": "argocd",
        "login_url": format!("http://{app}/login"),
    });
    let look = look(&Probes::new(), &gate(attrs), LONG).await;
    let text = serde_json::to_string_pretty(&look.evidence).unwrap();
    let text = text
        .replace(&issuer.to_string(), "ISSUER")
        .replace(&app.to_string(), "APP");
    assert!(!text.contains("0123456789abcdef"), "{text}");
    insta::assert_snapshot!(text, @r#"
    {
      "kind": "oidc",
      "issuer": "http://ISSUER",
      "discovery": {
        "issuer": "http://ISSUER",
        "jwks_uri": "http://ISSUER/keys",
        "authorization_endpoint": "http://ISSUER/auth"
      },
      "keys": [
        {
          "kid": "one",
          "kty": "RSA",
          "alg": "RS256"
        }
      ],
      "hops": [
        "http://APP/login",
        "http://APP/start?return=…",
        "http://ISSUER/auth?client_id=argocd&state=…&scope=openid"
      ],
      "arrived": "http://ISSUER/auth",
      "client_id": "argocd"
    }
    "#);
}

#[tokio::test]
async fn issuers_that_are_set_up_badly() {
    let renamed = issuer(|path, usual| {
        let is_document = path.starts_with("/.well-known");
        Some(if is_document {
            usual.replace("127.0.0.1", "localhost")
        } else {
            usual
        })
    })
    .await;
    let keyless = issuer(|path, usual| {
        Some(if path == "/keys" {
            r#"{"keys":[]}"#.to_owned()
        } else {
            usual
        })
    })
    .await;
    let locked = issuer(|path, usual| (path != "/keys").then_some(usual)).await;
    let odd = issuer(|_, _| Some("<html>".to_owned())).await;
    let mut said = Vec::new();
    for server in [renamed, keyless, locked, odd] {
        let names = [("ISSUER", server.port().to_string())];
        said.push(ask(json!({ "issuer": format!("http://{server}") }), &names).await);
    }
    // The issuer of CI tokens serves discovery as well.
    let real = Issuer::start();
    said.push(ask(json!({ "issuer": real.address() }), &[]).await);
    real.go_down();
    said.push(
        ask(
            json!({ "issuer": real.address() }),
            &[("ISSUER", real.address().to_owned())],
        )
        .await,
    );
    insta::assert_snapshot!(said.join("\n"), @"
    issuer | http://127.0.0.1:ISSUER | http://localhost:ISSUER
    keys | keys at http://127.0.0.1:ISSUER/keys | a document without keys
    keys | keys at http://127.0.0.1:ISSUER/keys | 503
    discovery | http://127.0.0.1:ISSUER/.well-known/openid-configuration | not the document that is wanted: expected value at line 1 column 1
    passed
    discovery | ISSUER/.well-known/openid-configuration | 503
    ");
}

/// A real provider, and an application that redirects to it, with the right or the wrong client.
#[tokio::test]
async fn a_sign_in_at_dex() {
    let dex = tokio::task::spawn_blocking(Dex::start).await.unwrap();
    let (own, other) = (dex.sign_in("argocd"), dex.sign_in("grafana"));
    let app = http(move |path| match path {
        "/login" => page(302, &format!("Location: {own}\r\n"), ""),
        "/wrong" => page(302, &format!("Location: {other}\r\n"), ""),
        _ => page(200, "", "welcome"),
    })
    .await;
    let issuer = dex.issuer();
    let names = [("ISSUER", issuer.clone()), ("APP", format!("http://{app}"))];
    let login = |path: &str| json!({ "issuer": issuer, "client_id": "argocd", "login_url": format!("http://{app}{path}") });
    let said = [
        ask(json!({ "issuer": issuer }), &names).await,
        ask(login("/login"), &names).await,
        ask(login("/wrong"), &names).await,
        ask(json!({ "issuer": format!("{issuer}/") }), &names).await,
        ask(json!({ "issuer": format!("{issuer}/elsewhere") }), &names).await,
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    passed
    passed
    client_id | argocd | grafana
    issuer | ISSUER/ | ISSUER
    discovery | ISSUER/elsewhere/.well-known/openid-configuration | 404
    ");
}
