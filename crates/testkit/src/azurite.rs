//! Azurite for tests: the blob service of Azure, one for each test process, one container for each test.
//!
//! Engines reach Azure under its public name alone. For them there is a proxy that leads that name here;
//! it has a certificate of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::service::{Kept, Recipe, Service, program, request, temp_dir};

pub struct Azurite(&'static Service);

/// The way to an Azurite under the public name of Azure, for a process with this environment.
pub struct AzureProxy(&'static Service);

impl Azurite {
    pub const ACCOUNT: &str = "terranetest";
    pub const KEY: &str = "dGVycmFuZSB0ZXN0cyB1c2UgdGhpcyBrZXkgYW5kIG5vYm9keSBlbHNl";

    /// The server of this test process; it is started when first asked for, and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    /// With the account as its path, as emulators have it.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.0.port(), Self::ACCOUNT)
    }

    /// Makes a container and says its name.
    pub fn container(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let account = Self::ACCOUNT;
        let headers = "x-ms-date:Thu, 01 Jan 2026 00:00:00 GMT\nx-ms-version:2023-11-03";
        // Twelve standard headers that are not sent, then ours, then what it is about.
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
        Recipe {
            name: "azurite",
            args,
            env: BTreeMap::from([("AZURITE_ACCOUNTS", accounts.into())]),
            signal: "KILL",
        }
    };
    // Nobody is let in without a signature; any answer will do.
    let is_ready = |port| {
        request(port, "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            .is_ok_and(|answer| answer.starts_with("HTTP/"))
    };
    Service::start(temp_dir("azurite"), Kept::Shared, recipe, is_ready)
}

/// Ends the TLS of whoever asks for Azure, and passes the rest on. Node is there, since Azurite is.
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
    let recipe = |dir: &Path| Recipe {
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
    Service::start(dir, Kept::Shared, recipe, is_ready)
}
