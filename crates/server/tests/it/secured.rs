//! The state server over TLS: HTTP/2, certificates of clients, and a certificate that is replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Version};
use base64::Engine as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::state::token::TokenScope;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server::http::{Limits, Tls, TlsFiles};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::endpoint::Home;
use crate::engines::{APPLY, DESTROY, INIT, Slot, engines};
use crate::listening::Server;

/// A certificate authority and the directory of its files.
struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), &pem).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            dir,
            pem,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes `name.crt` and `name.key`.
    fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), signed.pem()).unwrap();
    }

    fn tls(&self, client_ca: Option<PathBuf>) -> Arc<Tls> {
        let files = TlsFiles {
            certificate: self.path("server.crt"),
            key: self.path("server.key"),
            client_ca,
        };
        Arc::new(Tls::load(files).unwrap())
    }

    /// A connection, and what its certificate is.
    async fn connect(
        &self,
        server: &Server,
        protocol: &str,
        client: Option<&str>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::from_pem_file(self.path(&format!("{name}.crt")));
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                builder
                    .with_client_auth_cert(vec![chain.unwrap()], key.unwrap())
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(server.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn locks_go_over_http_2_too() {
    let authority = Authority::new();
    authority.sign("server");
    let home = Home::new().await;
    let server = home
        .serve_with(Some(authority.tls(None)), Limits::default())
        .await;
    let token = home.token("ci", TokenScope::Write, "**").await;
    let stream = authority.connect(&server, "h2", None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let basic = base64::engine::general_purpose::STANDARD.encode(format!(":{token}"));
    let lock = |id: &str| format!(r#"{{"ID":"{id}","Operation":"OperationTypeApply","Who":"me"}}"#);
    let state = r#"{"version":4,"serial":1,"lineage":"l","resources":[]}"#;
    let mut answers = Vec::new();
    for (method, query, body) in [
        ("GET", "", String::new()),
        ("LOCK", "", lock("a")),
        ("LOCK", "", lock("b")),
        ("POST", "?ID=a", state.to_owned()),
        ("GET", "", String::new()),
        ("UNLOCK", "", lock("a")),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost/state/p/network{query}"))
            .version(Version::HTTP_2)
            .header("authorization", format!("Basic {basic}"))
            .body(Body::from(body))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(Body::new(response.into_body()), 1 << 20)
            .await
            .unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        answers.push(format!(
            "{method} {status} {}",
            body.get(..9).unwrap_or_default()
        ));
    }
    assert_eq!(
        answers,
        [
            "GET 404 ",
            "LOCK 200 ",
            r#"LOCK 423 {"ID":"a""#,
            "POST 200 ",
            r#"GET 200 {"version"#,
            "UNLOCK 200 "
        ]
        .map(|line| line
            .chars()
            .take(line.find('{').map_or(99, |at| at + 9))
            .collect::<String>())
    );
}

/// HTTP/2 has no header timeout: a client that negotiates it and then sends nothing must not keep its connection.
#[tokio::test]
async fn an_http_2_connection_without_a_request_is_closed() {
    let authority = Authority::new();
    authority.sign("server");
    let home = Home::new().await;
    let limits = Limits {
        idle_timeout: std::time::Duration::from_millis(500),
        ..Limits::default()
    };
    let server = home.serve_with(Some(authority.tls(None)), limits).await;
    let mut silent = authority.connect(&server, "h2", None).await.unwrap();
    let mut rest = Vec::new();
    let ended = silent.read_to_end(&mut rest);
    let ended = tokio::time::timeout(std::time::Duration::from_mins(1), ended).await;
    assert!(ended.is_ok(), "it is held");
}

#[tokio::test]
async fn engines_over_tls_with_a_certificate_of_their_own() {
    let authority = Authority::new();
    authority.sign("server");
    authority.sign("client");
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let tls = authority.tls(Some(authority.path("ca.pem")));
        let server = home.serve_with(Some(tls), Limits::default()).await;
        let client = home.client(&server, TokenScope::Write).await;
        let url = format!(
            "https://localhost:{}/state/p/network",
            server.address.port()
        );
        let mut environment = client.environment("");
        for (name, value) in &mut environment {
            if name.ends_with("ADDRESS") {
                value.clone_from(&url);
            }
        }
        environment.push(("TF_HTTP_CLIENT_CA_CERTIFICATE_PEM", authority.pem.clone()));
        let bare = environment.clone();
        environment.extend([
            (
                "TF_HTTP_CLIENT_CERTIFICATE_PEM",
                read(&authority.path("client.crt")),
            ),
            (
                "TF_HTTP_CLIENT_PRIVATE_KEY_PEM",
                read(&authority.path("client.key")),
            ),
        ]);
        for args in [INIT, APPLY, DESTROY] {
            slot.check(slot.run_with(environment.clone(), args).await, 0);
        }
        slot.check(slot.run_with(bare, APPLY).await, 1);
        assert_eq!(home.lock_holder().await, None);
        assert_eq!(home.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_new_certificate_is_taken_up_and_a_broken_one_is_not() {
    let authority = Authority::new();
    authority.sign("server");
    let home = Home::new().await;
    let tls = authority.tls(None);
    let server = home
        .serve_with(Some(Arc::clone(&tls)), Limits::default())
        .await;
    let shown = || async {
        let stream = authority.connect(&server, "http/1.1", None).await.unwrap();
        let (_, session) = stream.get_ref();
        session.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown().await;
    authority.sign("server");
    // Noticed without a signal, by a connection a moment later.
    let begun = std::time::Instant::now();
    let mut second = shown().await;
    while second == first {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));
        second = shown().await;
    }
    std::fs::write(authority.path("server.key"), "nothing").unwrap();
    tls.reload();
    assert_eq!(shown().await, second, "the previous one stays");
    authority.sign("server");
    tls.reload();
    assert_ne!(shown().await, second, "reloaded on request");
}
