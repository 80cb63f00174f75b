//! `fake-gcs-server` for tests: the API of Google Cloud Storage, in memory, one per test process, one bucket per
//! test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::services::service::{
    Service, ServiceSpec, Sharing, answers, program, request, temp_dir,
};

pub struct FakeGcs(&'static Service);

impl FakeGcs {
    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// Creates a bucket and returns its name.
    pub fn bucket(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let body = format!("{{\"name\":\"{name}\"}}");
        let answer = request(
            self.0.port(),
            &format!(
                "POST /storage/v1/b?project=test HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        );
        let answer = answer.expect("an answer");
        assert!(answer.contains(" 200 "), "no bucket: {answer}");
        name
    }
}

fn start() -> Service {
    let server = program(
        "fake-gcs-server",
        "TERRANE_TEST_FAKE_GCS_SERVER",
        &["fake-gcs-server/v1.56.1/fake-gcs-server"],
    );
    let recipe = |_: &Path| ServiceSpec {
        name: "fake-gcs-server",
        args: vec![
            server.clone().into(),
            "-scheme=http".into(),
            "-host=127.0.0.1".into(),
            "-port=PORT".into(),
            "-backend=memory".into(),
            // The server uses this address to tell a client where to continue an upload.
            "-external-url=http://127.0.0.1:PORT".into(),
            "-public-host=127.0.0.1:PORT".into(),
            "-log-level=warn".into(),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    };
    let is_ready = |port| {
        answers(
            port,
            "GET /storage/v1/b?project=test HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        )
    };
    Service::start(temp_dir("gcs"), Sharing::Shared, recipe, is_ready)
}
