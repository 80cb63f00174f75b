//! Test servers, each with one good or bad behaviour.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use x509_parser::asn1_rs::{Any, FromDer as _};

/// Signs certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

pub(super) type Chain = (Vec<CertificateDer<'static>>, KeyPair);

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    pub(super) fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Chain {
        let (params, key) = params(name, change);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        (vec![signed.der().clone()], key)
    }
}

/// A self-signed certificate.
pub(super) fn self_signed(name: &str) -> (Chain, String) {
    let (params, key) = params(name, |_| {});
    let signed = params.self_signed(&key).unwrap();
    ((vec![signed.der().clone()], key), signed.pem())
}

/// The same as X.509 v1: without a version and without extensions.
pub(super) fn as_v1((chain, key): Chain) -> Chain {
    fn inside(der: &[u8]) -> Vec<&[u8]> {
        let (_, outer) = Any::from_der(der).unwrap();
        let (mut rest, mut parts) = (outer.data, Vec::new());
        while !rest.is_empty() {
            let (after, _) = Any::from_der(rest).unwrap();
            parts.push(&rest[..rest.len() - after.len()]);
            rest = after;
        }
        parts
    }
    fn sequence(parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82][..], &length, &content].concat()
    }
    let outer = inside(&chain[0]);
    let mut signed = inside(outer[0]);
    signed.retain(|part| ![0xA0, 0xA3].contains(&part[0]));
    let old = sequence(&[&sequence(&signed), outer[1], outer[2]]);
    (vec![old.into()], key)
}

fn params(name: &str, change: impl FnOnce(&mut CertificateParams)) -> (CertificateParams, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2090, 1, 1);
    change(&mut params);
    (params, key)
}

pub(super) fn server_config((chain, key): Chain, alpn: &[&str]) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(key).unwrap();
    // Shows the certificate even if it is invalid.
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = alpn.iter().map(|word| word.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Runs this for each connection, until the test ends.
pub(super) async fn serve<F>(each: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(each(stream));
        }
    });
    address
}

/// A TLS server that sends nothing after the handshake.
pub(super) async fn tls(chain: Chain, alpn: &[&str]) -> SocketAddr {
    let acceptor = TlsAcceptor::from(server_config(chain, alpn));
    serve(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                // Until the client hangs up.
                drop(stream.read_to_end(&mut Vec::new()).await);
            }
        }
    })
    .await
}

/// An HTTP server; `answer` maps a path to the raw response.
pub(super) async fn http(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let answer = Arc::new(answer);
    serve(move |mut stream| {
        let answer = Arc::clone(&answer);
        async move {
            let path = request_path(&mut stream).await;
            drop(stream.write_all(answer(&path).as_bytes()).await);
        }
    })
    .await
}

/// A plain HTTP server that answers "bad request" to a TLS handshake.
pub(super) async fn plain() -> SocketAddr {
    serve(|mut stream| async move {
        let mut some = [0; 16];
        drop(stream.read(&mut some).await);
        drop(stream.write_all(page(400, "", "plain").as_bytes()).await);
        // Until the client hangs up.
        drop(stream.read_to_end(&mut Vec::new()).await);
    })
    .await
}

/// Reads a request and returns its path.
pub(super) async fn request_path(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(length) if length > 0 => request.extend_from_slice(&buffer[..length]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&request);
    text.split(' ').nth(1).unwrap_or_default().to_owned()
}

pub(super) fn page(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
