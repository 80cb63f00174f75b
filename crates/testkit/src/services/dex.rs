//! dex for tests: an OIDC provider, one per test process, with two clients.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::services::service::{Service, ServiceSpec, Sharing, answers, program, temp_dir};

/// A running dex.
pub struct Dex(&'static Service);

/// The redirect page is not served: a test ends at the provider's login page.
const CONFIG: &str = r#"
issuer: http://127.0.0.1:@DOOR@/dex
storage: { type: memory }
web: { http: "127.0.0.1:@DOOR@" }
frontend: { dir: "@WEB@" }
enablePasswordDB: true
oauth2: { skipApprovalScreen: true }
staticClients:
  - { id: argocd, name: Argo CD, public: true, redirectURIs: ["http://127.0.0.1/callback"] }
  - { id: grafana, name: Grafana, public: true, redirectURIs: ["http://127.0.0.1/callback"] }
"#;

/// Fills in the server's address once its port is known.
const START: &str = r#"sed -e "s,@DOOR@,$1,g" -e "s,@WEB@,$2,g" "$3/dex.yaml" > "$3/own.yaml" && exec "$4" serve "$3/own.yaml""#;

impl Dex {
    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}/dex", self.0.port())
    }

    /// The address to which an application sends people to sign in.
    pub fn sign_in(&self, client: &str) -> String {
        format!(
            "{}/auth?client_id={client}&redirect_uri=http%3A%2F%2F127.0.0.1%2Fcallback&response_type=code&scope=openid&state=abc",
            self.issuer()
        )
    }
}

fn start() -> Service {
    let at = program(
        "dex",
        "TERRANE_TEST_DEX",
        &["dex/v0.0.0-20260303133905-11d2eeb52b42"],
    );
    let recipe = |dir: &Path| {
        fs::write(dir.join("dex.yaml"), CONFIG).expect("a file");
        ServiceSpec {
            name: "dex",
            args: vec![
                "bash".into(),
                "-c".into(),
                START.into(),
                "dex".into(),
                "PORT".into(),
                at.join("web").into(),
                dir.into(),
                at.join("dex").into(),
            ],
            env: BTreeMap::new(),
            signal: "KILL",
        }
    };
    Service::start(temp_dir("dex"), Sharing::Shared, recipe, |port| {
        answers(
            port,
            "GET /dex/.well-known/openid-configuration HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        )
    })
}
