//! A Kubernetes API server for tests, with its own etcd: one per test process, one namespace per test.
//!
//! The API is real, but there are no controllers and no nodes. The test itself writes what they would write into a
//! status.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

use crate::services::service::{Service, ServiceSpec, Sharing, program, temp_dir};
use crate::wait::wait_until;

/// A running API server.
pub struct Kubernetes {
    server: Service,
    _etcd: Service,
    /// Base64 of PEM: certificate and key of an administrator.
    client: (String, String),
}

impl Kubernetes {
    /// The token of a user who may do everything.
    pub const TOKEN: &str = "terrane-test-admin-token";
    /// The token of a user who may do nothing.
    pub const POWERLESS_TOKEN: &str = "terrane-test-powerless-token";

    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> &'static Self {
        static SHARED: OnceLock<Kubernetes> = OnceLock::new();
        SHARED.get_or_init(|| start(Sharing::Shared))
    }

    /// Like [`Kubernetes::start`], with the kinds of Argo CD, Flux, Gateway API and cert-manager.
    pub fn with_kinds() -> &'static Self {
        static KINDS: OnceLock<()> = OnceLock::new();
        let shared = Self::start();
        KINDS.get_or_init(|| shared.install_kinds());
        shared
    }

    /// A server with those kinds for a test that changes the whole cluster.
    pub fn own() -> Self {
        let own = start(Sharing::Alone);
        own.install_kinds();
        own
    }

    /// A kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of("", &format!("token: {}", Self::TOKEN))
    }

    /// A kubeconfig with further fields of the cluster (`, name: value`), and with this user.
    pub fn kubeconfig_of(&self, cluster: &str, user: &str) -> String {
        let authority = fs::read(self.server.dir().join("certs/apiserver.crt"));
        let authority = STANDARD.encode(authority.expect("the server's certificate"));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             contexts:\n- {{name: test, context: {{cluster: test, user: test}}}}\n\
             clusters:\n- {{name: test, cluster: {{server: '{}', certificate-authority-data: {authority}{cluster}}}}}\n\
             users:\n- {{name: test, user: {{{user}}}}}\n",
            self.address(),
        )
    }

    /// The user entry for a certificate in a kubeconfig.
    pub fn certificate_user(&self) -> String {
        let (certificate, key) = &self.client;
        format!("client-certificate-data: {certificate}, client-key-data: {key}")
    }

    pub fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port())
    }

    /// Creates a namespace and returns its name.
    pub fn namespace(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let body = format!(
            r#"{{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": "{name}"}}}}"#
        );
        self.post("/api/v1/namespaces", &body);
        name
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        self.ask("POST", path, "application/json", body)
    }

    pub fn get(&self, path: &str) -> String {
        self.ask("GET", path, "application/json", "")
    }

    pub fn delete(&self, path: &str) -> String {
        self.ask("DELETE", path, "application/json", "")
    }

    /// A merge patch by the field manager `manager`.
    pub fn merge(&self, path: &str, manager: &str, body: &str) -> String {
        let path = format!("{path}?fieldManager={manager}");
        self.ask("PATCH", &path, "application/merge-patch+json", body)
    }

    /// A forced server-side apply by another field manager.
    pub fn apply_as(&self, path: &str, manager: &str, body: &str) -> String {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.ask("PATCH", &path, "application/apply-patch+yaml", body)
    }

    /// A Deployment in the role of a GitOps agent; the test writes its status.
    pub fn roll_out_an_agent(&self, namespace: &str) {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let body = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "agent"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "agent"}}, "template": {
                "metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}});
        self.post(&path, &body.to_string());
        let status = serde_json::json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1}});
        self.merge(&format!("{path}/agent/status"), "test", &status.to_string());
    }

    /// Argo CD's official manifest of a full installation.
    pub fn argocd_manifest() -> PathBuf {
        tools().join("argocd-install.yaml")
    }

    fn ask(&self, method: &str, path: &str, content_type: &str, body: &str) -> String {
        let (status, said) = request(&self.address(), method, path, content_type, body);
        assert!(
            (200..300).contains(&status),
            "{method} {path} answered {status}: {said}"
        );
        said
    }

    fn install_kinds(&self) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let mut names = Vec::new();
        for entry in fs::read_dir(tools().join("manifests")).expect("manifests") {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("a manifest");
            let name = text
                .lines()
                .find_map(|line| line.strip_prefix("  name: "))
                .expect("a name")
                .to_owned();
            self.apply_as(&format!("{path}/{name}"), "test", &text);
            names.push(name);
        }
        for name in names {
            wait_until(&format!("{name} is established"), || {
                is_established(&self.get(&format!("{path}/{name}")))
            });
        }
        // Discovery is updated a moment later.
        for group in [
            "argoproj.io",
            "kustomize.toolkit.fluxcd.io",
            "helm.toolkit.fluxcd.io",
        ] {
            wait_until(&format!("{group} is served"), || {
                self.get("/apis").contains(&format!("\"{group}\""))
            });
        }
    }
}

fn is_established(definition: &str) -> bool {
    let read: serde_json::Value = serde_json::from_str(definition).expect("JSON");
    let conditions = read["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|entry| entry["type"] == "Established" && entry["status"] == "True")
}

fn tools() -> PathBuf {
    program(
        "kubernetes",
        "TERRANE_TEST_KUBERNETES",
        &["kubernetes/v1.36.3-1"],
    )
}

fn start(kept: Sharing) -> Kubernetes {
    let tools = tools();
    let etcd = Service::start(
        temp_dir("etcd"),
        kept,
        |dir| etcd_recipe(&tools, dir),
        |port| {
            crate::services::service::answers(
                port,
                "GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
            )
        },
    );
    let dir = temp_dir("kubernetes");
    let client = write_keys(&dir);
    let store = etcd.port();
    let server = Service::start(
        dir,
        kept,
        |dir| server_recipe(&tools, dir, store),
        |port| {
            let address = format!("https://127.0.0.1:{port}");
            try_request(&address, "GET", "/readyz", "application/json", "")
                .is_some_and(|(status, _)| status == 200)
        },
    );
    Kubernetes {
        server,
        _etcd: etcd,
        client,
    }
}

fn etcd_recipe(tools: &Path, dir: &Path) -> ServiceSpec {
    ServiceSpec {
        name: "etcd",
        args: vec![
            tools.join("etcd").into(),
            "--data-dir".into(),
            dir.join("data").into(),
            "--listen-client-urls=http://127.0.0.1:PORT".into(),
            "--advertise-client-urls=http://127.0.0.1:PORT".into(),
            // etcd has no peers; the default port must stay free.
            "--listen-peer-urls=http://127.0.0.1:0".into(),
            "--unsafe-no-fsync".into(),
            "--log-level=error".into(),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    }
}

fn server_recipe(tools: &Path, dir: &Path, etcd: u16) -> ServiceSpec {
    let named = |name: &str, file: &str| format!("--{name}={}", dir.join(file).display()).into();
    ServiceSpec {
        name: "kube-apiserver",
        args: vec![
            tools.join("kube-apiserver").into(),
            format!("--etcd-servers=http://127.0.0.1:{etcd}").into(),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            "--secure-port=PORT".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--authorization-mode=RBAC".into(),
            "--disable-admission-plugins=ServiceAccount".into(),
            named("cert-dir", "certs"),
            named("service-account-key-file", "sa.pub"),
            named("service-account-signing-key-file", "sa.key"),
            named("token-auth-file", "tokens.csv"),
            named("client-ca-file", "client-ca.pem"),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    }
}

/// Writes the server's keys. Returns the certificate and key of an administrator.
fn write_keys(dir: &TempDir) -> (String, String) {
    let write = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).expect("a file");
    };
    let accounts = KeyPair::generate().expect("a key");
    write("sa.key", &accounts.serialize_pem());
    write("sa.pub", &accounts.public_key_pem());
    let tokens = format!(
        "{},admin,1,\"system:masters\"\n{},powerless,2\n",
        Kubernetes::TOKEN,
        Kubernetes::POWERLESS_TOKEN
    );
    write("tokens.csv", &tokens);

    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "clients of a test");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
    let authority = authority.expect("an authority");
    write("client-ca.pem", &authority.pem());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "admin");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    (
        STANDARD.encode(certificate.pem()),
        STANDARD.encode(key.serialize_pem()),
    )
}

fn request(
    address: &str,
    method: &str,
    path: &str,
    content_type: &str,
    body: &str,
) -> (u16, String) {
    try_request(address, method, path, content_type, body)
        .unwrap_or_else(|| panic!("{method} {path}: no answer"))
}

/// Sends a request as the administrator. It uses its own runtime, since a test may already run on one.
fn try_request(
    address: &str,
    method: &str,
    path: &str,
    content_type: &str,
    body: &str,
) -> Option<(u16, String)> {
    static RUNTIME: OnceLock<(tokio::runtime::Runtime, reqwest::Client)> = OnceLock::new();
    let (runtime, client) = RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .timeout(Duration::from_mins(1))
            .build()
            .expect("a client");
        (runtime, client)
    });
    let method = method.parse().expect("a method");
    let mut call = client
        .request(method, format!("{address}{path}"))
        .bearer_auth(Kubernetes::TOKEN);
    if !body.is_empty() {
        call = call
            .header("Content-Type", content_type)
            .body(body.to_owned());
    }
    let (said, heard) = mpsc::channel();
    runtime.spawn(async move {
        let answer = async {
            let answer = call.send().await?;
            let status = answer.status().as_u16();
            Ok::<_, reqwest::Error>((status, answer.text().await?))
        };
        let _ = said.send(answer.await.ok());
    });
    heard.recv().ok().flatten()
}
