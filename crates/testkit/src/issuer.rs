//! An issuer of identity tokens on loopback. It publishes its keys and mints the tokens of a CI system, and forged
//! ones.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Answers until it is stopped or the test process ends.
pub struct Issuer {
    address: String,
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    curve: EcdsaKeyPair,
    rsa: RsaKeyPair,
    /// The claims of the job that requests a token, as GitHub's jobs do.
    job: Mutex<Option<BTreeMap<String, String>>>,
    asked: Mutex<Vec<String>>,
    is_down: Mutex<bool>,
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningMethod {
    Es256,
    Rs256,
    /// Not at all, with `alg` set to `none`.
    None,
    /// With the public key used as a shared secret.
    PublicKeyAsSecret,
    /// By a key other than the one it names.
    ByAnother,
    /// By a key that the issuer does not publish.
    Unpublished,
}

/// A token to create; the claims are JSON values.
pub struct TestToken<'a> {
    issuer: &'a Inner,
    claims: BTreeMap<String, String>,
    signed: SigningMethod,
    /// Further header fields.
    header: String,
}

impl Issuer {
    /// The request token in a job's environment, besides the address.
    pub const BEARER: &str = "the-bearer-of-this-job";

    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let inner = Arc::new(Inner {
            address: address.clone(),
            curve: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"),
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"),
            job: Mutex::default(),
            asked: Mutex::default(),
            is_down: Mutex::default(),
        });
        let shared = Arc::clone(&inner);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &shared);
            }
        });
        Self { address, inner }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// A token for the audience `terrane` with these further claims, all of them strings.
    pub fn token(&self, claims: &[(&str, &str)]) -> TestToken<'_> {
        self.inner.token(&texts(claims))
    }

    /// Gives tokens with these claims to jobs, for the audience that they request.
    pub fn answer_job(&self, claims: &[(&str, &str)]) {
        *self.inner.job.lock().expect("a lock") = Some(texts(claims));
    }

    /// The address at which a job requests its token.
    pub fn job_address(&self) -> String {
        format!("{}/job?api-version=2.0", self.address)
    }

    /// Answers every request with 503.
    pub fn go_down(&self) {
        *self.inner.is_down.lock().expect("a lock") = true;
    }

    /// The paths of the requests.
    pub fn asked(&self) -> Vec<String> {
        self.inner.asked.lock().expect("a lock").clone()
    }
}

impl TestToken<'_> {
    /// Sets a claim to a JSON value.
    #[must_use]
    pub fn claim(mut self, name: &str, value: impl Into<String>) -> Self {
        self.claims.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    #[must_use]
    pub fn expired(self) -> Self {
        let then = now() - 3600;
        self.claim("exp", then.to_string())
    }

    /// Adds a header field with a JSON value.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.header = format!(",\"{name}\":{value}");
        self
    }

    #[must_use]
    pub fn signed(mut self, signed: SigningMethod) -> Self {
        self.signed = signed;
        self
    }

    pub fn mint(self) -> String {
        let (alg, kid) = match self.signed {
            SigningMethod::Es256 | SigningMethod::ByAnother => ("ES256", "curve"),
            SigningMethod::Rs256 => ("RS256", "rsa"),
            SigningMethod::None => ("none", "curve"),
            SigningMethod::PublicKeyAsSecret => ("HS256", "rsa"),
            SigningMethod::Unpublished => ("ES256", "other"),
        };
        let more = &self.header;
        let header = format!(r#"{{"alg":"{alg}","kid":"{kid}","typ":"JWT"{more}}}"#);
        let claims = self.claims.iter();
        let claims: Vec<String> = claims.map(|(k, v)| format!("\"{k}\":{v}")).collect();
        let claims = format!("{{{}}}", claims.join(","));
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.issuer.sign(self.signed, message.as_bytes());
        format!("{message}.{}", encode(signature))
    }
}

impl Inner {
    fn token(&self, claims: &BTreeMap<String, String>) -> TestToken<'_> {
        let mut all = BTreeMap::from([
            ("iss".to_owned(), format!("\"{}\"", self.address)),
            ("aud".to_owned(), "\"terrane\"".to_owned()),
            ("sub".to_owned(), "\"a job\"".to_owned()),
            ("nbf".to_owned(), (now() - 5).to_string()),
            ("exp".to_owned(), (now() + 3600).to_string()),
        ]);
        all.extend(claims.clone());
        TestToken {
            issuer: self,
            claims: all,
            signed: SigningMethod::Es256,
            header: String::new(),
        }
    }

    fn sign(&self, signed: SigningMethod, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match signed {
            SigningMethod::Es256 => {
                let signature = self.curve.sign(&random, message).expect("a signature");
                signature.as_ref().to_vec()
            }
            SigningMethod::ByAnother | SigningMethod::Unpublished => {
                let other = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
                let signature = other.expect("a key").sign(&random, message);
                signature.expect("a signature").as_ref().to_vec()
            }
            SigningMethod::Rs256 => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                let signed = self
                    .rsa
                    .sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.expect("a signature");
                signature
            }
            SigningMethod::None => Vec::new(),
            SigningMethod::PublicKeyAsSecret => {
                let public = self.rsa.public_key().as_ref();
                let key = hmac::Key::new(hmac::HMAC_SHA256, public);
                hmac::sign(&key, message).as_ref().to_vec()
            }
        }
    }

    fn keys(&self) -> String {
        // An uncompressed point: a prefix byte, then both coordinates.
        let point = self.curve.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        // A sequence of two integers, of 2048 bits and of 24.
        let rsa = self.rsa.public_key().as_ref();
        let (modulus, exponent) = (&rsa[9..9 + 256], &rsa[rsa.len() - 3..]);
        format!(
            r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"odd","x":"AA"}},{{"kty":"EC","crv":"P-256","kid":"curve","use":"sig","alg":"ES256","x":"{}","y":"{}"}},{{"kty":"RSA","kid":"rsa","use":"sig","alg":"RS256","n":"{}","e":"{}"}}]}}"#,
            encode(x),
            encode(y),
            encode(modulus),
            encode(exponent)
        )
    }

    fn respond(&self, path: &str, bearer: Option<&str>) -> (u16, String) {
        let address = &self.address;
        if *self.is_down.lock().expect("a lock") {
            return (503, String::new());
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match path {
            "/.well-known/openid-configuration" => {
                let keys = format!(r#"{{"issuer":"{address}","jwks_uri":"{address}/keys"}}"#);
                (200, keys)
            }
            "/keys" => (200, self.keys()),
            "/job" if bearer != Some(Issuer::BEARER) => (401, String::new()),
            "/job" => {
                let job = self.job.lock().expect("a lock");
                let Some(job) = job.as_ref() else {
                    return (404, String::new());
                };
                let audience = query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("audience="));
                let audience = format!("\"{}\"", audience.unwrap_or("nobody"));
                let token = self
                    .token(job)
                    .claim("aud", audience)
                    .signed(SigningMethod::Rs256);
                (200, format!(r#"{{"count":1,"value":"{}"}}"#, token.mint()))
            }
            _ => (404, String::new()),
        }
    }
}

/// Answers one request per connection.
fn answer(mut stream: TcpStream, issuer: &Inner) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut bearer = None;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        if name.eq_ignore_ascii_case("authorization") {
            bearer = value.strip_prefix("Bearer ").map(str::to_owned);
        }
    }
    let asked = path.split('?').next().unwrap_or_default().to_owned();
    issuer.asked.lock().expect("a lock").push(asked);
    let (status, body) = issuer.respond(&path, bearer.as_deref());
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The client may have disconnected.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()));
}

fn texts(claims: &[(&str, &str)]) -> BTreeMap<String, String> {
    let claims = claims.iter();
    claims
        .map(|(name, text)| ((*name).to_owned(), format!("\"{text}\"")))
        .collect()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock").as_secs()
}
