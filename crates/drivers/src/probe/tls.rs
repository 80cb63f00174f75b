//! Completes a TLS handshake with any certificate and judges it afterwards: a bad certificate is a result to
//! report, not an error.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use model::stage::gate::{
    CertificateEvidence, CheckResult, Handshake, TlsConnection, TlsEvidence, TlsGate, Trust,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

use super::{Deadline, Probes, io_words, tcp};
use crate::snapshot::hex;

/// A longer chain is not accepted.
const LONGEST_CHAIN: usize = 10;
const MOST_NAMES: usize = 100;

pub async fn look(probes: &Probes, gate: &TlsGate, limit: Duration) -> CheckResult {
    let deadline = Deadline::after(limit);
    let roots = match probes.roots(gate.ca.as_deref()) {
        Ok(roots) => roots,
        Err(why) => return CheckResult::impossible(why),
    };
    let Ok(host) = ServerName::try_from(gate.host.clone()) else {
        return CheckResult::impossible(format!("`{}` is no name of a host", gate.host));
    };
    let place = gate.place();
    let (address, handshake) = match tcp::connect(&place, deadline).await {
        Err(why) => (place, Handshake::NoListener { why }),
        Ok((stream, peer)) => {
            let handshake = shake_hands(stream, &host, gate, &roots, deadline).await;
            (peer.to_string(), handshake)
        }
    };
    let seen = TlsEvidence {
        host: gate.host.clone(),
        address,
        handshake,
    };
    gate.judge(seen, Timestamp::now())
}

async fn shake_hands(
    stream: TcpStream,
    host: &ServerName<'static>,
    gate: &TlsGate,
    roots: &RootCertStore,
    deadline: Deadline,
) -> Handshake {
    let config = match config(&gate.alpn) {
        Ok(config) => config,
        Err(err) => {
            return Handshake::Silent {
                why: err.to_string(),
            };
        }
    };
    let connector = TlsConnector::from(Arc::new(config));
    let connected = timeout(deadline.left(), connector.connect(host.clone(), stream)).await;
    match connected {
        Err(_) => Handshake::Silent {
            why: deadline.words(),
        },
        Ok(Err(err)) => refused(&err),
        Ok(Ok(mut stream)) => {
            let seen = connection(&stream, host, roots);
            // Send a TLS close; a server that does not read it is ignored.
            drop(
                timeout(
                    deadline.left().min(Duration::from_secs(1)),
                    stream.shutdown(),
                )
                .await,
            );
            seen
        }
    }
}

fn refused(err: &std::io::Error) -> Handshake {
    let inner = err
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidMessage(_)) => Handshake::NotTls,
        Some(Error::AlertReceived(alert)) => Handshake::Refused {
            alert: format!("{alert:?}"),
        },
        Some(other) => Handshake::Refused {
            alert: other.to_string(),
        },
        None => Handshake::Silent { why: io_words(err) },
    }
}

fn connection(
    stream: &TlsStream<TcpStream>,
    host: &ServerName<'_>,
    roots: &RootCertStore,
) -> Handshake {
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().unwrap_or_default();
    let shown = shown.get(..LONGEST_CHAIN).unwrap_or(shown);
    let chain: Vec<CertificateEvidence> = shown.iter().filter_map(certificate).collect();
    let version = session.protocol_version();
    let cipher = session.negotiated_cipher_suite();
    let name = |debug: String| debug.replace('_', ".");
    Handshake::Done(TlsConnection {
        version: version.map_or_else(String::new, |one| name(format!("{one:?}"))),
        cipher: cipher.map_or_else(String::new, |one| format!("{:?}", one.suite())),
        alpn: session
            .alpn_protocol()
            .map(|word| String::from_utf8_lossy(word).into_owned()),
        trust: trust(shown, &chain, roots),
        covers_host: shown.first().is_some_and(|leaf| covers(leaf, host)),
        chain,
    })
}

fn certificate(der: &CertificateDer<'_>) -> Option<CertificateEvidence> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice());
    let names = names.unwrap_or_default().iter().take(MOST_NAMES);
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    let fingerprint = digest::digest(&digest::SHA256, der);
    Some(CertificateEvidence {
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        names: names.filter_map(general_name).collect(),
        not_before: at(parsed.validity().not_before.timestamp()),
        not_after: at(parsed.validity().not_after.timestamp()),
        fingerprint: hex(fingerprint.as_ref()),
    })
}

fn general_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
            16 => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|ip| std::net::Ipv6Addr::from(ip).to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn covers(leaf: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let parsed = ParsedCertificate::try_from(leaf);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, host).is_ok())
}

/// Whether the chain leads to a root. An expired or not yet valid chain is checked as of a time when it was valid,
/// because expiry is reported separately.
fn trust(
    shown: &[CertificateDer<'_>],
    chain: &[CertificateEvidence],
    roots: &RootCertStore,
) -> Trust {
    let Some((leaf, intermediates)) = shown.split_first() else {
        return Trust::Broken {
            why: "no certificate was shown".to_owned(),
        };
    };
    if is_unreadable(leaf) {
        let why = match X509Certificate::from_der(leaf) {
            Ok((_, parsed)) if parsed.version() == X509Version::V1 => {
                "it is an X.509 v1 certificate, which TLS clients refuse".to_owned()
            }
            _ => "its certificate cannot be read".to_owned(),
        };
        return Trust::Broken { why };
    }
    let is_own_root = chain
        .first()
        .is_some_and(|leaf| leaf.subject == leaf.issuer);
    if is_own_root && is_pinned(leaf, roots) {
        return Trust::Trusted;
    }
    let judged = |now: UnixTime| {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = algorithms().all;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
    };
    let mut result = judged(UnixTime::now());
    if let Err(Error::InvalidCertificate(err)) = &result
        && is_about_time(err)
    {
        let from = chain.iter().map(|one| one.not_before.as_second()).max();
        let seconds = from.and_then(|from| u64::try_from(from).ok()).unwrap_or(0);
        result = judged(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
    }
    match result {
        Ok(()) => Trust::Trusted,
        Err(Error::InvalidCertificate(err)) if is_about_time(&err) => Trust::Trusted,
        Err(_) if is_own_root => Trust::SelfSigned,
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Trust::UnknownIssuer,
        Err(other) => Trust::Broken {
            why: other.to_string(),
        },
    }
}

/// A self-signed certificate is trusted if `ca` is exactly that certificate.
fn is_pinned(leaf: &CertificateDer<'_>, roots: &RootCertStore) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else {
        return false;
    };
    let subject = parsed.subject().as_raw();
    let key = parsed.public_key().raw;
    let inner = |der: &[u8]| -> Vec<u8> {
        // Trust anchors are stored without the outer header.
        match x509_parser::asn1_rs::Any::from_der(der) {
            Ok((_, any)) => any.data.to_vec(),
            Err(_) => Vec::new(),
        }
    };
    let (subject, key) = (inner(subject), inner(key));
    roots.roots.iter().any(|root| {
        root.subject.as_ref() == subject && root.subject_public_key_info.as_ref() == key
    })
}

fn is_about_time(err: &CertificateError) -> bool {
    matches!(
        err,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider::default_provider().signature_verification_algorithms
}

fn config(alpn: &[String]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(provider::default_provider());
    let witness = Arc::new(AcceptAnyCertificate(Arc::clone(&provider)));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(witness)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|word| word.clone().into_bytes()).collect();
    // No session resumption: each probe must do a full handshake.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A certificate of an unsupported old form. Its key need not be checked, because the certificate is never
/// trusted.
fn is_unreadable(cert: &CertificateDer<'_>) -> bool {
    ParsedCertificate::try_from(cert).is_err()
}

/// Accepts every certificate so that it can be inspected; no data is ever sent over the connection. It still
/// verifies that the server holds the certificate's key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(cert) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(cert) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
