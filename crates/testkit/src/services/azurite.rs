//! Azurite for tests: Azure's blob service, one per test process, one container per test.
//!
//! Engines reach Azure only by its public name, so a proxy with its own certificate maps that name to Azurite.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::services::service::{Service, ServiceSpec, Sharing, program, request, temp_dir};

pub struct Azurite(&'static Service);

/// A proxy that maps Azure's public name to an Azurite, for a process with this environment.
pub struct AzureProxy(&'static Service);

impl Azurite {
    pub const ACCOUNT: &str = "terranetest";
    pub const KEY: &str = "dGVycmFuZSB0ZXN0cyB1c2UgdGhpcyBrZXkgYW5kIG5vYm9keSBlbHNl";

    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    /// The address with the account as its path, as emulators use it.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.0.port(), Self::ACCOUNT)
    }

    /// Creates a container and returns its name.
    pub fn container(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let account = Self::ACCOUNT;
        let headers = "x-ms-date:Thu, 01 Jan 2026 00:00:00 GMT\nx-ms-version:2023-11-03";
        // Twelve standard headers that are not sent, then ours, then the resource.
        let signed = format!(
            "PUT{}{headers}\n/{account}/{account}/{name}\nrestype:container",
            "\n".repeat(12)
        );
        let key = STANDARD.decode(Self::KEY).expect("a key");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
        let text = format!(
            "PUT /{account}/{name}?restype=container HTTP/1.0\r\nHost: 127.0.0.1\r\n{}\r\n\
             Authorization: SharedKey {account}:{}\r\nContent-Length: 0\r\n\r\n",
            headers.replace('\n', "\r\n"),
            STANDARD.encode(tag)
        );
        let answer = request(self.0.port(), &text).expect("an answer");
        assert!(answer.contains(" 201 "), "no container: {answer}");
        name
    }

    pub fn proxy(&self) -> AzureProxy {
        static SHARED: OnceLock<Service> = OnceLock::new();
        AzureProxy(SHARED.get_or_init(|| start_proxy(self.0.port())))
    }
}

impl AzureProxy {
    /// For `HTTPS_PROXY`.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// For `SSL_CERT_FILE`.
    pub fn certificate(&self) -> PathBuf {
        self.0.dir().join("cert.pem")
    }
}

fn start() -> Service {
    let azurite = program(
        "azurite",
        "TERRANE_TEST_AZURITE",
        &["azurite/3.35.0/node_modules/.bin/azurite-blob"],
    );
    let recipe = |dir: &Path| {
        let mut args = vec![azurite.clone().into()];
        let flags = [
            "--blobHost=127.0.0.1",
            "--blobPort=PORT",
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
        ];
        args.extend(flags.map(Into::into));
        args.extend(["--location".into(), dir.into()]);
        let accounts = format!("{}:{}", Azurite::ACCOUNT, Azurite::KEY);
        ServiceSpec {
            name: "azurite",
            args,
            env: BTreeMap::from([("AZURITE_ACCOUNTS", accounts.into())]),
            signal: "KILL",
        }
    };
    // Unsigned requests are refused; any answer shows that it is ready.
    let is_ready = |port| {
        request(port, "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            .is_ok_and(|answer| answer.starts_with("HTTP/"))
    };
    Service::start(temp_dir("azurite"), Sharing::Shared, recipe, is_ready)
}

/// Terminates TLS for Azure's name and forwards the requests. Node is installed, since Azurite needs it.
const PROXY: &str = r#"
const [port, azurite, dir] = process.argv.slice(1);
const fs = require("fs"), net = require("net"), tls = require("tls");
const cert = fs.readFileSync(dir + "/cert.pem"), key = fs.readFileSync(dir + "/key.pem");
const proxy = require("http").createServer((_, answer) => answer.end("ready"));
proxy.on("connect", (_, socket) => {
  socket.write("HTTP/1.1 200 OK\r\n\r\n");
  const near = new tls.TLSSocket(socket, { isServer: true, cert, key });
  const far = net.connect(Number(azurite), "127.0.0.1");
  near.on("error", () => far.destroy());
  far.on("error", () => near.destroy());
  near.pipe(far).pipe(near);
});
proxy.listen(Number(port), "127.0.0.1");
"#;

fn start_proxy(azurite: u16) -> Service {
    let dir = temp_dir("azure-proxy");
    let host = format!("{}.blob.core.windows.net", Azurite::ACCOUNT);
    let made = rcgen::generate_simple_self_signed([host]).expect("a certificate");
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).expect("a file");
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
    let recipe = |dir: &Path| ServiceSpec {
        name: "node",
        args: vec![
            "node".into(),
            "-e".into(),
            PROXY.into(),
            "PORT".into(),
            azurite.to_string().into(),
            dir.into(),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    };
    let is_ready = |port| {
        request(port, "GET / HTTP/1.0\r\n\r\n").is_ok_and(|answer| answer.ends_with("ready"))
    };
    Service::start(dir, Sharing::Shared, recipe, is_ready)
}
