//! Vault for tests: its real core and HTTP API in memory, with the KV store and three login methods; one per test
//! process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use crate::services::service::{
    Service, ServiceSpec, Sharing, answers, program, request, temp_dir,
};
use crate::wait::wait_until;

pub struct Vault(&'static Service);

impl Vault {
    /// A token that may do everything.
    pub const ROOT: &str = "root-of-this-test";

    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// Mounts a KV store of version 2. Mounts and names are shared by all tests of a process.
    pub fn mount_kv(&self, name: &str) {
        let body = r#"{"type":"kv","options":{"version":"2"}}"#;
        self.write(&format!("sys/mounts/{name}"), body);
        // A new store is upgraded at once, and refuses all requests until then.
        wait_until(&format!("`{name}` is ready"), || {
            self.call("LIST", &format!("{name}/metadata"), "").0 != "400"
        });
    }

    /// Writes JSON to a path of the API, and returns the answer.
    pub fn write(&self, path: &str, body: &str) -> String {
        self.done("POST", path, body)
    }

    pub fn read(&self, path: &str) -> String {
        self.done("GET", path, "")
    }

    fn done(&self, method: &str, path: &str, body: &str) -> String {
        let (status, answer) = self.call(method, path, body);
        let is_done = matches!(status.as_str(), "200" | "204");
        assert!(is_done, "{method} {path}: {status} {answer}");
        answer
    }

    fn call(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let text = format!(
            "{method} /v1/{path} HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Vault-Token: {}\r\nContent-Length: {}\r\n\r\n{body}",
            Self::ROOT,
            body.len()
        );
        let answer = request(self.0.port(), &text).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).unwrap_or_default();
        (status.to_owned(), body.to_owned())
    }
}

fn start() -> Service {
    let vault = program("vault", "TERRANE_TEST_VAULT", &["vault/v1.21.4-2/vault"]);
    let recipe = |_: &Path| ServiceSpec {
        name: "vault",
        args: vec![
            vault.clone().into(),
            "-address=127.0.0.1:PORT".into(),
            format!("-token={}", Vault::ROOT).into(),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    };
    let is_ready = |port| {
        answers(
            port,
            "GET /v1/sys/health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        )
    };
    Service::start(temp_dir("vault"), Sharing::Shared, recipe, is_ready)
}
